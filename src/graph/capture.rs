//! The capture of a call: its commands, and which of them read and write which allocation.

use std::any::Any;
use std::sync::Arc;

use smallvec::SmallVec;

use super::context::Operand;
use super::levels::{CommandSize, by_level};
use super::params::{Params, Slot};
use super::plan::{CommandUses, MIN_BARRIER_BYTES};
use crate::memory::{Allocation, AllocationHandle, CheckedIndices};
use crate::pipeline::Pipeline;
use crate::stream::Copy;

/// An allocation of a capture: the operands come first, by their positions among those that are buffers, then the constants and the
/// allocations that the commands write, in the order in which they were met.
pub(super) type Index = usize;

/// An allocation that is no operand.
pub(super) struct InnerAllocation {
    pub id: u64,
    pub size: u64,
    /// Kept alive where its contents are those of each replay; `None` where commands write it.
    pub constant: Option<Arc<AllocationHandle>>,
}

/// A captured command.
pub(super) enum CapturedCommand {
    Launch(Box<CapturedLaunch>),
    /// Sets the first `bytes` bytes to zero.
    Zero {
        target: Index,
        bytes: u64,
    },
    Copy {
        from: (Index, u64),
        to: (Index, u64),
        len: u64,
    },
}

/// One launch of a kernel. The words of addresses hold the offset from the allocation's start.
pub(super) struct CapturedLaunch {
    pub pipeline: Arc<Pipeline>,
    pub groups: [u32; 3],
    pub words: SmallVec<[u32; 32]>,
    pub slots: SmallVec<[(usize, Slot<Index>); 4]>,
    pub reads: SmallVec<[Index; 4]>,
    pub writes: SmallVec<[Index; 2]>,
    /// Storage buffers with their sizes in bytes, by their bindings.
    pub bindings: SmallVec<[(Index, u64); 2]>,
    /// Of `reads` those that the kernel reads only where it writes, each with the one of `writes` that may take its memory.
    pub in_place: SmallVec<[(Index, Index); 2]>,
    /// Whether the kernel does nothing but copy the one in `in_place`.
    pub copies: bool,
    /// Of `writes` those whose contents from before are lost.
    pub overwritten: SmallVec<[Index; 1]>,
    /// The operations whose indices the kernel checks.
    pub checked: SmallVec<[Arc<CheckedIndices>; 1]>,
    /// The launch's arithmetic operations.
    pub operations: u64,
}

/// The commands after which a producer is forgotten: until then it keeps its memory.
const REMEMBERED_COMMANDS: usize = 16;

/// What a kernel computed an allocation's contents from.
struct Producer {
    id: u64,
    /// How many commands there were then.
    commands: usize,
    value: Arc<dyn Any + Send + Sync>,
}

impl CapturedCommand {
    /// Gives each allocation another index.
    fn renumber(&mut self, number: impl Fn(Index) -> Index) {
        let renumber = |index: &mut Index| *index = number(*index);
        match self {
            CapturedCommand::Launch(launch) => {
                launch.reads.iter_mut().chain(&mut launch.writes).for_each(renumber);
                launch.bindings.iter_mut().for_each(|binding| renumber(&mut binding.0));
                launch.in_place.iter_mut().for_each(|(read, written)| [read, written].into_iter().for_each(renumber));
                launch.overwritten.iter_mut().for_each(renumber);
                for (_, slot) in &mut launch.slots {
                    if let Slot::Address(index) = slot {
                        renumber(index);
                    }
                }
            }
            CapturedCommand::Zero { target, .. } => renumber(target),
            CapturedCommand::Copy { from, to, .. } => [&mut from.0, &mut to.0].into_iter().for_each(renumber),
        }
    }

    /// The allocations that the command reads and writes.
    pub fn uses(&self) -> CommandUses {
        let one = |index| SmallVec::from_slice(&[index]);
        match self {
            CapturedCommand::Launch(launch) => {
                let CapturedLaunch { reads, writes, in_place, copies, .. } = &**launch;
                CommandUses {
                    reads: reads.clone(),
                    writes: writes.clone(),
                    in_place: in_place.clone(),
                    copies: *copies,
                }
            }
            CapturedCommand::Zero { target, .. } => CommandUses { writes: one(*target), ..CommandUses::default() },
            CapturedCommand::Copy { from, to, .. } => {
                CommandUses { reads: SmallVec::from_slice(&[from.0]), writes: one(to.0), ..CommandUses::default() }
            }
        }
    }
}

