//! What calls come to on the device, so that it is decided once: while a call runs its kernels are noted down, with their
//! grids and parameters and with the blocks that they read and write. A call of the same kind runs the same kernels on blocks
//! of its own.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use smallvec::SmallVec;

use super::record;
use crate::device::Gpu;
use crate::error::Attempt;
use crate::memory::{Allocation, AllocationHandle, Blocking, Buffer, Kind};
use crate::pipeline::Pipeline;
use crate::program::emit::{Params, Slot};
use crate::stream;

/// Tensors of so many bytes together do not fit into a device's caches.
const LARGE: u64 = 64 << 20;

/// What a call reads in one run.
#[derive(Clone, Copy)]
pub enum Operand<'a> {
    /// A buffer of so many bytes.
    Buffer(&'a AllocationHandle, u64),
    /// One value, in the first bytes as its type stores it; it is the call's operand at this place.
    Scalar { place: usize, value: [u8; 16] },
}

impl Operand<'_> {
    /// Bytes of the buffer.
    pub fn bytes(&self) -> Option<u64> {
        match self {
            Self::Buffer(_, bytes) => Some(*bytes),
            Self::Scalar { .. } => None,
        }
    }

    /// The buffer's block.
    pub fn block(&self) -> Option<&Allocation> {
        match self {
            Self::Buffer(allocation, _) => Some(allocation),
            Self::Scalar { .. } => None,
        }
    }
}

/// The kernels of a call in turn. It stays right as long as the device does, which is as long as the process.
pub struct Plan {
    /// Bytes of the operands' buffers, `None` for values.
    operands: SmallVec<[Option<u64>; 4]>,
    /// And of the blocks that the kernels write.
    made: SmallVec<[u64; 2]>,
    /// Which of these is the result, and its bytes.
    result: usize,
    bytes: u64,
    steps: Vec<Step>,
}

/// Blocks are known by their place among those of the operands and, behind these, those that are made.
enum Step {
    Launch(Box<Launch>),
    /// Sets the first bytes of a block to zero.
    Zero {
        block: usize,
        bytes: u64,
    },
}

/// One run of a kernel.
struct Launch {
    pipeline: Arc<Pipeline>,
    groups: [u32; 3],
    words: SmallVec<[u32; 32]>,
    slots: SmallVec<[(usize, Slot<usize>); 4]>,
    reads: SmallVec<[usize; 4]>,
    writes: SmallVec<[usize; 2]>,
}

thread_local! {
    /// Of the call that this thread runs.
    static NOTES: RefCell<Option<Notes>> = const { RefCell::new(None) };
}

struct Notes {
    /// The operands' values, `None` for blocks.
    values: SmallVec<[Option<[u8; 16]>; 4]>,
    /// The addresses of the operands' blocks.
    given: SmallVec<[u64; 4]>,
    /// Addresses and sizes.
    made: SmallVec<[(u64, u64); 2]>,
    steps: Vec<Step>,
    /// How many commands of the stream's the steps are.
    commands: u64,
    /// Whether the steps can be run on other blocks.
    sound: bool,
}

/// Ends the notes, however the call ended.
struct Noting;

impl Drop for Noting {
    fn drop(&mut self) {
        NOTES.take();
    }
}

