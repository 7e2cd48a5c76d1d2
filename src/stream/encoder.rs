//! The encoder: command buffers from batches, kept until they have run.

use std::collections::VecDeque;
use std::sync::Arc;

use ash::vk;
use vulkano::VulkanObject;
use vulkano::command_buffer::pool::{
    CommandBufferAllocateInfo, CommandPool, CommandPoolAlloc, CommandPoolCreateFlags, CommandPoolCreateInfo,
};
use vulkano::device::{Device, Queue};
use vulkano::query::QueryPool;

use super::batch::{Batch, Command};
use super::descriptors::{Descriptors, SetPool};
use super::profile::write_timestamp;
use crate::device::{Timeline, fault};
use crate::error::{Error, Result};

/// Makes command buffers of batches, and keeps both until they have run.
pub(super) struct Encoder {
    device: Arc<Device>,
    timeline: Arc<Timeline>,
    pool: CommandPool,
    free: Vec<CommandPoolAlloc>,
    /// In the recording state, for the next batch.
    begun: Option<CommandPoolAlloc>,
    descriptors: Descriptors,
    in_flight: VecDeque<InFlight>,
}

/// A submitted command buffer with what it needs until its value is reached.
struct InFlight {
    value: u64,
    buffer: CommandPoolAlloc,
    sets: Vec<SetPool>,
    /// Keeps the pipelines alive.
    _batch: Batch,
}

impl Encoder {
    pub fn new(device: Arc<Device>, queue: &Queue, timeline: Arc<Timeline>) -> Result<Self> {
        let create_info = CommandPoolCreateInfo {
            flags: CommandPoolCreateFlags::RESET_COMMAND_BUFFER | CommandPoolCreateFlags::TRANSIENT,
            queue_family_index: queue.queue_family_index(),
            ..Default::default()
        };
        fault::point(&device, "vkCreateCommandPool").map_err(|e| Error::vulkan("command pool", e))?;
        let pool = CommandPool::new(device.clone(), create_info)
            .map_err(|e| Error::DispatchFailed(format!("command pool: {e:?}")))?;
        let descriptors = Descriptors::new(device.clone());
        Ok(Self { device, timeline, pool, free: vec![], begun: None, descriptors, in_flight: VecDeque::new() })
    }

    /// A command buffer of the batch, to be submitted with the timeline's `value`. Both are kept until that is reached. Waits for pipelines
    /// that the driver still builds.
    pub fn encode(&mut self, mut batch: Batch, value: u64) -> Result<vk::CommandBuffer> {
        // What could not be built does not run: what it was to write carries the failure.
        let pipelines: Vec<_> = batch.pipelines.iter().map(|pipeline| pipeline.handle().unwrap_or_default()).collect();
        let buffer = match self.begun.take() {
            Some(buffer) => buffer,
            None => self.begin()?,
        };
        let handle = buffer.handle();
        match batch.samples.take().filter(|samples| !samples.list.is_empty()) {
            Some(samples) => {
                let queries = samples.begin(handle)?;
                self.record_timed(handle, &batch, &pipelines, &queries)?;
                samples.keep(queries);
            }
            None => {
                let mut bound = vk::Pipeline::null();
                for command in &batch.commands {
                    self.record(handle, &batch, command, &pipelines, &mut bound)?;
                }
            }
        }
        // SAFETY: the command buffer is in the recording state.
        let end = || unsafe { (self.device.fns().v1_0.end_command_buffer)(handle) }.result();
        fault::point(&self.device, "vkEndCommandBuffer")
            .and_then(|()| end())
            .map_err(|e| Error::vulkan("ending a command buffer", e))?;
        self.in_flight.push_back(InFlight { value, buffer, sets: self.descriptors.take_used(), _batch: batch });
        Ok(handle)
    }

    /// Begins the command buffer of the next batch ahead of time, while no caller waits for it.
    pub fn prepare(&mut self) -> Result<()> {
        if self.begun.is_none() {
            self.begun = Some(self.begin()?);
        }
        Ok(())
    }

    fn begin(&mut self) -> Result<CommandPoolAlloc> {
        while self.in_flight.front().is_some_and(|submission| self.timeline.reached(submission.value)) {
            // SAFETY: the command buffer has run.
            unsafe { self.take_back() };
        }
        let buffer = match self.free.pop() {
            Some(buffer) => buffer,
            None => self.allocate()?,
        };
        let info = vk::CommandBufferBeginInfo::default().flags(vk::CommandBufferUsageFlags::ONE_TIME_SUBMIT);
        // SAFETY: the command buffer is new or its last submission has run; beginning it resets it. `&mut self` is the
        // only way to it and its pool.
        let begin = || unsafe { (self.device.fns().v1_0.begin_command_buffer)(buffer.handle(), &info) }.result();
        fault::point(&self.device, "vkBeginCommandBuffer")
            .and_then(|()| begin())
            .map_err(|e| Error::vulkan("beginning a command buffer", e))?;
        Ok(buffer)
    }

    /// Takes back what the oldest submission needs.
    ///
    /// # Safety
    ///
    /// The device must have run it.
    unsafe fn take_back(&mut self) {
        if let Some(InFlight { buffer, sets, .. }) = self.in_flight.pop_front() {
            self.free.push(buffer);
            // SAFETY: the caller's promise.
            unsafe { self.descriptors.recycle(sets) };
        }
    }

