//! Graphs: the commands of a call, to be replayed on other operands.

use std::cell::RefCell;

use smallvec::SmallVec;

use super::capture::{Capture, CapturedCommand, CapturedLaunch, Index, add};
use super::context::{Context, Operand};
use super::params::Slot;
use super::plan::MemoryPlan;
use crate::error::{Attempt, Error};
use crate::memory::{Allocation, AllocationHandle, Buffer};

/// The commands of a call, valid as long as the device, which lives as long as the process.
pub struct Graph {
    /// Bytes of the operands' buffers; `None` for values.
    operands: SmallVec<[Option<u64>; 4]>,
    /// Sizes of the memory that the commands write.
    memory: SmallVec<[u64; 2]>,
    /// For each allocation that the commands write the position of its memory.
    slots: SmallVec<[usize; 4]>,
    /// The positions of the results' memory, and their sizes in bytes.
    results: SmallVec<[(usize, u64); 2]>,
    commands: Vec<CapturedCommand>,
}

impl Graph {
    /// Runs a call and captures it: its results, and its graph where it did nothing but record commands on its operands and on what
    /// commands wrote before. A replay is right where everything that the call depends on is the same but the operands' memory and values:
    /// also which of the operands are one buffer.
    pub fn capture<const N: usize>(
        cx: &Context,
        operands: &[Operand],
        call: impl FnOnce(&Context) -> Attempt<[Buffer; N]>,
    ) -> Attempt<([Buffer; N], Option<Self>)> {
        let capture = Some(RefCell::new(Capture::new(operands)));
        let capturing = Context { gpu: cx.gpu, blocking: cx.blocking, capture };
        let results = call(&capturing)?;
        let graph = capturing.capture.and_then(|capture| Self::of(capture.into_inner(), operands, &results));
        Ok((results, graph))
    }

    fn of(capture: Capture, operands: &[Operand], results: &[Buffer]) -> Option<Self> {
        if !capture.complete {
            return None;
        }
        let made = |buffer: &Buffer| capture.position_made(&*buffer.allocation().ok()?);
        let kept: Vec<usize> = results.iter().map(made).collect::<Option<_>>()?;
        let buffers = capture.buffers();
        let uses: Vec<SmallVec<[usize; 6]>> = capture.commands.iter().map(|c| made_of(c, buffers)).collect();
        let sizes: Vec<u64> = capture.made.iter().map(|made| made.1).collect();
        let plan = MemoryPlan::new(&sizes, &uses, &kept);
        let result = |(&made, buffer): (&usize, &Buffer)| (plan.slots[made], buffer.len());
        Some(Self {
            operands: operands.iter().map(Operand::bytes).collect(),
            results: kept.iter().zip(results).map(result).collect(),
            memory: SmallVec::from_vec(plan.sizes),
            slots: SmallVec::from_vec(plan.slots),
            commands: capture.commands,
        })
    }

    /// Whether the operands have buffers of the captured sizes, and values where the captured ones had.
    pub fn fits(&self, operands: &[Operand]) -> bool {
        self.operands.iter().copied().eq(operands.iter().map(Operand::bytes))
    }

    /// How many commands a replay records.
    pub fn commands(&self) -> usize {
        self.commands.len()
    }

    /// Records the commands on operands that fit; the results are new dense buffers.
    pub fn replay<const N: usize>(&self, cx: &Context, operands: &[Operand]) -> Attempt<[Buffer; N]> {
        cx.blocking.require_for(self.commands.len() as u64)?;
        let mut memory: SmallVec<[Option<AllocationHandle>; 2]> = SmallVec::new();
        for &bytes in &self.memory {
            memory.push(Some(cx.allocate(bytes)?));
        }
        {
            // Pushing takes several hundred instructions less than collecting, of some 7,000 that a call takes.
            let mut allocations: SmallVec<[&Allocation; 8]> = SmallVec::new();
            operands.iter().flat_map(Operand::allocation).for_each(|allocation| allocations.push(allocation));
            self.slots.iter().flat_map(|&slot| &memory[slot]).for_each(|handle| allocations.push(handle));
            let _guard = (self.commands.len() > 1).then(|| cx.batch());
            self.commands.iter().try_for_each(|command| command.replay(cx, operands, &allocations))?;
        }
        let mut results: SmallVec<[Buffer; 4]> = SmallVec::new();
        for &(slot, bytes) in &self.results {
            results.extend(memory[slot].take().map(|handle| Buffer::new(bytes, handle)));
        }
        let wrong = |_| Error::DispatchFailed("a graph was replayed for a call of other results".into()).into();
        results.into_vec().try_into().map_err(wrong)
    }
}

/// The allocations that a command uses among those that commands make.
fn made_of(command: &CapturedCommand, buffers: usize) -> SmallVec<[usize; 6]> {
    command.uses().iter().filter_map(|index| index.checked_sub(buffers)).collect()
}

impl CapturedCommand {
    fn replay(&self, cx: &Context, operands: &[Operand], allocations: &[&Allocation]) -> Attempt<()> {
        match self {
            CapturedCommand::Launch(launch) => launch.replay(cx, operands, allocations),
            &CapturedCommand::Zero { target, bytes } => Ok(cx.zero(allocations[target], bytes)?),
            &CapturedCommand::Copy { from, to, len } => Ok(cx.copy(&crate::stream::Copy {
                from: allocations[from.0],
                from_offset: from.1,
                to: allocations[to.0],
                to_offset: to.1,
                len,
                to_host: false,
            })?),
        }
    }
}

impl CapturedLaunch {
    fn replay(&self, cx: &Context, operands: &[Operand], allocations: &[&Allocation]) -> Attempt<()> {
        let mut reads: SmallVec<[&Allocation; 4]> = SmallVec::new();
        self.reads.iter().for_each(|&index: &Index| reads.push(allocations[index]));
        let mut writes: SmallVec<[&Allocation; 2]> = SmallVec::new();
        self.writes.iter().for_each(|&index| writes.push(allocations[index]));
        let mut words: SmallVec<[u32; 32]> = SmallVec::from_slice(&self.words);
        for (position, slot) in &self.slots {
            let words = &mut words[*position..];
            match slot {
                Slot::Address(index) => add(words, allocations[*index].address),
                Slot::Scalar { operand, words: len } => {
                    if let Operand::Scalar { value, .. } = &operands[*operand] {
                        words[..*len].copy_from_slice(&bytemuck::cast::<_, [u32; 4]>(*value)[..*len]);
                    }
                }
                Slot::Reversed => words[0] = cx.reversed(&reads, &writes),
            }
        }
        cx.dispatch(&self.pipeline, &words, self.groups, &reads, &writes)
    }
}

#[cfg(test)]
impl Graph {
    /// A graph of commands that do nothing.
    pub(super) fn empty(commands: usize) -> Self {
        let command = |_| CapturedCommand::Zero { target: 0, bytes: 0 };
        Self {
            operands: SmallVec::new(),
            memory: SmallVec::new(),
            slots: SmallVec::new(),
            results: SmallVec::new(),
            commands: (0..commands).map(command).collect(),
        }
    }
}
