//! Sums whose parts lie in memory: a product that was split along k leaves them, and a kernel adds them up to the result. A row program that
//! reads the result may add them up itself, and store the result, too: that kernel is left out then.

use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

use super::epilogue::Epilogue;
use crate::device::Capabilities;
use crate::graph::{Context, Operand};
use crate::memory::AllocationHandle;
use crate::program::epilogue::EpilogueProgram;
use crate::program::op::{self, Typing};
use crate::program::rows::{MAX_OUTPUTS, RowOutput, RowProgram, SummedInput};
use crate::program::types::Compute;
use crate::program::{Attribute, Axes, Input, MAX_VALUES, Node, Program, Source, Type, dense_strides};
use crate::tuning::rows::sums_parts;

/// What a dense result was computed from.
pub struct PartialSum {
    /// The sums of the parts, those of one part after those of the other.
    partials: Arc<AllocationHandle>,
    /// How many parts there are.
    parts: u64,
    /// The type of the parts' sums.
    partial: Type,
    /// Elements of a part.
    elements: u64,
    /// The type of the sum.
    ty: Type,
    epilogue: Option<SumEpilogue>,
}

/// What was made of each sum.
struct SumEpilogue {
    program: EpilogueProgram,
    operands: Vec<(Arc<AllocationHandle>, u64)>,
}

/// A row program that adds up one of its operands, and what it reads and stores.
pub(super) struct SummingRows<'a> {
    pub rows: RowProgram,
    pub operands: SmallVec<[Operand<'a>; 8]>,
    /// Where its last result goes: the operand.
    pub sum: &'a AllocationHandle,
}

impl PartialSum {
    /// The sum in type `ty` of parts of type `partial`, and what an epilogue made of it. `None` where a row program does not compute the same, or is
    /// not faster: a sum of eight parts of f32 as bf16, with its exact conversions, takes an H200 as long as a kernel of its own.
    pub fn of(
        ty: Type,
        (partial, [parts, elements]): (Type, [u64; 2]),
        partials: &Arc<AllocationHandle>,
        epilogue: Option<&Epilogue>,
        caps: &Capabilities,
    ) -> Option<Self> {
        // Such sums are formed in double and rounded once.
        let in_double = match partial {
            Type::F64 => ty.compute() == Compute::Float,
            Type::F32 => ty == Type::F32 && caps.float64,
            _ => false,
        };
        if !in_double {
            return None;
        }
        let epilogue = match epilogue {
            None => None,
            Some(Epilogue { program, operands }) => {
                let plain = |node: &Node| {
                    !matches!(node.op.typing, Typing::Reduce(_)) && !matches!(node.attribute, Attribute::Steps { .. })
                };
                let is_plain = !program.keeps_element
                    && program.reduction.is_none()
                    && program.program.inputs.iter().all(|input| !matches!(input.source, Source::Padded(_)))
                    && program.program.nodes.iter().all(plain);
                let buffer = |operand: &Operand| Some((operand.handle()?.clone(), operand.bytes()?));
                let operands = operands.iter().map(buffer).collect::<Option<_>>().filter(|_| is_plain)?;
                Some(SumEpilogue { program: program.clone(), operands })
            }
        };
        Some(Self { partials: partials.clone(), parts, partial, elements, ty, epilogue })
    }

    /// Of the operands of a row program the first that is such a sum, with its position.
    pub(super) fn find(cx: &Context, operands: &[Operand]) -> Option<(usize, Arc<Self>)> {
        let sum = |operand: &Operand| cx.producer::<Self>(operand.allocation()?);
        operands.iter().enumerate().find_map(|(input, operand)| Some((input, sum(operand)?)))
    }

