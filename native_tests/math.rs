//! The maths library on the device: errors in ulps over stratified random arguments, and the values at the edges.
//!
//! A run draws new arguments; `NX_VULKAN_SEED` repeats one whose seed a failure has printed.

#![allow(
    missing_docs,
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "no one links a crate of tests, whose helpers may panic as the tests do"
)]

mod oracle;
mod support;

use std::f64::consts::{FRAC_PI_2, FRAC_PI_4, PI};

use astro_float_num::{BigFloat, Consts, RoundingMode};
use bytemuck::Pod;
use nx_vulkan::memory::Buffer;
use nx_vulkan::program::Type;
use oracle::{BINARY, UNARY, Unary, big, error_in_ulps, to_double};
use support::numbers::Number;
use support::{Random, device, download, node, run, seed, upload};

/// Single or double precision: what differs between them.
struct Precision {
    ty: Type,
    bits: i32,
    least: i32,
    largest: f64,
    /// 0 for single, 1 for double: the index into the oracle's pairs.
    index: usize,
    from_bits: fn(u64) -> f64,
    /// A number of any magnitude.
    any: fn(&mut Random) -> f64,
    round: fn(f64) -> f64,
    call: fn(&str, &[Vec<f64>]) -> Vec<f64>,
    choose: fn(&str, &[u32], &[f64], bool) -> Vec<f64>,
}

fn call<T: Pod>(ty: Type, name: &str, args: &[Vec<f64>], to: fn(&f64) -> T, from: fn(&T) -> f64) -> Vec<f64> {
    let shape = [args[0].len() as u64];
    let buffers: Vec<_> = args.iter().map(|arg| upload(&arg.iter().map(to).collect::<Vec<T>>())).collect();
    let inputs: Vec<_> = buffers.iter().map(|buffer| (buffer, ty, shape.as_slice())).collect();
    let operands: Vec<usize> = (0..args.len()).collect();
    let out: Vec<T> = download(&run(&[node(name, ty, &operands)], &inputs, &shape).unwrap());
    out.iter().map(from).collect()
}

/// `select(choices, x, name(x))`, or with the two swapped.
fn choose<T: Pod>(ty: Type, name: &str, choices: &[u32], xs: &[f64], swapped: bool, to: fn(&f64) -> T) -> Buffer {
    let shape = [xs.len() as u64];
    let (choices, xs) = (upload(choices), upload(&xs.iter().map(to).collect::<Vec<T>>()));
    let inputs = [(&choices, Type::U32, shape.as_slice()), (&xs, ty, shape.as_slice())];
    let select: &[usize] = if swapped { &[0, 2, 1] } else { &[0, 1, 2] };
    run(&[node(name, ty, &[1]), node("select", ty, select)], &inputs, &shape).unwrap()
}

static SINGLE: Precision = Precision {
    ty: Type::F32,
    bits: 24,
    least: -126,
    largest: f32::MAX as f64,
    index: 0,
    from_bits: |bits| f64::from(f32::from_bits((bits >> 32) as u32)),
    any: |random| f64::from(f32::random(random)),
    round: |x| f64::from(x as f32),
    call: |name, args| call(Type::F32, name, args, |x| *x as f32, |x| f64::from(*x)),
    choose: |name, choices, xs, swapped| {
        let chosen = choose(Type::F32, name, choices, xs, swapped, |x| *x as f32);
        download(&chosen).into_iter().map(f32::into).collect()
    },
};

static DOUBLE: Precision = Precision {
    ty: Type::F64,
    bits: 53,
    least: -1022,
    largest: f64::MAX,
    index: 1,
    from_bits: f64::from_bits,
    any: f64::random,
    round: |x| x,
    call: |name, args| call(Type::F64, name, args, |x| *x, |x| *x),
    choose: |name, choices, xs, swapped| download(&choose(Type::F64, name, choices, xs, swapped, |x| *x)),
};

