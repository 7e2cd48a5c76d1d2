//! The table of ops: name, what its operands are converted to, and where its formula stands.
//!
//! An op's formula is the GLSL function `nx_<name>`, overloaded for each compute type it takes, in the file named here.
//! Adding an op is one row and that function.

/// How an op's operands and result are typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Typing {
    /// Operands are converted to the node's type.
    Own,
    /// Operands are converted to their merged type; the result is 0 or 1.
    Merged,
    /// As `Own`, but integer operands of a float node are divided in double where the device has it.
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reduction {
    Sum,
    Product,
    Max,
    Min,
    All,
    Any,
    ArgMax,
    ArgMin,
    /// Of any function: the operands are the accumulator and its next value, in terms of it and the inputs.
    Fold,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Op {
    pub name: &'static str,
    /// Operands; for `gather` those before the indices.
    pub arity: usize,
    pub typing: Typing,
    /// File under `shaders/lib` that holds the formula, if it needs one.
    pub file: &'static str,
}

const fn op(name: &'static str, arity: usize, typing: Typing, file: &'static str) -> Op {
    Op { name, arity, typing, file }
}

use Typing::*;

#[rustfmt::skip]
pub static OPS: &[Op] = &[
    op("add", 2, Own, "ops/arithmetic.glsl"),
    op("subtract", 2, Own, "ops/arithmetic.glsl"),
    op("multiply", 2, Own, "ops/arithmetic.glsl"),
    op("divide", 2, Divide, "math/divide.glsl"),
    op("quotient", 2, Own, "ops/remainder.glsl"),
    op("remainder", 2, Own, "ops/remainder.glsl"),
    op("pow", 2, Own, "ops/pow.glsl"),
    op("atan2", 2, Own, "math/atan.glsl"),
    op("max", 2, Own, "ops/extrema.glsl"),
    op("min", 2, Own, "ops/extrema.glsl"),
    op("clip", 3, Own, "ops/extrema.glsl"),
    op("bitwise_and", 2, Own, "ops/bits.glsl"),
    op("bitwise_or", 2, Own, "ops/bits.glsl"),
    op("bitwise_xor", 2, Own, "ops/bits.glsl"),
    op("left_shift", 2, Own, "ops/bits.glsl"),
    op("right_shift", 2, Own, "ops/bits.glsl"),
    op("bitwise_not", 1, Own, "ops/bits.glsl"),
    op("count_leading_zeros", 1, Width, "ops/bits.glsl"),
    op("population_count", 1, Width, "ops/bits.glsl"),
    op("equal", 2, Merged, "ops/compare.glsl"),
    op("not_equal", 2, Merged, "ops/compare.glsl"),
    op("less", 2, Merged, "ops/compare.glsl"),
    op("less_equal", 2, Merged, "ops/compare.glsl"),
    op("greater", 2, Merged, "ops/compare.glsl"),
    op("greater_equal", 2, Merged, "ops/compare.glsl"),
    op("logical_and", 2, Merged, "ops/compare.glsl"),
    op("logical_or", 2, Merged, "ops/compare.glsl"),
    op("logical_xor", 2, Merged, "ops/compare.glsl"),
    op("is_nan", 1, Operand, "ops/compare.glsl"),
    op("is_infinity", 1, Operand, "ops/compare.glsl"),
    op("select", 3, Select, "ops/compare.glsl"),
    op("abs", 1, Own, "ops/rounding.glsl"),
    op("negate", 1, Own, "ops/rounding.glsl"),
    op("sign", 1, Own, "ops/rounding.glsl"),
    op("ceil", 1, Own, "ops/rounding.glsl"),
    op("floor", 1, Own, "ops/rounding.glsl"),
    op("round", 1, Own, "ops/rounding.glsl"),
    op("real", 1, Own, "ops/rounding.glsl"),
    op("imag", 1, Own, "ops/rounding.glsl"),
    op("conjugate", 1, Own, "complex/arithmetic.glsl"),
    op("exp", 1, Own, "math/exp.glsl"),
    op("expm1", 1, Own, "math/exp.glsl"),
    op("log", 1, Own, "math/log.glsl"),
    op("log1p", 1, Own, "math/log.glsl"),
    op("sigmoid", 1, Own, "math/exp.glsl"),
    op("sinh", 1, Own, "math/hyperbolic.glsl"),
    op("cosh", 1, Own, "math/hyperbolic.glsl"),
    op("tanh", 1, Own, "math/hyperbolic.glsl"),
    op("asinh", 1, Own, "math/hyperbolic.glsl"),
    op("acosh", 1, Own, "math/hyperbolic.glsl"),
    op("atanh", 1, Own, "math/hyperbolic.glsl"),
    op("sqrt", 1, Own, "math/root.glsl"),
    op("rsqrt", 1, Own, "math/root.glsl"),
    op("cbrt", 1, Own, "math/root.glsl"),
    op("sin", 1, Own, "math/trig.glsl"),
    op("cos", 1, Own, "math/trig.glsl"),
    op("tan", 1, Own, "math/trig.glsl"),
    op("asin", 1, Own, "math/asin.glsl"),
    op("acos", 1, Own, "math/asin.glsl"),
    op("atan", 1, Own, "math/atan.glsl"),
    op("erf", 1, Own, "math/erf.glsl"),
    op("erfc", 1, Own, "math/erfc.glsl"),
    op("erf_inv", 1, Own, "math/erf_inv.glsl"),
    op("as_type", 1, Convert, ""),
    op("bitcast", 1, Bitcast, ""),
    op("gather", 1, Gather, "indices.glsl"),
    op("iota", 0, Iota, ""),
    op("eye", 0, Eye, ""),
    op("sum", 1, Reduce(Reduction::Sum), ""),
    op("product", 1, Reduce(Reduction::Product), ""),
    op("reduce_max", 1, Reduce(Reduction::Max), ""),
    op("reduce_min", 1, Reduce(Reduction::Min), ""),
    op("all", 1, Reduce(Reduction::All), ""),
    op("any", 1, Reduce(Reduction::Any), ""),
    op("argmax", 1, Reduce(Reduction::ArgMax), ""),
    op("argmin", 1, Reduce(Reduction::ArgMin), ""),
    op("fold", 2, Reduce(Reduction::Fold), ""),
    op("accumulator", 1, Accumulator, ""),
];

/// The op of that name.
pub fn find(name: &str) -> Option<&'static Op> {
    OPS.iter().find(|op| op.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_formula_is_in_the_file_that_its_row_names() {
        for op in OPS.iter().filter(|op| !op.file.is_empty() && !matches!(op.typing, Reduce(_) | Select | Gather)) {
            let source = crate::pipeline::glsl::source(&format!("lib/{}", op.file));
            let source = source.unwrap_or_else(|| panic!("{} is missing", op.file));
            assert!(source.contains(&format!("nx_{}", op.name)), "nx_{} is not in {}", op.name, op.file);
        }
    }
}
