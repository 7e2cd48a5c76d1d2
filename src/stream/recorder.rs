//! The recorder: commands in order, the barriers between them, and when a batch is due.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use ash::vk;

use super::batch::{Batch, Command, MAX_BATCH_COMMANDS, MIN_BATCH_COMMANDS, max_commands};
use super::profile::{ProfileRecorder, Profiler};
use super::submitter::{Due, Submitter};
use crate::device::Timeline;
use crate::error::{Error, Result};
use crate::memory::{Allocation, BoundsCheck, PendingCheck};
use crate::pipeline::Pipeline;

/// One storage buffer of a kernel of user SPIR-V, at the binding of its position.
pub struct Binding<'a> {
    /// The memory that the buffer is a part of.
    pub allocation: &'a Allocation,
    /// First byte: a multiple of the device's storage buffer alignment.
    pub offset: u64,
    /// Bytes that the kernel may touch; at least one.
    pub range: u64,
}

/// A word on the device by which a dispatch runs, or is left out where the word is zero.
#[derive(Clone, Copy)]
pub struct DispatchPredicate<'a> {
    /// The memory that has the word, of [`MemoryKind::Predicates`](crate::memory::MemoryKind).
    pub allocation: &'a Allocation,
    /// The word's first byte, a multiple of four. Kernels under the predicate do not write it, nor does a transfer between two of them.
    pub offset: u64,
}

/// One dispatch of a compute pipeline.
pub struct Dispatch<'a> {
    /// The pipeline, kept until the dispatch has run.
    pub pipeline: &'a Arc<Pipeline>,
    /// The push constants.
    pub push: &'a [u8],
    /// Workgroups along each axis.
    pub groups: [u32; 3],
    /// What the kernel reads.
    pub reads: &'a [&'a Allocation],
    /// What the kernel writes.
    pub writes: &'a [&'a Allocation],
    /// Storage buffers, for user SPIR-V; built-in kernels take addresses in `push`.
    pub bindings: &'a [Binding<'a>],
    /// The check of the indices that the kernel reads; it carries over to what the kernel writes.
    pub check: Option<&'a Arc<BoundsCheck>>,
    /// What decides on the device whether the dispatch runs; `None` where it always does.
    pub predicate: Option<DispatchPredicate<'a>>,
    /// Arithmetic operations, for profiles; 0 where they are not counted.
    pub operations: u64,
}

/// A copy between two different allocations.
pub struct Copy<'a> {
    /// The source.
    pub from: &'a Allocation,
    /// First byte of the source.
    pub from_offset: u64,
    /// The destination.
    pub to: &'a Allocation,
    /// First byte of the destination.
    pub to_offset: u64,
    /// Bytes.
    pub len: u64,
    /// Whether the host reads the destination once the copy has run.
    pub to_host: bool,
}

/// A copy that runs beside the kernels, and when it is over.
#[derive(Clone, Copy)]
pub struct Transfer {
    /// The timeline's value that it begins after.
    pub(super) after: u64,
    /// The value of the transfers' timeline after which it has run.
    pub(super) value: u64,
}

/// Submit after commands that touch this many bytes: the device should start on large work while more is recorded.
const MIN_BATCH_BYTES: u64 = 64 << 20;
/// The device is polled after this many commands for whether a batch is due.
const POLL_EVERY_COMMANDS: u32 = 4;

/// Collects commands in order, with the barriers that they need, and hands full batches to the submitter. A call locks it for a fraction of
/// a microsecond.
pub(super) struct Recorder {
    timeline: Arc<Timeline>,
    submitter: Arc<Submitter>,
    batch: Batch,
    commands: u32,
    bytes: u64,
    /// Number of live submission guards.
    open_batches: u32,
    /// Counts the intervals between two barriers: two commands of one epoch are unordered.
    epoch: u64,
    /// The stages of this epoch's commands: a barrier waits for no others.
    stages: vk::PipelineStageFlags,
    /// `None` while no profile is on.
    profile: Option<ProfileRecorder>,
    /// Whether a kernel of the batch reports to a record that the host reads.
    reports: bool,
    /// The predicate of the batch's next dispatch as it is: the identity of its allocation, and its offset.
    predicate: Option<(u64, u64)>,
    /// The allocation of a predicate that ended in this epoch, by its identity: what writes it next waits. There is one at most, as each
    /// predicate begins an epoch.
    ended_predicate: Option<u64>,
    /// When the batches are to be submitted that the submitter has got since [`Recorder::take_due`].
    due: Option<Due>,
    /// The last transfer that batches from this one on wait for.
    awaited_transfer: u64,
    /// The batches since the host last waited for the device.
    since_wait: u32,
}

