//! What the complex functions should give, in 256 bits. Arguments have no negative imaginary part, those of odd functions no
//! negative real part either: the other values follow from f(conj z) = conj f(z) and f(-z) = -f(z).

use super::number::{C, R, c, r};

/// A function of one complex number with its derivative.
pub struct Function {
    pub name: &'static str,
    pub odd: bool,
    pub exact: fn(&C) -> (C, C),
}

const fn function(name: &'static str, exact: fn(&C) -> (C, C)) -> Function {
    Function { name, odd: false, exact }
}

const fn odd(name: &'static str, exact: fn(&C) -> (C, C)) -> Function {
    Function { name, odd: true, exact }
}

#[rustfmt::skip]
pub static FUNCTIONS: &[Function] = &[
    function("exp", |z| (exp(z), exp(z))),
    function("expm1", |z| (expm1(z), exp(z))),
    function("log", |z| (log(z, &norm_minus_one(z)), &C::one() / z)),
    function("log1p", |z| {
        let w = &C::one() + z;
        (log(&w, &R::sum(&[&z.re + &z.re, &z.re * &z.re, &z.im * &z.im])), &C::one() / &w)
    }),
    function("sigmoid", |z| {
        let s = sigmoid(z);
        let d = &s * &(&C::one() - &s);
        (s, d)
    }),
    odd("sin", |z| (sinh(&z.rotated()).rotated().negated(), cosh(&z.rotated()))),
    function("cos", |z| (cosh(&z.rotated()), sinh(&z.rotated()).rotated())),
    odd("tan", |z| (tanh(&z.rotated()).rotated().negated(), tanh_derivative(&z.rotated()))),
    odd("sinh", |z| (sinh(z), cosh(z))),
    function("cosh", |z| (cosh(z), sinh(z))),
    odd("tanh", |z| (tanh(z), tanh_derivative(z))),
    function("sqrt", |z| (z.sqrt(), half(&(&C::one() / &z.sqrt())))),
    function("rsqrt", |z| {
        let s = &C::one() / &z.sqrt();
        let d = half(&(&s / z));
        (s, d)
    }),
    function("cbrt", |z| {
        let s = cbrt(z);
        let d = &s / &c(&z.re * &r(3.0), &z.im * &r(3.0));
        (s, d)
    }),
    odd("asin", |z| {
        let (asin, _, d) = arc(z);
        (asin, d)
    }),
    function("acos", |z| {
        let (_, acos, d) = arc(z);
        (acos, d)
    }),
    odd("atan", |z| {
        // i z is conj(y + x i) i^2.
        let (atanh, d) = atanh(&c(z.im.clone(), z.re.clone()));
        (c(atanh.im, atanh.re), d)
    }),
    odd("asinh", |z| {
        let (asin, _, d) = arc(&c(z.im.clone(), z.re.clone()));
        (c(asin.im, asin.re), d)
    }),
    function("acosh", |z| {
        let (_, acos, d) = arc(z);
        (c(acos.im.abs(), acos.re), d.rotated())
    }),
    odd("atanh", atanh),
];

/// A function of two complex numbers, the first one of which has no negative imaginary part; `None` where no bound is promised.
pub struct Binary {
    pub name: &'static str,
    pub exact: fn(&C, &C) -> Option<C>,
    /// The derivatives by the two numbers; `None` where no bound of the parts is promised.
    pub derivatives: Option<fn(&C, &C) -> [C; 2]>,
}

#[rustfmt::skip]
pub static BINARY: &[Binary] = &[
    Binary { name: "multiply", exact: |a, b| Some(a * b), derivatives: Some(|a, b| [b.clone(), a.clone()]) },
    Binary { name: "divide", exact: |a, b| Some(a / b), derivatives: Some(|a, b| [&C::one() / b, &(a / b) / b]) },
    Binary { name: "pow", derivatives: None, exact: |a, b| {
        let w = b * &log(a, &norm_minus_one(a));
        // Beyond, the error grows with the magnitude of w.
        (w.norm().0 < r(1024.0 * 1024.0).0).then(|| exp(&w))
    } },
];

