//! The table of ops: name, what its operands are converted to, and where its formulas stand.
//!
//! An op's formula is the GLSL function `nx_<name>`, overloaded for each compute type it takes, in the files named here.
//! Adding an op is one row and that function. All that programs and kernels decide by an op stands in its row: a name is
//! looked up where it comes from Elixir, and nowhere else.

use std::hash::{Hash, Hasher};

use super::Type;

/// How an op's operands and result are typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Typing {
    /// Operands are converted to the node's type, a complex one or one of these.
    Own(Domain),
    /// As `Own` of all numbers, but a complex operand keeps its type, and the result is of that of its parts.
    Part,
    /// Operands are converted to their merged type; the result is 0 or 1.
    Merged,
    /// As `Own` of floats, but operands that are integers are divided in double where the device has it.
    Divide,
    /// The operand keeps its type; the result is converted to the node's.
    Operand,
    /// The operand keeps its type, and its width in bits is a second argument.
    Width,
    /// Conversion of the operand to the node's type.
    Convert,
    /// The operand's bits as the node's type, of the same width.
    Bitcast,
    /// A predicate, then two operands of the node's type.
    Select,
    /// No operand: the index along an axis, or in the whole tensor.
    Iota,
    /// No operand: 1 where the last two indices are equal.
    Eye,
    /// The element of an input's view that further operands, indices, point to; those of no element are clamped.
    Gather,
    /// What the fold that ends the program has so far; the operand is what it starts with.
    Accumulator,
    /// Reduction of the last node.
    Reduce(Reduction),
}

/// How a reduction combines the elements of an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reduction {
    /// Their sum.
    Sum,
    /// Their product.
    Product,
    /// The largest element.
    Max,
    /// The smallest element.
    Min,
    /// 1 where no element is zero, else 0.
    All,
    /// 1 where an element is not zero, else 0.
    Any,
    /// The index of the largest element.
    ArgMax,
    /// The index of the smallest element.
    ArgMin,
    /// Of any function: the operands are the accumulator and its next value, in terms of it and the inputs.
    Fold,
}

/// Types of real numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Domain {
    /// Integers and floats.
    Reals,
    /// Floats of any width.
    Floats,
    /// Signed and unsigned integers of any width.
    Integers,
}

impl Domain {
    /// Whether the type, which is not complex, belongs to it.
    pub fn has(self, ty: Type) -> bool {
        self == Reals || (self == Floats) == ty.is_float()
    }
}

/// Where the GLSL function `nx_<name>` of an op stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Formula {
    /// The file under `shaders/lib`.
    pub file: &'static str,
    /// Whether computing it takes longer than moving its operands; it is cheap otherwise. Many copies of a compute-bound formula of
    /// complex numbers take a compiler seconds, too.
    pub compute_bound: bool,
}

const fn cheap(file: &'static str) -> Option<Formula> {
    Some(Formula { file, compute_bound: false })
}

const fn compute_bound(file: &'static str) -> Option<Formula> {
    Some(Formula { file, compute_bound: true })
}

/// A row of the table: an operation of programs.
#[derive(Debug, PartialEq, Eq)]
pub struct Op {
    /// The name by which Elixir asks for it, and that its GLSL function `nx_<name>` has.
    pub name: &'static str,
    /// Its index in the table, for hashes.
    pub number: u8,
    /// Operands; for `gather` those before the indices.
    pub arity: usize,
    /// How its operands and its result are typed.
    pub typing: Typing,
    /// The formula of real numbers, where it has one.
    pub real: Option<Formula>,
    /// The formula of complex numbers, where it has one.
    pub complex: Option<Formula>,
}

/// Ops are known by their numbers.
impl Hash for Op {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.number.hash(state);
    }
}

impl Op {
    /// Whether it takes or gives complex numbers.
    pub fn has_complex(&self) -> bool {
        match self.typing {
            Convert | Select | Iota | Eye | Gather | Accumulator => true,
            Reduce(reduction) => {
                use Reduction::{All, Any, Fold, Product, Sum};
                matches!(reduction, Sum | Product | All | Any | Fold)
            }
            _ => self.complex.is_some(),
        }
    }
}

const fn op(name: &'static str, arity: usize, typing: Typing, real: Option<Formula>, complex: Option<Formula>) -> Op {
    Op { name, number: 0, arity, typing, real, complex }
}

const fn numbered<const N: usize>(mut ops: [Op; N]) -> [Op; N] {
    assert!(N <= 256);
    let mut index = 0;
    while index < N {
        ops[index].number = index as u8;
        index += 1;
    }
    ops
}

use Domain::*;
use Typing::*;