impl Precision {
    /// The precisions that the device has.
    fn all() -> Vec<&'static Precision> {
        if device().caps.float64 { vec![&SINGLE, &DOUBLE] } else { vec![&SINGLE] }
    }

    /// A finite argument: of any magnitude, around whole and half numbers too; near 0, near ±1 and near ±max_argument at all
    /// distances; subnormal; uniform and log-uniform up to max_argument.
    fn argument(&self, random: &mut Random, max_argument: f64) -> f64 {
        let (u, v) = (random.unit(), random.unit().abs());
        let near = 2f64.powf(-v * f64::from(self.bits));
        let x = match random.below(8) {
            0 | 7 => (self.any)(random),
            1 => u * near,
            2 => u.signum() * (1.0 + u * near),
            3 => u.signum() * max_argument * (1.0 - near),
            4 => u * 2f64.powi(self.least),
            5 => u * max_argument,
            _ => u.signum() * (max_argument * 2.0).powf(random.unit()),
        };
        let x = (self.round)(x);
        // The oracle's zeros have no sign, which may decide: zeros are among the values at the edges.
        if x.is_finite() && x != 0.0 { x } else { 1.0 }
    }

    fn arguments(&self, random: &mut Random, max_argument: f64, count: usize) -> Vec<f64> {
        (0..count).map(|_| self.argument(random, max_argument)).collect()
    }

    /// Whether zero stands for a subnormal on a GPU that does not promise to keep them. (On NVIDIA's only negative ones
    /// are lost: its compiler makes the setting of a sign an operation that flushes.)
    fn may_flush(&self, result: f64, exact: f64) -> bool {
        let caps = &device().caps;
        result == 0.0 && exact.abs() < 2f64.powi(self.least) && !(caps.cpu || caps.denorm_preserve)
    }

    /// Runs a function on the device and holds every result against the oracle.
    fn sweep(&self, name: &str, args: &[Vec<f64>], bound: f64, mut exact: impl FnMut(usize) -> BigFloat) -> f64 {
        let results = (self.call)(name, args);
        let mut worst = 0.0f64;
        for (i, result) in results.iter().enumerate() {
            let exact = exact(i);
            if self.may_flush(*result, to_double(&exact)) {
                continue;
            }
            let error = error_in_ulps(*result, &exact, self.bits, self.least, self.largest);
            let at: Vec<f64> = args.iter().map(|arg| arg[i]).collect();
            assert!(error <= bound, "{name} {:?} of {at:?} is {result:e}, not {exact}: {error} ulp", self.ty);
            worst = worst.max(error);
        }
        worst
    }

    /// Likewise of a function of one argument. Of single precision the oracle is the host's double.
    fn sweep_unary(&self, function: &Unary, args: Vec<f64>, consts: &mut Consts) -> f64 {
        let args = [args];
        self.sweep(function.name, &args, function.bound[self.index], |i| match self.index {
            0 => big((function.double)(args[0][i])),
            _ => (function.exact)(&big(args[0][i]), consts),
        })
    }
}

fn random() -> Random {
    Random(seed())
}

/// How many arguments a function gets: the oracle for double precision takes up to a millisecond for one.
const COUNT: [usize; 2] = [60_000, 1_500];

#[test]
fn functions_of_one_argument_are_within_their_bounds() {
    let mut random = random();
    let mut consts = Consts::new().unwrap();
    for precision in Precision::all() {
        let p = precision.index;
        for function in UNARY {
            let args = precision.arguments(&mut random, function.max_argument[p], COUNT[p]);
            let worst = precision.sweep_unary(function, args, &mut consts);
            println!("{} {:?}: {worst:.5} ulp", function.name, precision.ty);
        }
    }
}

#[test]
fn functions_of_two_arguments_are_within_their_bounds() {
    let mut random = random();
    let mut consts = Consts::new().unwrap();
    for precision in Precision::all() {
        let p = precision.index;
        for function in BINARY {
            let mut argument = || precision.arguments(&mut random, function.max_argument[p], COUNT[p]);
            let args = [argument(), argument()];
            let worst = precision.sweep(function.name, &args, function.bound[p], |i| {
                let (a, b) = (args[0][i], args[1][i]);
                match p {
                    0 => big((function.double)(a, b)),
                    _ => (function.exact)(&big(a), &big(b), &mut consts),
                }
            });
            println!("{} {:?}: {worst:.5} ulp", function.name, precision.ty);
        }
    }
}

