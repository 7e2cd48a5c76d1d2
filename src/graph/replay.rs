//! Graphs: the commands of a call, to be replayed on other operands.

use std::cell::RefCell;
use std::sync::Arc;

use smallvec::SmallVec;

use super::capture::{Capture, CapturedCommand, CapturedLaunch, Index, InnerAllocation, add};
use super::context::{Context, Operand};
use super::params::Slot;
use super::plan::{CommandUses, MemoryPlan};
use crate::error::{Attempt, Error};
use crate::memory::{Allocation, AllocationHandle, Buffer};
use crate::stream::Binding;

/// Commands that a GPU's replay records in the time that a call takes for one: 0.2 to 0.5 µs each on an H200's host.
const REPLAYED_PER_RECORDED: u64 = 4;

/// The commands of a call, or of all calls of a definition. It is valid as long as the device, which lives as long as the process.
pub struct Graph {
    /// Bytes of the operands' buffers; `None` for values.
    operands: SmallVec<[Option<u64>; 4]>,
    /// Operands that are the buffer of an earlier one: the positions of both among the buffers.
    aliases: SmallVec<[(usize, usize); 1]>,
    /// The memory that the commands write.
    pub(super) memory: SmallVec<[GraphMemory; 2]>,
    /// Positions among the buffers of the operands that a replay takes over.
    donated: SmallVec<[usize; 1]>,
    /// For each allocation that is no operand where a replay finds it.
    pub(super) sources: SmallVec<[AllocationSource; 4]>,
    /// The positions of the results' memory, and their sizes in bytes.
    pub(super) results: SmallVec<[(usize, u64); 2]>,
    pub(super) commands: Vec<CapturedCommand>,
    /// Whether all commands are submitted together, as the device pauses between submissions.
    batched: bool,
}

/// How the graph of a capture is replayed.
pub(super) struct GraphKind {
    /// Whether all commands are submitted together, as the device pauses between submissions.
    pub batched: bool,
    /// Whether the first result shares memory with no other allocation.
    pub alone: bool,
}

/// A piece of memory that a replay's commands write.
#[derive(Clone, Copy)]
pub(super) enum GraphMemory {
    /// A new allocation of this size.
    New(u64),
    /// That of a donated operand, by its position among the buffers, of at least this size.
    Donated(usize, u64),
}

