//! The values at the edges, by annex G of C17: zeros, infinities, NaN, and the ends of branch cuts. This module owns the tables of
//! the functions that C has, and the rules for those that it lacks; `main.rs` runs them.

use std::f64::consts::{FRAC_PI_2, FRAC_PI_4, PI};

use super::Pair;

const INF: f64 = f64::INFINITY;
const NAN: f64 = f64::NAN;

/// How the values of a function at -z follow from those at z.
#[derive(Clone, Copy, PartialEq)]
pub enum Symmetry {
    Odd,
    Even,
    None,
}

/// A number, the function's value, and whether the signs of its zeros and infinities are specified.
pub type Edge = (Pair, Pair, bool);

const fn at(x: f64, y: f64, re: f64, im: f64) -> Edge {
    ([x, y], [re, im], true)
}

const fn unsigned(x: f64, y: f64, re: f64, im: f64) -> Edge {
    ([x, y], [re, im], false)
}

/// Each function at numbers whose imaginary part has no sign; at their conjugates it has the conjugate values.
#[rustfmt::skip]
pub const EDGES: &[(&str, Symmetry, &[Edge])] = &[
    ("acos", Symmetry::None, &[
        at(0.0, 0.0, FRAC_PI_2, -0.0), at(-0.0, 0.0, FRAC_PI_2, -0.0), at(0.0, NAN, FRAC_PI_2, NAN), at(-0.0, NAN, FRAC_PI_2, NAN),
        at(1.0, 0.0, 0.0, -0.0), at(-1.0, 0.0, PI, -0.0), at(1.0, INF, FRAC_PI_2, -INF), at(1.0, NAN, NAN, NAN),
        at(-INF, 1.0, PI, -INF), at(INF, 1.0, 0.0, -INF), at(-INF, INF, 3.0 * FRAC_PI_4, -INF), at(INF, INF, FRAC_PI_4, -INF),
        unsigned(INF, NAN, NAN, INF), unsigned(-INF, NAN, NAN, INF), at(NAN, 1.0, NAN, NAN), at(NAN, INF, NAN, -INF),
        at(NAN, NAN, NAN, NAN),
    ]),
    ("acosh", Symmetry::None, &[
        at(0.0, 0.0, 0.0, FRAC_PI_2), at(-0.0, 0.0, 0.0, FRAC_PI_2), at(1.0, INF, INF, FRAC_PI_2),
        at(1.0, 0.0, 0.0, 0.0), at(-1.0, 0.0, 0.0, PI), at(1.0, NAN, NAN, NAN), at(-INF, 1.0, INF, PI), at(INF, 1.0, INF, 0.0),
        at(-INF, INF, INF, 3.0 * FRAC_PI_4), at(INF, INF, INF, FRAC_PI_4), at(INF, NAN, INF, NAN), at(-INF, NAN, INF, NAN),
        at(NAN, 1.0, NAN, NAN), at(NAN, INF, INF, NAN), at(NAN, NAN, NAN, NAN),
    ]),
    ("asinh", Symmetry::Odd, &[
        at(0.0, 0.0, 0.0, 0.0), at(0.0, 1.0, 0.0, FRAC_PI_2), at(1.0, INF, INF, FRAC_PI_2), at(1.0, NAN, NAN, NAN),
        at(INF, 1.0, INF, 0.0), at(INF, INF, INF, FRAC_PI_4), at(INF, NAN, INF, NAN), at(NAN, 0.0, NAN, 0.0),
        at(NAN, 1.0, NAN, NAN), unsigned(NAN, INF, INF, NAN), at(NAN, NAN, NAN, NAN),
    ]),
    ("atanh", Symmetry::Odd, &[
        at(0.0, 0.0, 0.0, 0.0), at(0.0, NAN, 0.0, NAN), at(1.0, 0.0, INF, 0.0), at(1.0, INF, 0.0, FRAC_PI_2),
        at(1.0, NAN, NAN, NAN), at(INF, 1.0, 0.0, FRAC_PI_2), at(INF, INF, 0.0, FRAC_PI_2), at(INF, NAN, 0.0, NAN),
        at(NAN, 1.0, NAN, NAN), unsigned(NAN, INF, 0.0, FRAC_PI_2), at(NAN, NAN, NAN, NAN),
    ]),
    ("cosh", Symmetry::Even, &[
        at(0.0, 0.0, 1.0, 0.0), unsigned(0.0, INF, NAN, 0.0), unsigned(0.0, NAN, NAN, 0.0), at(1.0, INF, NAN, NAN),
        at(1.0, NAN, NAN, NAN), at(INF, 0.0, INF, 0.0), at(INF, 1.0, INF, INF), at(INF, 2.0, -INF, INF),
        unsigned(INF, INF, INF, NAN), at(INF, NAN, INF, NAN), unsigned(NAN, 0.0, NAN, 0.0), at(NAN, 1.0, NAN, NAN),
        at(NAN, NAN, NAN, NAN),
    ]),
    ("sinh", Symmetry::Odd, &[
        at(0.0, 0.0, 0.0, 0.0), unsigned(0.0, INF, 0.0, NAN), unsigned(0.0, NAN, 0.0, NAN), at(1.0, INF, NAN, NAN),
        at(1.0, NAN, NAN, NAN), at(INF, 0.0, INF, 0.0), at(INF, 1.0, INF, INF), at(INF, 2.0, -INF, INF),
        unsigned(INF, INF, INF, NAN), unsigned(INF, NAN, INF, NAN), at(NAN, 0.0, NAN, 0.0), at(NAN, 1.0, NAN, NAN),
        at(NAN, NAN, NAN, NAN),
    ]),
    ("tanh", Symmetry::Odd, &[
        at(0.0, 0.0, 0.0, 0.0), at(0.0, INF, 0.0, NAN), at(0.0, NAN, 0.0, NAN), at(1.0, INF, NAN, NAN), at(1.0, NAN, NAN, NAN),
        at(INF, 1.0, 1.0, 0.0), at(INF, 2.0, 1.0, -0.0), unsigned(INF, INF, 1.0, 0.0), unsigned(INF, NAN, 1.0, 0.0),
        at(NAN, 0.0, NAN, 0.0), at(NAN, 1.0, NAN, NAN), at(NAN, NAN, NAN, NAN),
    ]),
    ("exp", Symmetry::None, &[
        at(0.0, 0.0, 1.0, 0.0), at(-0.0, 0.0, 1.0, 0.0), at(1.0, INF, NAN, NAN), at(1.0, NAN, NAN, NAN), at(INF, 0.0, INF, 0.0),
        at(-INF, 2.0, -0.0, 0.0), at(INF, 2.0, -INF, INF), unsigned(-INF, INF, 0.0, 0.0), unsigned(INF, INF, INF, NAN),
        unsigned(-INF, NAN, 0.0, 0.0), unsigned(INF, NAN, INF, NAN), at(NAN, 0.0, NAN, 0.0), at(NAN, 1.0, NAN, NAN),
        at(NAN, NAN, NAN, NAN),
    ]),
    ("log", Symmetry::None, &[
        at(-0.0, 0.0, -INF, PI), at(0.0, 0.0, -INF, 0.0), at(1.0, INF, INF, FRAC_PI_2), at(1.0, NAN, NAN, NAN),
        at(-INF, 1.0, INF, PI), at(INF, 1.0, INF, 0.0), at(-INF, INF, INF, 3.0 * FRAC_PI_4), at(INF, INF, INF, FRAC_PI_4),
        at(INF, NAN, INF, NAN), at(-INF, NAN, INF, NAN), at(NAN, 1.0, NAN, NAN), at(NAN, INF, INF, NAN), at(NAN, NAN, NAN, NAN),
    ]),
    ("sqrt", Symmetry::None, &[
        at(0.0, 0.0, 0.0, 0.0), at(-0.0, 0.0, 0.0, 0.0), at(-4.0, 0.0, 0.0, 2.0), at(1.0, INF, INF, INF), at(INF, INF, INF, INF),
        at(-INF, INF, INF, INF), at(NAN, INF, INF, INF), at(1.0, NAN, NAN, NAN), at(-INF, 1.0, 0.0, INF), at(INF, 1.0, INF, 0.0),
        unsigned(-INF, NAN, NAN, INF), at(INF, NAN, INF, NAN), at(NAN, 1.0, NAN, NAN), at(NAN, NAN, NAN, NAN),
    ]),
    // C lacks these. They have the values of the functions that they are made of.
    ("expm1", Symmetry::None, &[
        at(0.0, 0.0, 0.0, 0.0), at(1.0, INF, NAN, NAN), at(-INF, 2.0, -1.0, 0.0), at(INF, 2.0, -INF, INF), at(INF, 0.0, INF, 0.0),
        unsigned(-INF, NAN, -1.0, 0.0), unsigned(INF, INF, INF, NAN), at(NAN, 0.0, NAN, 0.0), at(NAN, 1.0, NAN, NAN),
    ]),
    ("log1p", Symmetry::None, &[
        at(0.0, 0.0, 0.0, 0.0), at(-1.0, 0.0, -INF, 0.0), at(1.0, INF, INF, FRAC_PI_2), at(-INF, 1.0, INF, PI),
        at(INF, 1.0, INF, 0.0), at(NAN, INF, INF, NAN), at(NAN, 1.0, NAN, NAN),
    ]),
    ("sigmoid", Symmetry::None, &[
        at(0.0, 0.0, 0.5, 0.0), at(INF, 1.0, 1.0, 0.0), at(-INF, 2.0, -0.0, 0.0), unsigned(INF, NAN, 1.0, 0.0),
        unsigned(-INF, INF, 0.0, 0.0), at(1.0, INF, NAN, NAN), at(NAN, 1.0, NAN, NAN),
    ]),
    ("rsqrt", Symmetry::None, &[
        unsigned(4.0, 0.0, 0.5, 0.0), unsigned(INF, 1.0, 0.0, 0.0), unsigned(1.0, INF, 0.0, 0.0), unsigned(-INF, 1.0, 0.0, 0.0),
        at(NAN, 1.0, NAN, NAN),
    ]),
    ("cbrt", Symmetry::None, &[
        at(0.0, 0.0, 0.0, 0.0), at(8.0, 0.0, 2.0, 0.0), at(INF, 1.0, INF, 0.0), at(-INF, 1.0, INF, INF), at(1.0, INF, INF, INF),
        at(INF, INF, INF, INF), at(NAN, 1.0, NAN, NAN),
    ]),
];