/// Where the reduction of the argument loses most digits: the numbers next to k pi/2, for k of every size, and those known to
/// be the worst (J.-M. Muller and others, "Handbook of Floating-Point Arithmetic", 2018).
#[test]
fn trigonometry_holds_next_to_the_multiples_of_half_pi() {
    let mut random = random();
    let mut consts = Consts::new().unwrap();
    let half_pi = big(FRAC_PI_2).add(&big(6.123233995736766e-17), 256, RoundingMode::ToEven);
    for precision in Precision::all() {
        let p = precision.index;
        let worst = [16_367_173.0 * 2f64.powi(72), 6_381_956_970_095_103.0 * 2f64.powi(797)][p];
        let mut args = vec![worst, -worst];
        for _ in 0..COUNT[p] / 3 {
            let k = 2f64.powf(random.unit().abs() * f64::from(precision.bits)).round() * random.unit().signum();
            args.push((precision.round)(to_double(&big(k).mul(&half_pi, 256, RoundingMode::ToEven))));
        }
        for function in UNARY.iter().filter(|function| ["sin", "cos", "tan"].contains(&function.name)) {
            precision.sweep_unary(function, args.clone(), &mut consts);
        }
    }
}

#[test]
fn division_and_square_root_are_correctly_rounded() {
    let mut random = random();
    let same = |a: f64, b: f64| a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan());
    for precision in Precision::all() {
        let mut argument = || precision.arguments(&mut random, 10.0, 200_000);
        let args = [argument(), argument()];
        let host = |a: f64, b: f64| if precision.index == 0 { f64::from(a as f32 / b as f32) } else { a / b };
        for (i, quotient) in (precision.call)("divide", &args).into_iter().enumerate() {
            let (a, b) = (args[0][i], args[1][i]);
            let right = same(quotient, host(a, b)) || precision.may_flush(quotient, host(a, b));
            assert!(right, "{a:e} / {b:e} is {quotient:e} as {:?}", precision.ty);
        }
        let host = |a: f64| if precision.index == 0 { f64::from((a as f32).sqrt()) } else { a.sqrt() };
        for (i, root) in (precision.call)("sqrt", &args[..1]).into_iter().enumerate() {
            let a = args[0][i];
            assert!(same(root, host(a)), "sqrt {a:e} is {root:e} as {:?}", precision.ty);
        }
    }
}

/// LLVM makes one bitwise operation of a choice between a value and a change of its bits, and gets it wrong on CPUs with
/// AVX-512 for some ways to write the change (its issue 157929).
#[test]
fn a_choice_between_a_value_and_its_image_takes_one_or_the_other() {
    let mut random = random();
    for precision in Precision::all() {
        let xs: Vec<f64> = (0..20_000).map(|_| (precision.from_bits)(random.next())).collect();
        let choices: Vec<u32> = xs.iter().map(|_| random.below(2) as u32).collect();
        for name in ["negate", "abs", "sign", "asinh", "sinh", "cbrt", "rsqrt"] {
            let images = (precision.call)(name, std::slice::from_ref(&xs));
            for swapped in [false, true] {
                let chosen = (precision.choose)(name, &choices, &xs, swapped);
                for (i, chosen) in chosen.into_iter().enumerate() {
                    let expected = if (choices[i] != 0) != swapped { xs[i] } else { images[i] };
                    assert!(
                        chosen.to_bits() == expected.to_bits() || (chosen.is_nan() && expected.is_nan()),
                        "{name} of {:e}, {}: {chosen:e}, not {expected:e}, as {:?}",
                        xs[i],
                        choices[i],
                        precision.ty
                    );
                }
            }
        }
    }
}

const INF: f64 = f64::INFINITY;
const NAN: f64 = f64::NAN;

/// A function's name, and its arguments and results at the edges.
type Edges<T> = (&'static str, &'static [T]);

