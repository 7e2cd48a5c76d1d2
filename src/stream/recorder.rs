use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use ash::vk;

use super::batch::{Batch, Command};
use super::submitter::Submitter;
use crate::device::Timeline;
use crate::error::Result;
use crate::memory::Allocation;
use crate::pipeline::Pipeline;

/// One storage buffer of a foreign kernel, at the binding of its position.
pub struct Binding<'a> {
    pub block: &'a Allocation,
    /// Bytes; a multiple of the device's storage buffer alignment.
    pub offset: u64,
    /// Bytes that the kernel may touch; at least one.
    pub range: u64,
}

/// One run of a compute pipeline.
pub struct Dispatch<'a> {
    pub pipeline: &'a Arc<Pipeline>,
    pub push: &'a [u8],
    pub groups: [u32; 3],
    pub reads: &'a [&'a Allocation],
    pub writes: &'a [&'a Allocation],
    /// Pushed descriptors, for kernels that take their buffers so; ours take addresses in `push`.
    pub bindings: &'a [Binding<'a>],
}

/// A copy of `len` bytes between two different blocks.
pub struct Copy<'a> {
    pub from: &'a Allocation,
    pub from_offset: u64,
    pub to: &'a Allocation,
    pub to_offset: u64,
    pub len: u64,
    /// Whether the host reads the result once the timeline has passed.
    pub to_host: bool,
}

/// Submit after this many commands. Measured on an H200: the device starting early on a chain of small commands is worth
/// more than the submissions that larger batches save.
const BATCH_COMMANDS: u32 = 16;
/// Or after this many bytes touched: the device should start on large work while more is recorded.
const BATCH_BYTES: u64 = 64 << 20;
/// Whether a batch is due is looked at after this many commands.
const LOOK_EVERY: u32 = 4;
/// While the device has work, batches grow up to this many times as many commands: between two submissions an H200
/// pauses for about 10 µs.
const MOST: u32 = 8;

/// Collects commands in order, with the barriers that they need, and hands full batches to the submitter. A caller holds it for
/// a fraction of a microsecond, but where large work is submitted at once, which takes some 10 µs.
pub(super) struct Recorder {
    timeline: Arc<Timeline>,
    submitter: Arc<Submitter>,
    batch: Batch,
    commands: u32,
    bytes: u64,
    /// How many callers record commands that belong together.
    holding: u32,
    /// Counts the runs between two barriers: two commands of one epoch are unordered.
    epoch: u64,
    /// The stages of this epoch's commands: a barrier waits for no others.
    stages: vk::PipelineStageFlags,
}

impl Recorder {
    pub fn new(timeline: Arc<Timeline>, submitter: Arc<Submitter>) -> Self {
        Self {
            timeline,
            submitter,
            batch: Batch::default(),
            commands: 0,
            bytes: 0,
            holding: 0,
            epoch: 1,
            stages: vk::PipelineStageFlags::empty(),
        }
    }

    /// Groups, push size and descriptors are the caller's to check, against pipeline and limits.
    pub fn dispatch(&mut self, d: &Dispatch) -> Result<()> {
        self.order(vk::PipelineStageFlags::COMPUTE_SHADER, d.reads, d.writes)?;
        let push = self.batch.store(d.push);
        let first = self.batch.bindings.len();
        let binding =
            |b: &Binding| vk::DescriptorBufferInfo { buffer: b.block.handle, offset: b.offset, range: b.range };
        self.batch.bindings.extend(d.bindings.iter().map(binding));
        let bindings = first..self.batch.bindings.len();
        self.batch.keep(d.pipeline);
        let (pipeline, layout) = (d.pipeline.handle(), d.pipeline.layout());
        self.push(Command::Dispatch { pipeline, layout, groups: d.groups, push, bindings });
        let bytes = d.reads.iter().chain(d.writes).map(|block| block.size).sum();
        self.recorded(bytes)
    }

    /// The ranges are the caller's to check.
    pub fn copy(&mut self, c: &Copy) -> Result<()> {
        self.order(vk::PipelineStageFlags::TRANSFER, &[c.from], &[c.to])?;
        let region = vk::BufferCopy { src_offset: c.from_offset, dst_offset: c.to_offset, size: c.len };
        self.push(Command::Copy { from: c.from.handle, to: c.to.handle, region });
        if c.to_host {
            self.push(Command::Barrier {
                stages: [vk::PipelineStageFlags::TRANSFER, vk::PipelineStageFlags::HOST],
                access: [vk::AccessFlags::TRANSFER_WRITE, vk::AccessFlags::HOST_READ],
            });
        }
        self.recorded(c.len)
    }

