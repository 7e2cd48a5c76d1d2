//! Workgroup programs: loops and branches over small tensors that one workgroup runs from the first step to the last. This module owns what
//! such a program is made of and whether it is sound; it knows neither buffers nor GLSL.
//!
//! A program's tensors are in slots. Those of the operands come first, then those of the results, then those of scratch memory. Each step is a
//! [`Program`] whose inputs are slots or values and whose result goes to a slot.

use std::collections::BTreeSet;
use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

use super::layout::{Layout, Pattern};
use super::op::Reduction;
use super::{Attribute, Axes, Program, Type, elements};
use crate::device::Capabilities;
use crate::error::{Error, Result};
use crate::memory::CheckedIndices;

/// The most slots of a program, which bounds the registers and parameters of its kernel.
const MAX_SLOTS: usize = 256;
/// The most bytes of a slot in scratch memory, far beyond what one workgroup should compute.
const MAX_SLOT_BYTES: u64 = 1 << 24;
/// Bytes that slots in scratch memory are aligned to.
const SLOT_ALIGNMENT: u64 = 16;

/// What an input of a step reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StepInput {
    /// A slot.
    Slot(usize),
    /// A value in its type's representation, from the first byte on.
    Value([u8; 16]),
}

/// One step: a program on slots.
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
    /// The shape of the slot's tensor, where the program has a view of it.
    pub slot_shape: Axes<u64>,
    /// Elements of the result's slot.
    slot_elements: u64,
}

impl LoopStep {
    /// A step whose result goes to `slot`; `slot_shape` is the shape of that slot's tensor where the program's output is a view of it.
    pub fn new(program: Program, inputs: Vec<StepInput>, slot: usize, slot_shape: &[u64]) -> Result<Self> {
        program.check()?;
        program.check_unpadded()?;
        if let Some((Reduction::Fold, _)) = program.reduced_type() {
            return Err(Error::Unsupported("a loop in which a function reduces".into()));
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
        Ok(Self { program, layout, inputs, slot, slot_shape: slot_shape.into(), slot_elements })
    }

    /// Elements that the step computes, or that it reduces.
    pub fn elements(&self) -> u64 {
        self.program.elements()
    }

    /// The checks of the indices that it reads, each with its node.
    pub fn checks(&self) -> impl Iterator<Item = (usize, &Arc<CheckedIndices>)> {
        let inputs = self.program.inputs.len();
        self.program.nodes.iter().enumerate().filter_map(move |(node, own)| match &own.attribute {
            Attribute::Steps { check: Some(check), .. } => Some((inputs + node, check)),
            _ => None,
        })
    }

    /// The slots that it reads.
    pub fn reads(&self) -> impl Iterator<Item = usize> + '_ {
        self.inputs.iter().filter_map(|input| match input {
            StepInput::Slot(slot) => Some(*slot),
            StepInput::Value(_) => None,
        })
    }

    /// Elements of the result's slot.
    pub fn slot_elements(&self) -> u64 {
        self.slot_elements
    }

    fn bytes(&self) -> Option<u64> {
        self.slot_elements.checked_mul(self.program.result().size())
    }

    /// Each slot that it reads, with the elements that the slot must have, and the bytes of an element.
    pub fn required_elements(&self) -> impl Iterator<Item = (usize, u64, u64)> + '_ {
        let inputs = self.inputs.iter().zip(&self.program.inputs).zip(&self.layout.required_lengths);
        inputs.filter_map(|((given, input), &length)| match given {
            StepInput::Slot(slot) => Some((*slot, length, input.ty.size())),
            StepInput::Value(_) => None,
        })
    }

    /// Each slot that it reads, with the bytes that the slot must have.
    fn required(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        self.required_elements().map(|(slot, elements, size)| (slot, elements.saturating_mul(size)))
    }
}

/// What says whether a loop goes on, or which branch is taken: the first element of a slot in scratch memory, zero or not.
#[derive(Clone, Copy, Debug, Hash)]
pub struct Predicate {
    /// Where it is.
    pub slot: usize,
    /// The type of its element.
    pub ty: Type,
}

/// A statement of a workgroup program.
#[derive(Clone, Debug, Hash)]
pub enum Statement {
    /// A program on slots.
    Step(Box<LoopStep>),
    /// A loop.
    While(WhileStatement),
    /// One of two lists.
    Branch(BranchStatement),
}

/// A loop: the body runs as long as the predicate is not zero.
#[derive(Clone, Debug, Hash)]
pub struct WhileStatement {
    /// What is computed before each iteration, the predicate included.
    pub condition: Vec<Statement>,
    /// Whether another iteration follows.
    pub predicate: Predicate,
    /// What an iteration computes.
    pub body: Vec<Statement>,
    /// Scratch slots that change places after each iteration.
    pub swaps: Vec<(usize, usize)>,
}

/// Two lists of statements, one of which runs.
#[derive(Clone, Debug, Hash)]
pub struct BranchStatement {
    /// Which of the lists runs.
    pub predicate: Predicate,
    /// What runs where the predicate is not zero.
    pub then: Vec<Statement>,
    /// What runs where it is zero.
    pub otherwise: Vec<Statement>,
}

/// A program as it is given: whether it is sound is [`WorkgroupProgram::new`]'s to say.
#[derive(Clone, Debug, Hash)]
pub struct Statements {
    /// What is computed.
    pub list: Vec<Statement>,
    /// What is computed once, after all statements: the results.
    pub finish: Vec<LoopStep>,
    /// How many operands there are.
    pub operands: usize,
    /// How many results there are.
    pub results: usize,
}

