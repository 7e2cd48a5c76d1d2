//! Programs: small typed graphs over views of buffers. An eager op is a program of one node.
//!
//! A [`Program`] says what to compute over an iteration space; [`layout`] reduces its views to as few axes as they
//! need, [`emit`] writes the kernel, and `kernels::fusion` runs it.

pub mod chain;
mod cost;
pub mod emit;
pub mod epilogue;
pub mod layout;
pub mod maps;
pub mod op;
mod padding;
pub mod rows;
mod sums;
pub mod types;
pub mod workgroup;

use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

use crate::error::{Error, Result};
use crate::memory::CheckedIndices;
use op::{Op, Typing};
pub use padding::{PaddedCoordinate, PaddedView};
pub use sums::MAX_PROGRAM_SUMS;
pub use types::Type;

/// Extents or strides, one for each axis.
pub type Axes<T> = SmallVec<[T; 8]>;

/// Where an input's elements come from.
#[derive(Clone, Debug, PartialEq, Hash)]
pub enum Source {
    /// A buffer read at `offset + Σ index·stride`, in elements, over the axes of the iteration space.
    View {
        /// Elements from the start of the buffer to the element where all indices are zero; at most [`MAX_STEP`] either way.
        offset: i64,
        /// Elements from an index to the next, one stride for each axis of the iteration space; at most [`MAX_STEP`] either way.
        strides: Axes<i64>,
    },
    /// A buffer that ends within the iteration space.
    Padded(Box<PaddedView>),
    /// One value, which each run gives.
    Scalar,
    /// One value of up to 8 bytes, which is part of the kernel: its bits as they are stored.
    Constant(u64),
}

/// What a program reads: a type, and where the elements are.
#[derive(Clone, Debug, PartialEq, Hash)]
pub struct Input {
    /// The type of the elements.
    pub ty: Type,
    /// Where the elements come from.
    pub source: Source,
}

impl Input {
    /// Whether it is the same all over the iteration space.
    fn is_one_value(&self) -> bool {
        match &self.source {
            Source::Scalar | Source::Constant(_) => true,
            Source::View { strides, .. } => strides.iter().all(|&stride| stride == 0),
            Source::Padded(_) => false,
        }
    }
}

/// What an op needs besides its operands.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Attribute {
    /// For an operation that needs nothing else.
    None,
    /// The axis of `iota`; `None` for the flat index.
    Axis(Option<usize>),
    /// Of `gather`.
    Steps {
        /// For each index: how many elements it chooses from, and their stride.
        steps: SmallVec<[(u64, i64); 4]>,
        /// What the error says where the kernel reports indices that are out of bounds. `None` where it only clamps them.
        check: Option<Arc<CheckedIndices>>,
    },
    /// The axes of a reduction, ascending.
    Axes(Axes<usize>),
    /// Of `argmax` and `argmin`: the axis, `None` for the flat index, and whether the last of equal elements wins.
    Arg {
        /// The axis that is reduced; `None` for all axes, whose flat index is the result.
        axis: Option<usize>,
        /// Whether the last of equal elements is chosen, else the first.
        last: bool,
    },
}

/// An op on inputs and earlier nodes; `ty` is the type of its result.
#[derive(Clone, Debug, Hash)]
pub struct Node {
    /// The operation, a row of [`op::OPS`].
    pub op: &'static Op,
    /// The type of the result.
    pub ty: Type,
    /// Indices into the inputs followed by the nodes.
    pub args: SmallVec<[usize; 3]>,
    /// What the operation needs besides its operands.
    pub attribute: Attribute,
}

/// Nodes over an iteration space; the last is the result, and only that one may be a reduction. A program of several results ends with
/// sums of the same axes ([`Program::check_sums`]). What runs it checks it.
#[derive(Clone, Debug, Hash)]
pub struct Program {
    /// What the program reads.
    pub inputs: SmallVec<[Input; 4]>,
    /// The operations, each after those whose results it takes. Inputs and nodes are at most [`MAX_VALUES`].
    pub nodes: SmallVec<[Node; 2]>,
    /// Extents of the iteration space.
    pub shape: Axes<u64>,
    /// Where the results go in a buffer of the caller's; `None` for a dense buffer of their own.
    pub output: Option<OutputView>,
}