/// The stages of all commands.
const KERNELS_AND_TRANSFERS: vk::PipelineStageFlags = vk::PipelineStageFlags::from_raw(
    vk::PipelineStageFlags::COMPUTE_SHADER.as_raw() | vk::PipelineStageFlags::TRANSFER.as_raw(),
);

/// What the device copied is there for the host.
const COPIED_TO_HOST: Command = Command::Barrier {
    stages: [vk::PipelineStageFlags::TRANSFER, vk::PipelineStageFlags::HOST],
    access: [vk::AccessFlags::TRANSFER_WRITE, vk::AccessFlags::HOST_READ],
};

fn copy_command(c: &Copy) -> Command {
    let region = vk::BufferCopy { src_offset: c.from_offset, dst_offset: c.to_offset, size: c.len };
    Command::Copy { from: c.from.handle, to: c.to.handle, region }
}

/// The writes of commands in these stages. A barrier may name no others.
fn writes_of(stages: vk::PipelineStageFlags) -> vk::AccessFlags {
    [
        (vk::PipelineStageFlags::COMPUTE_SHADER, vk::AccessFlags::SHADER_WRITE),
        (vk::PipelineStageFlags::TRANSFER, vk::AccessFlags::TRANSFER_WRITE),
    ]
    .into_iter()
    .filter(|(stage, _)| stages.contains(*stage))
    .fold(vk::AccessFlags::empty(), |writes, (_, write)| writes | write)
}

/// What a command writes depends on the checks of what it reads.
#[cold]
fn inherit_checks(read: &Allocation, writes: &[&Allocation]) {
    if let Some(pending) = read.checks.pending() {
        writes.iter().for_each(|write| write.checks.add_all(&pending));
    }
}

impl Recorder {
    pub fn new(timeline: Arc<Timeline>, submitter: Arc<Submitter>) -> Self {
        Self {
            timeline,
            submitter,
            batch: Batch::default(),
            commands: 0,
            bytes: 0,
            open_batches: 0,
            epoch: 1,
            stages: vk::PipelineStageFlags::empty(),
            profile: None,
            reports: false,
            predicate: None,
            ended_predicate: None,
            due: None,
            awaited_transfer: 0,
            since_wait: 0,
        }
    }

    /// Records a dispatch. The caller has checked groups, push size and descriptors against pipeline and limits.
    pub fn dispatch(&mut self, d: &Dispatch) -> Result<()> {
        self.await_transfers(d.reads, d.writes)?;
        self.change_predicate(d.predicate);
        self.order(vk::PipelineStageFlags::COMPUTE_SHADER, d.reads, d.writes)?;
        if let Some(check) = d.check {
            self.reports = true;
            check.record().last_use.store(self.submitted() + 1, Relaxed);
            d.writes.iter().for_each(|write| write.checks.add(PendingCheck::Indices(check.clone())));
        }
        if !d.pipeline.build().has_passed() {
            d.writes.iter().for_each(|write| write.checks.add(PendingCheck::Kernel(d.pipeline.build().clone())));
        }
        let push = self.batch.store(d.push);
        let (pipeline, layout) = (self.batch.keep(d.pipeline), d.pipeline.layout());
        if !d.bindings.is_empty() {
            let first = self.batch.bindings.len();
            let binding = |b: &Binding| vk::DescriptorBufferInfo {
                buffer: b.allocation.handle,
                offset: b.offset,
                range: b.range,
            };
            self.batch.bindings.extend(d.bindings.iter().map(binding));
            let bindings = first..self.batch.bindings.len();
            self.push(Command::Bind { layout, set_layout: d.pipeline.set_layout(), bindings });
        }
        self.push(Command::Dispatch { pipeline, layout, groups: d.groups, push });
        let bytes = |list: &[&Allocation]| list.iter().map(|allocation| allocation.size).sum::<u64>();
        let (read, written) = (bytes(d.reads), bytes(d.writes));
        self.sample(|| d.pipeline.name().clone(), d.groups, [read, written], d.operations);
        let bytes = read + written;
        self.recorded(bytes)
    }

