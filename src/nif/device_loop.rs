//! Loops and branches that run on the device: a program is decoded and checked once, and run by its reference.

use rustler::{Resource, ResourceArc, Term};

use super::assemble::dynamic_offset_arg;
use super::program::{InputOperand, InputTerms, input_terms, program_arg};
use super::*;
use crate::graph::Operand;
use crate::kernels::device_loop::{DeviceLoop, LoopState};
use crate::memory::{AllocationHandle, Blocking};
use crate::program::OutputView;
use crate::program::workgroup::{
    BranchStatement, LoopStep, Predicate, Statement, Statements, StepInput, WhileStatement,
};

/// A loop, and the device that it was lowered for.
struct LoopResource(DeviceLoop, Option<usize>);

#[rustler::resource_impl]
impl Resource for LoopResource {}

/// A loop as a BEAM resource.
struct LoopRef(ResourceArc<LoopResource>);

impl Encoder for LoopRef {
    fn encode<'a>(&self, env: Env<'a>) -> Term<'a> {
        self.0.encode(env)
    }
}

pair!(loop_new, loop_new_dirty, (program, device), reply, new);
pair!(loop_run, loop_run_dirty, (reference, operands, state, dispatches), reply, run);

mod names {
    rustler::atoms! { r#while = "while", branch }
}

/// The most loops and branches within each other.
const MAX_DEPTH: usize = 16;

/// `program` is `{statements, finish, {operands, results}}`, see [`Statements`].
fn new(program: Term, device: Term, blocking: Blocking) -> Attempt<LoopRef> {
    // Steps are many terms.
    blocking.require()?;
    let [list, finish, counts] = tuple_arg(program, "program")?[..] else {
        return Err(wrong("program", "{statements, finish, counts}").into());
    };
    let (operands, results): (Term, Term) = counts.decode().map_err(|_| wrong("counts", "{operands, results}"))?;
    let given = Statements {
        list: statements_arg(list, 0)?,
        finish: list_arg(finish, "finish")?.map(step_arg_of).collect::<Result<_>>()?,
        operands: slot_arg(operands)?,
        results: slot_arg(results)?,
    };
    let device = device_arg(device)?;
    let device_loop = DeviceLoop::new(given, &gpu_at(device, blocking)?.caps)?;
    Ok(LoopRef(ResourceArc::new(LoopResource(device_loop, device))))
}

fn statements_arg(term: Term, depth: usize) -> Result<Vec<Statement>> {
    if depth > MAX_DEPTH {
        return Err(Error::Unsupported("more than 16 loops and branches within each other".into()));
    }
    list_arg(term, "statements")?.map(|term| statement_arg(term, depth + 1)).collect()
}

/// A step, `{:while, condition, {slot, type}, body, [{slot, slot}]}` or `{:branch, {slot, type}, then, otherwise}`.
fn statement_arg(term: Term, depth: usize) -> Result<Statement> {
    let swap = |term: Term| match tuple_arg(term, "swaps")?[..] {
        [a, b] => Ok((slot_arg(a)?, slot_arg(b)?)),
        _ => Err(wrong("swaps", "pairs of slots")),
    };
    match tuple_arg(term, "statements")?[..] {
        [name, condition, predicate, body, swaps] if names::r#while() == name => Ok(Statement::While(WhileStatement {
            condition: statements_arg(condition, depth)?,
            predicate: predicate_arg(predicate)?,
            body: statements_arg(body, depth)?,
            swaps: list_arg(swaps, "swaps")?.map(swap).collect::<Result<_>>()?,
        })),
        [name, predicate, then, otherwise] if names::branch() == name => Ok(Statement::Branch(BranchStatement {
            predicate: predicate_arg(predicate)?,
            then: statements_arg(then, depth)?,
            otherwise: statements_arg(otherwise, depth)?,
        })),
        _ => step_arg_of(term).map(|step| Statement::Step(Box::new(step))),
    }
}

fn predicate_arg(term: Term) -> Result<Predicate> {
    let (slot, ty): (Term, Term) = term.decode().map_err(|_| wrong("predicate", "{slot, type}"))?;
    Ok(Predicate { slot: slot_arg(slot)?, ty: type_arg(ty, "predicate")? })
}