/// A sound program.
#[derive(Clone, Debug, Hash)]
pub struct WorkgroupProgram {
    /// What it computes.
    pub given: Statements,
    /// Bytes of each slot; of an operand's, the bytes that it must have at least.
    pub slot_bytes: Vec<u64>,
    /// Slots that change places: where they are is part of the program's state.
    pub swapped: Vec<usize>,
}

impl Statement {
    /// The lists of statements within it.
    fn lists(&self) -> SmallVec<[&[Statement]; 2]> {
        match self {
            Self::Step(_) => SmallVec::new(),
            Self::While(own) => smallvec![&own.condition[..], &own.body[..]],
            Self::Branch(own) => smallvec![&own.then[..], &own.otherwise[..]],
        }
    }

    fn step(&self) -> Option<&LoopStep> {
        match self {
            Self::Step(step) => Some(step),
            _ => None,
        }
    }

    fn predicate(&self) -> Option<Predicate> {
        match self {
            Self::Step(_) => None,
            Self::While(own) => Some(own.predicate),
            Self::Branch(own) => Some(own.predicate),
        }
    }
}

/// The statements of a list and of all lists within it, each before those that it contains.
pub fn all_statements(list: &[Statement]) -> Vec<&Statement> {
    let mut all = vec![];
    let mut rest: Vec<&Statement> = list.iter().rev().collect();
    while let Some(statement) = rest.pop() {
        all.push(statement);
        rest.extend(statement.lists().into_iter().flatten().rev());
    }
    all
}

/// How many loops there are in a list, those within others included.
pub fn loops(list: &[Statement]) -> usize {
    all_statements(list).iter().filter(|statement| matches!(statement, Statement::While(_))).count()
}

impl Statements {
    /// All steps, in the order of the text.
    pub fn steps(&self) -> impl Iterator<Item = &LoopStep> {
        all_statements(&self.list).into_iter().filter_map(Statement::step).chain(&self.finish)
    }

    fn swaps(&self) -> impl Iterator<Item = (usize, usize)> {
        let swaps = |statement: &Statement| match statement {
            Statement::While(own) => own.swaps.clone(),
            _ => vec![],
        };
        all_statements(&self.list).into_iter().flat_map(swaps)
    }

    /// What loops and branches test.
    pub fn predicates(&self) -> impl Iterator<Item = Predicate> {
        all_statements(&self.list).into_iter().filter_map(Statement::predicate)
    }
}

impl WorkgroupProgram {
    /// Fails where the steps read or write what they may not, or more than there is.
    pub fn new(given: Statements) -> Result<Self> {
        let argument = |text: &'static str| Err(Error::Argument(text.into()));
        let named = given.steps().flat_map(|step| step.reads().chain([step.slot]));
        let named = named.chain(given.predicates().map(|predicate| predicate.slot));
        let swapped = given.swaps().flat_map(|(a, b)| [a, b]);
        let slots = named.chain(swapped).max().map_or(0, |last| last + 1).max(given.operands + given.results);
        if slots > MAX_SLOTS {
            return Err(Error::Unsupported("a loop of more than 256 tensors".into()));
        }
        let mut slot_bytes = vec![0; slots];
        for step in given.steps() {
            let bytes = step.bytes().filter(|&bytes| bytes <= MAX_SLOT_BYTES).ok_or(Error::SizeMismatch)?;
            if step.slot < given.operands {
                return argument("steps: an operand's slot is not written");
            }
            slot_bytes[step.slot] = bytes.max(slot_bytes[step.slot]);
        }
        let scratch = given.operands + given.results;
        if given.swaps().any(|(a, b)| a.min(b) < scratch || slot_bytes[a] != slot_bytes[b]) {
            return argument("swaps: slots that change places are scratch of one size");
        }
        if given.predicates().any(|own| own.slot < scratch || slot_bytes[own.slot] < own.ty.size()) {
            return argument("predicate: expected a slot of one element in scratch memory");
        }
        for (slot, bytes) in given.steps().flat_map(LoopStep::required) {
            if slot < given.operands {
                slot_bytes[slot] = bytes.max(slot_bytes[slot]);
            } else if bytes > slot_bytes[slot] {
                return Err(Error::SizeMismatch);
            }
        }
        let swapped = given.swaps().flat_map(|(a, b)| [a, b]).collect::<BTreeSet<_>>().into_iter().collect();
        Ok(Self { given, slot_bytes, swapped })
    }

    /// Fails where the device lacks a type, or emulates it by structures.
    pub fn check_types(&self, caps: &Capabilities) -> Result<()> {
        let types = |step: &LoopStep| -> Vec<Type> {
            (0..step.program.inputs.len() + step.program.nodes.len()).map(|i| step.program.type_of(i)).collect()
        };
        self.given.steps().flat_map(types).try_for_each(|ty| ty.check(caps))
    }

    /// Where each slot starts in scratch memory, `None` for one that has a buffer of its own, and the bytes of scratch memory. Operands that
    /// are values are there, too. `values` says of each operand whether it is one.
    pub fn scratch(&self, values: &[bool]) -> (Vec<Option<u64>>, u64) {
        let own = self.given.operands + self.given.results;
        // Its first words are the state of an unfinished program.
        let mut bytes = self.state_bytes();
        let place = |(slot, &size): (usize, &u64)| {
            (slot >= own || values.get(slot) == Some(&true)).then(|| {
                let start = bytes;
                bytes += size.max(SLOT_ALIGNMENT).next_multiple_of(SLOT_ALIGNMENT);
                start
            })
        };
        let places = self.slot_bytes.iter().enumerate().map(place).collect();
        (places, bytes)
    }

    /// Bytes of the state: two words that say where the program goes on, and two for each slot that changes places.
    fn state_bytes(&self) -> u64 {
        (8 + 8 * self.swapped.len() as u64).next_multiple_of(SLOT_ALIGNMENT)
    }
}
