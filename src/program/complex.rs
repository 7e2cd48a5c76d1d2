//! Complex numbers in programs: which ops have formulas for them, and the type that these compute in.

use super::Type;
use super::op::{Op, Reduction, Typing};
use crate::device::Capabilities;

/// The file under `shaders/lib` with the formula `nx_<name>` of complex numbers, where the op has one.
pub fn formula(name: &str) -> Option<&'static str> {
    Some(match name {
        "add" | "subtract" | "multiply" | "divide" | "negate" | "conjugate" | "real" | "imag" | "sign" => {
            "complex/arithmetic.glsl"
        }
        "equal" | "not_equal" | "logical_and" | "logical_or" | "logical_xor" | "is_nan" | "is_infinity" => {
            "complex/compare.glsl"
        }
        "abs" => "complex/abs.glsl",
        "log" | "log1p" | "atan2" => "complex/log.glsl",
        "exp" | "expm1" | "sigmoid" | "sinh" | "cosh" | "tanh" => "complex/exp.glsl",
        "sin" | "cos" | "tan" => "complex/trig.glsl",
        "sqrt" | "rsqrt" | "cbrt" => "complex/root.glsl",
        "asin" | "acos" | "atan" | "asinh" | "acosh" | "atanh" => "complex/inverse.glsl",
        "pow" => "complex/pow.glsl",
        _ => return None,
    })
}

/// Whether the op takes or gives complex numbers.
pub fn allows(op: &Op) -> bool {
    match op.typing {
        Typing::Convert | Typing::Select | Typing::Iota | Typing::Eye | Typing::Gather | Typing::Accumulator => true,
        Typing::Reduce(reduction) => {
            use Reduction::{All, Any, Fold, Product, Sum};
            matches!(reduction, Sum | Product | All | Any | Fold)
        }
        _ => formula(op.name).is_some(),
    }
}

/// Whether the op takes complex numbers apart, so that it works in its operand's type and not in its result's.
pub fn takes_apart(op: &Op) -> bool {
    matches!(op.name, "abs" | "real" | "imag")
}

/// Whether the op's formula is long: many copies of it take a compiler seconds, and it is never the memory that limits it.
pub fn is_long(name: &str) -> bool {
    let short = ["complex/arithmetic.glsl", "complex/compare.glsl"];
    name == "divide" || formula(name).is_some_and(|file| !short.contains(&file))
}

/// The type that formulas compute in: c64 in double where the device has it, rounded once, as BinaryBackend does.
pub fn working(ty: Type, caps: &Capabilities) -> Type {
    if ty == Type::C64 && caps.float64 { Type::C128 } else { ty }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::op::OPS;

    #[test]
    fn every_formula_is_in_the_file_that_is_named() {
        for (op, file) in OPS.iter().filter_map(|op| Some((op, formula(op.name)?))) {
            let source = crate::pipeline::glsl::source(&format!("lib/{file}")).expect(file);
            assert!(source.contains(&format!(" nx_{}(COMPLEX", op.name)), "nx_{} is not in {file}", op.name);
        }
    }
}