/// Arguments and results where BinaryBackend's definition, or IEEE 754's where that raises, decides.
#[rustfmt::skip]
const UNARY_EDGES: &[Edges<(f64, f64)>] = &[
    ("sqrt", &[(0.0, 0.0), (-0.0, -0.0), (-1.0, NAN), (INF, INF), (-INF, NAN)]),
    ("rsqrt", &[(0.0, INF), (-0.0, -INF), (-1.0, NAN), (INF, 0.0), (-INF, NAN), (1.0, 1.0)]),
    ("cbrt", &[(0.0, 0.0), (-0.0, 0.0), (INF, INF), (-INF, -INF), (-8.0, -2.0)]),
    ("exp", &[(0.0, 1.0), (-0.0, 1.0), (INF, INF), (-INF, 0.0), (1e4, INF), (-1e4, 0.0)]),
    ("expm1", &[(0.0, 0.0), (-0.0, 0.0), (INF, INF), (-INF, -1.0), (1e4, INF), (-1e4, -1.0)]),
    ("log", &[(0.0, -INF), (-0.0, -INF), (1.0, 0.0), (-1.0, NAN), (INF, INF), (-INF, NAN)]),
    ("log1p", &[(0.0, 0.0), (-0.0, 0.0), (-1.0, -INF), (-2.0, NAN), (INF, INF), (-INF, NAN)]),
    ("sigmoid", &[(0.0, 0.5), (-0.0, 0.5), (INF, 1.0), (-INF, 0.0), (1e4, 1.0), (-1e4, 0.0)]),
    ("sinh", &[(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -INF), (1e4, INF), (-1e4, -INF)]),
    ("cosh", &[(0.0, 1.0), (-0.0, 1.0), (INF, INF), (-INF, INF), (1e4, INF), (-1e4, INF)]),
    ("tanh", &[(0.0, 0.0), (-0.0, -0.0), (INF, NAN), (-INF, NAN), (1e4, 1.0), (-1e4, -1.0)]),
    ("asinh", &[(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -INF)]),
    ("acosh", &[(1.0, 0.0), (0.5, NAN), (-2.0, NAN), (INF, INF), (-INF, NAN)]),
    ("atanh", &[(0.0, 0.0), (-0.0, -0.0), (1.0, INF), (-1.0, -INF), (2.0, NAN), (INF, NAN), (-INF, NAN)]),
    ("sin", &[(0.0, 0.0), (-0.0, -0.0), (INF, NAN), (-INF, NAN)]),
    ("cos", &[(0.0, 1.0), (-0.0, 1.0), (INF, NAN), (-INF, NAN)]),
    ("tan", &[(0.0, 0.0), (-0.0, -0.0), (INF, NAN), (-INF, NAN)]),
    ("asin", &[(0.0, 0.0), (-0.0, -0.0), (2.0, NAN), (INF, NAN), (-INF, NAN)]),
    ("acos", &[(1.0, 0.0), (2.0, NAN), (-2.0, NAN), (INF, NAN), (-INF, NAN)]),
    ("atan", &[(0.0, 0.0), (-0.0, -0.0), (INF, FRAC_PI_2), (-INF, -FRAC_PI_2)]),
    ("erf", &[(0.0, 0.0), (-0.0, -0.0), (INF, 1.0), (-INF, -1.0)]),
    ("erfc", &[(0.0, 1.0), (-0.0, 1.0), (INF, 0.0), (-INF, 2.0)]),
    ("erf_inv", &[(0.0, 0.0), (-0.0, 0.0), (1.0, INF), (-1.0, -INF), (2.0, NAN)]),
];

