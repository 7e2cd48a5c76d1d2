//! Loops that run on the device: a loop is decoded and checked once, and run by its reference.

use rustler::{Resource, ResourceArc, Term};

use super::assemble::dynamic_offset_arg;
use super::program::{InputOperand, InputTerms, add_inputs, input_terms, node_arg};
use super::*;
use crate::graph::Operand;
use crate::kernels::device_loop::DeviceLoop;
use crate::memory::{AllocationHandle, Blocking};
use crate::program::workgroup::{LoopStep, LoopSteps, StepInput};
use crate::program::{OutputView, Program};

struct LoopResource(DeviceLoop);

#[rustler::resource_impl]
impl Resource for LoopResource {}

/// A loop as a BEAM resource.
struct LoopRef(ResourceArc<LoopResource>);

impl Encoder for LoopRef {
    fn encode<'a>(&self, env: Env<'a>) -> Term<'a> {
        self.0.encode(env)
    }
}

pair!(loop_new, loop_new_dirty, (steps), reply, new);
pair!(loop_run, loop_run_dirty, (reference, operands, dispatch), reply, run);

/// `steps` is `{setup, condition, body, finish, swaps, {predicate, type}, {operands, results}}`, see [`LoopSteps`].
fn new(steps: Term, blocking: Blocking) -> Attempt<LoopRef> {
    // Steps are many terms.
    blocking.require()?;
    let [setup, condition, body, finish, swaps, predicate, counts] = tuple_arg(steps, "steps")?[..] else {
        return Err(wrong("steps", "{setup, condition, body, finish, swaps, predicate, counts}").into());
    };
    let steps = |term: Term| list_arg(term, "steps")?.map(step_arg_of).collect::<Result<Vec<_>>>();
    let (predicate, predicate_type): (Term, Term) =
        predicate.decode().map_err(|_| wrong("predicate", "{slot, type}"))?;
    let (operands, results): (Term, Term) = counts.decode().map_err(|_| wrong("counts", "{operands, results}"))?;
    let swap = |term: Term| match tuple_arg(term, "swaps")?[..] {
        [a, b] => Ok((slot_arg(a)?, slot_arg(b)?)),
        _ => Err(wrong("swaps", "pairs of slots")),
    };
    let steps = LoopSteps {
        setup: steps(setup)?,
        condition: steps(condition)?,
        body: steps(body)?,
        finish: steps(finish)?,
        swaps: list_arg(swaps, "swaps")?.map(swap).collect::<Result<_>>()?,
        predicate: slot_arg(predicate)?,
        predicate_type: type_arg(predicate_type, "predicate")?,
        operands: slot_arg(operands)?,
        results: slot_arg(results)?,
    };
    let device_loop = DeviceLoop::new(steps, &gpu(blocking)?.caps)?;
    Ok(LoopRef(ResourceArc::new(LoopResource(device_loop))))
}

/// A slot, or a number of them: small, so that nothing overflows.
fn slot_arg(term: Term) -> Result<usize> {
    let slot = size_arg(term, "slot")?;
    if slot > u16::MAX.into() { Err(wrong("slot", "a small number")) } else { Ok(slot as usize) }
}

/// `{nodes, inputs, shape, slot, view}`: inputs are those of programs, with a slot for each buffer; `view` is nil, or
/// `{shape of the slot's tensor, offset, strides, starts}`.
fn step_arg_of(term: Term) -> Result<LoopStep> {
    let [nodes, inputs, shape, slot, view] = tuple_arg(term, "steps")?[..] else {
        return Err(wrong("steps", "{nodes, inputs, shape, slot, view}"));
    };
    let mut program = Program::over(shape_arg(shape, "shape")?);
    let given = input_terms(inputs)?;
    add_inputs(&given, shape, &mut program)?;
    for node in list_arg(nodes, "nodes")? {
        program.nodes.push(node_arg(node)?);
    }
    let mut slot_shape = crate::program::Axes::new();
    if !is_nil(view) {
        let [own, offset, strides, starts] = tuple_arg(view, "view")?[..] else {
            return Err(wrong("view", "{shape, offset, strides, starts}"));
        };
        slot_shape = shape_arg(own, "view")?;
        let dynamic_offsets = list_arg(starts, "view")?.map(dynamic_offset_arg).collect::<Result<_>>()?;
        let (offset, strides) = (step_arg(offset, "view")?, steps_arg(strides, "view")?);
        program.output = Some(OutputView { offset, strides, dynamic_offsets });
    }
    let input = |terms: &InputTerms| match terms {
        InputTerms::Scalar { .. } => match terms.operand()? {
            InputOperand::Scalar(value) => Ok(StepInput::Value(value)),
            InputOperand::Buffer(..) => Err(wrong("inputs", "a slot")),
        },
        InputTerms::Tensor { buffer, .. } | InputTerms::View { buffer, .. } => slot_arg(*buffer).map(StepInput::Slot),
    };
    LoopStep::new(program, given.iter().map(input).collect::<Result<_>>()?, slot_arg(slot)?, &slot_shape)
}

/// What an operand of a call is: an allocation with its size, or a value.
enum LoopOperand {
    Buffer(std::sync::Arc<AllocationHandle>, u64),
    Value([u8; 16]),
}

/// Runs the dispatch of index `dispatch`. `operands` are buffers, and values as binaries. The answer is the most iterations that the dispatch
/// makes, and the list of the results, after the buffer of a word that is 0 where the loop has ended.
fn run(reference: Term, operands: Term, dispatch: Term, blocking: Blocking) -> Attempt<(u64, Vec<BufferRef>)> {
    // A definition that was sent comes without what it refers to here.
    let resource: ResourceArc<LoopResource> =
        reference.decode().map_err(|_| Error::Unsupported("a loop of another node".into()))?;
    let operand = |term: Term| -> Result<LoopOperand> {
        if let Ok(bytes) = term.decode::<rustler::Binary>() {
            let mut value = [0; 16];
            let taken = value.get_mut(..bytes.len()).ok_or_else(|| wrong("operands", "values of 16 bytes at most"))?;
            taken.copy_from_slice(&bytes);
            return Ok(LoopOperand::Value(value));
        }
        let buffer = buffer_arg(term, "operands")?;
        Ok(LoopOperand::Buffer(buffer.allocation()?, buffer.len()))
    };
    let given = list_arg(operands, "operands")?.map(operand).collect::<Result<Vec<_>>>()?;
    let operands: Vec<Operand> = given
        .iter()
        .enumerate()
        .map(|(index, operand)| match operand {
            LoopOperand::Buffer(allocation, bytes) => Operand::Buffer(allocation, *bytes),
            LoopOperand::Value(value) => Operand::Scalar { index, value: *value },
        })
        .collect();
    let cx = context(blocking)?;
    let iterations = resource.0.iterations(size_arg(dispatch, "dispatch")?, cx.caps());
    let results = definitions::record(reference.get_env(), &cx, |cx| resource.0.run(cx, &operands, iterations))?;
    Ok((iterations, results.into_iter().map(BufferRef::from).collect()))
}
