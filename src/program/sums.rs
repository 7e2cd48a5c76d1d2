//! Programs of several results: sums of the same axes, which go through the iteration space once.

use super::op::{Reduction, Typing};
use super::{Node, Program};
use crate::error::{Error, Result};

/// Sums that end a program at most. Each takes a part of an accumulator, or two.
pub const MAX_PROGRAM_SUMS: usize = 4;

impl Program {
    /// As [`Program::check`], of a program whose results are the `count` sums that end it: of the same axes, in the same types.
    pub fn check_sums(&self, count: usize) -> Result<()> {
        let argument = |text: &'static str| Err(Error::Argument(text.into()));
        if !(1..=MAX_PROGRAM_SUMS).contains(&count) || self.reductions().len() != count {
            return argument("sums: expected one to four nodes that end the program");
        }
        self.check_nodes()?;
        let first = self.inputs.len() + self.nodes.len() - count;
        let [sum, others @ ..] = self.reductions() else { return Ok(()) };
        let alike = |node: &Node| node.attribute == sum.attribute && self.reduction_of(node) == self.reduction_of(sum);
        let is_sum = matches!(self.reduction_of(sum), Some((Reduction::Sum, _)));
        if !is_sum || !others.iter().all(|node| alike(node) && node.ty == sum.ty) {
            return argument("sums: expected sums of the same axes and types");
        }
        let elementwise = |node: &Node| !matches!(node.op.typing, Typing::Reduce(_) | Typing::Accumulator);
        let computing = &self.nodes[..self.nodes.len() - count];
        if !computing.iter().all(elementwise) || self.reductions().iter().any(|node| node.args[0] >= first) {
            return argument("sums: what is summed must be element-wise");
        }
        Ok(())
    }

    /// The reductions that end the program: one at most, but for a program of several sums.
    pub fn reductions(&self) -> &[Node] {
        let computing = self.nodes.iter().rposition(|node| !matches!(node.op.typing, Typing::Reduce(_)));
        &self.nodes[computing.map_or(0, |last| last + 1)..]
    }

    /// The program with those of its sums alone.
    pub fn with_sums(&self, sums: &[Node]) -> Self {
        let computing = &self.nodes[..self.nodes.len() - self.reductions().len()];
        Self { nodes: computing.iter().chain(sums).cloned().collect(), ..self.clone() }
    }
}