impl Plan {
    /// Runs a call; its result, and its plan where it did nothing but launch kernels of ours on its operands and on what was
    /// written before. Whoever runs the plan sees to it that all that the call depended on is the same but the operands'
    /// memory and values: also which of them are one buffer.
    pub fn of(operands: &[Operand], call: impl FnOnce() -> Attempt<Buffer>) -> Attempt<(Buffer, Option<Self>)> {
        let value = |operand: &Operand| match operand {
            Operand::Buffer(..) => None,
            Operand::Scalar { value, .. } => Some(*value),
        };
        let notes = Notes {
            values: operands.iter().map(value).collect(),
            given: operands.iter().filter_map(Operand::block).map(|block| block.address).collect(),
            made: SmallVec::new(),
            steps: vec![],
            commands: 0,
            sound: true,
        };
        let _noting = Noting;
        NOTES.set(Some(notes));
        let before = stream::recorded();
        let buffer = call()?;
        let recorded = stream::recorded() - before;
        let address = buffer.allocation()?.address;
        let plan = NOTES.take().and_then(|notes| {
            let result = notes.made.iter().position(|made| made.0 == address)?;
            (notes.sound && notes.commands == recorded).then(|| Self {
                operands: operands.iter().map(Operand::bytes).collect(),
                made: notes.made.iter().map(|made| made.1).collect(),
                result,
                bytes: buffer.len(),
                steps: notes.steps,
            })
        });
        Ok((buffer, plan))
    }

    /// Whether it is of operands with buffers as long as these.
    pub fn fits(&self, operands: &[Operand]) -> bool {
        self.operands.iter().copied().eq(operands.iter().map(Operand::bytes))
    }

    /// Runs it on operands that it fits; the result is a new dense buffer.
    pub fn run(&self, gpu: &Gpu, operands: &[Operand], blocking: Blocking) -> Attempt<Buffer> {
        blocking.require_for(self.steps.len() as u64)?;
        let mut made: SmallVec<[AllocationHandle; 2]> = SmallVec::new();
        for &bytes in &self.made {
            made.push(gpu.allocate(Kind::Device, bytes, blocking)?);
        }
        {
            // Pushed, as it takes several hundred instructions less than to collect them: a call takes 7,000 in all.
            let mut blocks: SmallVec<[&Allocation; 8]> = SmallVec::new();
            operands.iter().flat_map(Operand::block).for_each(|block| blocks.push(block));
            made.iter().for_each(|allocation| blocks.push(allocation));
            let _together = (self.steps.len() > 1).then(|| gpu.stream.together());
            for step in &self.steps {
                match step {
                    Step::Launch(launch) => launch.run(gpu, operands, &blocks, blocking)?,
                    &Step::Zero { block, bytes } => gpu.stream.zero(blocks[block], bytes)?,
                }
            }
        }
        Ok(Buffer::new(self.bytes, made.swap_remove(self.result)))
    }
}

impl Launch {
    fn run(&self, gpu: &Gpu, operands: &[Operand], blocks: &[&Allocation], blocking: Blocking) -> Attempt<()> {
        let mut reads: SmallVec<[&Allocation; 4]> = SmallVec::new();
        self.reads.iter().for_each(|&place| reads.push(blocks[place]));
        let mut writes: SmallVec<[&Allocation; 2]> = SmallVec::new();
        self.writes.iter().for_each(|&place| writes.push(blocks[place]));
        let mut words: SmallVec<[u32; 32]> = SmallVec::from_slice(&self.words);
        for (place, slot) in &self.slots {
            let words = &mut words[*place..];
            match slot {
                Slot::Address(place) => add(words, blocks[*place].address),
                Slot::Scalar { operand, words: len } => {
                    if let Operand::Scalar { value, .. } = &operands[*operand] {
                        words[..*len].copy_from_slice(&bytemuck::cast::<_, [u32; 4]>(*value)[..*len]);
                    }
                }
                Slot::Backwards => words[0] = turn(gpu, &reads, &writes),
            }
        }
        record(gpu, &self.pipeline, bytemuck::cast_slice(&words), self.groups, &reads, &writes, blocking)
    }
}

/// Records a run of a kernel, and notes it down where this thread's call is noted.
pub(super) fn launch(
    gpu: &Gpu,
    pipeline: &Arc<Pipeline>,
    groups: [u32; 3],
    mut params: Params,
    [reads, writes]: [&[&Allocation]; 2],
    blocking: Blocking,
) -> Attempt<()> {
    let backwards = params.slots().iter().find(|(_, slot)| matches!(slot, Slot::Backwards)).map(|slot| slot.0);
    if let Some(place) = backwards {
        params.words_mut()[place] = turn(gpu, reads, writes);
    }
    let run = || record(gpu, pipeline, bytemuck::cast_slice(params.words()), groups, reads, writes, blocking);
    noted(run, |notes| notes.launch(pipeline, groups, &params, [reads, writes]))
}