/// The functions that C defines by others at i z: f(z) = -i g(i z) of an odd g, and f(z) = g(i z) of an even one.
pub const ROTATED: &[(&str, &str)] =
    &[("sin", "sinh"), ("cos", "cosh"), ("tan", "tanh"), ("asin", "asinh"), ("atan", "atanh")];

/// The edges of a function with those that follow by symmetry.
pub fn all_of(symmetry: Symmetry, edges: &[Edge]) -> Vec<Edge> {
    let conjugate = |[x, y]: Pair| [x, -y];
    let negative = |[x, y]: Pair| [-x, -y];
    let mut all = edges.to_vec();
    all.extend(edges.iter().map(|(z, value, signed)| (conjugate(*z), conjugate(*value), *signed)));
    let mirrored: Vec<Edge> = match symmetry {
        Symmetry::None => vec![],
        Symmetry::Odd => all.iter().map(|(z, value, signed)| (negative(*z), negative(*value), *signed)).collect(),
        Symmetry::Even => all.iter().map(|(z, value, signed)| (negative(*z), *value, *signed)).collect(),
    };
    all.extend(mirrored);
    all
}

/// The edges of f from those of g, see `ROTATED`.
pub fn rotated(symmetry: Symmetry, edges: &[Edge]) -> Vec<Edge> {
    let over_i = |[x, y]: Pair| [y, -x];
    let value = |value: Pair| if symmetry == Symmetry::Odd { over_i(value) } else { value };
    edges.iter().map(|(z, of_g, signed)| (over_i(*z), value(*of_g), *signed)).collect()
}