/// The table: all operations, each at the index that is its number.
#[rustfmt::skip]
pub static OPS: &[Op] = &numbered([
    op("add", 2, Own(Reals), cheap("ops/arithmetic.glsl"), cheap("complex/arithmetic.glsl")),
    op("subtract", 2, Own(Reals), cheap("ops/arithmetic.glsl"), cheap("complex/arithmetic.glsl")),
    op("multiply", 2, Own(Reals), cheap("ops/arithmetic.glsl"), cheap("complex/arithmetic.glsl")),
    op("divide", 2, Divide, cheap("math/divide.glsl"), compute_bound("complex/arithmetic.glsl")),
    op("quotient", 2, Own(Integers), cheap("ops/remainder.glsl"), None),
    op("remainder", 2, Own(Reals), compute_bound("ops/remainder.glsl"), None),
    op("pow", 2, Own(Reals), compute_bound("ops/pow.glsl"), compute_bound("complex/pow.glsl")),
    op("atan2", 2, Own(Floats), compute_bound("math/atan.glsl"), compute_bound("complex/log.glsl")),
    op("max", 2, Own(Reals), cheap("ops/extrema.glsl"), None),
    op("min", 2, Own(Reals), cheap("ops/extrema.glsl"), None),
    op("clip", 3, Own(Reals), cheap("ops/extrema.glsl"), None),
    op("bitwise_and", 2, Own(Integers), cheap("ops/bits.glsl"), None),
    op("bitwise_or", 2, Own(Integers), cheap("ops/bits.glsl"), None),
    op("bitwise_xor", 2, Own(Integers), cheap("ops/bits.glsl"), None),
    op("left_shift", 2, Own(Integers), cheap("ops/bits.glsl"), None),
    op("right_shift", 2, Own(Integers), cheap("ops/bits.glsl"), None),
    op("bitwise_not", 1, Own(Integers), cheap("ops/bits.glsl"), None),
    op("count_leading_zeros", 1, Width, cheap("ops/bits.glsl"), None),
    op("population_count", 1, Width, cheap("ops/bits.glsl"), None),
    op("equal", 2, Merged, cheap("ops/compare.glsl"), cheap("complex/compare.glsl")),
    op("not_equal", 2, Merged, cheap("ops/compare.glsl"), cheap("complex/compare.glsl")),
    op("less", 2, Merged, cheap("ops/compare.glsl"), None),
    op("less_equal", 2, Merged, cheap("ops/compare.glsl"), None),
    op("greater", 2, Merged, cheap("ops/compare.glsl"), None),
    op("greater_equal", 2, Merged, cheap("ops/compare.glsl"), None),
    op("logical_and", 2, Merged, cheap("ops/compare.glsl"), cheap("complex/compare.glsl")),
    op("logical_or", 2, Merged, cheap("ops/compare.glsl"), cheap("complex/compare.glsl")),
    op("logical_xor", 2, Merged, cheap("ops/compare.glsl"), cheap("complex/compare.glsl")),
    op("is_nan", 1, Operand, cheap("ops/compare.glsl"), cheap("complex/compare.glsl")),
    op("is_infinity", 1, Operand, cheap("ops/compare.glsl"), cheap("complex/compare.glsl")),
    op("select", 3, Select, None, None),
    op("abs", 1, Part, cheap("ops/rounding.glsl"), compute_bound("complex/abs.glsl")),
    op("negate", 1, Own(Reals), cheap("ops/rounding.glsl"), cheap("complex/arithmetic.glsl")),
    op("sign", 1, Own(Reals), cheap("ops/rounding.glsl"), cheap("complex/arithmetic.glsl")),
    op("ceil", 1, Own(Reals), cheap("ops/rounding.glsl"), None),
    op("floor", 1, Own(Reals), cheap("ops/rounding.glsl"), None),
    op("round", 1, Own(Reals), cheap("ops/rounding.glsl"), None),
    op("real", 1, Part, cheap("ops/rounding.glsl"), cheap("complex/arithmetic.glsl")),
    op("imag", 1, Part, cheap("ops/rounding.glsl"), cheap("complex/arithmetic.glsl")),
    op("conjugate", 1, Own(Floats), None, cheap("complex/arithmetic.glsl")),
    op("exp", 1, Own(Floats), compute_bound("math/exp.glsl"), compute_bound("complex/exp.glsl")),
    op("expm1", 1, Own(Floats), compute_bound("math/exp.glsl"), compute_bound("complex/exp.glsl")),
    op("log", 1, Own(Floats), compute_bound("math/log.glsl"), compute_bound("complex/log.glsl")),
    op("log1p", 1, Own(Floats), compute_bound("math/log.glsl"), compute_bound("complex/log.glsl")),
    op("sigmoid", 1, Own(Floats), compute_bound("math/exp.glsl"), compute_bound("complex/exp.glsl")),
    op("sinh", 1, Own(Floats), compute_bound("math/hyperbolic.glsl"), compute_bound("complex/hyperbolic.glsl")),
    op("cosh", 1, Own(Floats), compute_bound("math/hyperbolic.glsl"), compute_bound("complex/hyperbolic.glsl")),
    op("tanh", 1, Own(Floats), compute_bound("math/hyperbolic.glsl"), compute_bound("complex/hyperbolic.glsl")),
    op("asinh", 1, Own(Floats), compute_bound("math/hyperbolic.glsl"), compute_bound("complex/inverse.glsl")),
    op("acosh", 1, Own(Floats), compute_bound("math/hyperbolic.glsl"), compute_bound("complex/inverse.glsl")),
    op("atanh", 1, Own(Floats), compute_bound("math/hyperbolic.glsl"), compute_bound("complex/inverse.glsl")),
    op("sqrt", 1, Own(Floats), compute_bound("math/root.glsl"), compute_bound("complex/root.glsl")),
    op("rsqrt", 1, Own(Floats), compute_bound("math/root.glsl"), compute_bound("complex/root.glsl")),
    op("cbrt", 1, Own(Floats), compute_bound("math/root.glsl"), compute_bound("complex/root.glsl")),
    op("sin", 1, Own(Floats), compute_bound("math/trig.glsl"), compute_bound("complex/trig.glsl")),
    op("cos", 1, Own(Floats), compute_bound("math/trig.glsl"), compute_bound("complex/trig.glsl")),
    op("tan", 1, Own(Floats), compute_bound("math/trig.glsl"), compute_bound("complex/trig.glsl")),
    op("asin", 1, Own(Floats), compute_bound("math/asin.glsl"), compute_bound("complex/inverse.glsl")),
    op("acos", 1, Own(Floats), compute_bound("math/asin.glsl"), compute_bound("complex/inverse.glsl")),
    op("atan", 1, Own(Floats), compute_bound("math/atan.glsl"), compute_bound("complex/inverse.glsl")),
    op("erf", 1, Own(Floats), compute_bound("math/erf.glsl"), None),
    op("erfc", 1, Own(Floats), compute_bound("math/erfc.glsl"), None),
    op("erf_inv", 1, Own(Floats), compute_bound("math/erf_inv.glsl"), None),
    op("as_type", 1, Convert, None, None),
    op("bitcast", 1, Bitcast, None, None),
    op("gather", 1, Gather, cheap("indices.glsl"), cheap("indices.glsl")),
    op("iota", 0, Iota, None, None),
    op("eye", 0, Eye, None, None),
    op("sum", 1, Reduce(Reduction::Sum), None, None),
    op("product", 1, Reduce(Reduction::Product), None, None),
    op("reduce_max", 1, Reduce(Reduction::Max), None, None),
    op("reduce_min", 1, Reduce(Reduction::Min), None, None),
    op("all", 1, Reduce(Reduction::All), None, None),
    op("any", 1, Reduce(Reduction::Any), None, None),
    op("argmax", 1, Reduce(Reduction::ArgMax), None, None),
    op("argmin", 1, Reduce(Reduction::ArgMin), None, None),
    op("fold", 2, Reduce(Reduction::Fold), None, None),
    op("accumulator", 1, Accumulator, None, None),
]);

