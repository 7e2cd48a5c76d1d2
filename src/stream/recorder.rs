use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use ash::vk;
use vulkano::VulkanObject;
use vulkano::command_buffer::pool::{
    CommandBufferAllocateInfo, CommandPool, CommandPoolAlloc, CommandPoolCreateFlags, CommandPoolCreateInfo,
};
use vulkano::device::{Device, Queue};

use super::Timeline;
use super::submitter::Submitter;
use crate::error::{Error, Result};
use crate::memory::Block;
use crate::pipeline::Pipeline;

/// One storage buffer of a foreign kernel, at the binding of its position.
pub struct Binding<'a> {
    pub block: &'a Block,
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
    pub reads: &'a [&'a Block],
    pub writes: &'a [&'a Block],
    /// Pushed descriptors, for kernels that take their buffers so; ours take addresses in `push`.
    pub bindings: &'a [Binding<'a>],
}

/// A copy of `len` bytes between two different blocks.
pub struct Copy<'a> {
    pub from: &'a Block,
    pub from_offset: u64,
    pub to: &'a Block,
    pub to_offset: u64,
    pub len: u64,
    /// Whether the host reads the result once the timeline has passed.
    pub to_host: bool,
}

/// A command buffer with what must live until it has run. Raw recording keeps nothing alive by itself; memory blocks
/// are safe because the pool destroys them only after their last use has passed.
struct Batch {
    commands: CommandPoolAlloc,
    pipelines: Vec<Arc<Pipeline>>,
}

/// Submit after this many commands. Measured on an H200: the device starting early on a chain of small commands is worth
/// more than the submissions that larger batches save.
const BATCH_COMMANDS: u32 = 16;
/// Or after this many bytes touched: the device should start on large work while more is recorded.
const BATCH_BYTES: u64 = 64 << 20;
/// While the device has work, batches grow up to this many times as large: between two submissions an H200 pauses for
/// about 10 µs.
const MOST: u32 = 8;

pub(super) struct Recorder {
    device: Arc<Device>,
    timeline: Arc<Timeline>,
    submitter: Arc<Submitter>,
    pool: CommandPool,
    free: Vec<CommandPoolAlloc>,
    in_flight: VecDeque<(u64, Batch)>,
    current: Option<Batch>,
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
    pub fn new(device: Arc<Device>, queue: &Queue, timeline: Arc<Timeline>, submitter: Arc<Submitter>) -> Result<Self> {
        let create_info = CommandPoolCreateInfo {
            flags: CommandPoolCreateFlags::RESET_COMMAND_BUFFER | CommandPoolCreateFlags::TRANSIENT,
            queue_family_index: queue.queue_family_index(),
            ..Default::default()
        };
        let pool = CommandPool::new(device.clone(), create_info)
            .map_err(|e| Error::DispatchFailed(format!("command pool: {e:?}")))?;
        Ok(Self {
            device,
            timeline,
            submitter,
            pool,
            free: vec![],
            in_flight: VecDeque::new(),
            current: None,
            commands: 0,
            bytes: 0,
            holding: 0,
            epoch: 1,
            stages: vk::PipelineStageFlags::empty(),
        })
    }

