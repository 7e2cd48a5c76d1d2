//! What a program comes to on the device: checked, its kernels built, and all but its operands decided.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use smallvec::SmallVec;

use super::Planner;
use crate::device::Gpu;
use crate::error::{Error, Result};
use crate::kernels::{check_indices, record};
use crate::memory::{Block, Buffer, Kind, Lease, Patience};
use crate::pipeline::Pipeline;
use crate::program::Program;
use crate::program::layout::Layout;

/// Tensors of so many bytes together do not fit into a device's caches.
const LARGE: u64 = 64 << 20;

/// What an input of a program reads in one run.
#[derive(Clone, Copy)]
pub enum Operand<'a> {
    /// A buffer of so many bytes.
    Block(&'a Lease, u64),
    /// One value, in the first bytes as the type stores it.
    Scalar([u8; 16]),
}

/// A program as it runs on operands of its inputs' kinds, whatever their blocks and values are. It stays right as long as the
/// device does, which is as long as the process.
pub struct Plan {
    /// For each input the bytes that its buffer must have, and last those that the output's must.
    reaches: SmallVec<[u64; 4]>,
    /// Bytes of the results in a buffer of their own.
    bytes: u64,
    steps: Steps,
}

/// The kernels that a program runs in turn.
#[derive(Default)]
pub(super) struct Steps {
    /// Bytes of the parts of the partial results between them.
    pub partial: SmallVec<[u64; 2]>,
    pub list: SmallVec<[Step; 1]>,
}

impl Steps {
    pub fn one(step: Step) -> Self {
        Self { partial: SmallVec::new(), list: SmallVec::from_iter([step]) }
    }
}

/// One run of a kernel.
pub(super) struct Step {
    pub pipeline: Arc<Pipeline>,
    pub groups: [u32; 3],
    pub params: SmallVec<[u32; 16]>,
    /// What a run fills in, and at which words of the parameters.
    pub slots: SmallVec<[(usize, Slot); 4]>,
    /// Whether it reads the partial results, and not the operands.
    pub from_partial: bool,
    /// Whether it writes them, and not the results.
    pub to_partial: bool,
}

/// What a run fills in.
#[derive(Clone, Copy)]
pub(super) enum Slot {
    /// The address of the results' block, added to what is there.
    Result,
    /// The address of a part of the partial results.
    Partial(usize),
    /// The address of an operand's block, added to what is there, or its value in so many words.
    Input { index: usize, len: usize },
    /// Whether to go through large tensors from their ends.
    Backwards,
}

impl Plan {
    /// Fails where the program is not sound, the device cannot run it, or the operands or an output of `out_bytes` are too
    /// small for it.
    pub fn new(gpu: &Gpu, program: &Program, operands: &[Operand], out_bytes: u64, patience: Patience) -> Result<Self> {
        program.check()?;
        for index in 0..program.inputs.len() + program.nodes.len() {
            program.type_of(index).check_program(&gpu.caps)?;
        }
        let layout = Layout::new(program)?;
        let sizes = program.inputs.iter().map(|input| input.ty.size()).chain([program.result().size()]);
        let bytes = |(&elements, size): (&u64, u64)| elements.checked_mul(size).ok_or(Error::SizeMismatch);
        let reaches = layout.reaches.iter().zip(sizes).map(bytes).collect::<Result<_>>()?;
        let bytes = layout.outputs() * program.result().size();
        let mut plan = Self { reaches, bytes, steps: Steps::default() };
        plan.check(operands, out_bytes)?;
        check_indices(gpu, layout.wide)?;
        plan.steps = Planner { gpu, program, layout: &layout, patience }.steps()?;
        Ok(plan)
    }

    /// Runs it; the result is a new dense buffer.
    pub fn run(&self, gpu: &Gpu, operands: &[Operand], patience: Patience) -> Result<Buffer> {
        self.check(operands, 0)?;
        let out = gpu.allocate(Kind::Device, self.bytes, patience)?;
        self.record(gpu, operands, &out, patience)?;
        Ok(Buffer::new(self.bytes, out))
    }

    /// Runs it, of a program with an output place, into `out`, a buffer of `bytes`.
    pub fn run_into(
        &self,
        gpu: &Gpu,
        operands: &[Operand],
        (out, bytes): (&Lease, u64),
        patience: Patience,
    ) -> Result<()> {
        self.check(operands, bytes)?;
        self.record(gpu, operands, out, patience)
    }

    fn check(&self, operands: &[Operand], out_bytes: u64) -> Result<()> {
        let bytes = operands.iter().map(|operand| match operand {
            Operand::Block(_, bytes) => *bytes,
            Operand::Scalar(_) => 0,
        });
        let fits = self.reaches.len() == operands.len() + 1
            && self.reaches.iter().zip(bytes.chain([out_bytes])).all(|(reach, bytes)| *reach <= bytes);
        if fits { Ok(()) } else { Err(Error::SizeMismatch) }
    }

    fn record(&self, gpu: &Gpu, operands: &[Operand], out: &Block, patience: Patience) -> Result<()> {
        let Steps { partial, list } = &self.steps;
        let lease = |&bytes: &u64| gpu.allocate(Kind::Device, bytes, patience);
        let partial = partial.iter().map(lease).collect::<Result<SmallVec<[_; 2]>>>()?;
        let _together = (list.len() > 1).then(|| gpu.stream.together());
        list.iter().try_for_each(|step| step.record(gpu, operands, &partial, out, patience))
    }
}

impl Step {
    fn record(
        &self,
        gpu: &Gpu,
        operands: &[Operand],
        partial: &[Lease],
        out: &Block,
        patience: Patience,
    ) -> Result<()> {
        let mut reads: SmallVec<[&Block; 4]> = SmallVec::new();
        let mut writes: SmallVec<[&Block; 2]> = SmallVec::new();
        if self.from_partial {
            reads.extend(partial.iter().map(|lease| &**lease));
        } else {
            reads.extend(operands.iter().filter_map(|operand| match operand {
                Operand::Block(lease, _) => Some(&***lease),
                Operand::Scalar(_) => None,
            }));
        }
        if self.to_partial {
            writes.extend(partial.iter().map(|lease| &**lease));
        } else {
            writes.push(out);
        }
        let mut params: SmallVec<[u32; 64]> = SmallVec::from_slice(&self.params);
        for &(place, slot) in &self.slots {
            let words = &mut params[place..];
            match slot {
                Slot::Result => add(words, out.address),
                Slot::Partial(part) => add(words, partial[part].address),
                Slot::Input { index, len } => match &operands[index] {
                    Operand::Block(lease, _) => add(words, lease.address),
                    Operand::Scalar(bits) => words[..len].copy_from_slice(&bytemuck::cast::<_, [u32; 4]>(*bits)[..len]),
                },
                // What the pass before touched last is in the device's cache still: this one begins there.
                Slot::Backwards => {
                    let bytes = reads.iter().chain(&writes).map(|block| block.size).sum::<u64>();
                    words[0] = (bytes >= LARGE && !gpu.backwards.fetch_xor(true, Relaxed)).into();
                }
            }
        }
        record(gpu, &self.pipeline, bytemuck::cast_slice(&params), self.groups, &reads, &writes, patience)
    }
}

/// Adds to a number of 64 bits, the low word first.
fn add(words: &mut [u32], address: u64) {
    let sum = (u64::from(words[0]) | u64::from(words[1]) << 32).wrapping_add(address);
    (words[0], words[1]) = (sum as u32, (sum >> 32) as u32);
}
