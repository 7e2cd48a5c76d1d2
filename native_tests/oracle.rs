//! What the maths functions should give: in double for single precision (relative errors near 2^-52), in 256 bits for
//! double.

use astro_float_num::{BigFloat, Consts, RoundingMode, Sign};
use nx_vulkan::program::op::OPS;

const P: usize = 256;
const M: RoundingMode = RoundingMode::ToEven;

/// A function of one argument, how well the device must do, and where.
pub struct Unary {
    pub name: &'static str,
    pub double: fn(f64) -> f64,
    pub exact: fn(&BigFloat, &mut Consts) -> BigFloat,
    /// The largest magnitude of arguments of interest, in single and double precision.
    pub max_argument: [f64; 2],
    /// Largest error allowed, in ulps.
    pub bound: [f64; 2],
}

pub struct Binary {
    pub name: &'static str,
    pub double: fn(f64, f64) -> f64,
    pub exact: fn(&BigFloat, &BigFloat, &mut Consts) -> BigFloat,
    pub max_argument: [f64; 2],
    pub bound: [f64; 2],
}

const fn unary(
    name: &'static str,
    double: fn(f64) -> f64,
    exact: fn(&BigFloat, &mut Consts) -> BigFloat,
    max_argument: [f64; 2],
    bound: [f64; 2],
) -> Unary {
    Unary { name, double, exact, max_argument, bound }
}

const fn binary(
    name: &'static str,
    double: fn(f64, f64) -> f64,
    exact: fn(&BigFloat, &BigFloat, &mut Consts) -> BigFloat,
    max_argument: [f64; 2],
    bound: [f64; 2],
) -> Binary {
    Binary { name, double, exact, max_argument, bound }
}

#[rustfmt::skip]
pub static UNARY: &[Unary] = &[
    unary("sqrt", f64::sqrt, |x, _| x.sqrt(P, M), [100.0, 100.0], [0.5, 0.5]),
    unary("rsqrt", |x| 1.0 / x.sqrt(), |x, _| x.sqrt(P, M).reciprocal(P, M), [100.0, 100.0], [0.5001, 1.5]),
    unary("cbrt", libm::cbrt, |x, _| x.cbrt(P, M), [100.0, 100.0], [0.5001, 0.5001]),
    unary("exp", f64::exp, exp, [104.0, 746.0], [0.503, 0.53]),
    unary("expm1", libm::expm1, expm1, [90.0, 711.0], [0.504, 1.03]),
    unary("log", f64::ln, |x, c| x.ln(P, M, c), [100.0, 100.0], [0.5001, 0.5001]),
    unary("log1p", libm::log1p, log1p, [100.0, 100.0], [0.5001, 0.5001]),
    unary("sigmoid", |x| 1.0 / (1.0 + (-x).exp()), sigmoid, [104.0, 746.0], [0.503, 1.54]),
    unary("sinh", f64::sinh, |x, c| clamp(x).sinh(P, M, c), [90.0, 711.0], [0.504, 2.0]),
    unary("cosh", f64::cosh, |x, c| clamp(x).cosh(P, M, c), [90.0, 711.0], [0.503, 0.53]),
    unary("tanh", f64::tanh, |x, c| clamp(x).tanh(P, M, c), [10.0, 20.0], [0.504, 0.55]),
    unary("asinh", libm::asinh, |x, c| x.asinh(P, M, c), [100.0, 100.0], [0.5001, 0.5001]),
    unary("acosh", acosh, |x, c| x.acosh(P, M, c), [100.0, 100.0], [0.5001, 2.0]),
    unary("atanh", libm::atanh, |x, c| x.atanh(P, M, c), [1.0, 1.0], [0.5001, 2.0]),
    unary("sin", f64::sin, |x, c| x.sin(P, M, c), [100.0, 1e7], [0.51, 0.51]),
    unary("cos", f64::cos, |x, c| x.cos(P, M, c), [100.0, 1e7], [0.51, 0.51]),
    unary("tan", f64::tan, |x, c| x.tan(P, M, c), [100.0, 1e7], [0.51, 0.51]),
    unary("asin", f64::asin, |x, c| x.asin(P, M, c), [1.0, 1.0], [0.51, 0.51]),
    unary("acos", f64::acos, |x, c| x.acos(P, M, c), [1.0, 1.0], [0.51, 0.51]),
    unary("atan", f64::atan, |x, c| x.atan(P, M, c), [10.0, 10.0], [0.51, 0.51]),
    unary("erf", libm::erf, erf, [4.0, 6.0], [0.51, 0.6]),
    unary("erfc", libm::erfc, erfc, [10.2, 27.3], [0.51, 4.0]),
    unary("erf_inv", erf_inv, |x, _| big(erf_inv(to_double(x))), [1.0, 1.0], [0.51, 2.0]),
];