    pub fn dispatch(&mut self, d: &Dispatch) -> Result<()> {
        let commands = self.begin()?;
        self.order(commands, vk::PipelineStageFlags::COMPUTE_SHADER, d.reads, d.writes);
        let fns = self.device.fns();
        let layout = d.pipeline.layout();
        // SAFETY (all commands below): `commands` is in the recording state and only used under the recorder's lock;
        // pipeline and layout belong to this device and are kept in the batch; blocks outlive the batch (see `Batch`).
        // Groups, push size and descriptors were checked against pipeline and limits by the callers in `kernels`.
        if self.current.as_ref().and_then(|batch| batch.pipelines.last()).is_none_or(|p| !Arc::ptr_eq(p, d.pipeline)) {
            unsafe {
                (fns.v1_0.cmd_bind_pipeline)(commands, vk::PipelineBindPoint::COMPUTE, d.pipeline.handle());
            }
            if let Some(batch) = &mut self.current {
                batch.pipelines.push(d.pipeline.clone());
            }
        }
        if !d.bindings.is_empty() {
            let infos: Vec<_> = d
                .bindings
                .iter()
                .map(|b| vk::DescriptorBufferInfo { buffer: b.block.handle, offset: b.offset, range: b.range })
                .collect();
            let writes: Vec<_> = infos
                .iter()
                .enumerate()
                .map(|(binding, info)| {
                    vk::WriteDescriptorSet::default()
                        .dst_binding(binding as u32)
                        .descriptor_type(vk::DescriptorType::STORAGE_BUFFER)
                        .buffer_info(std::slice::from_ref(info))
                })
                .collect();
            // SAFETY: as above; `writes` and `infos` live over the call.
            unsafe {
                (fns.khr_push_descriptor.cmd_push_descriptor_set_khr)(
                    commands,
                    vk::PipelineBindPoint::COMPUTE,
                    layout,
                    0,
                    writes.len() as u32,
                    writes.as_ptr(),
                );
            }
        }
        // SAFETY: as above; `push` is as long as the layout's range.
        unsafe {
            if !d.push.is_empty() {
                (fns.v1_0.cmd_push_constants)(
                    commands,
                    layout,
                    vk::ShaderStageFlags::COMPUTE,
                    0,
                    d.push.len() as u32,
                    d.push.as_ptr().cast(),
                );
            }
            (fns.v1_0.cmd_dispatch)(commands, d.groups[0], d.groups[1], d.groups[2]);
        }
        let bytes = d.reads.iter().chain(d.writes).map(|block| block.size).sum();
        self.recorded(bytes)
    }

    pub fn copy(&mut self, c: &Copy) -> Result<()> {
        let commands = self.begin()?;
        self.order(commands, vk::PipelineStageFlags::TRANSFER, &[c.from], &[c.to]);
        let region = vk::BufferCopy { src_offset: c.from_offset, dst_offset: c.to_offset, size: c.len };
        let fns = self.device.fns();
        // SAFETY: as in `dispatch`; the callers in `transfer` checked the ranges against the blocks.
        unsafe { (fns.v1_0.cmd_copy_buffer)(commands, c.from.handle, c.to.handle, 1, &region) };
        if c.to_host {
            let barrier = vk::MemoryBarrier::default()
                .src_access_mask(vk::AccessFlags::TRANSFER_WRITE)
                .dst_access_mask(vk::AccessFlags::HOST_READ);
            self.barrier(commands, vk::PipelineStageFlags::TRANSFER, vk::PipelineStageFlags::HOST, &barrier);
        }
        self.recorded(c.len)
    }

    pub fn update(&mut self, block: &Block, data: &[u8]) -> Result<()> {
        let commands = self.begin()?;
        self.order(commands, vk::PipelineStageFlags::TRANSFER, &[], &[block]);
        // The command takes multiples of four bytes, at most 64 KiB; blocks are larger than what is asked of them.
        let mut padded = data.to_vec();
        padded.resize(data.len().next_multiple_of(4), 0);
        // SAFETY: as in `dispatch`; every block holds a multiple of 64 bytes, at least `padded.len()`.
        unsafe {
            let (len, ptr) = (padded.len() as u64, padded.as_ptr().cast());
            (self.device.fns().v1_0.cmd_update_buffer)(commands, block.handle, 0, len, ptr);
        }
        self.recorded(data.len() as u64)
    }

    pub fn zero(&mut self, block: &Block, len: u64) -> Result<()> {
        let commands = self.begin()?;
        self.order(commands, vk::PipelineStageFlags::TRANSFER, &[], &[block]);
        let len = len.next_multiple_of(4).clamp(4, block.size);
        // SAFETY: as in `dispatch`; `len` is a multiple of four within the block.
        unsafe { (self.device.fns().v1_0.cmd_fill_buffer)(commands, block.handle, 0, len, 0) };
        self.recorded(len)
    }

    /// Submits what is recorded, if anything is; the timeline value after which all of it has run.
    pub fn submit(&mut self) -> Result<u64> {
        self.submitter.check()?;
        let Some(batch) = self.current.take() else {
            return Ok(self.submitted());
        };
        (self.commands, self.bytes) = (0, 0);
        let commands = batch.commands.handle();
        // SAFETY: the command buffer is in the recording state and only used under the recorder's lock.
        let ended = unsafe { (self.device.fns().v1_0.end_command_buffer)(commands) }.result();
        if let Err(error) = ended.map_err(|e| Error::vulkan("ending a command buffer", e)) {
            self.submitter.fail(error.clone());
            return Err(error);
        }
        let value = self.timeline.submitted.fetch_add(1, Relaxed) + 1;
        self.in_flight.push_back((value, batch));
        self.submitter.push(commands, value)?;
        Ok(value)
    }