/// Where results go: to `offset + Σ index·stride` over the axes of the iteration space, in elements, plus the dynamic offsets.
#[derive(Clone, Debug, Default, PartialEq, Hash)]
pub struct OutputView {
    /// Elements from the start of the buffer to the result where all indices are zero.
    pub offset: i64,
    /// Elements from an index to the next, one stride for each axis of the iteration space.
    pub strides: Axes<i64>,
    /// Offsets that the kernel reads and adds to `offset`.
    pub dynamic_offsets: SmallVec<[DynamicOffset; 4]>,
}

/// An offset that is known on the device alone: a value that the kernel reads, times `step` elements.
#[derive(Clone, Copy, Debug, PartialEq, Hash)]
pub struct DynamicOffset {
    /// The input that holds the value: one element of an integer type.
    pub value: usize,
    /// The number of values that count, from 0 on: others are clamped to the nearest of these.
    pub extent: u64,
    /// Elements that the output is shifted by for each unit of the value.
    pub step: i64,
}

/// More axes than this would only waste time: Nx itself goes no further in practice.
pub const MAX_RANK: usize = 64;

/// Offsets, strides and steps are at most this: more than any buffer holds, and sums of their products do not overflow.
pub const MAX_STEP: u64 = 1 << 48;

/// Whether a stride or offset is within [`MAX_STEP`].
pub fn step_in_bounds(step: i64) -> bool {
    step.unsigned_abs() <= MAX_STEP
}

/// Inputs and nodes of a program, so that an index fits a byte.
pub const MAX_VALUES: usize = 255;

impl Program {
    /// A program of an iteration space that has neither inputs nor nodes yet.
    pub fn over(shape: Axes<u64>) -> Self {
        Self { inputs: SmallVec::new(), nodes: SmallVec::new(), shape, output: None }
    }

    /// The program without what are parameters of its kernel: extents, strides, offsets and steps.
    pub fn without_parameters(&self) -> Self {
        let input = |input: &Input| match &input.source {
            Source::View { .. } => Input { source: Source::View { offset: 0, strides: Axes::new() }, ..*input },
            Source::Padded(padded) => Input { source: Source::Padded(padded.without_parameters().into()), ..*input },
            Source::Scalar | Source::Constant(_) => input.clone(),
        };
        let node = |node: &Node| {
            let attribute = match node.attribute {
                Attribute::Arg { last, .. } => Attribute::Arg { axis: None, last },
                Attribute::Steps { check: Some(_), .. } => {
                    Attribute::Steps { steps: SmallVec::new(), check: Some(Arc::default()) }
                }
                _ => Attribute::None,
            };
            Node { args: node.args.clone(), attribute, ..*node }
        };
        let start = |start: &DynamicOffset| DynamicOffset { value: start.value, extent: 0, step: 0 };
        let output = |output: &OutputView| OutputView {
            offset: 0,
            strides: Axes::new(),
            dynamic_offsets: output.dynamic_offsets.iter().map(start).collect(),
        };
        Self {
            inputs: self.inputs.iter().map(input).collect(),
            nodes: self.nodes.iter().map(node).collect(),
            shape: Axes::new(),
            output: self.output.as_ref().map(output),
        }
    }

    /// Fails unless the program is sound: arities, references, attributes, types and the output's view.
    pub fn check(&self) -> Result<()> {
        let reduces = |node: &Node| matches!(node.op.typing, Typing::Reduce(_));
        if self.nodes.split_last().is_some_and(|(_, before)| before.iter().any(reduces)) {
            return Err(Error::Argument("nodes: only the last node may be a reduction".into()));
        }
        self.check_nodes()?;
        if !self.folds_soundly() {
            return Err(Error::Argument(
                "nodes: a fold has one accumulator of its type, which starts with an input of one value".into(),
            ));
        }
        Ok(())
    }