    /// The row program that computes its input `input` as this sum, where that is faster than a kernel of its own.
    pub(super) fn join<'a>(
        &'a self,
        rows: &RowProgram,
        operands: &[Operand<'a>],
        input: usize,
    ) -> Option<SummingRows<'a>> {
        let sum = operands[input].handle()?;
        // The kernel writes it while others of its invocations read.
        let same = |operand: &&Operand| operand.allocation().is_some_and(|allocation| allocation.id == sum.id);
        if operands.iter().filter(same).count() != 1 {
            return None;
        }
        let rows = self.joined(rows, input)?;
        let mut operands: SmallVec<[Operand; 8]> = operands.iter().copied().collect();
        operands[input] = Operand::Buffer(&self.partials, self.parts * self.elements * self.partial.size());
        let others = self.epilogue.iter().flat_map(|epilogue| &epilogue.operands);
        operands.extend(others.map(|(allocation, bytes)| Operand::Buffer(allocation, *bytes)));
        Some(SummingRows { rows, operands, sum })
    }

    /// The program: its inputs, those of the epilogue but for the sum's, the sum, the epilogue's nodes, and its own.
    fn joined(&self, rows: &RowProgram, input: usize) -> Option<RowProgram> {
        let program = &rows.program;
        let epilogue = self.epilogue.as_ref().map(|epilogue| &epilogue.program);
        let result = epilogue.map_or(self.ty, |epilogue| epilogue.program.result());
        let gathered = program.steps(input).next().is_some();
        let row = program.shape[program.shape.len() - rows.row_axes..].iter().product();
        let fits = program.inputs[input].ty == result
            && is_dense(&program.inputs[input].source, &program.shape)
            && program.elements() == self.elements
            && epilogue.is_none_or(|epilogue| epilogue.program.shape == program.shape)
            && self.parts * self.elements <= i32::MAX as u64
            && !gathered
            && rows.outputs.len() < MAX_OUTPUTS
            && sums_parts(self.parts, row);
        if !fits {
            return None;
        }
        let no_inputs = (0, &[][..], &[][..]);
        let (element, others, nodes) = epilogue.map_or(no_inputs, |epilogue| {
            let Program { inputs, nodes, .. } = &epilogue.program;
            (epilogue.element, &inputs[..], &nodes[..])
        });
        let own = program.inputs.len();
        let sum = own + others.len().saturating_sub(1);
        let of_epilogue = |value: usize| match value {
            _ if value == element => sum,
            _ if value < element => own + value,
            _ if value < others.len() => own + value - 1,
            _ => sum + 1 + value - others.len(),
        };
        let result = sum + nodes.len();
        let of_rows = |value: usize| match value {
            _ if value == input => result,
            _ if value < own => value,
            _ => result + 1 + value - own,
        };
        let mut inputs = program.inputs.clone();
        let strides = dense_strides(&program.shape);
        inputs[input] = Input { ty: self.partial, source: Source::View { offset: 0, strides } };
        inputs.extend(others.iter().enumerate().filter(|(i, _)| *i != element).map(|(_, other)| other.clone()));
        let node = |node: &Node, number: &dyn Fn(usize) -> usize| Node {
            args: node.args.iter().map(|&arg| number(arg)).collect(),
            ..node.clone()
        };
        let added = Node { op: op::AS_TYPE, ty: self.ty, args: smallvec![input], attribute: Attribute::None };
        let nodes = nodes.iter().map(|each| node(each, &of_epilogue));
        let nodes = [added].into_iter().chain(nodes).chain(program.nodes.iter().map(|each| node(each, &of_rows)));
        let program = Program { inputs, nodes: nodes.collect(), shape: program.shape.clone(), output: None };
        let mut outputs: Vec<RowOutput> =
            rows.outputs.iter().map(|output| RowOutput { value: of_rows(output.value), ..*output }).collect();
        outputs.push(RowOutput { value: result, of_element: true });
        let summed = Some(SummedInput { input, parts: self.parts });
        let values = program.inputs.len() + program.nodes.len();
        (values <= MAX_VALUES).then_some(RowProgram { program, row_axes: rows.row_axes, outputs, summed })
    }
}

/// Whether an input is a dense tensor from its first element on.
fn is_dense(source: &Source, shape: &[u64]) -> bool {
    let Source::View { offset: 0, strides } = source else { return false };
    let dense: Axes<i64> = dense_strides(shape);
    strides.iter().zip(&dense).zip(shape).all(|((stride, dense), &dim)| stride == dense || dim == 1)
}
