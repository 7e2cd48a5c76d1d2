//! Iterations of a loop that are recorded before anybody knows whether they are to run: each runs under a predicate, which is the condition that
//! the iteration before has written. This module owns the memory of the iterations, and does not know what a loop computes.
//!
//! Once a condition is false no kernel of a later iteration writes anything. What an iteration no longer needs is therefore the memory of a
//! later one even before the host knows how many have run: the values after the last one that ran are still there. Transfers do not heed
//! predicates: what they write is memory that no earlier iteration had.

use std::cell::OnceCell;
use std::collections::VecDeque;
use std::sync::Arc;

use smallvec::SmallVec;

use super::capture::CapturedCommand;
use super::context::{Context, Operand};
use super::recording::ResultSource;
use super::replay::{AllocationSource, Graph, GraphMemory};
use crate::error::{Attempt, Error, Unfinished};
use crate::gpu::{Gpu, PendingRead};
use crate::memory::{AllocationHandle, Blocking, BoundsCheck, Buffer, MemoryKind};
use crate::stream::DispatchPredicate;

/// Bytes from one condition of a chunk to the next: each is aligned as an allocation is.
const CONDITION_BYTES: u64 = 64;

/// The most commands of a chunk. Those of nearly two chunks stand behind the last iteration that runs, and each costs a device at most what a
/// kernel without work does, 2.6 µs of an H200. A chunk of 32 takes it 60 µs, which hides the 23 µs of a read.
const MAX_CHUNK_COMMANDS: usize = 32;

/// Free memory of this size serves smaller sizes, too.
const MIN_FREE_BYTES: u64 = 256;

/// A value of a loop, or a tensor that it reads.
#[derive(Clone)]
pub struct LoopValue {
    /// Its memory.
    pub allocation: Arc<AllocationHandle>,
    /// Its size in bytes.
    pub bytes: u64,
    /// Its position among the operands that the loop began with, where it is one of them.
    pub given: Option<usize>,
}

/// Iterations that are read together.
struct Chunk {
    /// The conditions that the iterations have written.
    conditions: PendingRead,
    /// The values after each of the iterations.
    values: Vec<Vec<LoopValue>>,
    /// Memory that transfers wrote.
    _transferred: Vec<Arc<AllocationHandle>>,
}

/// What the host learns of the oldest chunk.
pub enum Progress {
    /// All of its iterations have run, and later ones are recorded.
    GoesOn,
    /// All of its iterations have run, and no later ones are recorded: the values, and the loop goes on with them.
    Paused(Vec<LoopValue>),
    /// The loop has ended with these values.
    Ended(Vec<LoopValue>),
}

/// A loop whose iterations are recorded in chunks.
pub struct Iterations {
    gpu: &'static Gpu,
    graph: Arc<Graph>,
    /// Where the values after an iteration come from.
    next: Vec<ResultSource>,
    /// The graph's memory that has the condition, and no other allocation.
    condition: usize,
    /// The graph's memory that transfers write.
    transferred: SmallVec<[usize; 2]>,
    /// The values after the last recorded iteration, and what the loop captured.
    operands: Vec<LoopValue>,
    /// The condition that the last recorded iteration writes; `None` where the host knows that it is true.
    predicate: Option<(Arc<AllocationHandle>, u64)>,
    /// Memory that no later iteration reads.
    free: Vec<Arc<AllocationHandle>>,
    check: OnceCell<Arc<BoundsCheck>>,
    chunks: VecDeque<Chunk>,
    /// Whether the values that iterations change are the caller's.
    kept: bool,
}

