//! The submitter: encodes batches as command buffers and submits them to the queue in the order of recording.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use ash::vk;
use once_cell::sync::OnceCell;
use parking_lot::{Condvar, Mutex, MutexGuard};
use vulkano::device::{Device, Queue};
use vulkano::{VulkanError, VulkanObject};

use super::batch::Batch;
use super::encoder::Encoder;
use super::transfers::Transfers;
use crate::device::{Queues, Timeline, failure, fault};
use crate::error::{Error, Result};

/// Batches that wait for the queue, and the first failure of a submission.
pub(super) struct Submitter {
    /// The device's name in messages.
    name: String,
    device: Arc<Device>,
    queue: Arc<Queue>,
    timeline: Arc<Timeline>,
    /// Large transfers, which fail where batches do.
    pub transfers: Transfers,
    pending: Mutex<Pending>,
    arrived: Condvar,
    /// Locked while command buffers are submitted, so that they keep their order.
    encoder: Mutex<Encoder>,
    failed: OnceCell<Error>,
    /// Batches that came while the driver was building a pipeline of theirs, and are not submitted yet.
    unbuilt: AtomicUsize,
    /// The timeline value of the last batch that the queue has.
    submitted: AtomicU64,
    /// Whether the thread submits all batches while callers go on, and not only those whose pipelines the driver still builds. A CPU device
    /// needs the core itself.
    threaded: bool,
}

/// When a batch is to be submitted.
#[derive(Clone, Copy)]
pub(super) enum Due {
    /// By the calling thread: waking the other one takes longer.
    Immediately,
    /// By the submitter's thread, where there is one that submits.
    Soon,
}

#[derive(Default)]
struct Pending {
    list: VecDeque<PendingBatch>,
    closed: bool,
}

struct PendingBatch {
    batch: Batch,
    /// The timeline value that it signals.
    value: u64,
    /// Whether the driver was building a pipeline when the batch came.
    unbuilt: bool,
}

impl Submitter {
    pub fn new(device: Arc<Device>, queues: Queues, timeline: Arc<Timeline>, name: String) -> Result<Arc<Self>> {
        let Queues { compute: queue, transfers } = queues;
        let threaded = !timeline.on_cpu();
        let encoder = Encoder::new(device.clone(), &queue, timeline.clone())?;
        let transfers = Transfers::new(device.clone(), transfers, timeline.on_cpu())?;
        let submitter = Arc::new(Self {
            name,
            device,
            queue,
            timeline,
            transfers,
            pending: Mutex::default(),
            arrived: Condvar::new(),
            encoder: Mutex::new(encoder),
            failed: OnceCell::new(),
            unbuilt: AtomicUsize::new(0),
            submitted: AtomicU64::new(0),
            threaded,
        });
        let background = submitter.clone();
        std::thread::Builder::new()
            .name("nx_vulkan submit".into())
            .spawn(move || background.work())
            .map_err(|e| Error::DispatchFailed(format!("no thread: {e}")))?;
        Ok(submitter)
    }

    /// Takes a batch, which is submitted at the latest by the next [`Submitter::flush`].
    pub fn push(&self, batch: Batch, value: u64) {
        let unbuilt = !batch.is_built();
        self.unbuilt.fetch_add(unbuilt.into(), Relaxed);
        self.pending.lock().list.push_back(PendingBatch { batch, value, unbuilt });
    }

    /// Has the pending batches submitted.
    pub fn run(&self, due: Due) -> Result<()> {
        match (self.threaded, due) {
            (false, _) if self.unbuilt.load(Relaxed) == 0 => self.flush(),
            (false, _) | (true, Due::Immediately) => self.try_flush(),
            (true, Due::Soon) => self.wake(),
        }
    }

    /// Leaves pending batches to the thread.
    fn wake(&self) -> Result<()> {
        self.arrived.notify_one();
        self.check()
    }

    /// Submits all pending batches, and waits for their pipelines.
    pub fn flush(&self) -> Result<()> {
        self.flush_by(self.encoder.lock(), |_| true)
    }

    /// As [`Submitter::flush`], where the submitting thread is done within `limit`.
    pub fn flush_within(&self, limit: Duration) -> Result<()> {
        self.encoder.try_lock_for(limit).map_or_else(|| self.check(), |encoder| self.flush_by(encoder, |_| true))
    }

    /// Submits pending batches without waiting: the thread submits them where a thread is at it, and where the driver still builds a
    /// pipeline of the first.
    pub fn try_flush(&self) -> Result<()> {
        self.encoder.try_lock().map_or_else(|| self.wake(), |encoder| self.flush_by(encoder, Batch::is_built))
    }

    /// Submits batches in their order, up to the first that is not to be submitted here.
    fn flush_by(&self, mut encoder: MutexGuard<Encoder>, here: impl Fn(&Batch) -> bool) -> Result<()> {
        loop {
            let next = {
                let mut pending = self.pending.lock();
                if pending.list.front().is_some_and(|next| !here(&next.batch)) {
                    drop(pending);
                    drop(encoder);
                    return self.wake();
                }
                pending.list.pop_front()
            };
            let Some(PendingBatch { batch, value, unbuilt }) = next else {
                if let Err(error) = encoder.prepare() {
                    self.fail(error);
                }
                return self.check();
            };
            // It may wait for a transfer, which waits for no later batch.
            let transferred = self.flush_transfers();
            let after = batch.after;
            let commands = transferred.and_then(|()| encoder.encode(batch, value));
            if let Err(error) = commands.and_then(|commands| self.submit(commands, value, after)) {
                self.fail(error);
            }
            // What waits for this batch.
            let _ = self.flush_transfers();
            self.unbuilt.fetch_sub(unbuilt.into(), Relaxed);
        }
    }