/// Why a command cannot be replayed: it depends on an allocation or a value that is no operand and that no command made.
struct Unreplayable;

/// What is captured of a call that still runs, or of the calls of a definition.
pub(super) struct Capture {
    /// The operands' values; `None` for buffers.
    values: SmallVec<[Option<[u8; 16]>; 4]>,
    /// Whether values are those of each replay, and not operands.
    fixed_values: bool,
    /// Identities of the operands' allocations.
    pub operands: SmallVec<[u64; 4]>,
    /// Bytes of the operands' buffers; `None` for values.
    pub operand_bytes: SmallVec<[Option<u64>; 4]>,
    /// Of operands that the call may write over, once it has read them: positions among the buffers, and the sizes of the allocations.
    pub donated: Vec<(Index, u64)>,
    pub inner: SmallVec<[InnerAllocation; 4]>,
    pub commands: Vec<CapturedCommand>,
    /// For allocations that a command wrote last, see [`Context::set_producer`](super::Context::set_producer).
    producers: Vec<Producer>,
    /// Whether the commands are all that the call did, and can be replayed on other operands.
    pub complete: bool,
}

impl Capture {
    pub fn new(operands: &[Operand]) -> Self {
        let value = |operand: &Operand| match operand {
            Operand::Buffer(..) => None,
            Operand::Scalar { value, .. } => Some(*value),
        };
        Self {
            values: operands.iter().map(value).collect(),
            fixed_values: false,
            operands: operands.iter().filter_map(Operand::allocation).map(|allocation| allocation.id).collect(),
            operand_bytes: operands.iter().map(Operand::bytes).collect(),
            donated: vec![],
            inner: SmallVec::new(),
            commands: vec![],
            producers: vec![],
            complete: true,
        }
    }

    /// A capture of several calls, whose values are those of each replay. `donated` are positions among the operands, all of them
    /// buffers.
    pub fn of_calls(operands: &[Operand], donated: &[usize]) -> Self {
        let donor = |&position: &usize| {
            let allocation = operands.get(position)?.allocation()?;
            let same = operands.iter().filter_map(Operand::allocation).filter(|other| other.id == allocation.id);
            (same.count() == 1).then_some((position, allocation.size))
        };
        Self { fixed_values: true, donated: donated.iter().filter_map(donor).collect(), ..Self::new(operands) }
    }

    /// Adds an allocation whose contents are those of each replay.
    pub fn constant(&mut self, allocation: Arc<AllocationHandle>) {
        let (id, size) = (allocation.id, allocation.size);
        self.inner.push(InnerAllocation { id, size, constant: Some(allocation) });
    }

    /// The numbers of commands and inner allocations.
    pub fn lengths(&self) -> (usize, usize) {
        (self.commands.len(), self.inner.len())
    }

    /// Forgets the commands and inner allocations from these numbers on.
    pub fn truncate(&mut self, (commands, inner): (usize, usize)) {
        self.commands.truncate(commands);
        self.inner.truncate(inner);
        self.producers.retain(|producer| producer.commands <= commands);
    }

    /// What the contents of an allocation were computed from, until a command writes it again or many have come.
    pub fn set_producer(&mut self, allocation: &Allocation, value: Arc<dyn Any + Send + Sync>) {
        let commands = self.commands.len();
        self.producers.retain(|producer| producer.commands + REMEMBERED_COMMANDS > commands);
        self.producers.push(Producer { id: allocation.id, commands, value });
    }

    pub fn producer(&self, allocation: &Allocation) -> Option<Arc<dyn Any + Send + Sync>> {
        self.producers.iter().find(|producer| producer.id == allocation.id).map(|producer| producer.value.clone())
    }

    /// Gives the capture up, because the call does something that its commands do not show.
    pub fn give_up(&mut self) {
        self.complete = false;
    }

    pub fn launch(&mut self, pipeline: &Arc<Pipeline>, groups: [u32; 3], params: &Params) {
        let launch = self.try_launch(pipeline, groups, params);
        self.push(launch.map(|launch| CapturedCommand::Launch(Box::new(launch))));
    }

    pub fn zero(&mut self, target: &Allocation, bytes: u64) {
        let target = self.written(target);
        self.push(Ok(CapturedCommand::Zero { target, bytes }));
    }