    /// As [`Program::check`], of a program in which any node may be a reduction.
    fn check_nodes(&self) -> Result<()> {
        let argument = |text: &'static str| Err(Error::Argument(text.into()));
        let Self { inputs, nodes, shape, output } = self;
        if nodes.is_empty() {
            return argument("nodes: must not be empty");
        }
        if inputs.len() + nodes.len() > MAX_VALUES {
            return argument("nodes: more than 255 inputs and nodes");
        }
        if shape.len() > MAX_RANK {
            return argument("shape: more than 64 axes");
        }
        if !elements(shape).is_ok_and(|n| n <= MAX_STEP) {
            return argument("shape: too many elements");
        }
        let has_rank = |input: &Input| match &input.source {
            Source::View { strides, .. } => strides.len() == shape.len(),
            Source::Padded(padded) => padded.has_rank(shape.len()),
            Source::Scalar | Source::Constant(_) => true,
        };
        if !inputs.iter().all(has_rank) {
            return argument("inputs: one stride is needed for each axis of the iteration space");
        }
        for (index, node) in nodes.iter().enumerate() {
            let indices = if let Attribute::Steps { steps, .. } = &node.attribute { steps.len() } else { 0 };
            if node.args.len() != node.op.arity + indices {
                return argument("nodes: wrong number of operands");
            }
            if node.args.iter().any(|&arg| arg >= inputs.len() + index) {
                return argument("nodes: an operand must be an input or an earlier node");
            }
            if !self.takes_attribute(node) {
                return argument("nodes: attributes do not fit the op");
            }
        }
        output.as_ref().map_or(Ok(()), |output| self.check_output(output))?;
        self.check_types()
    }

    fn takes_attribute(&self, node: &Node) -> bool {
        use op::Reduction::{ArgMax, ArgMin};
        let rank = self.shape.len();
        match (node.op.typing, &node.attribute) {
            (Typing::Iota, Attribute::Axis(axis)) => axis.is_none_or(|axis| axis < rank),
            (Typing::Eye, Attribute::None) => rank >= 2,
            (Typing::Reduce(ArgMax | ArgMin), Attribute::Arg { axis, .. }) => axis.is_none_or(|axis| axis < rank),
            (Typing::Reduce(ArgMax | ArgMin), _) => false,
            (Typing::Reduce(_), Attribute::Axes(axes)) => {
                axes.iter().all(|&axis| axis < rank) && axes.is_sorted_by(|a, b| a < b)
            }
            (Typing::Gather, Attribute::Steps { steps, .. }) => {
                let view = self.inputs.get(node.args[0]);
                view.is_some_and(|input| matches!(input.source, Source::View { .. }))
                    && steps.iter().all(|&(extent, step)| (1..=MAX_STEP).contains(&extent) && step_in_bounds(step))
            }
            (Typing::Iota | Typing::Eye | Typing::Gather | Typing::Reduce(_), _) => false,
            (_, attribute) => *attribute == Attribute::None,
        }
    }

    /// Whether there is one accumulator where the program ends with a fold, and none where it does not.
    fn folds_soundly(&self) -> bool {
        let accumulators = self.nodes.iter().filter(|node| node.op.typing == Typing::Accumulator).count();
        let Some(last) = self.nodes.last().filter(|last| last.op.typing == Typing::Reduce(op::Reduction::Fold)) else {
            return accumulators == 0;
        };
        let node = last.args[0].checked_sub(self.inputs.len()).map(|index| &self.nodes[index]);
        let first = node.filter(|node| node.op.typing == Typing::Accumulator && node.ty == last.ty);
        accumulators == 1 && first.and_then(|node| self.inputs.get(node.args[0])).is_some_and(Input::is_one_value)
    }

    fn check_output(&self, output: &OutputView) -> Result<()> {
        let argument = |text: &'static str| Err(Error::Argument(text.into()));
        if self.reduced_axes().is_some() || output.strides.len() != self.shape.len() {
            return argument("output: one stride is needed for each axis, and no reduction");
        }
        let sound = |start: &DynamicOffset| {
            let value = self.inputs.get(start.value).filter(|input| !input.ty.is_float() && !input.ty.is_complex());
            let in_buffer =
                value.is_some_and(|input| matches!(input.source, Source::View { .. }) && input.is_one_value());
            in_buffer && (1..=MAX_STEP).contains(&start.extent) && step_in_bounds(start.step)
        };
        if !output.dynamic_offsets.iter().all(sound) {
            return argument("output: a dynamic offset must be one integer in a buffer, and have an extent");
        }
        Ok(())
    }