#[rustfmt::skip]
pub static BINARY: &[Binary] = &[
    binary("divide", |a, b| a / b, |a, b, _| a.div(b, P, M), [10.0, 10.0], [0.5, 0.5]),
    binary("pow", f64::powf, pow, [20.0, 100.0], [0.503, 0.53]),
    binary("atan2", f64::atan2, atan2, [10.0, 10.0], [0.51, 0.51]),
];

/// A double as itself. Subnormals go in as normal numbers: `from_f64` halves them.
pub fn big(x: f64) -> BigFloat {
    if !x.is_subnormal() {
        return BigFloat::from_f64(x, P);
    }
    let mut b = BigFloat::from_f64(x * 2f64.powi(64), P);
    if let Some(exponent) = b.exponent() {
        b.set_exponent(exponent - 64);
    }
    b
}

pub fn one() -> BigFloat {
    big(1.0)
}

/// libm's gives numbers for negative arguments.
fn acosh(x: f64) -> f64 {
    if x < 1.0 { f64::NAN } else { libm::acosh(x) }
}

/// Where exponential functions have long over- or underflowed.
pub fn clamp(x: &BigFloat) -> BigFloat {
    if x.abs() > big(1e4) { big(if x.is_negative() { -1e4 } else { 1e4 }) } else { x.clone() }
}

pub fn is_tiny(x: &BigFloat) -> bool {
    x.exponent().is_some_and(|e| e < -100)
}

pub fn exp(x: &BigFloat, c: &mut Consts) -> BigFloat {
    clamp(x).exp(P, M, c)
}

pub fn expm1(x: &BigFloat, c: &mut Consts) -> BigFloat {
    if is_tiny(x) {
        return x.add(&x.mul(x, P, M).mul(&big(0.5), P, M), P, M);
    }
    clamp(x).exp(2 * P, M, c).sub(&one(), P, M)
}

pub fn log1p(x: &BigFloat, c: &mut Consts) -> BigFloat {
    if is_tiny(x) {
        return x.sub(&x.mul(x, P, M).mul(&big(0.5), P, M), P, M);
    }
    // Long enough for the sum to be exact.
    x.add(&one(), 2048, M).ln(P, M, c)
}

fn sigmoid(x: &BigFloat, c: &mut Consts) -> BigFloat {
    one().div(&exp(&x.neg(), c).add(&one(), P, M), P, M)
}

/// Series of positive terms, with the additional bits that 1 - erf loses.
fn erf_series(x: &BigFloat, c: &mut Consts) -> BigFloat {
    let square = to_double(&x.mul(x, P, M));
    let p = P + 64 + (square * 3.0) as usize;
    let two_square = x.mul(x, p, M).mul(&big(2.0), p, M);
    let mut term = x.clone();
    let mut sum = x.clone();
    for n in 1.. {
        term = term.mul(&two_square, p, M).div(&big(f64::from(2 * n + 1)), p, M);
        sum = sum.add(&term, p, M);
        if term.is_zero() || term.exponent() < sum.exponent().map(|e| e - p as i32) {
            break;
        }
    }
    let scale = x.mul(x, p, M).neg().exp(p, M, c).mul(&big(2.0), p, M);
    sum.mul(&scale, p, M).div(&c.pi(p, M).sqrt(p, M), p, M)
}

fn erf(x: &BigFloat, c: &mut Consts) -> BigFloat {
    if x.abs() > big(30.0) {
        return big(if x.is_negative() { -1.0 } else { 1.0 });
    }
    erf_series(x, c)
}

fn erfc(x: &BigFloat, c: &mut Consts) -> BigFloat {
    if x.abs() > big(30.0) {
        return big(if x.is_negative() { 2.0 } else { 0.0 });
    }
    one().sub(&erf_series(x, c), P, M)
}

