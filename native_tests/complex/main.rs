//! The complex functions on the device: errors over arguments of every magnitude against 256 bits, and the values at the edges.
//!
//! A run draws new arguments; `NX_VULKAN_SEED` repeats one whose seed a failure has printed.

#![allow(
    missing_docs,
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "no one links a crate of tests, whose helpers may panic as the tests do"
)]

mod edges;
mod functions;
mod number;
#[path = "../oracle.rs"]
#[allow(dead_code, reason = "the real functions' tables are native_tests/math.rs's")]
mod oracle;
#[path = "../support/mod.rs"]
mod support;

use std::f64::consts::FRAC_PI_2;
use std::sync::OnceLock;

use astro_float_num::BigFloat;
use bytemuck::Pod;
use edges::{EDGES, Edge, ROTATED};
use functions::{BINARY, FUNCTIONS, Function};
use number::{C, R, c, r};
use nx_vulkan::program::Type;
use nx_vulkan::program::op::OPS;
use oracle::{big, scaled};
use support::numbers::Number;
use support::{Random, device, download, node, run, seed, upload};

type Pair = [f64; 2];

/// c64 or c128: what differs between them.
struct Precision {
    ty: Type,
    /// Bits of a part's significand, its least exponent and its largest number.
    bits: i32,
    least: i32,
    largest: f64,
    any: fn(&mut Random) -> f64,
    round: fn(f64) -> f64,
    call: fn(&str, &[Vec<Pair>]) -> Vec<Pair>,
    abs: fn(&[Pair]) -> Vec<f64>,
}

fn call<T: Pod>(ty: Type, name: &str, args: &[Vec<Pair>], to: fn(f64) -> T, from: fn(T) -> f64) -> Vec<Pair> {
    let shape = [args[0].len() as u64];
    let parts = |arg: &Vec<Pair>| arg.iter().flatten().map(|x| to(*x)).collect::<Vec<T>>();
    let buffers: Vec<_> = args.iter().map(|arg| upload(&parts(arg))).collect();
    let inputs: Vec<_> = buffers.iter().map(|buffer| (buffer, ty, shape.as_slice())).collect();
    let operands: Vec<usize> = (0..args.len()).collect();
    let out: Vec<T> = download(&run(&[node(name, ty, &operands)], &inputs, &shape).unwrap());
    out.chunks_exact(2).map(|z| [from(z[0]), from(z[1])]).collect()
}

fn abs<T: Pod>(ty: Type, args: &[Pair], to: fn(f64) -> T, from: fn(T) -> f64) -> Vec<f64> {
    let shape = [args.len() as u64];
    let buffer = upload(&args.iter().flatten().map(|x| to(*x)).collect::<Vec<T>>());
    let out: Vec<T> = download(&run(&[node("abs", ty.part(), &[0])], &[(&buffer, ty, &shape)], &shape).unwrap());
    out.into_iter().map(from).collect()
}

static C64: Precision = Precision {
    ty: Type::C64,
    bits: 24,
    least: -126,
    largest: f32::MAX as f64,
    any: |random| f64::from(f32::random(random)),
    round: |x| f64::from(x as f32),
    call: |name, args| call(Type::C64, name, args, |x| x as f32, f64::from),
    abs: |args| abs(Type::C64, args, |x| x as f32, f64::from),
};

static C128: Precision = Precision {
    ty: Type::C128,
    bits: 53,
    least: -1022,
    largest: f64::MAX,
    any: f64::random,
    round: |x| x,
    call: |name, args| call(Type::C128, name, args, |x| x, |x| x),
    abs: |args| abs(Type::C128, args, |x| x, |x| x),
};

/// The largest error, in units of eps.
const BOUND: f64 = 8.0;

