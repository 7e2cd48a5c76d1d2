//! Workgroup programs: loops over small tensors that one workgroup runs, from the first iteration to the last. This module owns what such a
//! loop is made of and whether it is sound; it knows neither buffers nor GLSL.
//!
//! A loop's tensors are in slots. Those of the operands come first, then those of the results, then those of scratch memory. Each step is a
//! [`Program`] whose inputs are slots or values and whose result goes to a slot.

use super::layout::{Layout, Pattern};
use super::{Program, Type, elements};
use crate::device::Capabilities;
use crate::error::{Error, Result};
use crate::program::types::Support;

/// The most slots of a loop, which bounds the parameters of its kernel.
const MAX_SLOTS: usize = 128;
/// The most bytes of a slot in scratch memory, far beyond what one workgroup should compute.
const MAX_SLOT_BYTES: u64 = 1 << 24;

/// What an input of a step reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StepInput {
    /// A slot.
    Slot(usize),
    /// A value in its type's representation, from the first byte on.
    Value([u8; 16]),
}

/// One step of a loop: a program on slots.
#[derive(Clone, Debug, Hash)]
pub struct LoopStep {
    /// What is computed.
    pub program: Program,
    /// The program's iteration space. No view has an offset in its address.
    pub layout: Layout,
    /// What the program's inputs read.
    pub inputs: Vec<StepInput>,
    /// The slot of the result.
    pub slot: usize,
    /// Elements of the result's slot, where the program has a view of it.
    slot_elements: u64,
}

impl LoopStep {
    /// A step whose result goes to `slot`; `slot_shape` is the shape of that slot's tensor where the program's output is a view of it.
    pub fn new(program: Program, inputs: Vec<StepInput>, slot: usize, slot_shape: &[u64]) -> Result<Self> {
        program.check()?;
        if program.checks_indices() {
            return Err(Error::Unsupported("a loop reports no indices".into()));
        }
        let mut layout = Layout::new(&program)?;
        if layout.index64 || inputs.len() != program.inputs.len() {
            return Err(Error::SizeMismatch);
        }
        for view in layout.views.iter_mut().filter(|view| view.offset != 0) {
            view.pattern = Pattern::Strided;
        }
        let slot_elements = if program.output.is_some() { elements(slot_shape)? } else { layout.outputs() };
        if layout.required_lengths[inputs.len()] > slot_elements {
            return Err(Error::SizeMismatch);
        }
        Ok(Self { program, layout, inputs, slot, slot_elements })
    }

    /// Elements that the step computes, or that it reduces.
    pub fn elements(&self) -> u64 {
        self.program.elements()
    }

    /// The slots that it reads.
    pub fn reads(&self) -> impl Iterator<Item = usize> + '_ {
        self.inputs.iter().filter_map(|input| match input {
            StepInput::Slot(slot) => Some(*slot),
            StepInput::Value(_) => None,
        })
    }

    fn bytes(&self) -> Option<u64> {
        self.slot_elements.checked_mul(self.program.result().size())
    }

    /// Each slot that it reads, with the bytes that the slot must have.
    fn required(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        let inputs = self.inputs.iter().zip(&self.program.inputs).zip(&self.layout.required_lengths);
        inputs.filter_map(|((given, input), length)| match given {
            StepInput::Slot(slot) => Some((*slot, length.saturating_mul(input.ty.size()))),
            StepInput::Value(_) => None,
        })
    }
}

/// The steps of a loop, as they are given: whether they are sound is [`WorkgroupLoop::new`]'s to say.
#[derive(Clone, Debug, Hash)]
pub struct LoopSteps {
    /// What is computed once, before the first iteration: copies of the operands, and what each iteration would compute again.
    pub setup: Vec<LoopStep>,
    /// What is computed before each iteration, the predicate last.
    pub condition: Vec<LoopStep>,
    /// What an iteration computes.
    pub body: Vec<LoopStep>,
    /// What is computed once, after the last iteration: the results.
    pub finish: Vec<LoopStep>,
    /// Scratch slots that change places after each iteration.
    pub swaps: Vec<(usize, usize)>,
    /// The slot of the predicate: the loop goes on as long as its one element is not zero.
    pub predicate: usize,
    /// The type of the predicate.
    pub predicate_type: Type,
    /// How many operands there are.
    pub operands: usize,
    /// How many results there are.
    pub results: usize,
}

/// A sound loop.
#[derive(Clone, Debug, Hash)]
pub struct WorkgroupLoop {
    /// What it computes.
    pub steps: LoopSteps,
    /// Bytes of each slot; of an operand's, the bytes that it must have at least.
    pub slot_bytes: Vec<u64>,
}

impl LoopSteps {
    /// All steps.
    pub fn all(&self) -> impl Iterator<Item = &LoopStep> {
        self.setup.iter().chain(&self.condition).chain(&self.body).chain(&self.finish)
    }
}

impl WorkgroupLoop {
    /// Fails where a step reads or writes what it may not, or more than there is.
    pub fn new(steps: LoopSteps) -> Result<Self> {
        let argument = |text: &'static str| Err(Error::Argument(text.into()));
        let named = steps.all().flat_map(|step| step.reads().chain([step.slot])).chain([steps.predicate]);
        let swapped = steps.swaps.iter().flat_map(|&(a, b)| [a, b]);
        let slots = named.chain(swapped).max().map_or(0, |last| last + 1).max(steps.operands + steps.results);
        if slots > MAX_SLOTS {
            return Err(Error::Unsupported("a loop of more than 128 tensors".into()));
        }
        let mut slot_bytes = vec![0; slots];
        for step in steps.all() {
            let bytes = step.bytes().filter(|&bytes| bytes <= MAX_SLOT_BYTES).ok_or(Error::SizeMismatch)?;
            if step.slot < steps.operands {
                return argument("steps: an operand's slot is not written");
            }
            slot_bytes[step.slot] = bytes.max(slot_bytes[step.slot]);
        }
        let scratch = steps.operands + steps.results;
        if steps.swaps.iter().any(|&(a, b)| a.min(b) < scratch || slot_bytes[a] != slot_bytes[b]) {
            return argument("swaps: slots that change places are scratch of one size");
        }
        if steps.predicate < scratch || slot_bytes[steps.predicate] < steps.predicate_type.size() {
            return argument("predicate: expected a slot of one element in scratch memory");
        }
        for (slot, bytes) in steps.all().flat_map(LoopStep::required) {
            if slot < steps.operands {
                slot_bytes[slot] = bytes.max(slot_bytes[slot]);
            } else if bytes > slot_bytes[slot] {
                return Err(Error::SizeMismatch);
            }
        }
        Ok(Self { steps, slot_bytes })
    }

    /// Fails where the device lacks a type, or has to emulate it.
    pub fn check_types(&self, caps: &Capabilities) -> Result<()> {
        let types = |step: &LoopStep| -> Vec<Type> {
            (0..step.program.inputs.len() + step.program.nodes.len()).map(|i| step.program.type_of(i)).collect()
        };
        match self.steps.all().flat_map(types).find(|ty| ty.support(caps) != Support::Device) {
            Some(ty) => Err(Error::Unsupported(format!("{} emulates {}", caps.name, ty.suffix()))),
            None => Ok(()),
        }
    }
}