    pub fn copy(&mut self, copy: &Copy) {
        let from = self.read(copy.from);
        let to = self.written(copy.to);
        let (from_offset, to_offset, len) = (copy.from_offset, copy.to_offset, copy.len);
        self.push(from.map(|from| CapturedCommand::Copy { from: (from, from_offset), to: (to, to_offset), len }));
    }

    fn push(&mut self, command: Result<CapturedCommand, Unreplayable>) {
        match command {
            Ok(command) if self.complete => self.commands.push(command),
            Ok(_) => {}
            Err(Unreplayable) => self.give_up(),
        }
    }

    fn try_launch(
        &mut self,
        pipeline: &Arc<Pipeline>,
        groups: [u32; 3],
        params: &Params,
    ) -> Result<CapturedLaunch, Unreplayable> {
        let reads = params.reads().iter().map(|read| self.read(read)).collect::<Result<_, _>>()?;
        let writes = params.writes().iter().map(|write| self.written(write)).collect();
        let mut words: SmallVec<[u32; 32]> = SmallVec::from_slice(params.words());
        let mut slots = SmallVec::new();
        for &(position, slot) in params.slots() {
            let slot = match slot {
                Slot::Address(target) => {
                    add(&mut words[position..], target.address.wrapping_neg());
                    Slot::Address(self.known(target.id)?)
                }
                Slot::Scalar { .. } if self.fixed_values => continue,
                Slot::Scalar { operand, words: len } => {
                    let value = self.values.get(operand).copied().flatten().ok_or(Unreplayable)?;
                    let words = &mut words[position..position + len];
                    if bytemuck::cast::<_, [u32; 4]>(value)[..len] != *words {
                        return Err(Unreplayable);
                    }
                    words.fill(0);
                    Slot::Scalar { operand, words: len }
                }
                Slot::Reversed => Slot::Reversed,
                Slot::Check(position) => Slot::Check(position),
            };
            slots.push((position, slot));
        }
        let binding = |&(allocation, bytes): &(&Allocation, u64)| Ok((self.known(allocation.id)?, bytes));
        let bindings = params.bindings().iter().map(binding).collect::<Result<_, _>>()?;
        let in_place = params.may_be_in_place().map(|(read, written)| Ok((self.known(read)?, self.known(written)?)));
        let in_place = in_place.collect::<Result<_, _>>()?;
        let overwritten = params.overwritten().iter().map(|&id| self.known(id)).collect::<Result<_, _>>()?;
        let copies = params.is_copy();
        let checked = params.checked().iter().map(|&operation| operation.clone()).collect();
        Ok(CapturedLaunch {
            pipeline: pipeline.clone(),
            groups,
            words,
            slots,
            reads,
            writes,
            bindings,
            in_place,
            copies,
            overwritten,
            checked,
            operations: params.counted_operations(),
        })
    }

    /// Whether the commands from these numbers on, of which there are some, read nothing but constants and what they wrote.
    pub fn is_constant_from(&self, (commands, inner): (usize, usize)) -> bool {
        let constant = |index: Index| {
            let position = index.checked_sub(self.operands.len());
            position.is_some_and(|position| position >= inner || self.inner[position].constant.is_some())
        };
        let commands = &self.commands[commands..];
        !commands.is_empty() && commands.iter().all(|command| command.uses().all().all(constant))
    }

    /// The index of an allocation that is read: an operand's, or one that was written before.
    fn read(&self, allocation: &Allocation) -> Result<Index, Unreplayable> {
        self.known(allocation.id)
    }

    fn known(&self, id: u64) -> Result<Index, Unreplayable> {
        // Most are the results of commands shortly before.
        let inner = self.inner.iter().rposition(|inner| inner.id == id).map(|inner| self.operands.len() + inner);
        inner.or_else(|| self.operands.iter().position(|&operand| operand == id)).ok_or(Unreplayable)
    }

    /// The index of an allocation that is written.
    fn written(&mut self, allocation: &Allocation) -> Index {
        self.producers.retain(|producer| producer.id != allocation.id);
        self.read(allocation).unwrap_or_else(|Unreplayable| {
            self.inner.push(InnerAllocation { id: allocation.id, size: allocation.size, constant: None });
            self.operands.len() + self.inner.len() - 1
        })
    }