/// BinaryBackend's, in double whatever the type: M. Giles, "Approximating the erfinv function" (2010), for single precision.
#[rustfmt::skip]
fn erf_inv(x: f64) -> f64 {
    const CENTRE: [f64; 9] = [
        2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503, -0.00417768164,
        0.246640727, 1.50140941,
    ];
    const TAIL: [f64; 9] = [
        -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613, 0.00943887047,
        1.00167406, 2.83297682,
    ];
    if x.abs() == 1.0 {
        return x * f64::INFINITY;
    }
    let w = -((1.0 - x) * (1.0 + x)).ln();
    let (t, coefficients) = if w < 5.0 { (w - 2.5, CENTRE) } else { (w.sqrt() - 3.0, TAIL) };
    coefficients.into_iter().reduce(|p, c| p * t + c).map_or(f64::NAN, |p| p * x)
}

fn pow(x: &BigFloat, y: &BigFloat, c: &mut Consts) -> BigFloat {
    let integer = y.fract().is_zero();
    if x.is_negative() && !integer {
        return BigFloat::nan(None);
    }
    let odd = integer && !y.mul(&big(0.5), 2048, M).fract().is_zero();
    let magnitude = if y.is_zero() { one() } else { clamp(&x.abs().ln(P, M, c).mul(y, P, M)).exp(P, M, c) };
    if x.is_negative() && odd { magnitude.neg() } else { magnitude }
}

pub fn atan2(y: &BigFloat, x: &BigFloat, c: &mut Consts) -> BigFloat {
    if y.is_zero() && !x.is_negative() {
        return y.clone();
    }
    let pi = c.pi(P, M);
    let angle = if x.is_zero() {
        pi.mul(&big(0.5), P, M)
    } else {
        let angle = y.abs().div(&x.abs(), P, M).atan(P, M, c);
        if x.is_negative() { pi.sub(&angle, P, M) } else { angle }
    };
    if y.is_negative() { angle.neg() } else { angle }
}

/// The nearest double, to about 2^-63 of it; NaN and infinities as they are.
pub fn to_double(x: &BigFloat) -> f64 {
    scaled(x, 0)
}

/// x / 2^n as a double, to about 2^-63.
pub fn scaled(x: &BigFloat, n: i32) -> f64 {
    if x.is_nan() {
        return f64::NAN;
    }
    if x.is_inf() {
        return if x.is_negative() { f64::NEG_INFINITY } else { f64::INFINITY };
    }
    match x.as_raw_parts() {
        Some((words, _, sign, exponent, _)) if !x.is_zero() => {
            let top = words[words.len() - 1] as f64 / 2f64.powi(64);
            let power = (exponent - n).clamp(-1200, 1100);
            let magnitude = top * 2f64.powi(power / 2) * 2f64.powi(power - power / 2);
            if sign == Sign::Neg { -magnitude } else { magnitude }
        }
        _ => 0.0,
    }
}

/// How far a result is from the exact value, in units of the exact value's last place at `bits` bits of significand and
/// least exponent `least`. Infinite where one is NaN or infinite and the other is not; an infinity stands for all that
/// rounds to it.
pub fn error_in_ulps(result: f64, exact: &BigFloat, bits: i32, least: i32, largest: f64) -> f64 {
    if result.is_nan() || exact.is_nan() {
        return if result.is_nan() && exact.is_nan() { 0.0 } else { f64::INFINITY };
    }
    if result.is_infinite() {
        let beyond = exact.abs() > big(largest) && exact.is_negative() == (result < 0.0);
        return if beyond { 0.0 } else { f64::INFINITY };
    }
    if exact.is_inf() {
        return f64::INFINITY;
    }
    let exponent = exact.exponent().filter(|_| !exact.is_zero()).map_or(least, |e| (e - 1).max(least));
    scaled(&big(result).sub(exact, 2 * P, M), exponent - bits + 1).abs()
}

#[test]
fn every_op_with_a_formula_of_the_maths_library_has_an_oracle() {
    let tested: Vec<&str> = UNARY.iter().map(|row| row.name).chain(BINARY.iter().map(|row| row.name)).collect();
    for op in OPS.iter().filter(|op| op.real.is_some_and(|formula| formula.file.starts_with("math/"))) {
        assert!(tested.contains(&op.name), "{} has no row in UNARY or BINARY", op.name);
    }
}