impl Precision {
    /// The precisions that the device has.
    fn all() -> Vec<&'static Precision> {
        if device().caps.float64 { vec![&C64, &C128] } else { vec![&C64] }
    }

    fn eps(&self) -> f64 {
        2f64.powi(1 - self.bits)
    }

    /// A part of any magnitude that is finite and not zero.
    fn part(&self, random: &mut Random) -> f64 {
        let x = (self.any)(random);
        if x.is_finite() && x != 0.0 { x } else { 1.0 }
    }

    /// Whether the device takes subnormal parts for zeros in arithmetic.
    fn flushes(&self) -> bool {
        static FLUSHES: OnceLock<bool> = OnceLock::new();
        let sum = || (C64.call)("add", &[vec![[2f64.powi(C64.least - 2), 0.0]], vec![[0.0; 2]]]);
        *FLUSHES.get_or_init(|| sum()[0][0] == 0.0)
    }

    /// The exponent of the numbers below which a device that flushes loses some: steps of a formula have down to 2^-4 of its result.
    fn least_kept(&self) -> i32 {
        self.least + if self.flushes() { 4 } else { 0 }
    }

    /// A finite argument that is not zero: parts of any two magnitudes or of one; around 1; next to ±1, ±i, the unit circle and
    /// the multiples of πi/2; on the axes, with zeros of both signs; tiny and large enough for exponentials to leave the range.
    fn argument(&self, random: &mut Random) -> Pair {
        let mut unit = || random.unit();
        let (u, v, w) = (unit(), unit(), unit());
        let near = u.signum() * 2f64.powf(-v.abs() * f64::from(self.bits));
        let nearer = w.signum() * 2f64.powf(w.abs() * f64::from(self.least));
        let any = self.part(random);
        let [x, y] = match random.below(12) {
            0 => [any, self.part(random)],
            1 => [any, any * (0.5 + 2.0 * u.abs())],
            2 => [any, any * near],
            3 => [u * 4.0, v * 4.0],
            4 => [w.signum() * (1.0 + near), nearer],
            5 => [w.signum() * (1.0 + near), near * v],
            6 => [(4.0 * u).cos(), (4.0 * u).sin() * (1.0 + near * self.eps().sqrt())],
            7 => [nearer, FRAC_PI_2 * (40.0 * v).round() + near],
            8 => [near, FRAC_PI_2 * (40.0 * v).round()],
            9 => [u * -f64::from(self.least), v * 20.0],
            10 => [any, 0.0 * u],
            _ => [nearer * u, near * v],
        };
        let z = if random.below(2) == 0 { [x, y] } else { [y, x] };
        let z = z.map(self.round);
        if z.iter().all(|x| x.is_finite()) && z != [0.0, 0.0] { z } else { [1.0, 2.0] }
    }

    /// The logarithm of the numbers from which on a product of two parts, and a quotient, may leave the range and lose small parts.
    fn moderate(&self) -> f64 {
        f64::from(-self.least / 4)
    }

    fn is_moderate(&self, numbers: &[Pair]) -> bool {
        numbers.iter().flatten().all(|x| *x == 0.0 || x.abs().log2().abs() < self.moderate())
    }

    /// Two numbers of moderate parts. Every other product and quotient cancels in a part: the second number is next to a multiple of the
    /// first one or of its conjugate, turned by a right angle or not.
    fn moderate_arguments(&self, random: &mut Random) -> [Pair; 2] {
        let mut part = |limit: f64| random.unit().signum() * 2f64.powf(limit * random.unit());
        let most = self.moderate() - 2.0;
        let (a, b) = ([part(most), part(most)], [part(most), part(most)]);
        let near = 2f64.powf(-random.unit().abs() * f64::from(self.bits));
        let b = match random.below(8) {
            0 => [a[0], a[1] * (1.0 + near)],
            1 => [a[0], -a[1] * (1.0 + near)],
            2 => [-a[1], a[0] * (1.0 + near)],
            3 => [a[1], a[0] * (1.0 + near)],
            _ => b,
        };
        [a, b].map(|z| z.map(self.round))
    }

    /// Makes every other exponent w / log(base) of a small w: most powers of numbers of any magnitude are out of range.
    fn bring_in_range(&self, random: &mut Random, [bases, exponents]: &mut [Vec<Pair>; 2]) {
        for (base, exponent) in bases.iter().zip(exponents).step_by(2) {
            let (w, v) = (40.0 * random.unit(), 40.0 * random.unit());
            let (re, im) = (base[0].hypot(base[1]).ln(), base[1].atan2(base[0]));
            let norm = re.hypot(im);
            let (c, s) = (re / norm, im / norm);
            let quotient = [(w * c + v * s) / norm, (v * c - w * s) / norm].map(self.round);
            if quotient.iter().all(|x| x.is_finite()) {
                *exponent = quotient;
            }
        }
    }

    /// By how much the result is off, in units of eps, normwise and by its parts. `condition` is how much the parts change,
    /// relative to eps, when those of the argument change by eps.
    fn error(&self, result: Pair, exact: &C, condition: Option<[R; 2]>) -> f64 {
        let exact = [&exact.re.0, &exact.im.0];
        let exponent = |x: &BigFloat| x.exponent().filter(|_| !x.is_zero()).unwrap_or(i32::MIN);
        let n = exponent(exact[0]).max(exponent(exact[1])).max(self.least + 1);
        let parts = exact.map(|x| scaled(x, n));
        let norm = parts[0].hypot(parts[1]).max(0.5);
        let lost = if device().caps.denorm_preserve { 0.0 } else { 2f64.powi(self.least_kept() - n) };
        let errors = [0, 1].map(|i| {
            let beyond = exact[i].abs() > big(self.largest * (1.0 - BOUND * self.eps()));
            if result[i].is_infinite() && beyond && exact[i].is_negative() == (result[i] < 0.0) {
                return 0.0;
            }
            if !result[i].is_finite() {
                return f64::INFINITY;
            }
            (scaled(&big(result[i]).sub(exact[i], 4_400, astro_float_num::RoundingMode::ToEven), n).abs() - lost)
                .max(0.0)
        });
        let normwise = errors[0].hypot(errors[1]) / norm;
        let floor = 2f64.powi(self.least - n);
        let by_parts = condition.map_or(0.0, |condition| {
            let of = |i: usize| errors[i] / parts[i].abs().max(scaled(&condition[i].0, n).min(norm)).max(floor);
            of(0).max(of(1))
        });
        normwise.max(by_parts) / self.eps()
    }

    fn sweep(&self, function: &Function, args: Vec<Pair>) -> f64 {
        let results = (self.call)(function.name, std::slice::from_ref(&args));
        let mut worst = 0.0f64;
        for (z, result) in args.iter().zip(results) {
            let (x, y) = (if function.odd { z[0].abs() } else { z[0] }, z[1].abs());
            let upper = c(r(x), r(y));
            let (exact, derivative) = (function.exact)(&upper);
            let condition = change(&upper, &derivative);
            // Of conj z, and of -conj z, the function is the same but for signs.
            let mirrored = [
                if function.odd { result[0] * 1f64.copysign(z[0]) } else { result[0] },
                result[1] * 1f64.copysign(z[1]),
            ];
            let error = self.error(mirrored, &exact, Some(condition));
            let shown = [&exact.re, &exact.im].map(|x| oracle::to_double(&x.0));
            assert!(
                error <= BOUND,
                "{} {:?} of {z:?} is {result:?}, that of its mirror image {shown:?}: {error} eps",
                function.name,
                self.ty
            );
            worst = worst.max(error);
        }
        worst
    }
}

