//! What reductions accumulate in.

use smallvec::SmallVec;

use super::define;
use crate::device::Capabilities;
use crate::program::layout::Layout;
use crate::program::op::Reduction;
use crate::program::types::Compute;
use crate::program::{Node, Program};

/// How a reduction accumulates.
pub struct Accumulator {
    /// Types of the accumulator's one or two parts.
    pub parts: SmallVec<[Compute; 2]>,
    name: &'static str,
}

/// What sums and products of elements are formed in: double for narrow floats where the device has it, as in
/// BinaryBackend.
pub fn widened(element: Compute, caps: &Capabilities) -> Compute {
    match element {
        Compute::Float if caps.float64 => Compute::Double,
        Compute::Complex if caps.float64 => Compute::ComplexDouble,
        other => other,
    }
}

/// What a sum of elements is accumulated in: the sum, and for floats with nothing wider what rounding dropped from it.
pub fn sum_parts(element: Compute, caps: &Capabilities) -> SmallVec<[Compute; 2]> {
    use Compute::{Complex, ComplexDouble, Double, Float};
    let sum = widened(element, caps);
    let compensated = sum == element && matches!(element, Float | Double | Complex | ComplexDouble);
    SmallVec::from_elem(sum, if compensated { 2 } else { 1 })
}

impl Accumulator {
    /// The accumulator of the program's reduction, if it has one. Sums and products of narrow floats run in double, as
    /// BinaryBackend's do, or compensated where the device has no double; sums of doubles are compensated where the
    /// result is one.
    pub fn of(program: &Program, layout: &Layout, caps: &Capabilities) -> Option<Self> {
        Self::of_node(program, program.nodes.last()?, layout.index64, caps)
    }

    /// The accumulator of a reduction.
    pub fn of_node(program: &Program, node: &Node, index64: bool, caps: &Capabilities) -> Option<Self> {
        let (reduction, element) = program.reduction_of(node)?;
        let index = if index64 { Compute::Uint64 } else { Compute::Uint };
        let (name, parts): (_, SmallVec<[Compute; 2]>) = match reduction {
            // Wider than the result already, as products of narrow floats are.
            Reduction::Sum if node.ty.compute() != element.compute() => {
                ("sum", SmallVec::from_slice(&[element.compute()]))
            }
            Reduction::Sum => ("sum", sum_parts(element.compute(), caps)),
            Reduction::Product => ("product", SmallVec::from_slice(&[widened(element.compute(), caps)])),
            Reduction::Max => ("max", SmallVec::from_slice(&[element.compute()])),
            Reduction::Min => ("min", SmallVec::from_slice(&[element.compute()])),
            Reduction::All => ("all", SmallVec::from_slice(&[Compute::Uint])),
            Reduction::Any => ("any", SmallVec::from_slice(&[Compute::Uint])),
            Reduction::ArgMax => ("argmax", SmallVec::from_slice(&[element.compute(), index])),
            Reduction::ArgMin => ("argmin", SmallVec::from_slice(&[element.compute(), index])),
            // Its order is the function's: nothing is accumulated separately and combined.
            Reduction::Fold => return None,
        };
        Some(Self { parts, name })
    }

    /// `f` of each part, joined.
    pub(super) fn join(&self, separator: &str, f: impl Fn(usize, Compute) -> String) -> String {
        self.parts.iter().enumerate().map(|(i, &part)| f(i, part)).collect::<Vec<_>>().join(separator)
    }

    /// The macros of the parts that `shaders/lib/loops/reduce.glsl` wants.
    pub(super) fn macros(&self, text: &mut String) {
        define(text, "PARTS", self.parts.len());
        for (i, part) in self.parts.iter().enumerate() {
            define(text, &format!("PART{i}"), part.glsl());
            define(text, &format!("IDENTITY{i}"), self.identity(i));
        }
        define(text, "COMBINE_PARTS", self.function());
    }

    /// The function of `shaders/lib/reduce.glsl` that combines two accumulators in the first.
    pub(super) fn function(&self) -> String {
        format!("combine_{}", self.name)
    }

    /// The output that the accumulator `a` of a macro ends as.
    pub(super) fn finished(&self) -> (&'static str, Compute) {
        match (self.name, self.parts.len()) {
            ("sum", 2) => ("finish_sum(a##_0, a##_1)", self.parts[0]),
            ("argmax" | "argmin", _) => ("a##_1", self.parts[1]),
            _ => ("a##_0", self.parts[0]),
        }
    }

    /// The identity of a part.
    pub(super) fn identity(&self, part: usize) -> String {
        let ty = self.parts[part];
        match (self.name, part) {
            ("product", _) if matches!(ty, Compute::Complex | Compute::ComplexDouble) => format!("{}(1, 0)", ty.glsl()),
            ("product", _) | ("all", _) => ty.literal(1),
            ("max" | "argmax", 0) => format!("lowest_{}()", ty.glsl()),
            ("min" | "argmin", 0) => format!("highest_{}()", ty.glsl()),
            // No element yet: any index beats it.
            ("argmax" | "argmin", _) => format!("~{}(0)", ty.glsl()),
            _ => ty.literal(0),
        }
    }
}