    fn check_types(&self) -> Result<()> {
        for node in &self.nodes {
            let fits = match node.op.typing {
                Typing::Gather => {
                    let is_index = |&arg: &usize| !self.type_of(arg).is_float() && !self.type_of(arg).is_complex();
                    node.ty == self.type_of(node.args[0]) && node.args[1..].iter().all(is_index)
                }
                _ if self.is_complex(node) => node.op.has_complex(),
                Typing::Bitcast => self.type_of(node.args[0]).bits() == node.ty.bits(),
                Typing::Own(domain) => node.op.real.is_some() && domain.has(node.ty),
                Typing::Divide => node.ty.is_float(),
                Typing::Width => !self.type_of(node.args[0]).is_float(),
                _ => true,
            };
            if !fits {
                return Err(Error::Argument(
                    format!("nodes: {} is not defined for the type {}", node.op.name, node.ty.suffix()).into(),
                ));
            }
        }
        Ok(())
    }

    /// The type of an input or node by its index.
    pub fn type_of(&self, index: usize) -> Type {
        match self.inputs.get(index) {
            Some(input) => input.ty,
            None => self.nodes[index - self.inputs.len()].ty,
        }
    }

    /// The operations in their order, each once, and the type of the results.
    pub fn summary(&self) -> String {
        let mut names: Vec<(&str, usize)> = vec![];
        for node in &self.nodes {
            match names.iter_mut().find(|(name, _)| *name == node.op.name) {
                Some((_, count)) => *count += 1,
                None => names.push((node.op.name, 1)),
            }
        }
        let named = |(name, count): &(&str, usize)| match count {
            1 => (*name).to_owned(),
            _ => format!("{count} {name}"),
        };
        let names: Vec<String> = names.iter().map(named).collect();
        format!("{} → {}", names.join(", "), self.result().suffix())
    }

    /// The steps of each `gather` that reads the input.
    pub fn steps(&self, input: usize) -> impl Iterator<Item = &SmallVec<[(u64, i64); 4]>> {
        self.nodes.iter().filter_map(move |node| match &node.attribute {
            Attribute::Steps { steps, .. } if node.args[0] == input => Some(steps),
            _ => None,
        })
    }

    /// Whether a `gather` reports indices that are out of bounds.
    pub fn checks_indices(&self) -> bool {
        self.nodes.iter().any(|node| matches!(node.attribute, Attribute::Steps { check: Some(_), .. }))
    }

    /// What is added to the output's offset.
    pub fn dynamic_offsets(&self) -> &[DynamicOffset] {
        self.output.as_ref().map_or(&[], |output| &output.dynamic_offsets)
    }

    /// The type of the results.
    pub fn result(&self) -> Type {
        self.nodes[self.nodes.len() - 1].ty
    }

    /// Whether the node gives or takes complex numbers.
    pub fn is_complex(&self, node: &Node) -> bool {
        node.ty.is_complex() || node.args.iter().any(|&arg| self.type_of(arg).is_complex())
    }

    /// Elements of the iteration space.
    pub fn elements(&self) -> u64 {
        self.shape.iter().product()
    }

    /// The reduction that ends the program, with the type of what it reduces: sums and products convert to the
    /// result's type first, as Nx does.
    pub fn reduced_type(&self) -> Option<(op::Reduction, Type)> {
        self.reduction_of(self.nodes.last()?)
    }

    /// The node's reduction, if it is one, with the type of what it reduces.
    pub fn reduction_of(&self, last: &Node) -> Option<(op::Reduction, Type)> {
        let Typing::Reduce(reduction) = last.op.typing else { return None };
        let ty = match reduction {
            // A program may sum wider values than its result holds.
            op::Reduction::Sum | op::Reduction::Product if last.ty.is_float() || last.ty.is_complex() => {
                last.ty.merge(self.type_of(last.args[0]))
            }
            op::Reduction::Sum | op::Reduction::Product | op::Reduction::Fold => last.ty,
            _ => self.type_of(last.args[0]),
        };
        Some((reduction, ty))
    }