/// Records setting the first bytes of a block to zero, likewise noted.
pub(super) fn zero(gpu: &Gpu, block: &Allocation, bytes: u64) -> Attempt<()> {
    noted(
        || Ok(gpu.stream.zero(block, bytes)?),
        |notes| {
            let block = notes.written(block);
            notes.steps.push(Step::Zero { block, bytes });
        },
    )
}

/// Runs what records, and has it noted down with its commands where this thread's call is.
fn noted(run: impl FnOnce() -> Attempt<()>, note: impl FnOnce(&mut Notes)) -> Attempt<()> {
    let before = stream::recorded();
    run()?;
    NOTES.with_borrow_mut(|notes| {
        if let Some(notes) = notes {
            notes.commands += stream::recorded() - before;
            note(notes);
        }
    });
    Ok(())
}

/// Whether to begin at the end: what the pass before touched last is in the device's cache still.
fn turn(gpu: &Gpu, reads: &[&Allocation], writes: &[&Allocation]) -> u32 {
    let bytes = reads.iter().chain(writes).map(|block| block.size).sum::<u64>();
    (bytes >= LARGE && !gpu.backwards.fetch_xor(true, Relaxed)).into()
}

impl Notes {
    fn launch(
        &mut self,
        pipeline: &Arc<Pipeline>,
        groups: [u32; 3],
        params: &Params,
        [reads, writes]: [&[&Allocation]; 2],
    ) {
        let reads: Option<SmallVec<_>> = reads.iter().map(|block| self.place(block.address)).collect();
        let writes: SmallVec<_> = writes.iter().map(|block| self.written(block)).collect();
        let mut words: SmallVec<[u32; 32]> = SmallVec::from_slice(params.words());
        let slot = |&(place, slot): &(usize, Slot<u64>)| {
            let slot = match slot {
                Slot::Address(address) => {
                    add(&mut words[place..], address.wrapping_neg());
                    Slot::Address(self.place(address)?)
                }
                Slot::Scalar { operand, words: len } => {
                    let value = bytemuck::cast::<_, [u32; 4]>((*self.values.get(operand)?)?);
                    let same = value[..len] == words[place..place + len];
                    words[place..place + len].fill(0);
                    same.then_some(Slot::Scalar { operand, words: len })?
                }
                Slot::Backwards => Slot::Backwards,
            };
            Some((place, slot))
        };
        let slots: Option<SmallVec<_>> = params.slots().iter().map(slot).collect();
        match (reads, slots) {
            (Some(reads), Some(slots)) => {
                let pipeline = pipeline.clone();
                let launch = Launch { pipeline, groups, words, slots, reads, writes };
                self.steps.push(Step::Launch(Box::new(launch)));
            }
            _ => self.sound = false,
        }
    }

    /// The place of a block that is written, which makes it where it is no other.
    fn written(&mut self, block: &Allocation) -> usize {
        self.place(block.address).unwrap_or_else(|| {
            self.made.push((block.address, block.size));
            self.given.len() + self.made.len() - 1
        })
    }

    /// The place of a block among operands and what was made.
    fn place(&self, address: u64) -> Option<usize> {
        let mut known = self.given.iter().copied().chain(self.made.iter().map(|made| made.0));
        known.position(|known| known == address)
    }
}

/// Adds to a number of 64 bits, the low word first.
fn add(words: &mut [u32], address: u64) {
    let sum = (u64::from(words[0]) | u64::from(words[1]) << 32).wrapping_add(address);
    (words[0], words[1]) = (sum as u32, (sum >> 32) as u32);
}