    /// Submits the transfers that wait for no batch that the queue does not have.
    pub fn flush_transfers(&self) -> Result<()> {
        let flushed = self.transfers.flush(&self.timeline, self.submitted.load(Relaxed), || self.check());
        if let Err(error) = flushed {
            self.fail(error);
        }
        self.check()
    }

    /// Has every later call fail because of this error: what was recorded and has not run never will, and so nothing that depends on it is
    /// right. The first failure counts.
    pub fn fail(&self, error: Error) {
        let lost = || Error::DeviceLost(format!("{} was lost, and its tensors with it: {error}", self.name));
        self.failed.get_or_init(lost);
        self.abandon();
    }

    /// Has every later call fail with this error, of a device that is not lost.
    pub fn end(&self, error: Error) {
        let _ = self.failed.set(error);
        self.abandon();
    }

    /// Ends waits for what is not submitted any more.
    fn abandon(&self) {
        self.timeline.abandon();
        self.transfers.timeline.abandon();
    }

    /// Whether the device was lost.
    pub fn is_lost(&self) -> bool {
        matches!(self.failed.get(), Some(Error::DeviceLost(_)))
    }

    /// Whether all that the queues have is done, or the device answers no longer. What is not submitted does not count.
    pub fn idle(&self) -> bool {
        let busy = |timeline: &Timeline, submitted| timeline.completed().is_ok_and(|completed| completed < submitted);
        !busy(&self.timeline, self.submitted.load(Relaxed))
            && !busy(&self.transfers.timeline, self.transfers.submitted.load(Relaxed))
    }

    /// Drops what is not submitted to a lost device, ends the thread, and waits until the device runs nothing any more. False where that is not
    /// known.
    pub fn drain(&self) -> bool {
        // This waits for a thread that submits. Later ones find the failure before they do.
        let _ = self.flush();
        self.close();
        let idle = self.wait_idle();
        if idle {
            // SAFETY: the device runs nothing, and the failure keeps later batches from being submitted.
            unsafe { self.encoder.lock().take_all_back() };
        }
        idle
    }

    /// Waits until the device runs nothing. False where that is not known.
    pub fn wait_idle(&self) -> bool {
        // SAFETY: the submitter is the only user of the device's queues, whose locks are held.
        let wait = || unsafe { self.device.wait_idle() };
        let idle = self.queue.with(|_queue| {
            let one = Arc::ptr_eq(&self.queue, &self.transfers.queue);
            if one { wait() } else { self.transfers.queue.with(|_queue| wait()) }
        });
        // Vulkan takes the commands of a lost device for complete.
        matches!(idle, Ok(()) | Err(VulkanError::DeviceLost))
    }

    pub fn check(&self) -> Result<()> {
        self.failed.get().cloned().map_or(Ok(()), Err)
    }

    pub fn close(&self) {
        self.pending.lock().closed = true;
        self.arrived.notify_one();
    }

    fn work(&self) {
        loop {
            {
                let mut pending = self.pending.lock();
                while pending.list.is_empty() && !pending.closed {
                    self.arrived.wait(&mut pending);
                }
                if pending.closed {
                    return;
                }
            }
            // The next call reports a failure.
            let _ = self.flush();
        }
    }

    fn submit(&self, commands: vk::CommandBuffer, value: u64, after: u64) -> Result<()> {
        let (signals, waits) = ((&*self.timeline, value), (&*self.transfers.timeline, after));
        submit(&self.device, &self.queue, &Submission { commands, signals, waits })?;
        self.submitted.store(value, Relaxed);
        Ok(())
    }
}

/// A command buffer on its way to a queue.
pub(super) struct Submission<'a> {
    /// Kept by its encoder until the timeline that it signals has reached the value.
    pub commands: vk::CommandBuffer,
    /// The timeline that it signals once it has run, with the value.
    pub signals: (&'a Timeline, u64),
    /// The timeline of the other queue that it waits for, with the value; 0 where it waits for nothing.
    pub waits: (&'a Timeline, u64),
}

/// Submits a command buffer.
pub(super) fn submit(device: &Device, queue: &Arc<Queue>, submission: &Submission) -> Result<()> {
    let &Submission { commands, signals: (signalled, value), waits: (waited, after) } = submission;
    let (buffers, signals, values) = ([commands], [signalled.handle()], [value]);
    let (waits, afters, stages) = ([waited.handle()], [after], [vk::PipelineStageFlags::ALL_COMMANDS]);
    let count = usize::from(after > 0);
    let mut timeline = vk::TimelineSemaphoreSubmitInfo::default()
        .signal_semaphore_values(&values)
        .wait_semaphore_values(&afters[..count]);
    let info = vk::SubmitInfo::default()
        .command_buffers(&buffers)
        .signal_semaphores(&signals)
        .wait_semaphores(&waits[..count])
        .wait_dst_stage_mask(&stages[..count])
        .push_next(&mut timeline);
    // SAFETY: the encoder keeps the command buffer, with all that it refers to, until the timeline has reached `value`; `with` locks the
    // queue; `info` and what it points at outlive the call.
    let result = fault::point(device, "vkQueueSubmit").and_then(|()| unsafe {
        queue.with(|locked| {
            let _locked = &locked;
            (device.fns().v1_0.queue_submit)(queue.handle(), 1, &info, vk::Fence::null()).result()
        })
    });
    result.map_err(|e| failure(device, "submitting to the device", e))
}
