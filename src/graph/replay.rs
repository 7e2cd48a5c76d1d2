//! Graphs: the commands of a call, to be replayed on other operands.

use std::cell::RefCell;
use std::sync::Arc;

use smallvec::SmallVec;

use super::capture::{Capture, CapturedCommand, CapturedLaunch, Index, InnerAllocation, add};
use super::context::{Context, Operand};
use super::params::Slot;
use super::plan::MemoryPlan;
use crate::error::{Attempt, Error};
use crate::memory::{Allocation, AllocationHandle, Buffer};

/// The commands of a call, or of all calls of a definition. It is valid as long as the device, which lives as long as the process.
pub struct Graph {
    /// Bytes of the operands' buffers; `None` for values.
    operands: SmallVec<[Option<u64>; 4]>,
    /// Operands that are the buffer of an earlier one: the positions of both among the buffers.
    aliases: SmallVec<[(usize, usize); 1]>,
    /// Sizes of the memory that the commands write.
    memory: SmallVec<[u64; 2]>,
    /// For each allocation that is no operand where a replay finds it.
    sources: SmallVec<[AllocationSource; 4]>,
    /// The positions of the results' memory, and their sizes in bytes.
    results: SmallVec<[(usize, u64); 2]>,
    commands: Vec<CapturedCommand>,
    /// Whether all commands are submitted together, as the device pauses between submissions.
    batched: bool,
}

/// Where a replay finds an allocation that is no operand.
enum AllocationSource {
    /// At this position of the replay's memory.
    Memory(usize),
    /// In the graph.
    Constant(Arc<AllocationHandle>),
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
        let capturing = Context { capture, ..Context::new(cx.gpu, cx.blocking) };
        let results = call(&capturing)?;
        let graph = capturing.capture.and_then(|capture| Self::of(capture.into_inner(), &results, true));
        Ok((results, graph))
    }

    /// The graph of a complete capture with these results, which commands must have written.
    pub(super) fn of<'b>(
        capture: Capture,
        results: impl IntoIterator<Item = &'b Buffer>,
        batched: bool,
    ) -> Option<Self> {
        if !capture.complete {
            return None;
        }
        let made = |buffer: &Buffer| Some((capture.position_made(&*buffer.allocation().ok()?)?, buffer.len()));
        let kept: Vec<(usize, u64)> = results.into_iter().map(made).collect::<Option<_>>()?;
        let uses: Vec<_> = capture.commands.iter().map(|command| capture.made_by(command)).collect();
        let sizes: Vec<u64> = capture.inner.iter().map(|inner| inner.size).collect();
        let plan = MemoryPlan::new(&sizes, &uses, &kept.iter().map(|kept| kept.0).collect::<Vec<_>>());
        let alias = |(i, id)| Some((i, capture.operands[..i].iter().position(|earlier| earlier == id)?));
        let aliases = capture.operands.iter().enumerate().filter_map(alias).collect();
        let source = |(inner, slot): (InnerAllocation, usize)| match inner.constant {
            Some(constant) => AllocationSource::Constant(constant),
            None => AllocationSource::Memory(slot),
        };
        Some(Self {
            operands: capture.operand_bytes,
            aliases,
            results: kept.iter().map(|&(made, bytes)| (plan.slots[made], bytes)).collect(),
            memory: SmallVec::from_vec(plan.sizes),
            sources: capture.inner.into_iter().zip(plan.slots).map(source).collect(),
            commands: capture.commands,
            batched,
        })
    }

    /// Whether the operands have buffers of the captured sizes, and values where the captured ones had, and whether those are one buffer
    /// that were.
    pub fn fits(&self, operands: &[Operand]) -> bool {
        self.operands.iter().copied().eq(operands.iter().map(Operand::bytes)) && self.fits_aliases(operands)
    }

    fn fits_aliases(&self, operands: &[Operand]) -> bool {
        let id = |position: usize| operands.iter().filter_map(Operand::allocation).nth(position).map(|a| a.id);
        self.aliases.iter().all(|&(later, earlier)| id(later) == id(earlier))
    }

    /// How many commands a replay records.
    pub fn commands(&self) -> usize {
        self.commands.len()
    }

    /// Records the commands on operands that fit; the results are new dense buffers.
    pub fn replay<const N: usize>(&self, cx: &Context, operands: &[Operand]) -> Attempt<[Buffer; N]> {
        let wrong = |_| Error::DispatchFailed("a graph was replayed for a call of other results".into()).into();
        self.replay_all(cx, operands)?.into_vec().try_into().map_err(wrong)
    }

    /// As [`Graph::replay`], for a number of results that the caller does not know.
    pub fn replay_all(&self, cx: &Context, operands: &[Operand]) -> Attempt<SmallVec<[Buffer; 4]>> {
        cx.blocking.require_for(self.commands.len() as u64)?;
        let mut memory: SmallVec<[Option<AllocationHandle>; 2]> = SmallVec::new();
        for &bytes in &self.memory {
            memory.push(Some(cx.allocate(bytes)?));
        }
        {
            // Pushing takes several hundred instructions less than collecting, of some 7,000 that a call takes.
            let mut allocations: SmallVec<[&Allocation; 8]> = SmallVec::new();
            operands.iter().flat_map(Operand::allocation).for_each(|allocation| allocations.push(allocation));
            for source in &self.sources {
                match source {
                    AllocationSource::Memory(slot) => memory[*slot].iter().for_each(|handle| allocations.push(handle)),
                    AllocationSource::Constant(handle) => allocations.push(handle),
                }
            }
            let _guard = (self.batched && self.commands.len() > 1).then(|| cx.batch());
            self.commands.iter().try_for_each(|command| command.replay(cx, operands, &allocations))?;
        }
        let mut results: SmallVec<[Buffer; 4]> = SmallVec::new();
        for &(slot, bytes) in &self.results {
            results.extend(memory[slot].take().map(|handle| Buffer::new(bytes, handle)));
        }
        Ok(results)
    }
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
        let check = if self.checked.is_empty() { None } else { Some(cx.check(&reads)?) };
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
                Slot::Check(position) => {
                    let check = check.map(|check| check.words(&self.checked[*position]));
                    words[..4].copy_from_slice(&check.unwrap_or_default());
                }
            }
        }
        cx.dispatch(&self.pipeline, &words, self.groups, (&reads, &writes), check)
    }
}

#[cfg(test)]
impl Graph {
    /// A graph of commands that do nothing.
    pub(super) fn empty(commands: usize) -> Self {
        let command = |_| CapturedCommand::Zero { target: 0, bytes: 0 };
        Self {
            operands: SmallVec::new(),
            aliases: SmallVec::new(),
            memory: SmallVec::new(),
            sources: SmallVec::new(),
            results: SmallVec::new(),
            commands: (0..commands).map(command).collect(),
            batched: true,
        }
    }
}