    /// The position among the inner allocations of one that commands write.
    pub fn position_made(&self, allocation: &Allocation) -> Option<usize> {
        self.inner.iter().position(|inner| inner.id == allocation.id && inner.constant.is_none())
    }

    /// Leaves out commands that write nothing but what no later command reads, and what they wrote. Allocations of these identities are kept.
    pub fn remove_unread(&mut self, kept: &[u64]) {
        let operands = self.operands.len();
        let mut read: Vec<bool> = self.inner.iter().map(|inner| kept.contains(&inner.id)).collect();
        let mut needed = vec![false; self.commands.len()];
        for (needed, command) in needed.iter_mut().zip(&self.commands).rev() {
            let CommandUses { reads, writes, .. } = command.uses();
            let checks = command.launch().is_some_and(|launch| !launch.checked.is_empty());
            let inner = |index: &Index| index.checked_sub(operands);
            *needed = checks || writes.iter().any(|write| inner(write).is_none_or(|write| read[write]));
            if *needed {
                // What was written there before is for those alone that read it before.
                let overwritten = command.launch().map(|launch| &launch.overwritten[..]).unwrap_or_default();
                overwritten.iter().filter_map(inner).for_each(|index| read[index] = false);
                reads.iter().filter_map(inner).for_each(|index| read[index] = true);
            }
        }
        if needed.iter().all(|&needed| needed) {
            return;
        }
        let mut needed = needed.into_iter();
        self.commands.retain(|_| needed.next().unwrap_or(true));
        let mut used: Vec<bool> = self.inner.iter().map(|inner| inner.constant.is_some()).collect();
        let uses: Vec<_> = self.commands.iter().map(CapturedCommand::uses).collect();
        uses.iter()
            .flat_map(CommandUses::all)
            .filter_map(|index| index.checked_sub(operands))
            .for_each(|index| used[index] = true);
        let count = |count: &mut usize, &used: &bool| Some(std::mem::replace(count, *count + usize::from(used)));
        let positions: Vec<usize> = used.iter().scan(0, count).collect();
        let number = |index: Index| index.checked_sub(operands).map_or(index, |inner| operands + positions[inner]);
        self.commands.iter_mut().for_each(|command| command.renumber(number));
        let mut used = used.into_iter();
        self.inner.retain(|_| used.next().unwrap_or(true));
    }

    /// Puts commands that do not depend on each other beside each other. What a command writes decides whether it keeps its position.
    pub fn order_by_level(&mut self) {
        let uses: Vec<_> = self.commands.iter().map(CapturedCommand::uses).collect();
        let size = |&index: &Index| index.checked_sub(self.operands.len()).map_or(0, |inner| self.inner[inner].size);
        let sizes = uses.iter().zip(&self.commands).map(|(used, command)| CommandSize {
            large: used.writes.iter().map(size).sum::<u64>() >= MIN_BARRIER_BYTES,
            groups: command.launch().map_or(1, CapturedLaunch::workgroups),
        });
        let sizes: Vec<_> = sizes.collect();
        let mut commands: Vec<_> = std::mem::take(&mut self.commands).into_iter().map(Some).collect();
        self.commands = by_level(&uses, &sizes).into_iter().filter_map(|command| commands[command].take()).collect();
    }

    /// What a command uses of the allocations that commands may write, by their positions: the inner ones, then those that are donated.
    pub fn made_by(&self, command: &CapturedCommand) -> CommandUses {
        let made = |index: Index| match index.checked_sub(self.operands.len()) {
            Some(position) => self.inner[position].constant.is_none().then_some(position),
            None => Some(self.inner.len() + self.donated.iter().position(|donated| donated.0 == index)?),
        };
        let CommandUses { reads, writes, in_place, copies } = command.uses();
        CommandUses {
            copies: copies && in_place.len() == 1,
            reads: reads.into_iter().filter_map(made).collect(),
            writes: writes.into_iter().filter_map(made).collect(),
            in_place: in_place.into_iter().filter_map(|(read, written)| Some((made(read)?, made(written)?))).collect(),
        }
    }
}

/// Adds to a number of 64 bits, the low word first.
pub(super) fn add(words: &mut [u32], address: u64) {
    let sum = (u64::from(words[0]) | u64::from(words[1]) << 32).wrapping_add(address);
    (words[0], words[1]) = (sum as u32, (sum >> 32) as u32);
}
