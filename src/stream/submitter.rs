//! Makes command buffers of recorded batches, and gives them to the queue in the order of recording.

use std::collections::VecDeque;
use std::sync::Arc;

use ash::vk;
use once_cell::sync::OnceCell;
use parking_lot::{Condvar, Mutex, MutexGuard};
use vulkano::VulkanObject;
use vulkano::device::{Device, Queue};

use super::batch::Batch;
use super::encoder::Encoder;
use crate::device::Timeline;
use crate::error::{Error, Result};

/// What is recorded and waits for the queue, and the first failure of all that was given to it.
pub(super) struct Submitter {
    device: Arc<Device>,
    queue: Arc<Queue>,
    timeline: Arc<Timeline>,
    waiting: Mutex<Waiting>,
    pushed: Condvar,
    /// Held by whoever gives the queue its next command buffers, so that they keep their order.
    encoder: Mutex<Encoder>,
    failed: OnceCell<Error>,
    /// Whether a thread of its own does it while callers go on. A device that is the CPU itself has better use for the core.
    threaded: bool,
}

#[derive(Default)]
struct Waiting {
    /// Batches, with the timeline values that they signal.
    list: VecDeque<(Batch, u64)>,
    closed: bool,
}

impl Submitter {
    pub fn new(device: Arc<Device>, queue: Arc<Queue>, timeline: Arc<Timeline>) -> Result<Arc<Self>> {
        let threaded = !timeline.on_cpu();
        let encoder = Encoder::new(device.clone(), &queue, timeline.clone())?;
        let submitter = Arc::new(Self {
            device,
            queue,
            timeline,
            waiting: Mutex::default(),
            pushed: Condvar::new(),
            encoder: Mutex::new(encoder),
            failed: OnceCell::new(),
            threaded,
        });
        if threaded {
            let own = submitter.clone();
            std::thread::Builder::new()
                .name("nx_vulkan submit".into())
                .spawn(move || own.work())
                .map_err(|e| Error::DispatchFailed(format!("no thread: {e}")))?;
        }
        Ok(submitter)
    }

    /// Takes a batch; it is submitted soon, at the latest by the next [`Submitter::flush`], and by the caller where the device
    /// should start at once: waking the thread takes longer.
    pub fn push(&self, batch: Batch, value: u64, at_once: bool) -> Result<()> {
        self.waiting.lock().list.push_back((batch, value));
        match (self.threaded, at_once) {
            (false, _) => self.flush(),
            (true, true) => self.try_flush(),
            (true, false) => self.leave(),
        }
    }

    /// Leaves what waits to the thread.
    fn leave(&self) -> Result<()> {
        self.pushed.notify_one();
        self.check()
    }

    /// Submits what waits.
    pub fn flush(&self) -> Result<()> {
        self.flush_by(self.encoder.lock())
    }

    /// As [`Submitter::flush`], but does not wait for its turn: the thread submits what is left then.
    pub fn try_flush(&self) -> Result<()> {
        self.encoder.try_lock().map_or_else(|| self.leave(), |encoder| self.flush_by(encoder))
    }

    fn flush_by(&self, mut encoder: MutexGuard<Encoder>) -> Result<()> {
        loop {
            let next = self.waiting.lock().list.pop_front();
            let Some((batch, value)) = next else {
                if let Err(error) = encoder.prepare() {
                    self.fail(error);
                }
                return self.check();
            };
            let commands = self.check().and_then(|()| encoder.encode(batch, value));
            if let Err(error) = commands.and_then(|commands| self.submit(commands, value)) {
                self.fail(error);
            }
        }
    }

    /// From now on every call fails with this: the device is lost or hung.
    pub fn fail(&self, error: Error) {
        let _ = self.failed.set(error);
    }

    pub fn check(&self) -> Result<()> {
        self.failed.get().cloned().map_or(Ok(()), Err)
    }

    pub fn close(&self) {
        self.waiting.lock().closed = true;
        self.pushed.notify_one();
    }

    fn work(&self) {
        loop {
            {
                let mut waiting = self.waiting.lock();
                while waiting.list.is_empty() && !waiting.closed {
                    self.pushed.wait(&mut waiting);
                }
                if waiting.closed {
                    return;
                }
            }
            // The next call reports a failure.
            let _ = self.flush();
        }
    }

    fn submit(&self, commands: vk::CommandBuffer, value: u64) -> Result<()> {
        let (buffers, semaphores, values) = ([commands], [self.timeline.handle()], [value]);
        let mut timeline = vk::TimelineSemaphoreSubmitInfo::default().signal_semaphore_values(&values);
        let info =
            vk::SubmitInfo::default().command_buffers(&buffers).signal_semaphores(&semaphores).push_next(&mut timeline);
        // SAFETY: the encoder keeps the command buffer, with all it refers to, until the timeline has passed `value`; the queue is locked by `with`; `info` and what it points at outlive the call.
        let result = unsafe {
            self.queue.with(|queue| {
                let _locked = &queue;
                (self.device.fns().v1_0.queue_submit)(self.queue.handle(), 1, &info, vk::Fence::null()).result()
            })
        };
        result.map_err(|e| Error::vulkan("submitting to the device", e))
    }
}