impl C {
    fn negated(&self) -> C {
        c(-self.re.clone(), -self.im.clone())
    }
}

fn half(z: &C) -> C {
    c(&z.re * &r(0.5), &z.im * &r(0.5))
}

fn exp(z: &C) -> C {
    c(z.re.exp() * z.im.cos(), z.re.exp() * z.im.sin())
}

fn expm1(z: &C) -> C {
    let sine = (&z.im * &r(0.5)).sin();
    c(R::sum(&[z.re.expm1() * z.im.cos(), r(-2.0) * (&sine * &sine)]), z.re.exp() * z.im.sin())
}

fn sigmoid(z: &C) -> C {
    if !z.re.0.is_negative() {
        return &C::one() / &(&C::one() + &exp(&z.negated()));
    }
    &exp(z) / &(&C::one() + &exp(z))
}

fn sinh(z: &C) -> C {
    c(z.re.sinh() * z.im.cos(), z.re.cosh() * z.im.sin())
}

fn cosh(z: &C) -> C {
    c(z.re.cosh() * z.im.cos(), z.re.sinh() * z.im.sin())
}

fn tanh(z: &C) -> C {
    let (s, c_) = (z.re.sinh(), z.im.cos());
    let norm = &s * &s + &c_ * &c_;
    c(s * z.re.cosh() / norm.clone(), z.im.sin() * c_ / norm)
}

fn tanh_derivative(z: &C) -> C {
    let h = cosh(z);
    &C::one() / &(&h * &h)
}

fn norm_minus_one(z: &C) -> R {
    R::sum(&[&z.re * &z.re, &z.im * &z.im, r(-1.0)])
}

/// log z from |z|^2 - 1, which keeps its digits near 1 alone.
fn log(z: &C, norm_minus_one: &R) -> C {
    let norm = z.norm();
    let near_one = norm.0 > r(0.5).0 && norm.0 < r(2.0).0;
    let twice = if near_one { norm_minus_one.log1p() } else { norm.ln() };
    c(twice * r(0.5), z.im.atan2(&z.re))
}

fn cbrt(z: &C) -> C {
    let (length, angle) = (z.norm().sqrt().cbrt(), z.im.atan2(&z.re) / r(3.0));
    c(&length * &angle.cos(), length * angle.sin())
}

/// asin z, acos z and the derivative of asin, from the sines and the angles of sqrt(1 - z) and sqrt(1 + z).
fn arc(z: &C) -> (C, C, C) {
    let (a, b) = ((&C::one() - z).sqrt(), (&C::one() + z).sqrt());
    // On the cut, too, z is above it.
    let a = c(a.re, -a.im.abs());
    let product = &a * &b;
    let im = (&a.re * &b.im - &a.im * &b.re).asinh();
    let acos = a.re.atan2(&b.re) * r(2.0);
    let cosine = &a.re * &b.re - &a.im * &b.im;
    let asin = z.re.abs().atan2(&cosine);
    let asin = if z.re.0.is_negative() { -asin } else { asin };
    (c(asin, im.clone()), c(acos, -im), &C::one() / &product)
}

fn atanh(z: &C) -> (C, C) {
    let below = R::sum(&[r(1.0), -z.re.clone()]);
    let norm = R::sum(&[&below * &below, &z.im * &z.im]);
    let re = (&z.re * &r(4.0) / norm).log1p() * r(0.25);
    let cosine = R::sum(&[r(1.0), -(&z.re * &z.re), -(&z.im * &z.im)]);
    let im = (&z.im + &z.im).atan2(&cosine) * r(0.5);
    (c(re, im), &C::one() / &(&C::one() - &(z * z)))
}