    /// Takes back what all submissions need.
    ///
    /// # Safety
    ///
    /// The device must run nothing.
    pub unsafe fn take_all_back(&mut self) {
        while !self.in_flight.is_empty() {
            // SAFETY: the caller's promise.
            unsafe { self.take_back() };
        }
    }

    fn allocate(&self) -> Result<CommandPoolAlloc> {
        fault::point(&self.device, "vkAllocateCommandBuffers").map_err(|e| Error::vulkan("command buffer", e))?;
        let info = CommandBufferAllocateInfo { command_buffer_count: 1, ..Default::default() };
        let mut allocated =
            self.pool.allocate_command_buffers(info).map_err(|e| Error::OutOfMemory(format!("command buffer: {e}")))?;
        allocated.next().ok_or_else(|| Error::OutOfMemory("no command buffer".into()))
    }

    /// Records the batch's commands, each dispatch and transfer between two timestamps. The first is written when the commands before are
    /// where the device starts on this one, the second when it has ended.
    fn record_timed(
        &mut self,
        to: vk::CommandBuffer,
        batch: &Batch,
        pipelines: &[vk::Pipeline],
        queries: &QueryPool,
    ) -> Result<()> {
        let (mut bound, mut query) = (vk::Pipeline::null(), 0);
        let (top, bottom) = (vk::PipelineStageFlags::TOP_OF_PIPE, vk::PipelineStageFlags::BOTTOM_OF_PIPE);
        for command in &batch.commands {
            let sampled = command.is_sampled();
            if sampled {
                // SAFETY: the buffer is in the recording state; there are two queries for each sampled command.
                unsafe { write_timestamp(&self.device, to, top, queries, query) };
            }
            self.record(to, batch, command, pipelines, &mut bound)?;
            if sampled {
                // SAFETY: as above.
                unsafe { write_timestamp(&self.device, to, bottom, queries, query + 1) };
                query += 2;
            }
        }
        Ok(())
    }

    fn record(
        &mut self,
        to: vk::CommandBuffer,
        batch: &Batch,
        command: &Command,
        pipelines: &[vk::Pipeline],
        bound: &mut vk::Pipeline,
    ) -> Result<()> {
        let (fns, conditional) = (&self.device.fns().v1_0, &self.device.fns().ext_conditional_rendering);
        // SAFETY: `to` is in the recording state; pipelines and layouts belong to this device and live with the batch, buffers longer
        // (see `Command`). The recorder's callers checked groups, push sizes, descriptors and ranges against pipeline, limits and
        // allocations. What the pointers point to outlives the calls.
        unsafe {
            match command {
                Command::Bind { layout, set_layout, bindings } => {
                    self.descriptors.bind(to, *layout, *set_layout, &batch.bindings[bindings.clone()])?;
                }
                Command::Dispatch { pipeline, layout, groups: [x, y, z], push } => {
                    let (push, pipeline) = (&batch.data[push.clone()], pipelines[*pipeline]);
                    if pipeline == vk::Pipeline::null() {
                        return Ok(());
                    }
                    if *bound != pipeline {
                        (fns.cmd_bind_pipeline)(to, vk::PipelineBindPoint::COMPUTE, pipeline);
                        *bound = pipeline;
                    }
                    let (stage, len) = (vk::ShaderStageFlags::COMPUTE, push.len() as u32);
                    if len > 0 {
                        (fns.cmd_push_constants)(to, *layout, stage, 0, len, push.as_ptr().cast());
                    }
                    (fns.cmd_dispatch)(to, *x, *y, *z);
                }
                Command::BeginPredicate { buffer, offset } => {
                    let info = vk::ConditionalRenderingBeginInfoEXT::default().buffer(*buffer).offset(*offset);
                    (conditional.cmd_begin_conditional_rendering_ext)(to, &info);
                }
                Command::EndPredicate => (conditional.cmd_end_conditional_rendering_ext)(to),
                Command::Copy { from, to: target, region } => (fns.cmd_copy_buffer)(to, *from, *target, 1, region),
                Command::Update { buffer, data } => {
                    let data = &batch.data[data.clone()];
                    (fns.cmd_update_buffer)(to, *buffer, 0, data.len() as u64, data.as_ptr().cast());
                }
                Command::Zero { buffer, len } => (fns.cmd_fill_buffer)(to, *buffer, 0, *len, 0),
                Command::Barrier { stages: [before, after], access: [made, seen] } => {
                    let barrier = vk::MemoryBarrier::default().src_access_mask(*made).dst_access_mask(*seen);
                    let (flags, none, no_image) = (vk::DependencyFlags::empty(), std::ptr::null(), std::ptr::null());
                    (fns.cmd_pipeline_barrier)(to, *before, *after, flags, 1, &barrier, 0, none, 0, no_image);
                }
            }
        }
        Ok(())
    }
}

impl Drop for Encoder {
    fn drop(&mut self) {
        // The device must be through with the command buffers before they go; nothing can be done about a failure here.
        // SAFETY: the submitter is the only user of the queue, and goes with this.
        let _ = unsafe { self.device.wait_idle() };
    }
}
