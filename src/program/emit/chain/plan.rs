//! What of a chain's program is stored in memory, what is a sum over all invocations, and in which phase each slot is known. This module
//! decides by counting operations; it emits nothing.
//!
//! A slot that is neither is computed where it is read. A phase ends where invocations meet: sums over all of them and what is stored in
//! memory are known from the next phase on.

use std::collections::BTreeSet;

use crate::program::chain::ChainProgram;
use crate::program::op::Typing;
use crate::program::workgroup::{LoopStep, StepInput};
use crate::program::{Source, dense_strides};

/// The most elements of a slot whose elements are variables of each invocation.
pub const MAX_UNIFORM_ELEMENTS: u64 = 16;
/// The most elements of a sum that are added up in one expression; where there are few results, all invocations share longer sums.
pub const MAX_UNROLLED_SUM: u64 = 16;
/// The most elements along an axis that a loop goes through in one iteration.
pub const MAX_UNROLLED_AXIS: u64 = 4;
/// Operations that computing a slot once more may cost. Storing and loading it, with a barrier, takes as long.
const RECOMPUTED_OPERATIONS: f64 = 8.0;
/// Operations that a compute-bound function and a division count as.
const COMPUTE_BOUND: f64 = 12.0;
const DIVISION: f64 = 4.0;

/// How a slot is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotKind {
    /// A buffer, or the position.
    Operand,
    /// Computed where it is read.
    Inline,
    /// Stored in memory that the invocations share.
    Memory,
    /// A reduction over all invocations.
    Shared,
}

/// What is decided of a program's slots.
pub struct Plan {
    /// How each slot is known.
    pub kinds: Vec<SlotKind>,
    /// The phase from which on each slot can be read.
    pub available: Vec<usize>,
    /// The slots that the results need.
    pub needed: Vec<bool>,
    /// The slots that the log-density alone needs. Where many steps keep no log-density, they are left out of loops.
    pub optional: Vec<bool>,
}

/// How often a step reads an input's slot.
struct Reading {
    slot: usize,
    /// At the index of the element that is computed.
    identity: bool,
    /// Elements read for each of the slot.
    ratio: f64,
}

impl Plan {
    /// Decides. `stored` are slots that have to be in memory besides.
    pub fn new(program: &ChainProgram, stored: &BTreeSet<usize>) -> Self {
        let slots = program.slot_elements.len();
        let mut plan = Self {
            kinds: vec![SlotKind::Inline; slots],
            available: vec![0; slots],
            needed: vec![false; slots],
            optional: vec![false; slots],
        };
        let matrices = program.given.matrices.keys().map(|&step| &program.given.steps[step]);
        let in_memory: BTreeSet<usize> = matrices.flat_map(|step| step.reads().chain([step.slot])).collect();
        for slot in 0..slots {
            plan.kinds[slot] = if slot < program.given.operands.len() {
                SlotKind::Operand
            } else if slot == program.given.gradient || stored.contains(&slot) || in_memory.contains(&slot) {
                SlotKind::Memory
            } else if program.writers[slot].iter().any(|&step| is_shared(&program.given.steps[step])) {
                SlotKind::Shared
            } else {
                SlotKind::Inline
            };
        }
        let of_gradient = needed(program, &[program.given.gradient]);
        plan.needed = needed(program, &[program.given.logp, program.given.gradient]);
        plan.optional = plan.needed.iter().zip(of_gradient).map(|(&all, gradient)| all && !gradient).collect();
        loop {
            plan.order(program);
            let Some(slot) = plan.too_expensive(program) else { return plan };
            plan.kinds[slot] = SlotKind::Memory;
        }
    }

    /// The phases. Slots are written before they are read, in the order of the steps.
    fn order(&mut self, program: &ChainProgram) {
        self.available.fill(0);
        for step in &program.given.steps {
            let before = step.reads().map(|slot| self.available[slot]).max().unwrap_or(0);
            let met = usize::from(matches!(self.kinds[step.slot], SlotKind::Memory | SlotKind::Shared));
            self.available[step.slot] = self.available[step.slot].max(before + met);
        }
    }