    /// Records a copy. The caller has checked the ranges.
    pub fn copy(&mut self, c: &Copy) -> Result<()> {
        self.await_transfers(&[c.from], &[c.to])?;
        self.order(vk::PipelineStageFlags::TRANSFER, &[c.from], &[c.to])?;
        self.push(copy_command(c));
        self.sample(|| if c.to_host { "copy to host" } else { "copy" }.into(), [0; 3], [c.len; 2], 0);
        if c.to_host {
            self.push(COPIED_TO_HOST);
        }
        self.recorded(c.len)
    }

    /// Has a copy run on the queue of transfers: once what it depends on has run, and beside the kernels that do not depend on it. The caller
    /// has checked the ranges. `None` while a profile is on, which has the times of copies on the queue of kernels.
    pub fn transfer(&mut self, c: &Copy) -> Result<Option<Transfer>> {
        self.submitter.check()?;
        if self.profile.is_some() {
            return Ok(None);
        }
        let after = c.from.last_write.load(Relaxed).max(c.to.last_use.load(Relaxed));
        if after > self.submitted() {
            self.submit(true)?;
        }
        let mut batch = Batch::after(after);
        // What the queue of transfers has done with them before.
        if c.from.last_transfer.load(Relaxed).max(c.to.last_transfer.load(Relaxed)) > 0 {
            batch.commands.push(Command::Barrier {
                stages: [vk::PipelineStageFlags::TRANSFER; 2],
                access: [
                    vk::AccessFlags::TRANSFER_WRITE,
                    vk::AccessFlags::TRANSFER_READ | vk::AccessFlags::TRANSFER_WRITE,
                ],
            });
        }
        batch.commands.push(copy_command(c));
        if c.to_host {
            batch.commands.push(COPIED_TO_HOST);
        }
        if c.from.checks.any() {
            inherit_checks(c.from, &[c.to]);
        }
        let transfers = &self.submitter.transfers;
        let value = transfers.timeline.submitted.fetch_add(1, Relaxed) + 1;
        c.from.last_transfer.store(value, Relaxed);
        c.to.last_transfer.store(value, Relaxed);
        transfers.push(batch, value);
        Ok(Some(Transfer { after, value }))
    }

    /// Has the next command, which reads and writes these allocations, wait for their transfers. Commands before it do not.
    fn await_transfers(&mut self, reads: &[&Allocation], writes: &[&Allocation]) -> Result<()> {
        let transfers = reads.iter().chain(writes).map(|allocation| allocation.last_transfer.load(Relaxed));
        let last = transfers.fold(0, u64::max);
        if last <= self.awaited_transfer {
            return Ok(());
        }
        if !self.submitter.transfers.timeline.reached(last) {
            self.submit(false)?;
        }
        (self.batch.after, self.awaited_transfer) = (last, last);
        Ok(())
    }

    pub fn update(&mut self, allocation: &Allocation, data: &[u8]) -> Result<()> {
        self.await_transfers(&[], &[allocation])?;
        self.order(vk::PipelineStageFlags::TRANSFER, &[], &[allocation])?;
        // The command takes multiples of four bytes, at most 64 KiB; every allocation has a multiple of 64.
        let mut stored = self.batch.store(data);
        stored.end = stored.start + data.len().next_multiple_of(4);
        self.batch.data.resize(stored.end, 0);
        self.push(Command::Update { buffer: allocation.handle, data: stored });
        self.sample(|| "update".into(), [0; 3], [0, data.len() as u64], 0);
        self.recorded(data.len() as u64)
    }

    pub fn zero(&mut self, allocation: &Allocation, len: u64) -> Result<()> {
        self.await_transfers(&[], &[allocation])?;
        self.order(vk::PipelineStageFlags::TRANSFER, &[], &[allocation])?;
        let len = len.next_multiple_of(4).clamp(4, allocation.size);
        self.push(Command::Zero { buffer: allocation.handle, len });
        self.sample(|| "fill".into(), [0; 3], [0, len], 0);
        self.recorded(len)
    }

