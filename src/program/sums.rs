//! Programs of several results: sums of the same axes, which go through the iteration space once.

use smallvec::SmallVec;

use super::op::{Reduction, Typing};
use super::types::Compute;
use super::{Node, Program, Type};
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

    /// The factors of the products that a sum adds up, where all of these are exact in their type: those of narrower floats in f64, and those of
    /// bf16 in f32, apart from such as exceed it.
    pub fn exact_products(&self, sum: &Node) -> Option<[usize; 2]> {
        let product = self.nodes.get(sum.args[0].checked_sub(self.inputs.len())?)?;
        let types: SmallVec<[Type; 2]> = product.args.iter().map(|&arg| self.type_of(arg)).collect();
        let exact = match product.ty {
            Type::F64 => sum.ty != Type::F64 && types.iter().all(|ty| matches!(ty.compute(), Compute::Float)),
            Type::F32 => sum.ty == Type::BF16 && types.iter().all(|&ty| ty == Type::BF16),
            _ => false,
        };
        let is_sum = matches!(self.reduction_of(sum), Some((Reduction::Sum, ty)) if ty == product.ty);
        match product.args[..] {
            [x, y] if exact && is_sum && product.op.name == "multiply" => Some([x, y]),
            _ => None,
        }
    }

    /// The program with those of its sums alone.
    pub fn with_sums(&self, sums: &[Node]) -> Self {
        let computing = &self.nodes[..self.nodes.len() - self.reductions().len()];
        Self { nodes: computing.iter().chain(sums).cloned().collect(), ..self.clone() }
    }
}
