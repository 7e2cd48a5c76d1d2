//! Programs of chain kernels: a log-density and its gradient as steps on slots. This module owns what such a program is made of and whether it
//! is sound; it knows neither buffers nor GLSL.
//!
//! Slots are numbered. Those of the operands come first: slot 0 is the position, the others are data. Each further slot is written by one step,
//! or by several that each write a region of it.

use std::collections::BTreeMap;

use super::workgroup::{LoopStep, StepInput};
use super::{Type, op::Reduction, op::Typing};
use crate::device::Capabilities;
use crate::error::{Error, Result};

/// The most steps of a chain's program, which bounds the time to compile its kernel.
const MAX_CHAIN_STEPS: usize = 20_000;

/// An operation on matrices, which all invocations of a workgroup do together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MatrixOperation {
    /// The lower Cholesky factor of the step's input.
    Cholesky {
        /// The order of the matrix.
        order: u64,
    },
    /// The solution of triangular systems: the step's inputs are the right-hand sides and the matrix.
    Solve {
        /// The order of the matrix.
        order: u64,
        /// Whether the lower triangle is read, else the upper one.
        lower: bool,
        /// Whether the matrix is transposed.
        transposed: bool,
        /// Whether the matrix stands on the left of the solution.
        left: bool,
    },
}

impl MatrixOperation {
    /// The order of the matrix.
    pub fn order(self) -> u64 {
        match self {
            Self::Cholesky { order } | Self::Solve { order, .. } => order,
        }
    }
}

/// The steps of a log-density with its gradient, as they are given: whether they are sound is [`ChainProgram::new`]'s to say.
#[derive(Clone, Debug, Hash)]
pub struct ChainSteps {
    /// What is computed, each step after those that write what it reads.
    pub steps: Vec<LoopStep>,
    /// Operations on matrices, by the numbers of their steps. The program of such a step says what it reads and writes.
    pub matrices: BTreeMap<usize, MatrixOperation>,
    /// Types of the operands' elements.
    pub operands: Vec<Type>,
    /// The slot of the log-density: one element of the position's type.
    pub logp: usize,
    /// The slot of the gradient, of the position's shape and type.
    pub gradient: usize,
    /// Elements of the position.
    pub dimensions: u64,
}

/// A sound program.
#[derive(Clone, Debug, Hash)]
pub struct ChainProgram {
    /// What it computes.
    pub given: ChainSteps,
    /// Elements of each slot; of an operand's, the elements that it must have at least.
    pub slot_elements: Vec<u64>,
    /// The steps that write each slot.
    pub writers: Vec<Vec<usize>>,
    /// Slots whose elements have a type whatever the steps that move them say.
    pub typed: BTreeMap<usize, Type>,
}

impl ChainProgram {
    /// Fails where a step reads what is not written before, or more than there is.
    pub fn new(given: ChainSteps) -> Result<Self> {
        let argument = |text: &'static str| Err(Error::Argument(text.into()));
        if given.steps.len() > MAX_CHAIN_STEPS {
            return Err(Error::Unsupported("a log-density of more than 20,000 operations".into()));
        }
        if given.steps.iter().any(|step| step.program.checks_indices()) {
            return Err(Error::Unsupported("a chain reports no indices".into()));
        }
        let named = given.steps.iter().flat_map(|step| step.reads().chain([step.slot]));
        let slots =
            named.chain([given.logp, given.gradient]).max().map_or(0, |last| last + 1).max(given.operands.len());
        let mut program =
            Self { slot_elements: vec![0; slots], writers: vec![vec![]; slots], typed: BTreeMap::new(), given };
        let steps = &program.given.steps;
        let mut read = vec![false; slots];
        for (number, step) in steps.iter().enumerate() {
            if step.slot < program.given.operands.len() || read[step.slot] {
                return argument("steps: a slot is written before it is read, and an operand's is not");
            }
            let elements = program.slot_elements[step.slot];
            if elements != 0 && elements != step.slot_elements() {
                return Err(Error::SizeMismatch);
            }
            program.slot_elements[step.slot] = step.slot_elements();
            program.writers[step.slot].push(number);
            for (slot, elements, size) in step.required_elements() {
                read[slot] = true;
                let most = &mut program.slot_elements[slot];
                let stored = match program.given.operands.get(slot) {
                    Some(ty) => {
                        *most = elements.max(*most);
                        ty.size()
                    }
                    None => program.writers[slot].first().map_or(0, |&writer| steps[writer].program.result().size()),
                };
                if elements > *most || size != stored {
                    return Err(Error::SizeMismatch);
                }
            }
        }
        program.check_matrices()?;
        program.typed.insert(program.given.gradient, program.given.operands[0]);
        let d = program.given.dimensions;
        let ends =
            |slot: usize, elements| slot >= program.given.operands.len() && program.slot_elements[slot] == elements;
        if d == 0 || !ends(program.given.gradient, d) || !ends(program.given.logp, 1) || program.slot_elements[0] > d {
            return argument(
                "gradient: expected a slot of the position's elements, and one element of the log-density",
            );
        }
        Ok(program)
    }