/// Products and quotients: operands, result, whether the signs are specified. `h` is half the largest number and `t` the smallest
/// normal one.
pub fn binary(h: f64, t: f64) -> [(&'static str, Vec<(Pair, Edge)>); 2] {
    let products = vec![
        ([INF, NAN], at(1.0, 1.0, INF, INF)),
        ([INF, INF], at(1.0, 0.0, INF, INF)),
        ([1.0, 1.0], at(INF, NAN, INF, INF)),
        ([INF, 0.0], at(0.0, 0.0, NAN, NAN)),
        ([NAN, 1.0], at(1.0, 1.0, NAN, NAN)),
        ([h, h], at(h, h, 0.0, INF)),
        ([h, h], at(2.0, 0.0, 2.0 * h, 2.0 * h)),
    ];
    let quotients = vec![
        ([1.0, 1.0], at(0.0, 0.0, INF, INF)),
        ([1.0, 1.0], at(-0.0, 0.0, -INF, -INF)),
        ([0.0, 0.0], at(0.0, 0.0, NAN, NAN)),
        ([INF, NAN], at(1.0, 1.0, INF, -INF)),
        ([1.0, 1.0], at(INF, NAN, 0.0, 0.0)),
        ([1.0, 1.0], unsigned(INF, INF, 0.0, 0.0)),
        ([INF, 1.0], at(INF, 1.0, NAN, NAN)),
        ([h, h], at(h, h, 1.0, 0.0)),
        ([t, t], at(t, t, 1.0, 0.0)),
        ([h, t], at(t, 0.0, INF, 1.0)),
    ];
    [("multiply", products), ("divide", quotients)]
}
