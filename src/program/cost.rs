//! How long a program's formulas take beside its loads. This module owns what counts as long; it does not know how kernels run.

use super::op::Typing;
use super::{Node, Program};

/// The most compute-bound operations of a kernel that holds its program for several elements of a thread. Lavapipe built the
/// kernels of a definition of 150 remainders in 100 s with 13 copies each, in 1 s with one.
const MAX_COPIED_COMPUTE_BOUND: usize = 8;

impl Node {
    /// Whether it is no conversion.
    pub fn computes(&self) -> bool {
        self.op.typing != Typing::Convert
    }
}

impl Program {
    /// How many nodes have formulas that take longer than loading their operands.
    pub fn compute_bound_nodes(&self) -> usize {
        let formula = |node: &Node| if self.is_complex(node) { node.op.complex } else { node.op.real };
        self.nodes.iter().filter(|node| formula(node).is_some_and(|formula| formula.compute_bound)).count()
    }

    /// How many nodes compute: all but conversions.
    pub fn arithmetic_nodes(&self) -> u64 {
        self.nodes.iter().filter(|node| node.computes()).count() as u64
    }

    /// Whether computing takes so much longer than loading that neither the width nor the overlap of loads matters.
    pub fn is_long(&self) -> bool {
        self.compute_bound_nodes() > MAX_COPIED_COMPUTE_BOUND
    }

    /// Whether the kernel should hold the program once, and not for several elements of a thread: compilers take seconds for
    /// copies of such formulas.
    pub fn stands_once(&self) -> bool {
        self.is_long() || self.has_compute_bound_complex()
    }

    /// Whether a node has a compute-bound formula of complex numbers.
    pub fn has_compute_bound_complex(&self) -> bool {
        self.nodes
            .iter()
            .any(|node| node.op.complex.is_some_and(|formula| formula.compute_bound) && self.is_complex(node))
    }
}