    fn check_matrices(&mut self) -> Result<()> {
        for (&number, operation) in &self.given.matrices {
            let step = self.given.steps.get(number).ok_or(Error::SizeMismatch)?;
            let order = operation.order();
            let square = order.checked_mul(order).filter(|&square| order > 0 && square <= u32::MAX.into());
            let square = square.ok_or(Error::SizeMismatch)?;
            let slots: Vec<usize> = step.reads().collect();
            let real = |ty: Type| matches!(ty, Type::F32 | Type::F64);
            let types = step.program.inputs.iter().all(|input| input.ty == step.program.result());
            let elements = step.program.elements();
            let (matrix, sound) = match (operation, &slots[..]) {
                (MatrixOperation::Cholesky { .. }, &[matrix]) => (matrix, elements == square),
                (MatrixOperation::Solve { .. }, &[sides, matrix]) => {
                    (matrix, elements % order == 0 && self.slot_elements[sides] == elements)
                }
                _ => return Err(Error::Argument("matrices: expected slots of matrices".into())),
            };
            if !sound || !types || !real(step.program.result()) || step.program.output.is_some() {
                return Err(Error::SizeMismatch);
            }
            let most = &mut self.slot_elements[matrix];
            match matrix < self.given.operands.len() {
                true => *most = square.max(*most),
                false if *most != square => return Err(Error::SizeMismatch),
                false => {}
            }
            self.typed.extend(slots.into_iter().map(|slot| (slot, step.program.result())));
        }
        Ok(())
    }

    /// Fails where the device lacks a type, or emulates it by structures, and for complex numbers.
    pub fn check_types(&self, caps: &Capabilities) -> Result<()> {
        let types = |step: &LoopStep| -> Vec<Type> {
            (0..step.program.inputs.len() + step.program.nodes.len()).map(|i| step.program.type_of(i)).collect()
        };
        let all = self.given.steps.iter().flat_map(types).chain(self.given.operands.iter().copied());
        for ty in all {
            ty.check(caps)?;
            if ty.is_complex() {
                return Err(Error::Unsupported("complex numbers in a log-density".into()));
            }
        }
        let fold = |step: &LoopStep| matches!(step.program.reduced_type(), Some((Reduction::Fold, _)));
        let arg = |step: &LoopStep| step.program.nodes.iter().any(|node| matches!(node.op.typing, Typing::Accumulator));
        if self.given.steps.iter().any(|step| fold(step) || arg(step)) {
            return Err(Error::Unsupported("a reduction by a function in a log-density".into()));
        }
        Ok(())
    }

    /// The type of the position.
    pub fn real(&self) -> Type {
        self.given.operands[0]
    }

    /// The input that a step only copies, element by element, where it does nothing else.
    pub fn copied_input(&self, step: usize) -> bool {
        let LoopStep { program, inputs, .. } = &self.given.steps[step];
        match (&program.nodes[..], &inputs[..]) {
            _ if self.given.matrices.contains_key(&step) => false,
            ([node], [StepInput::Slot(_)]) => node.op.typing == Typing::Convert && node.ty == program.inputs[0].ty,
            _ => false,
        }
    }
}
