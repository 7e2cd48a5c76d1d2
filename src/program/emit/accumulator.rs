//! What reductions accumulate in.

use std::fmt::Write as _;

use smallvec::SmallVec;

use super::define;
use crate::device::Capabilities;
use crate::program::layout::Layout;
use crate::program::op::Reduction;
use crate::program::types::Compute;
use crate::program::{MAX_PROGRAM_SUMS, Node, Program};

/// Parts of an accumulator at most: those for which `shaders/lib/loops/reduce.glsl` has macros. Each sum of a program may take one.
pub const MAX_PARTS: usize = MAX_PROGRAM_SUMS;

/// How a reduction accumulates, or several sums together.
pub struct Accumulator {
    /// Types of the accumulator's parts, one or two for each result.
    pub parts: SmallVec<[Compute; MAX_PARTS]>,
    /// How many results it has.
    pub results: usize,
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
pub fn sum_parts(element: Compute, caps: &Capabilities) -> SmallVec<[Compute; MAX_PARTS]> {
    use Compute::{Complex, ComplexDouble, Double, Float};
    let sum = widened(element, caps);
    let compensated = sum == element && matches!(element, Float | Double | Complex | ComplexDouble);
    SmallVec::from_elem(sum, if compensated { 2 } else { 1 })
}

impl Accumulator {
    /// The accumulator of the program's reduction, if it has one. Sums and products of narrow floats run in double, as
    /// BinaryBackend's do, or compensated where the device has no double; sums of doubles are compensated where the
    /// result is one. Sums of exact products run in the products' type.
    pub fn of(program: &Program, layout: &Layout, caps: &Capabilities) -> Option<Self> {
        let one = Self::of_node(program, program.nodes.last()?, layout.index64, caps)?;
        let results = program.reductions().len();
        let parts = one.parts.iter().copied().cycle().take(results * one.parts.len()).collect();
        Some(Self { parts, results, ..one })
    }

    /// `max` or `min` for one that accumulates keys of floats.
    pub(super) fn extremum(&self) -> Option<&'static str> {
        match self.name {
            "max_key" => Some("max"),
            "min_key" => Some("min"),
            _ => None,
        }
    }

    /// The same of a reduction of `element`s that accumulates them and no keys of them.
    pub(super) fn without_keys(self, element: Compute) -> Self {
        let Some(name) = self.extremum() else { return self };
        Self { name, parts: SmallVec::from_slice(&[element]), ..self }
    }

    /// The accumulator of a reduction.
    pub fn of_node(program: &Program, node: &Node, index64: bool, caps: &Capabilities) -> Option<Self> {
        let (reduction, element) = program.reduction_of(node)?;
        let index = if index64 { Compute::Uint64 } else { Compute::Uint };
        let (name, parts): (_, SmallVec<[Compute; MAX_PARTS]>) = match reduction {
            // Wider than the result already, as products of narrow floats are.
            Reduction::Sum if node.ty.compute() != element.compute() || program.exact_products(node).is_some() => {
                ("sum", SmallVec::from_slice(&[element.compute()]))
            }
            Reduction::Sum => ("sum", sum_parts(element.compute(), caps)),
            Reduction::Product => ("product", SmallVec::from_slice(&[widened(element.compute(), caps)])),
            Reduction::Max | Reduction::Min if element.compute() == Compute::Float => (
                if reduction == Reduction::Max { "max_key" } else { "min_key" },
                SmallVec::from_slice(&[Compute::Uint]),
            ),
            Reduction::Max => ("max", SmallVec::from_slice(&[element.compute()])),
            Reduction::Min => ("min", SmallVec::from_slice(&[element.compute()])),
            Reduction::All => ("all", SmallVec::from_slice(&[Compute::Uint])),
            Reduction::Any => ("any", SmallVec::from_slice(&[Compute::Uint])),
            Reduction::ArgMax => ("argmax", SmallVec::from_slice(&[element.compute(), index])),
            Reduction::ArgMin => ("argmin", SmallVec::from_slice(&[element.compute(), index])),
            // Its order is the function's: nothing is accumulated separately and combined.
            Reduction::Fold => return None,
        };
        Some(Self { parts, results: 1, name })
    }

    /// `f` of each part, joined.
    pub(super) fn join(&self, separator: &str, f: impl Fn(usize, Compute) -> String) -> String {
        self.parts.iter().enumerate().map(|(i, &part)| f(i, part)).collect::<Vec<_>>().join(separator)
    }

    /// The macros of the parts that `shaders/lib/loops/reduce.glsl` wants.
    pub(super) fn macros(&self, text: &mut String) {
        define(text, "PARTS", self.parts.len());
        define(text, "RESULTS", self.results);
        for (i, part) in self.parts.iter().enumerate() {
            define(text, &format!("PART{i}"), part.glsl());
            define(text, &format!("IDENTITY{i}"), self.identity(i));
        }
        define(text, "COMBINE_PARTS", self.function());
    }

    /// Bytes of all parts.
    pub fn bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.size()).sum()
    }

    /// Parts of each result.
    pub(super) fn parts_of_result(&self) -> usize {
        self.parts.len() / self.results
    }

    /// Declares the function that combines the accumulators of several sums: it calls the one of `shaders/lib/reduce.glsl` for each sum.
    pub(super) fn declare_function(&self, text: &mut String) {
        if self.results == 1 {
            return;
        }
        let list =
            |name: &str, qualifier: &str| self.join(", ", |i, part| format!("{qualifier}{} {name}{i}", part.glsl()));
        let _ = writeln!(text, "void {}({}, {}) {{", self.function(), list("a", "inout "), list("x", ""));
        let each = self.parts_of_result();
        for first in (0..self.parts.len()).step_by(each) {
            let named = |name: &str| (first..first + each).map(|i| format!("{name}{i}")).collect::<Vec<_>>().join(", ");
            let _ = writeln!(text, "  combine_{}({}, {});", self.name, named("a"), named("x"));
        }
        text.push_str("}\n");
    }

    /// What an element contributes to the first part, from its value.
    pub(super) fn contribution(&self, value: String) -> String {
        match self.name {
            "all" | "any" => format!("uint(!is_zero({value}))"),
            "max_key" | "min_key" => format!("{}({value})", self.name),
            _ if self.parts[0].is_emulated() => value,
            _ => format!("{}({value})", self.parts[0].glsl()),
        }
    }

    /// The name of the function that combines two accumulators in the first. `shaders/lib/reduce.glsl` has it for one result,
    /// [`Self::declare_function`] declares it for several sums.
    pub(super) fn function(&self) -> String {
        let several = if self.results == 1 { "" } else { "s" };
        format!("combine_{}{several}", self.name)
    }

    /// The output that the accumulator `a` of a macro ends as, by its position among the results.
    pub(super) fn finished(&self, result: usize) -> (String, Compute) {
        let first = result * self.parts_of_result();
        match (self.name, self.parts_of_result()) {
            ("sum", 2) => (format!("finish_sum(a##_{first}, a##_{})", first + 1), self.parts[first]),
            ("argmax" | "argmin", _) => ("a##_1".into(), self.parts[1]),
            ("max_key" | "min_key", _) => (format!("of_{}(a##_{first})", self.name), Compute::Float),
            _ => (format!("a##_{first}"), self.parts[first]),
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