    /// The program that computes what this one reduces, and the reduction of its dense result; `None` where inputs are reduced as they are,
    /// and where what is reduced depends on the accumulator.
    pub fn computed_first(&self) -> Option<[Self; 2]> {
        let (last, computing) = self.nodes.split_last()?;
        let reduced = *last.args.first()?;
        if !matches!(last.op.typing, Typing::Reduce(reduction) if reduction != op::Reduction::Fold) {
            return None;
        }
        let nodes = computing.get(..=reduced.checked_sub(self.inputs.len())?)?;
        let source = Source::View { offset: 0, strides: dense_strides(&self.shape) };
        let reduction = Node { args: smallvec![0], ..last.clone() };
        Some([
            Self { nodes: nodes.into(), ..self.clone() },
            Self {
                inputs: smallvec![Input { ty: self.type_of(reduced), source }],
                nodes: smallvec![reduction],
                shape: self.shape.clone(),
                output: None,
            },
        ])
    }

    /// The axes that the program's reduction reduces; `None` where it has none.
    pub fn reduced_axes(&self) -> Option<Axes<usize>> {
        let last = self.nodes.last()?;
        let Typing::Reduce(_) = last.op.typing else { return None };
        Some(match &last.attribute {
            Attribute::Axes(axes) => axes.clone(),
            Attribute::Arg { axis: Some(axis), .. } => SmallVec::from_slice(&[*axis]),
            _ => (0..self.shape.len()).collect(),
        })
    }
}

/// How many elements a shape has; fails beyond 64 bits.
pub fn elements(shape: &[u64]) -> Result<u64> {
    shape.iter().try_fold(1u64, |n, &dim| n.checked_mul(dim)).ok_or(Error::SizeMismatch)
}

/// Row-major strides of a dense tensor, in elements.
pub fn dense_strides(shape: &[u64]) -> Axes<i64> {
    let mut strides: Axes<i64> = SmallVec::from_elem(1, shape.len());
    for axis in (0..shape.len().saturating_sub(1)).rev() {
        strides[axis] = strides[axis + 1] * shape[axis + 1] as i64;
    }
    strides
}

/// Strides with which a dense tensor of `shape` is read over the iteration space `over`, broadcast from the last axes
/// on; `None` where it does not broadcast to it.
pub fn broadcast_strides(shape: &[u64], over: &[u64]) -> Option<Axes<i64>> {
    let missing = over.len().checked_sub(shape.len())?;
    let mut strides: Axes<i64> = SmallVec::from_elem(0, over.len());
    let mut dense = 1;
    for (axis, &dim) in shape.iter().enumerate().rev().filter(|&(_, &dim)| dim != 1) {
        if dim != over[missing + axis] {
            return None;
        }
        strides[missing + axis] = dense;
        dense *= dim as i64;
    }
    Some(strides)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broadcasting_aligns_the_last_axes() {
        let strides = |shape: &[u64], over: &[u64]| broadcast_strides(shape, over).map(|s| s.to_vec());
        assert_eq!(strides(&[], &[2, 3]), Some(vec![0, 0]));
        assert_eq!(strides(&[3], &[2, 3]), Some(vec![0, 1]));
        assert_eq!(strides(&[2, 1], &[2, 3]), Some(vec![1, 0]));
        assert_eq!(strides(&[4, 2, 3], &[4, 2, 3]), Some(vec![6, 3, 1]));
        assert_eq!(strides(&[2], &[2, 3]), None);
        assert_eq!(strides(&[1, 2, 3], &[2, 3]), None);
    }

    #[test]
    fn ops_are_refused_for_types_that_they_have_no_formula_of() {
        let taken = |name: &str, ty: Type| {
            let op = op::find(name).unwrap();
            let inputs = (0..op.arity).map(|_| Input { ty, source: Source::Scalar }).collect();
            let node = Node { op, ty, args: (0..op.arity).collect(), attribute: Attribute::None };
            let nodes = SmallVec::from_iter([node]);
            Program { inputs, nodes, shape: Axes::new(), output: None }.check().is_ok()
        };
        let taken = |name| [Type::S32, Type::F32, Type::C64].map(|ty| taken(name, ty));
        assert_eq!(taken("add"), [true, true, true]);
        assert_eq!(taken("max"), [true, true, false]);
        assert_eq!(taken("quotient"), [true, false, false]);
        assert_eq!(taken("population_count"), [true, false, false]);
        assert_eq!(taken("exp"), [false, true, true]);
        assert_eq!(taken("erf"), [false, true, false]);
        assert_eq!(taken("conjugate"), [false, false, true]);
    }
}