    /// Hands what is recorded to the submitter, which submits it at the next [`Submitter::run`] or flush. Returns the timeline value after
    /// which all of it has run.
    pub fn submit(&mut self, immediately: bool) -> Result<u64> {
        self.submitter.check()?;
        if self.batch.commands.is_empty() {
            return Ok(self.submitted());
        }
        (self.commands, self.bytes) = (0, 0);
        self.change_predicate(None);
        if std::mem::take(&mut self.reports) {
            self.push(Command::Barrier {
                stages: [vk::PipelineStageFlags::COMPUTE_SHADER, vk::PipelineStageFlags::HOST],
                access: [vk::AccessFlags::SHADER_WRITE, vk::AccessFlags::HOST_READ],
            });
        }
        let next = Batch::with_room(self.batch.commands.len());
        let batch = std::mem::replace(&mut self.batch, next);
        self.batch.samples = self.profile.as_ref().and_then(ProfileRecorder::batch);
        let value = self.timeline.submitted.fetch_add(1, Relaxed) + 1;
        self.submitter.push(batch, value);
        self.due = Some(if immediately { Due::Immediately } else { Due::Soon });
        self.since_wait = self.since_wait.saturating_add(1);
        Ok(value)
    }

    /// As [`Recorder::submit`], for a host that waits.
    pub fn submit_for_wait(&mut self) -> Result<u64> {
        let value = self.submit(true)?;
        self.since_wait = 0;
        Ok(value)
    }

    /// Has the commands from now on get timestamps. What is recorded before is submitted. Fails where a profile is on.
    pub fn start_profile(&mut self, profiler: Arc<Profiler>) -> Result<()> {
        if self.profile.is_some() {
            return Err(Error::Argument("a profile of this device is on already".into()));
        }
        self.submit(true)?;
        let profile = ProfileRecorder::new(profiler);
        self.batch.samples = profile.batch();
        self.profile = Some(profile);
        Ok(())
    }

    /// Ends a profile, whose batches must have run before [`ProfileRecorder::finish`]. The last one is submitted.
    pub fn stop_profile(&mut self) -> Option<ProfileRecorder> {
        let profile = self.profile.take();
        // A failure is that of the next call.
        let _ = self.submit(true);
        self.batch.samples = None;
        profile
    }

    /// Counts a wait that ends now, while a profile is on.
    pub fn waited(&mut self, since: Instant) {
        if let Some(profile) = &mut self.profile {
            profile.waited(since);
        }
    }

    /// Adds the command that was recorded last to the profile, if one is on.
    fn sample(&mut self, name: impl FnOnce() -> Arc<str>, groups: [u32; 3], bytes: [u64; 2], operations: u64) {
        if let Some(profile) = &mut self.profile {
            profile.command(&mut self.batch, name(), groups, bytes, operations);
        }
    }

    /// Forgets the commands that are not yet submitted. As the process ends, not even their pipelines are destroyed.
    pub fn discard(&mut self) {
        std::mem::forget(std::mem::take(&mut self.batch));
    }

    /// Forgets the commands that are not yet submitted, as the device is lost.
    pub fn forget(&mut self) {
        self.batch = Batch::default();
    }

    /// The timeline value of the last submission.
    fn submitted(&self) -> u64 {
        self.timeline.submitted.load(Relaxed)
    }

    fn push(&mut self, command: Command) {
        self.batch.commands.push(command);
    }

    /// Puts a barrier before the next command if it conflicts with one since the last barrier, and marks what it reads and writes.
    fn order(&mut self, stage: vk::PipelineStageFlags, reads: &[&Allocation], writes: &[&Allocation]) -> Result<()> {
        self.submitter.check()?;
        let epoch = self.epoch;
        let written = |allocation: &&Allocation| allocation.write_epoch.load(Relaxed) == epoch;
        let ended = self.ended_predicate;
        let touched = |allocation: &&Allocation| {
            written(allocation) || allocation.read_epoch.load(Relaxed) == epoch || ended == Some(allocation.id)
        };
        if reads.iter().any(written) || writes.iter().any(touched) {
            self.begin_epoch(self.stages, vk::PipelineStageFlags::empty(), vk::AccessFlags::empty());
        }
        self.stages |= stage;
        let value = self.submitted() + 1;
        // Many callers read the same parameters: what is not written stays in their caches.
        let mark = |of: &AtomicU64, value| {
            if of.load(Relaxed) != value {
                of.store(value, Relaxed);
            }
        };
        for allocation in reads {
            mark(&allocation.read_epoch, self.epoch);
            mark(&allocation.last_use, value);
        }
        for allocation in writes {
            allocation.write_epoch.store(self.epoch, Relaxed);
            allocation.last_use.store(value, Relaxed);
            allocation.last_write.store(value, Relaxed);
        }
        reads.iter().filter(|read| read.checks.any()).for_each(|read| inherit_checks(read, writes));
        Ok(())
    }