/// A slot, or a number of them: small, so that nothing overflows.
pub(super) fn slot_arg(term: Term) -> Result<usize> {
    let slot = size_arg(term, "slot")?;
    if slot > u16::MAX.into() { Err(wrong("slot", "a small number")) } else { Ok(slot as usize) }
}

/// `{nodes, inputs, shape, slot, view}`: inputs are those of programs, with a slot for each buffer; `view` is nil, or
/// `{shape of the slot's tensor, offset, strides, starts}`.
pub(super) fn step_arg_of(term: Term) -> Result<LoopStep> {
    let [nodes, inputs, shape, slot, view] = tuple_arg(term, "steps")?[..] else {
        return Err(wrong("steps", "{nodes, inputs, shape, slot, view}"));
    };
    let given = input_terms(inputs)?;
    let mut program = program_arg(nodes, &given, shape)?;
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
        InputTerms::Scalar { .. } | InputTerms::Constant { .. } => match terms.operand()? {
            InputOperand::Scalar(value) => Ok(StepInput::Value(value)),
            InputOperand::Buffer(..) => Err(wrong("inputs", "a slot")),
        },
        InputTerms::Tensor { buffer, .. } | InputTerms::View { buffer, .. } | InputTerms::Padded { buffer, .. } => {
            slot_arg(*buffer).map(StepInput::Slot)
        }
    };
    LoopStep::new(program, given.iter().map(input).collect::<Result<_>>()?, slot_arg(slot)?, &slot_shape)
}

/// What an operand of a call is: an allocation with its size, or a value.
enum LoopOperand {
    Buffer(std::sync::Arc<AllocationHandle>, u64),
    Value([u8; 16]),
}

/// What an unfinished program goes on from. It has addresses in it: the BEAM cannot read or write it.
struct LoopStateResource {
    device_loop: ResourceArc<LoopResource>,
    state: LoopState,
}

#[rustler::resource_impl]
impl Resource for LoopStateResource {}

/// The state of a program, whether it goes on, and its results.
type Ran = (LoopStateRef, BufferRef, Vec<BufferRef>);

struct LoopStateRef(ResourceArc<LoopStateResource>);

impl Encoder for LoopStateRef {
    fn encode<'a>(&self, env: Env<'a>) -> Term<'a> {
        self.0.encode(env)
    }
}

/// Runs dispatches on `operands`, which are buffers, and values as binaries. `dispatches` is `{index, bound}`: the index of the first, and how
/// often the program evaluates conditions at most, or nil for one dispatch. The answer is the program's state, a buffer of one word that is 0
/// where it has ended, and the list of its results. `state` is that of the dispatch before, or nil.
fn run(reference: Term, operands: Term, state: Term, dispatches: Term, blocking: Blocking) -> Attempt<Ran> {
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
    let state: Option<ResourceArc<LoopStateResource>> = match is_nil(state) {
        true => None,
        false => Some(state.decode().map_err(|_| wrong("state", "the state of a loop"))?),
    };
    if state.as_ref().is_some_and(|state| !std::ptr::eq(&*state.device_loop, &*resource)) {
        return Err(wrong("state", "the state of this loop").into());
    }
    let (dispatch, bound): (Term, Term) = dispatches.decode().map_err(|_| wrong("dispatches", "{index, bound}"))?;
    let bound = (!is_nil(bound)).then(|| size_arg(bound, "bound")).transpose()?;
    let dispatches = (size_arg(dispatch, "index")?, bound);
    let gpu = gpu_of_operands(&operands, resource.1, blocking)?;
    let mut ended = None;
    let results = definitions::record(reference.get_env(), gpu, blocking, |cx| {
        let (state, results) = resource.0.run(cx, &operands, state.as_ref().map(|own| &own.state), dispatches)?;
        ended = Some(state);
        Ok(results)
    })?;
    let state = ended.ok_or_else(|| Error::DispatchFailed("a loop has no state".into()))?;
    let state = LoopStateRef(ResourceArc::new(LoopStateResource { device_loop: resource, state }));
    let mut results = results.into_iter().map(BufferRef::from);
    let unfinished = results.next().ok_or_else(|| Error::DispatchFailed("a loop has no results".into()))?;
    Ok((state, unfinished, results.collect()))
}