    pub fn update(&mut self, block: &Allocation, data: &[u8]) -> Result<()> {
        self.order(vk::PipelineStageFlags::TRANSFER, &[], &[block])?;
        // The command takes multiples of four bytes, at most 64 KiB; every block holds a multiple of 64.
        let mut stored = self.batch.store(data);
        stored.end = stored.start + data.len().next_multiple_of(4);
        self.batch.data.resize(stored.end, 0);
        self.push(Command::Update { buffer: block.handle, data: stored });
        self.recorded(data.len() as u64)
    }

    pub fn zero(&mut self, block: &Allocation, len: u64) -> Result<()> {
        self.order(vk::PipelineStageFlags::TRANSFER, &[], &[block])?;
        let len = len.next_multiple_of(4).clamp(4, block.size);
        self.push(Command::Zero { buffer: block.handle, len });
        self.recorded(len)
    }

    /// Hands over what is recorded, if anything is; the timeline value after which all of it has run. See [`Submitter::push`].
    pub fn submit(&mut self, at_once: bool) -> Result<u64> {
        self.submitter.check()?;
        if self.batch.commands.is_empty() {
            return Ok(self.submitted());
        }
        (self.commands, self.bytes) = (0, 0);
        let next = Batch::with_room(self.batch.commands.len());
        let batch = std::mem::replace(&mut self.batch, next);
        let value = self.timeline.submitted.fetch_add(1, Relaxed) + 1;
        self.submitter.push(batch, value, at_once)?;
        Ok(value)
    }

    /// The timeline value of the last submission.
    fn submitted(&self) -> u64 {
        self.timeline.submitted.load(Relaxed)
    }

    fn push(&mut self, command: Command) {
        self.batch.commands.push(command);
    }

    /// Puts a barrier before the next command if it conflicts with one since the last barrier, and marks its uses.
    fn order(&mut self, stage: vk::PipelineStageFlags, reads: &[&Allocation], writes: &[&Allocation]) -> Result<()> {
        self.submitter.check()?;
        let epoch = self.epoch;
        let written = |block: &&Allocation| block.write_epoch.load(Relaxed) == epoch;
        let touched = |block: &&Allocation| written(block) || block.read_epoch.load(Relaxed) == epoch;
        if reads.iter().any(written) || writes.iter().any(touched) {
            let (transfers, kernels) = (vk::PipelineStageFlags::TRANSFER, vk::PipelineStageFlags::COMPUTE_SHADER);
            let reads = vk::AccessFlags::SHADER_READ | vk::AccessFlags::TRANSFER_READ;
            let writes = vk::AccessFlags::SHADER_WRITE | vk::AccessFlags::TRANSFER_WRITE;
            let written = if self.stages.contains(transfers) { writes } else { vk::AccessFlags::SHADER_WRITE };
            self.push(Command::Barrier {
                stages: [self.stages, transfers | kernels],
                access: [written, reads | writes],
            });
            self.epoch += 1;
            self.stages = vk::PipelineStageFlags::empty();
        }
        self.stages |= stage;
        let value = self.submitted() + 1;
        for block in reads {
            block.read_epoch.store(self.epoch, Relaxed);
            block.last_use.store(value, Relaxed);
        }
        for block in writes {
            block.write_epoch.store(self.epoch, Relaxed);
            block.last_use.store(value, Relaxed);
        }
        Ok(())
    }

    /// Until [`Recorder::release`] batches are submitted only when they are as large as can be.
    pub fn hold(&mut self) {
        self.holding += 1;
    }

    pub fn release(&mut self) -> Result<()> {
        self.holding -= 1;
        self.submit_if_due()
    }

    fn recorded(&mut self, bytes: u64) -> Result<()> {
        self.commands += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        self.submit_if_due()
    }

    fn submit_if_due(&mut self) -> Result<()> {
        // The driver need not be asked after each command.
        if self.bytes < BATCH_BYTES && !self.commands.is_multiple_of(LOOK_EVERY) {
            return Ok(());
        }
        let full = self.commands >= MOST * BATCH_COMMANDS;
        let large = self.bytes >= BATCH_BYTES;
        let due = self.commands >= BATCH_COMMANDS || large;
        // One batch is enough for the device not to run dry. Many who hold in turn do not keep it waiting for ever.
        let idle = || self.holding == 0 && self.timeline.passed(self.submitted().saturating_sub(1));
        if full || due && idle() {
            self.submit(large)?;
        }
        Ok(())
    }
}