    /// A slot that costs more to be computed again than to be stored.
    fn too_expensive(&self, program: &ChainProgram) -> Option<usize> {
        let slots = program.slot_elements.len();
        let (mut costs, mut identity, mut ratio) = (vec![0.0; slots], vec![false; slots], vec![0.0; slots]);
        let mut later = vec![false; slots];
        for step in program.given.steps.iter().filter(|step| self.needed[step.slot]) {
            let phase = match self.kinds[step.slot] {
                SlotKind::Memory | SlotKind::Shared => self.available[step.slot] - 1,
                _ => self.available[step.slot],
            };
            for reading in readings(program, step) {
                identity[reading.slot] |= reading.identity;
                if !reading.identity {
                    ratio[reading.slot] += reading.ratio;
                }
                later[reading.slot] |= phase > self.available[reading.slot];
            }
            let cost = step.reads().map(|slot| self.reading_cost(program, slot, &costs)).sum::<f64>() + own_cost(step);
            let times = step.program.elements() as f64 / step.layout.outputs().max(1) as f64;
            costs[step.slot] = f64::max(costs[step.slot], cost * times);
        }
        (0..slots).find(|&slot| {
            let again = f64::from(u8::from(identity[slot])) + ratio[slot] - 1.0;
            self.kinds[slot] == SlotKind::Inline
                && self.needed[slot]
                && program.slot_elements[slot] > MAX_UNIFORM_ELEMENTS
                && costs[slot] * f64::max(again, f64::from(u8::from(later[slot]))) > RECOMPUTED_OPERATIONS
        })
    }

    fn reading_cost(&self, program: &ChainProgram, slot: usize, costs: &[f64]) -> f64 {
        match self.kinds[slot] {
            SlotKind::Inline if program.slot_elements[slot] <= MAX_UNIFORM_ELEMENTS => 0.0,
            SlotKind::Inline => costs[slot],
            SlotKind::Operand | SlotKind::Memory => 1.0,
            SlotKind::Shared => 0.0,
        }
    }
}

/// The slots that some results need.
fn needed(program: &ChainProgram, results: &[usize]) -> Vec<bool> {
    let mut needed = vec![false; program.slot_elements.len()];
    let mut work = results.to_vec();
    while let Some(slot) = work.pop() {
        if !std::mem::replace(&mut needed[slot], true) {
            let steps = program.writers[slot].iter().map(|&step| &program.given.steps[step]);
            work.extend(steps.flat_map(LoopStep::reads));
        }
    }
    needed
}

/// Whether all invocations share the step's reduction: long sums with few results.
pub fn is_shared(step: &LoopStep) -> bool {
    step.program.reduced_axes().is_some()
        && step.layout.reduced() > MAX_UNROLLED_SUM
        && step.layout.outputs() <= MAX_UNIFORM_ELEMENTS
}

fn own_cost(step: &LoopStep) -> f64 {
    let weight = |node: &crate::program::Node| match node.op.typing {
        Typing::Convert | Typing::Gather | Typing::Iota => 0.0,
        Typing::Divide => DIVISION,
        _ if node.op.real.is_some_and(|formula| formula.compute_bound) => COMPUTE_BOUND,
        _ => 1.0,
    };
    step.program.nodes.iter().map(weight).sum()
}

/// How a step reads the slots of its inputs.
fn readings<'a>(program: &'a ChainProgram, step: &'a LoopStep) -> impl Iterator<Item = Reading> + 'a {
    let inputs = step.inputs.iter().zip(&step.program.inputs).enumerate();
    inputs.filter_map(move |(index, (given, input))| {
        let (StepInput::Slot(slot), Source::View { offset, strides }) = (given, &input.source) else { return None };
        let chosen = step.program.steps(index).next().is_some() || step.program.output.is_some();
        let axes = step.program.shape.iter().copied().zip(strides.iter().copied());
        // Elements that are read again along a short axis are read in the same iteration.
        let axes: Vec<(u64, i64)> =
            axes.filter(|&(dim, stride)| dim != 1 && (stride != 0 || dim > MAX_UNROLLED_AXIS)).collect();
        let dims: Vec<u64> = axes.iter().map(|axis| axis.0).collect();
        let dense = dense_strides(&dims);
        let elements = program.slot_elements[*slot];
        let count: u64 = dims.iter().product();
        let whole = count == elements && axes.iter().zip(&dense).all(|(axis, stride)| axis.1 == *stride);
        let identity = whole && *offset == 0 && !chosen;
        Some(Reading { slot: *slot, identity, ratio: count as f64 / elements.max(1) as f64 })
    })
}