/// Where a replay finds an allocation that is no operand.
pub(super) enum AllocationSource {
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
        let graph = capturing
            .capture
            .and_then(|capture| Self::of(capture.into_inner(), &results, GraphKind { batched: true, alone: false }));
        Ok((results, graph))
    }

    /// The graph of a complete capture with these results, which commands must have written.
    pub(super) fn of<'b>(
        capture: Capture,
        results: impl IntoIterator<Item = &'b Buffer>,
        GraphKind { batched, alone }: GraphKind,
    ) -> Option<Self> {
        if !capture.complete {
            return None;
        }
        let made = |buffer: &Buffer| Some((capture.position_made(&*buffer.allocation().ok()?)?, buffer.len()));
        let kept: Vec<(usize, u64)> = results.into_iter().map(made).collect::<Option<_>>()?;
        let uses: Vec<_> = capture.commands.iter().map(|command| capture.made_by(command)).collect();
        let inner = capture.inner.len();
        let sizes = capture.inner.iter().map(|inner| inner.size).chain(capture.donated.iter().map(|donated| donated.1));
        let kept_positions: Vec<_> = kept.iter().map(|kept| kept.0).collect();
        let plan = MemoryPlan::new(
            &sizes.collect::<Vec<_>>(),
            inner,
            &uses,
            &kept_positions,
            kept_positions.first().copied().filter(|_| alone),
        );
        // Donated operands have the first slots.
        let memory = plan.sizes.iter().enumerate().map(|(slot, &size)| match capture.donated.get(slot) {
            Some(&(position, _)) => GraphMemory::Donated(position, size),
            None => GraphMemory::New(size),
        });
        let memory = memory.collect();
        let taken = |&(read, written): &(usize, usize)| plan.slots[read] == plan.slots[written];
        let left_out = |used: &CommandUses| used.copies && used.in_place.iter().any(taken);
        let mut left_out = uses.iter().map(left_out);
        let mut commands = capture.commands;
        commands.retain(|_| !left_out.next().unwrap_or(false));
        drop(left_out);
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
            memory,
            donated: capture.donated.iter().map(|donated| donated.0).collect(),
            sources: capture.inner.into_iter().zip(plan.slots).map(source).collect(),
            commands,
            batched,
        })
    }

    /// Whether the operands have buffers of the captured sizes, and values where the captured ones had, and whether those are one buffer
    /// that were.
    pub fn fits(&self, operands: &[Operand]) -> bool {
        self.operands.iter().copied().eq(operands.iter().map(Operand::bytes))
            && self.fits_aliases(operands)
            && self.fits_donated(operands)
    }

    /// Whether the donated operands have the memory that the plan gives away, and are no other operand's, too.
    fn fits_donated(&self, operands: &[Operand]) -> bool {
        if self.donated.is_empty() {
            return true;
        }
        let allocations: SmallVec<[&Allocation; 8]> = operands.iter().filter_map(Operand::allocation).collect();
        let unshared =
            |&position: &usize| allocations.iter().filter(|other| other.id == allocations[position].id).count() == 1;
        self.donated.iter().all(unshared)
            && self.memory.iter().all(|memory| match *memory {
                GraphMemory::New(_) => true,
                GraphMemory::Donated(position, size) => allocations[position].size >= size,
            })
    }

    /// The positions among the buffers of the operands that a replay takes over: nobody may use them afterwards.
    pub fn donated(&self) -> &[usize] {
        &self.donated
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
        self.replay_all(cx, operands, |_| Err(Error::Deallocated.into()))?.into_vec().try_into().map_err(wrong)
    }

    /// As [`Graph::replay`], for a number of results that the caller does not know. `donated` takes the memory of a donated operand over, or
    /// copies it where the caller keeps the operand: nothing asks for a retry once one is taken, as commands may write over it.
    pub fn replay_all(
        &self,
        cx: &Context,
        operands: &[Operand],
        donated: impl Fn(usize) -> Attempt<Arc<AllocationHandle>>,
    ) -> Attempt<SmallVec<[Buffer; 4]>> {
        self.require_time(cx, 1)?;
        let memory = self.replay_memory(cx, operands, donated)?;
        self.record(cx, operands, |slot| memory[slot].allocation(), None)?;
        let mut memory: SmallVec<[Option<ReplayMemory>; 2]> = memory.into_iter().map(Some).collect();
        let mut results: SmallVec<[Buffer; 4]> = SmallVec::new();
        for &(slot, bytes) in &self.results {
            results.extend(memory[slot].take().map(|memory| memory.into_buffer(bytes)));
        }
        Ok(results)
    }

    /// Records the commands, with the replay's memory by its slots. `moved` is a slot whose allocation is used from this byte on.
    pub(super) fn record<'m>(
        &'m self,
        cx: &Context,
        operands: &[Operand<'m>],
        memory: impl Fn(usize) -> &'m Allocation,
        moved: Option<(usize, u64)>,
    ) -> Attempt<()> {
        // Pushing takes several hundred instructions less than collecting, of some 7,000 that a call takes.
        let mut allocations: SmallVec<[&Allocation; 8]> = SmallVec::new();
        operands.iter().flat_map(Operand::allocation).for_each(|allocation| allocations.push(allocation));
        let mut offset = (usize::MAX, 0);
        for source in &self.sources {
            match source {
                AllocationSource::Memory(slot) => {
                    if let Some((moved, bytes)) = moved
                        && moved == *slot
                    {
                        offset = (allocations.len(), bytes);
                    }
                    allocations.push(memory(*slot));
                }
                AllocationSource::Constant(handle) => allocations.push(handle),
            }
        }
        let placed = Placed { allocations: &allocations, offset };
        let _guard = (self.batched && self.commands.len() > 1).then(|| cx.batch());
        self.commands.iter().try_for_each(|command| command.replay(cx, operands, placed))
    }

    /// Asks for a retry where recording the commands a number of times takes too long.
    pub(super) fn require_time(&self, cx: &Context, times: usize) -> Attempt<()> {
        let commands = (self.commands.len() * times) as u64;
        cx.blocking.require_for(if cx.caps().cpu { commands } else { commands.div_ceil(REPLAYED_PER_RECORDED) })
    }

    /// Asks for a retry where recording the commands would, other than for memory: nothing may once donated operands are written over.
    pub(super) fn require_all(&self, cx: &Context, operands: &[Operand]) -> Attempt<()> {
        let launches = || self.commands.iter().filter_map(CapturedCommand::launch);
        if launches().any(|launch| !launch.checked.is_empty()) {
            let reads: SmallVec<[&Allocation; 8]> = operands.iter().filter_map(Operand::allocation).collect();
            cx.check(&reads)?;
        }
        if !self.donated.is_empty() && launches().any(|launch| cx.params_in_buffer(4 * launch.words.len())) {
            cx.blocking.require()?;
        }
        Ok(())
    }

    /// The memory of a replay. What may ask for a retry comes before donated operands are taken over.
    fn replay_memory(
        &self,
        cx: &Context,
        operands: &[Operand],
        donated: impl Fn(usize) -> Attempt<Arc<AllocationHandle>>,
    ) -> Attempt<SmallVec<[ReplayMemory; 2]>> {
        self.require_all(cx, operands)?;
        let mut new: SmallVec<[AllocationHandle; 2]> = SmallVec::new();
        for piece in &self.memory {
            if let &GraphMemory::New(bytes) = piece {
                new.push(cx.allocate(bytes)?);
            }
        }
        // Donated operands have the first slots.
        let mut memory: SmallVec<[ReplayMemory; 2]> = SmallVec::new();
        for &position in &self.donated {
            memory.push(ReplayMemory::Donated(donated(position)?));
        }
        new.into_iter().for_each(|handle| memory.push(ReplayMemory::New(handle)));
        Ok(memory)
    }
}