    /// Puts a barrier between commands of the stages `before` and the later ones, whose stages are those of kernels, of transfers and
    /// `after`.
    fn begin_epoch(&mut self, before: vk::PipelineStageFlags, after: vk::PipelineStageFlags, access: vk::AccessFlags) {
        let reads = vk::AccessFlags::SHADER_READ | vk::AccessFlags::TRANSFER_READ;
        self.push(Command::Barrier {
            stages: [before, KERNELS_AND_TRANSFERS | after],
            access: [writes_of(before), reads | writes_of(KERNELS_AND_TRANSFERS) | access],
        });
        self.epoch += 1;
        self.stages = vk::PipelineStageFlags::empty();
        self.ended_predicate = None;
    }

    /// Has the dispatches from here on run under this predicate, or always. A predicate is read by a stage of its own, for which no barrier
    /// before has waited.
    fn change_predicate(&mut self, predicate: Option<DispatchPredicate>) {
        let wanted = predicate.map(|predicate| (predicate.allocation.id, predicate.offset));
        if wanted == self.predicate {
            return;
        }
        if let Some((id, _)) = self.predicate {
            self.push(Command::EndPredicate);
            self.stages |= vk::PipelineStageFlags::CONDITIONAL_RENDERING_EXT;
            self.ended_predicate = Some(id);
        }
        if let Some(DispatchPredicate { allocation, offset }) = predicate {
            let stage = vk::PipelineStageFlags::CONDITIONAL_RENDERING_EXT;
            let read = vk::AccessFlags::CONDITIONAL_RENDERING_READ_EXT;
            self.begin_epoch(KERNELS_AND_TRANSFERS | self.stages, stage, read);
            allocation.last_use.store(self.submitted() + 1, Relaxed);
            self.push(Command::BeginPredicate { buffer: allocation.handle, offset });
        }
        self.predicate = wanted;
    }

    /// What the submitter has not been told of.
    pub fn take_due(&mut self) -> Option<Due> {
        self.due.take()
    }

    /// Until [`Recorder::end_batch`] batches are submitted only at their largest.
    pub fn begin_batch(&mut self) {
        self.open_batches += 1;
    }

    pub fn end_batch(&mut self) -> Result<()> {
        self.open_batches -= 1;
        self.submit_if_due()
    }

    fn recorded(&mut self, bytes: u64) -> Result<()> {
        self.commands += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        self.submit_if_due()
    }

    fn submit_if_due(&mut self) -> Result<()> {
        // Asking the driver after each command would cost more than it gains.
        if self.bytes < MIN_BATCH_BYTES && !self.commands.is_multiple_of(POLL_EVERY_COMMANDS) {
            return Ok(());
        }
        let large = self.bytes >= MIN_BATCH_BYTES;
        let due = self.commands >= MIN_BATCH_COMMANDS || large;
        // One pending batch is enough for the device not to run dry. Guards that follow each other do not delay a full batch.
        let idle = || self.open_batches == 0 && self.timeline.reached(self.submitted().saturating_sub(1));
        let full = if self.open_batches > 0 { MAX_BATCH_COMMANDS } else { max_commands(self.since_wait) };
        if self.commands >= full || due && idle() {
            // The device, which the host waited for, starts sooner where no other thread has to wake up, and a few large commands are encoded in
            // less time than that takes.
            let few = large && self.commands < MIN_BATCH_COMMANDS;
            self.submit(few || self.since_wait == 0)?;
        }
        Ok(())
    }
}