/// By how much the parts of a function's value change, relative to eps, when those of its argument change by eps.
fn change(z: &C, derivative: &C) -> [R; 2] {
    let (x, y, dx, dy) = (z.re.abs(), z.im.abs(), derivative.re.abs(), derivative.im.abs());
    [&x * &dx + &y * &dy, &x * &dy + &y * &dx]
}

/// Whether a part is the one wanted, but for rounding, or for the sign where that is not specified.
fn is_edge(got: f64, want: f64, signed: bool, eps: f64) -> bool {
    if want.is_nan() || got.is_nan() {
        return want.is_nan() && got.is_nan();
    }
    let same_sign = !signed || got.is_sign_negative() == want.is_sign_negative();
    match want {
        _ if want == 0.0 || want.is_infinite() => got.abs() == want.abs() && same_sign,
        _ => (got - want).abs() <= BOUND * eps * want.abs(),
    }
}

fn random() -> Random {
    Random(seed())
}

/// How many arguments a function gets: the oracle takes up to some milliseconds for one.
const COUNT: usize = 150;

#[test]
fn functions_of_one_number_are_within_8_eps() {
    let mut random = random();
    for precision in Precision::all() {
        for function in FUNCTIONS {
            let args = (0..COUNT).map(|_| precision.argument(&mut random)).collect();
            let worst = precision.sweep(function, args);
            println!("{} {:?}: {worst:.3} eps", function.name, precision.ty);
        }
    }
}