// The operations that kernels make programs of by themselves.

/// Conversion of its operand to the type of the node.
pub const AS_TYPE: &Op = find("as_type").expect("a row of the table");
/// The product of two operands.
pub const MULTIPLY: &Op = find("multiply").expect("a row of the table");
/// The sum over axes.
pub const SUM: &Op = find("sum").expect("a row of the table");

/// The op of that name.
pub const fn find(name: &str) -> Option<&'static Op> {
    let mut index = 0;
    while index < OPS.len() {
        if same(OPS[index].name.as_bytes(), name.as_bytes()) {
            return Some(&OPS[index]);
        }
        index += 1;
    }
    None
}

const fn same(mut a: &[u8], mut b: &[u8]) -> bool {
    while let ([x, rest_of_a @ ..], [y, rest_of_b @ ..]) = (a, b) {
        if *x != *y {
            return false;
        }
        (a, b) = (rest_of_a, rest_of_b);
    }
    a.is_empty() && b.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_formula_is_in_the_file_that_its_row_names() {
        for op in OPS.iter().filter(|op| op.typing != Gather) {
            let real = op.real.map(|formula| (formula, format!("nx_{}", op.name)));
            let complex = op.complex.map(|formula| (formula, format!(" nx_{}(COMPLEX", op.name)));
            for (Formula { file, .. }, function) in real.into_iter().chain(complex) {
                let source = crate::pipeline::glsl::source(&format!("lib/{file}")).expect(file);
                assert!(source.contains(&function), "{function} is not in {file}");
            }
        }
    }
}