#[rustfmt::skip]
const BINARY_EDGES: &[Edges<(f64, f64, f64)>] = &[
    ("divide", &[
        (NAN, 1.0, NAN), (1.0, NAN, NAN), (INF, INF, NAN), (INF, -INF, NAN), (0.0, 0.0, NAN), (0.0, -0.0, NAN),
        (1.0, INF, 0.0), (-1.0, INF, 0.0), (1.0, -INF, 0.0), (-0.0, INF, 0.0),
        (INF, 0.0, INF), (INF, -0.0, INF), (-INF, 0.0, -INF), (-INF, -0.0, -INF), (INF, -2.0, -INF), (-INF, -2.0, INF),
        (1.0, 0.0, INF), (-1.0, 0.0, -INF), (1.0, -0.0, -INF), (0.0, -1.0, -0.0), (-0.0, 1.0, -0.0), (-0.0, -1.0, 0.0),
    ]),
    ("pow", &[
        (NAN, 0.0, NAN), (1.0, NAN, NAN), (0.0, 0.0, 1.0), (-0.0, 0.0, 1.0), (INF, 0.0, 1.0), (-INF, -0.0, 1.0),
        (INF, 2.0, INF), (INF, -2.0, 0.0), (-INF, -1.0, 0.0), (-INF, -2.0, 0.0), (-INF, 3.0, -INF), (-INF, 2.0, INF),
        (INF, INF, INF), (INF, -INF, 0.0), (-INF, INF, INF), (-INF, -INF, 0.0),
        (0.0, INF, 0.0), (-0.0, INF, 0.0), (0.0, -INF, INF), (-0.0, -INF, INF),
        (0.5, INF, INF), (0.5, -INF, 0.0), (1.0, INF, INF), (-2.0, INF, INF), (2.0, -INF, 0.0),
        (0.0, 2.0, 0.0), (-0.0, 3.0, -0.0), (-0.0, 2.0, 0.0), (0.0, -2.0, INF), (-0.0, -3.0, -INF), (-0.0, 0.5, 0.0),
        (-8.0, 3.0, -512.0), (-8.0, 2.0, 64.0), (-8.0, 0.5, NAN), (-1.0, 1e30, 1.0), (1.0, -1e30, 1.0),
    ]),
    ("atan2", &[
        (NAN, 1.0, NAN), (1.0, NAN, NAN), (0.0, 0.0, 0.0), (-0.0, 0.0, -0.0), (0.0, 1.0, 0.0), (-0.0, 1.0, -0.0),
        (0.0, -1.0, PI), (-0.0, -1.0, -PI), (0.0, -0.0, PI), (-0.0, -0.0, -PI),
        (1.0, 0.0, FRAC_PI_2), (-1.0, -0.0, -FRAC_PI_2),
        (1.0, INF, 0.0), (-1.0, INF, 0.0), (1.0, -INF, PI), (-1.0, -INF, PI),
        (INF, 1.0, FRAC_PI_2), (-INF, 1.0, -FRAC_PI_2),
        (INF, INF, FRAC_PI_4), (INF, -INF, 3.0 * FRAC_PI_4), (-INF, INF, -FRAC_PI_4), (-INF, -INF, -3.0 * FRAC_PI_4),
    ]),
];

#[test]
fn edges_are_binary_backends() {
    let same = |a: f64, b: f64| a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan());
    for precision in Precision::all() {
        for (name, edges) in UNARY_EDGES {
            let mut args: Vec<f64> = edges.iter().map(|edge| edge.0).collect();
            args.push(NAN);
            let expected = edges.iter().map(|edge| (precision.round)(edge.1)).chain([NAN]);
            let results = (precision.call)(name, std::slice::from_ref(&args));
            for ((x, result), expected) in args.iter().zip(results).zip(expected) {
                assert!(same(result, expected), "{name} {x:?} is {result:?}, not {expected:?}, as {:?}", precision.ty);
            }
        }
        for (name, edges) in BINARY_EDGES {
            let args = [edges.iter().map(|edge| edge.0).collect(), edges.iter().map(|edge| edge.1).collect()];
            for (edge, result) in edges.iter().zip((precision.call)(name, &args)) {
                let (a, b, expected) = (edge.0, edge.1, (precision.round)(edge.2));
                assert!(
                    same(result, expected),
                    "{name} {a:?} {b:?} is {result:?}, not {expected:?}, as {:?}",
                    precision.ty
                );
            }
        }
    }
}
