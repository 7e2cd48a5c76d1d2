//! Real and complex numbers of 256 bits with the operators of Rust, for the oracle's formulas. This module owns their arithmetic;
//! it knows no function of the device.

use std::cell::RefCell;
use std::ops::{Add, Div, Mul, Neg, Sub};

use astro_float_num::{BigFloat, Consts, RoundingMode};

use crate::oracle::{self, big};

const P: usize = 256;
/// Holds sums of the squares of any two doubles exactly.
const WIDE: usize = 4_400;
const M: RoundingMode = RoundingMode::ToEven;

thread_local! {
    static CONSTS: RefCell<Consts> = RefCell::new(Consts::new().unwrap());
}

/// A real number.
#[derive(Clone)]
pub struct R(pub BigFloat);

macro_rules! operators {
    ($($operator:ident, $function:ident;)*) => {$(
        impl $operator for &R {
            type Output = R;
            fn $function(self, other: &R) -> R {
                R(self.0.$function(&other.0, P, M))
            }
        }
        impl $operator for R {
            type Output = R;
            fn $function(self, other: R) -> R {
                (&self).$function(&other)
            }
        }
    )*};
}

operators! { Add, add; Sub, sub; Mul, mul; Div, div; }

impl Neg for R {
    type Output = R;
    fn neg(self) -> R {
        R(self.0.neg())
    }
}

pub fn r(x: f64) -> R {
    R(big(x))
}

/// A function that needs constants, of one argument.
macro_rules! functions {
    ($($name:ident, $function:expr;)*) => {
        impl R {$(
            pub fn $name(&self) -> R {
                CONSTS.with_borrow_mut(|c| R($function(&self.0, c)))
            }
        )*}
    };
}

functions! {
    exp, oracle::exp;
    sin, |x: &BigFloat, c| x.sin(P, M, c);
    cos, |x: &BigFloat, c| x.cos(P, M, c);
    sinh, |x: &BigFloat, c| oracle::clamp(x).sinh(P, M, c);
    cosh, |x: &BigFloat, c| oracle::clamp(x).cosh(P, M, c);
    expm1, oracle::expm1;
    log1p, oracle::log1p;
    ln, |x: &BigFloat, c| x.ln(P, M, c);
    asinh, |x: &BigFloat, c| x.asinh(P, M, c);
}

impl R {
    pub fn sqrt(&self) -> R {
        R(self.0.sqrt(P, M))
    }

    pub fn cbrt(&self) -> R {
        R(self.0.cbrt(P, M))
    }

    pub fn abs(&self) -> R {
        R(self.0.abs())
    }

    /// The angle of the point (x, self), for self >= 0.
    pub fn atan2(&self, x: &R) -> R {
        CONSTS.with_borrow_mut(|c| R(oracle::atan2(&self.0, &x.0, c)))
    }

    /// The exact sum of the terms, rounded once.
    pub fn sum(terms: &[R]) -> R {
        let sum = terms.iter().fold(big(0.0), |sum, term| sum.add(&term.0, WIDE, M));
        R(sum.mul(&oracle::one(), P, M))
    }
}

/// A complex number.
#[derive(Clone)]
pub struct C {
    pub re: R,
    pub im: R,
}

pub fn c(re: R, im: R) -> C {
    C { re, im }
}

impl C {
    pub fn one() -> C {
        c(r(1.0), r(0.0))
    }

    pub fn norm(&self) -> R {
        R::sum(&[&self.re * &self.re, &self.im * &self.im])
    }

    pub fn conj(&self) -> C {
        c(self.re.clone(), -self.im.clone())
    }

    /// i times the number.
    pub fn rotated(&self) -> C {
        c(-self.im.clone(), self.re.clone())
    }

    /// The root in the right half plane.
    pub fn sqrt(&self) -> C {
        let w = ((self.re.abs() + self.norm().sqrt()) * r(0.5)).sqrt();
        if w.0.is_zero() {
            return c(r(0.0), r(0.0));
        }
        let v = self.im.abs() / (&w + &w);
        let (re, im) = if self.re.0.is_negative() { (v, w) } else { (w, v) };
        c(re, if self.im.0.is_negative() { -im } else { im })
    }
}

impl Add for &C {
    type Output = C;
    fn add(self, other: &C) -> C {
        c(&self.re + &other.re, &self.im + &other.im)
    }
}

impl Sub for &C {
    type Output = C;
    fn sub(self, other: &C) -> C {
        c(&self.re - &other.re, &self.im - &other.im)
    }
}

impl Mul for &C {
    type Output = C;
    fn mul(self, other: &C) -> C {
        let re = R::sum(&[&self.re * &other.re, -(&self.im * &other.im)]);
        c(re, R::sum(&[&self.re * &other.im, &self.im * &other.re]))
    }
}

impl Div for &C {
    type Output = C;
    fn div(self, other: &C) -> C {
        let (product, norm) = (self * &other.conj(), other.norm());
        c(&product.re / &norm, &product.im / &norm)
    }
}