/// The allocations of a replay by their indices. One of them, if any, is used from a byte on that is not its first.
#[derive(Clone, Copy)]
struct Placed<'a> {
    allocations: &'a [&'a Allocation],
    offset: (Index, u64),
}

impl Placed<'_> {
    fn address(&self, index: Index) -> u64 {
        let (moved, bytes) = self.offset;
        self.allocations[index].address + if index == moved { bytes } else { 0 }
    }
}

impl ReplayMemory {
    fn allocation(&self) -> &Allocation {
        match self {
            Self::New(handle) => handle,
            Self::Donated(handle) => handle,
        }
    }

    fn into_buffer(self, bytes: u64) -> Buffer {
        match self {
            Self::New(handle) => Buffer::new(bytes, handle),
            Self::Donated(handle) => Buffer::of(bytes, handle),
        }
    }
}

/// A piece of memory of one replay.
enum ReplayMemory {
    New(AllocationHandle),
    Donated(Arc<AllocationHandle>),
}

impl CapturedCommand {
    pub(super) fn launch(&self) -> Option<&CapturedLaunch> {
        match self {
            CapturedCommand::Launch(launch) => Some(launch),
            CapturedCommand::Zero { .. } | CapturedCommand::Copy { .. } => None,
        }
    }

    fn replay(&self, cx: &Context, operands: &[Operand], placed: Placed) -> Attempt<()> {
        let allocations = placed.allocations;
        match self {
            CapturedCommand::Launch(launch) => launch.replay(cx, operands, placed),
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
    pub(super) fn workgroups(&self) -> u64 {
        self.groups.iter().map(|&extent| u64::from(extent)).product()
    }

    fn replay(&self, cx: &Context, operands: &[Operand], placed: Placed) -> Attempt<()> {
        let allocations = placed.allocations;
        let mut reads: SmallVec<[&Allocation; 4]> = SmallVec::new();
        self.reads.iter().for_each(|&index: &Index| reads.push(allocations[index]));
        let mut writes: SmallVec<[&Allocation; 2]> = SmallVec::new();
        self.writes.iter().for_each(|&index| writes.push(allocations[index]));
        let mut words: SmallVec<[u32; 32]> = SmallVec::from_slice(&self.words);
        let check = if self.checked.is_empty() { None } else { Some(cx.check(&reads)?) };
        for (position, slot) in &self.slots {
            let words = &mut words[*position..];
            match slot {
                Slot::Address(index) => add(words, placed.address(*index)),
                Slot::Scalar { operand, words: len } => {
                    if let Operand::Scalar { value, .. } = &operands[*operand] {
                        words[..*len].copy_from_slice(&bytemuck::cast::<_, [u32; 4]>(*value)[..*len]);
                    }
                }
                Slot::Reversed => words[0] = cx.reversed(self.groups, &reads, &writes),
                Slot::Check(position) => {
                    let check = check.map(|check| check.words(&self.checked[*position]));
                    words[..4].copy_from_slice(&check.unwrap_or_default());
                }
            }
        }
        let mut bindings: SmallVec<[Binding; 2]> = SmallVec::new();
        for &(index, range) in &self.bindings {
            bindings.push(Binding { allocation: allocations[index], offset: 0, range });
        }
        cx.dispatch(&self.pipeline, &words, (self.groups, self.operations), (&reads, &writes, &bindings), check)
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
            donated: SmallVec::new(),
            sources: SmallVec::new(),
            results: SmallVec::new(),
            commands: (0..commands).map(command).collect(),
            batched: true,
        }
    }
}