impl Iterations {
    /// A loop with this graph, whose first result is the condition of the next iteration, an integer of at most 32 bits, and whose others are
    /// the next values. It begins with `operands`, the values and what the loop captured, in an iteration that runs in any case. `donate`
    /// says whether the memory of values that do not stay the same is the loop's to write. `None` where its iterations cannot be under a
    /// predicate, or have more commands than a chunk.
    pub fn new(
        gpu: &'static Gpu,
        graph: &Arc<Graph>,
        results: &[ResultSource],
        operands: Vec<(Arc<AllocationHandle>, u64)>,
        donate: bool,
    ) -> Option<Self> {
        let [ResultSource::Made(condition), next @ ..] = results else { return None };
        if !gpu.caps.conditional_rendering
            || graph.commands.len() > MAX_CHUNK_COMMANDS
            || next.contains(&ResultSource::Made(*condition))
        {
            return None;
        }
        let condition = graph.results.get(*condition)?.0;
        let alone = |source: &&AllocationSource| matches!(source, AllocationSource::Memory(slot) if *slot == condition);
        if matches!(graph.memory[condition], GraphMemory::Donated(..))
            || graph.sources.iter().filter(alone).count() != 1
        {
            return None;
        }
        // A binding has no offset.
        let condition_index = operands.len() + graph.sources.iter().position(|source| alone(&source))?;
        let binds = |command: &CapturedCommand| match command {
            CapturedCommand::Launch(launch) => launch.bindings.iter().any(|binding| binding.0 == condition_index),
            CapturedCommand::Zero { .. } | CapturedCommand::Copy { .. } => false,
        };
        if graph.commands.iter().any(binds) {
            return None;
        }
        let transfer = |command: &CapturedCommand| match command {
            CapturedCommand::Launch(_) => None,
            CapturedCommand::Zero { target, .. } | CapturedCommand::Copy { to: (target, _), .. } => Some(*target),
        };
        let mut transferred = SmallVec::new();
        for target in graph.commands.iter().filter_map(transfer) {
            match graph.sources.get(target.checked_sub(operands.len())?)? {
                AllocationSource::Memory(slot) if *slot != condition => transferred.push(*slot),
                _ => return None,
            }
        }
        if transferred.iter().any(|&slot| matches!(graph.memory[slot], GraphMemory::Donated(..))) {
            return None;
        }
        let value = |(given, (allocation, bytes))| LoopValue { allocation, bytes, given: Some(given) };
        Some(Self {
            gpu,
            graph: graph.clone(),
            next: next.to_vec(),
            condition,
            transferred,
            operands: operands.into_iter().enumerate().map(value).collect(),
            predicate: None,
            free: vec![],
            check: OnceCell::new(),
            chunks: VecDeque::new(),
            kept: !donate,
        })
    }

    /// Makes the values that iterations change the loop's, by copies, where they are the caller's. It comes before the first chunk.
    pub fn own_values(
        &mut self,
        copy: impl Fn(&Context, &Arc<AllocationHandle>) -> Attempt<Arc<AllocationHandle>>,
        blocking: Blocking,
    ) -> Attempt<()> {
        if !self.kept {
            return Ok(());
        }
        let cx = Context::new(self.gpu, blocking);
        for (position, (next, value)) in self.next.iter().zip(&mut self.operands).enumerate() {
            if *next != ResultSource::Input(position) && value.given.is_some() {
                (value.allocation, value.given) = (copy(&cx, &value.allocation)?, None);
            }
        }
        self.kept = false;
        Ok(())
    }

    /// Records up to `count` iterations as a chunk, at least one, and has the device start on them. Returns how many there are: none where the graph does
    /// not fit the values any more.
    pub fn record(&mut self, count: usize, blocking: Blocking) -> Attempt<usize> {
        let gpu = self.gpu;
        let count = count.clamp(1, MAX_CHUNK_COMMANDS / self.graph.commands.len().max(1));
        gpu.stream.apply_backpressure(blocking)?;
        self.graph.require_time(&Context::new(gpu, blocking), count)?;
        let bytes = count as u64 * CONDITION_BYTES;
        let readback = gpu.readback(bytes, blocking)?;
        let conditions = Buffer::new(bytes, gpu.allocate(MemoryKind::Predicates, bytes, blocking)?);
        let allocation = conditions.allocation()?;
        gpu.stream.zero(&allocation, bytes)?;
        let (mut values, mut transferred) = (vec![], vec![]);
        for index in 0..count {
            let condition = (allocation.clone(), index as u64 * CONDITION_BYTES);
            match self.record_iteration(condition, &mut transferred, blocking) {
                Ok(true) => values.push(self.operands[..self.next.len()].to_vec()),
                Ok(false) => break,
                // What is recorded is a chunk.
                Err(Unfinished::Retry(_)) if index > 0 => break,
                Err(error) => return Err(error),
            }
        }
        let recorded = values.len();
        if recorded > 0 {
            let conditions = gpu.start_read(&conditions, 0, readback)?;
            self.chunks.push_back(Chunk { conditions, values, _transferred: transferred });
        }
        Ok(recorded)
    }