#[test]
fn functions_of_two_numbers_are_within_8_eps() {
    let mut random = random();
    for precision in Precision::all() {
        for function in BINARY {
            let mut argument = || (0..COUNT).map(|_| precision.argument(&mut random)).collect::<Vec<Pair>>();
            let mut args = [argument(), argument()];
            match function.derivatives {
                None => precision.bring_in_range(&mut random, &mut args),
                Some(_) => {
                    for i in (0..COUNT).step_by(2) {
                        [args[0][i], args[1][i]] = precision.moderate_arguments(&mut random);
                    }
                }
            }
            // Products there take subnormal factors for zeros, as those of real numbers do.
            if function.name == "multiply" && precision.flushes() {
                let flushed = |x: f64| if x.abs() < 2f64.powi(precision.least) { 0.0 } else { x };
                args = args.map(|arg| arg.into_iter().map(|z| z.map(flushed)).collect());
            }
            let mut worst = 0.0f64;
            for (i, result) in (precision.call)(function.name, &args).into_iter().enumerate() {
                // The conjugates' value is the conjugate, which says what an angle of a negative zero is.
                let sign = 1f64.copysign(args[0][i][1]);
                let [a, b, result] = [args[0][i], args[1][i], result].map(|[x, y]| [x, sign * y]);
                let Some(exact) = (function.exact)(&c(r(a[0]), r(a[1])), &c(r(b[0]), r(b[1]))) else { continue };
                let condition = function.derivatives.filter(|_| precision.is_moderate(&[a, b])).map(|derivatives| {
                    let (a, b) = (c(r(a[0]), r(a[1])), c(r(b[0]), r(b[1])));
                    let [by_a, by_b] = derivatives(&a, &b);
                    let ([x, y], [u, v]) = (change(&a, &by_a), change(&b, &by_b));
                    [x + u, y + v]
                });
                let error = precision.error(result, &exact, condition);
                let shown = [&exact.re, &exact.im].map(|x| oracle::to_double(&x.0));
                assert!(
                    error <= BOUND,
                    "{} {:?} of {a:?}, {b:?} is {result:?}, not {shown:?}: {error} eps",
                    function.name,
                    precision.ty
                );
                worst = worst.max(error);
            }
            println!("{} {:?}: {worst:.3} eps", function.name, precision.ty);
        }
    }
}

#[test]
fn every_op_with_a_formula_of_complex_numbers_has_an_oracle() {
    let tested: Vec<&str> = FUNCTIONS.iter().map(|f| f.name).chain(BINARY.iter().map(|f| f.name)).collect();
    for op in OPS.iter().filter(|op| op.complex.is_some_and(|formula| formula.compute_bound)) {
        // Of abs and atan2, which give real numbers, other tests compare all bits.
        assert!(tested.contains(&op.name) || ["abs", "atan2"].contains(&op.name), "{} is in no table", op.name);
    }
}

#[test]
fn edges_are_those_of_annex_g() {
    for precision in Precision::all() {
        let check = |name: &str, edges: &[Edge]| {
            let args: Vec<Pair> = edges.iter().map(|edge| edge.0).collect();
            for ((z, want, signed), got) in edges.iter().zip((precision.call)(name, &[args])) {
                let right = [0, 1].map(|i| is_edge(got[i], want[i], *signed, precision.eps()));
                assert_eq!(right, [true; 2], "{name} {:?} of {z:?} is {got:?}, not {want:?}", precision.ty);
            }
        };
        for (name, symmetry, edges) in EDGES {
            let edges = edges::all_of(*symmetry, edges);
            check(name, &edges);
            for (rotated, _) in ROTATED.iter().filter(|(_, of)| of == name) {
                check(rotated, &edges::rotated(*symmetry, &edges));
            }
        }
        for (name, edges) in edges::binary(0.5 * precision.largest, 2f64.powi(precision.least_kept())) {
            let args = [edges.iter().map(|edge| edge.0).collect(), edges.iter().map(|edge| edge.1.0).collect()];
            for ((a, (b, want, signed)), got) in edges.iter().zip((precision.call)(name, &args)) {
                let right = [0, 1].map(|i| is_edge(got[i], want[i], *signed, precision.eps()));
                assert_eq!(right, [true; 2], "{name} {:?} of {a:?}, {b:?} is {got:?}, not {want:?}", precision.ty);
            }
        }
    }
}

#[test]
fn abs_is_within_2_eps() {
    let mut random = random();
    for precision in Precision::all() {
        let mut args: Vec<Pair> = (0..COUNT).map(|_| precision.argument(&mut random)).collect();
        args.extend([[f64::NAN, f64::INFINITY], [f64::NEG_INFINITY, f64::NAN], [f64::NAN, 1.0], [0.0, f64::NAN]]);
        for (z, got) in args.iter().zip((precision.abs)(&args)) {
            // No overflow, and no rounding that counts: squares of doubles are in range of the oracle.
            let exact = c(r(z[0]), r(z[1]));
            let right = match z {
                _ if z.iter().any(|x| x.is_infinite()) => got == f64::INFINITY,
                _ if z.iter().any(|x| x.is_nan()) => got.is_nan(),
                _ => precision.error([got, 0.0], &c(exact.norm().sqrt(), r(0.0)), None) <= 2.0,
            };
            assert!(right, "abs {:?} of {z:?} is {got:?}", precision.ty);
        }
    }
}