    /// The timeline value of the last submission.
    fn submitted(&self) -> u64 {
        self.timeline.submitted.load(Relaxed)
    }

    /// The command buffer of the current batch, begun where there is none.
    fn begin(&mut self) -> Result<vk::CommandBuffer> {
        self.submitter.check()?;
        if let Some(batch) = &self.current {
            return Ok(batch.commands.handle());
        }
        while self.in_flight.front().is_some_and(|(value, _)| self.timeline.passed(*value)) {
            if let Some((_, batch)) = self.in_flight.pop_front() {
                self.free.push(batch.commands);
            }
        }
        let commands = match self.free.pop() {
            Some(commands) => commands,
            None => {
                let info = CommandBufferAllocateInfo { command_buffer_count: 1, ..Default::default() };
                let mut allocated = self
                    .pool
                    .allocate_command_buffers(info)
                    .map_err(|e| Error::OutOfMemory(format!("command buffer: {e}")))?;
                allocated.next().ok_or_else(|| Error::OutOfMemory("no command buffer".into()))?
            }
        };
        let info = vk::CommandBufferBeginInfo::default().flags(vk::CommandBufferUsageFlags::ONE_TIME_SUBMIT);
        // SAFETY: the command buffer is new or its last submission has passed; beginning it resets it.
        unsafe { (self.device.fns().v1_0.begin_command_buffer)(commands.handle(), &info) }
            .result()
            .map_err(|e| Error::vulkan("beginning a command buffer", e))?;
        let handle = commands.handle();
        self.current = Some(Batch { commands, pipelines: vec![] });
        Ok(handle)
    }

    /// Puts a barrier before the next command if it conflicts with one since the last barrier, and marks its uses.
    fn order(
        &mut self,
        commands: vk::CommandBuffer,
        stage: vk::PipelineStageFlags,
        reads: &[&Block],
        writes: &[&Block],
    ) {
        let epoch = self.epoch;
        let written = |block: &&Block| block.write_epoch.load(Relaxed) == epoch;
        let touched = |block: &&Block| written(block) || block.read_epoch.load(Relaxed) == epoch;
        if reads.iter().any(written) || writes.iter().any(touched) {
            let (transfers, kernels) = (vk::PipelineStageFlags::TRANSFER, vk::PipelineStageFlags::COMPUTE_SHADER);
            let reads = vk::AccessFlags::SHADER_READ | vk::AccessFlags::TRANSFER_READ;
            let writes = vk::AccessFlags::SHADER_WRITE | vk::AccessFlags::TRANSFER_WRITE;
            let written = if self.stages.contains(transfers) { writes } else { vk::AccessFlags::SHADER_WRITE };
            let barrier = vk::MemoryBarrier::default().src_access_mask(written).dst_access_mask(reads | writes);
            self.barrier(commands, self.stages, transfers | kernels, &barrier);
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
    }

    fn barrier(
        &self,
        commands: vk::CommandBuffer,
        src: vk::PipelineStageFlags,
        dst: vk::PipelineStageFlags,
        barrier: &vk::MemoryBarrier,
    ) {
        // SAFETY: `commands` is in the recording state; the barrier outlives the call.
        unsafe {
            (self.device.fns().v1_0.cmd_pipeline_barrier)(
                commands,
                src,
                dst,
                vk::DependencyFlags::empty(),
                1,
                barrier,
                0,
                std::ptr::null(),
                0,
                std::ptr::null(),
            );
        }
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
        let is = |times: u32| self.commands >= times * BATCH_COMMANDS || self.bytes >= u64::from(times) * BATCH_BYTES;
        // One batch is enough for the device not to run dry. Many who hold in turn do not keep it waiting for ever.
        let idle = || self.holding == 0 && self.timeline.passed(self.submitted().saturating_sub(1));
        if is(MOST) || is(1) && idle() {
            self.submit()?;
        }
        Ok(())
    }
}