    /// Records an iteration that writes its condition to these bytes; false where the graph does not fit. A retry has recorded nothing.
    fn record_iteration(
        &mut self,
        condition: (Arc<AllocationHandle>, u64),
        transferred: &mut Vec<Arc<AllocationHandle>>,
        blocking: Blocking,
    ) -> Attempt<bool> {
        let graph = self.graph.clone();
        let values = self.operands.clone();
        let operands: SmallVec<[Operand; 8]> =
            values.iter().map(|value| Operand::Buffer(&value.allocation, value.bytes)).collect();
        if !graph.fits(&operands) {
            return Ok(false);
        }
        let before = self.predicate.clone();
        let predicate = before.as_ref().map(|(allocation, offset)| DispatchPredicate { allocation, offset: *offset });
        let cx = Context { predicate, check: self.check.clone(), ..Context::new(self.gpu, blocking) };
        graph.require_all(&cx, &operands)?;
        let memory = self.memory(&cx, &condition.0)?;
        graph.record(&cx, &operands, |slot| &memory[slot], Some((self.condition, condition.1)))?;
        self.check = cx.check;
        self.predicate = Some(condition);
        self.advance(&memory, transferred);
        Ok(true)
    }

    /// The graph's memory for the next iteration. A retry takes none.
    fn memory(&mut self, cx: &Context, conditions: &Arc<AllocationHandle>) -> Attempt<Vec<Arc<AllocationHandle>>> {
        let graph = self.graph.clone();
        let (mut memory, mut taken) = (vec![], vec![]);
        for (slot, piece) in graph.memory.iter().enumerate() {
            let allocation = match *piece {
                GraphMemory::Donated(position, _) => self.operands[position].allocation.clone(),
                GraphMemory::New(_) if slot == self.condition => conditions.clone(),
                GraphMemory::New(bytes) => match self.take_free(slot, bytes) {
                    Some(free) => {
                        taken.push(free.clone());
                        free
                    }
                    None => match cx.allocate(bytes) {
                        Ok(new) => Arc::new(new),
                        Err(error) => {
                            self.free.append(&mut taken);
                            return Err(error);
                        }
                    },
                },
            };
            memory.push(allocation);
        }
        Ok(memory)
    }

    /// Free memory of about this size. Transfers get none: see the module's documentation.
    fn take_free(&mut self, slot: usize, bytes: u64) -> Option<Arc<AllocationHandle>> {
        let fits =
            |free: &Arc<AllocationHandle>| (bytes..=bytes.saturating_mul(2).max(MIN_FREE_BYTES)).contains(&free.size);
        let position = self.free.iter().rposition(fits).filter(|_| !self.transferred.contains(&slot))?;
        Some(self.free.swap_remove(position))
    }

    /// Has the values be those after an iteration that used this memory, and frees what they do not need.
    fn advance(&mut self, memory: &[Arc<AllocationHandle>], transferred: &mut Vec<Arc<AllocationHandle>>) {
        let next = |source: &ResultSource| match *source {
            ResultSource::Input(position) => self.operands[position].clone(),
            ResultSource::Made(position) => {
                let (slot, bytes) = self.graph.results[position];
                LoopValue { allocation: memory[slot].clone(), bytes, given: None }
            }
        };
        let mut operands: Vec<LoopValue> = self.next.iter().map(next).collect();
        operands.extend_from_slice(&self.operands[self.next.len()..]);
        let before = std::mem::replace(&mut self.operands, operands);
        let used = |allocation: &Arc<AllocationHandle>, list: &[LoopValue]| {
            list.iter().any(|value| value.allocation.id == allocation.id)
        };
        for (slot, allocation) in memory.iter().enumerate() {
            if slot == self.condition || used(allocation, &self.operands) {
                continue;
            }
            if self.transferred.contains(&slot) {
                transferred.push(allocation.clone());
            } else {
                self.free.push(allocation.clone());
            }
        }
        for LoopValue { allocation, .. } in before {
            let free = self.free.iter().any(|free| free.id == allocation.id);
            if !free && !used(&allocation, &self.operands) {
                self.free.push(allocation);
            }
        }
    }

    /// Waits for the oldest chunk. Where the loop has ended or is paused, nothing is left of it.
    pub fn finish(&mut self, blocking: Blocking) -> Attempt<Progress> {
        let none = || Error::Argument("iterations: none are recorded".into());
        let chunk = self.chunks.front().ok_or_else(none)?;
        let conditions = self.gpu.finish_read(&chunk.conditions, blocking)?;
        let conditions = conditions.chunks(CONDITION_BYTES as usize).take(chunk.values.len());
        let ended = conditions.map(|condition| &condition[..4]).position(|word| word == [0; 4]);
        let mut values = self.chunks.pop_front().map(|chunk| chunk.values).unwrap_or_default();
        if ended.is_none() && !self.chunks.is_empty() {
            return Ok(Progress::GoesOn);
        }
        self.chunks.clear();
        self.operands.clear();
        self.free.clear();
        self.predicate = None;
        Ok(match ended {
            Some(iteration) => Progress::Ended(values.swap_remove(iteration)),
            None => Progress::Paused(values.pop().unwrap_or_default()),
        })
    }
}
