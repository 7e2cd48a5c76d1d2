//! The stream: records work in the order of the calls, puts a barrier only where two pieces of it conflict, submits
//! in batches, and never waits until somebody reads.

mod batch;
mod encoder;
mod recorder;
mod submitter;

pub use recorder::{Binding, Copy, Dispatch};

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use parking_lot::{Mutex, MutexGuard};
use vulkano::device::{Device, Queue};

use crate::device::Timeline;
use crate::error::{Attempt, Result, Retry};
use crate::memory::{Allocation, Blocking};
use recorder::Recorder;
use submitter::Submitter;

pub struct Stream {
    recorder: Mutex<Recorder>,
    submitter: Arc<Submitter>,
    timeline: Arc<Timeline>,
}

impl Stream {
    pub fn new(device: Arc<Device>, queue: Arc<Queue>) -> Result<Self> {
        let timeline = Arc::new(Timeline::new(device.clone())?);
        let submitter = Submitter::new(device, queue, timeline.clone())?;
        let recorder = Recorder::new(timeline.clone(), submitter.clone());
        Ok(Self { recorder: Mutex::new(recorder), submitter, timeline })
    }

    pub fn timeline(&self) -> Arc<Timeline> {
        self.timeline.clone()
    }

    /// Records one dispatch.
    pub fn dispatch(&self, dispatch: &Dispatch) -> Result<()> {
        self.recorder().dispatch(dispatch)
    }

    /// What is recorded while the guard lives is submitted together: the device pauses between submissions.
    pub fn batch(&self) -> SubmissionGuard<'_> {
        self.recorder().hold();
        SubmissionGuard(self)
    }

    /// Records a copy between two different blocks.
    pub fn copy(&self, copy: &Copy) -> Result<()> {
        self.recorder().copy(copy)
    }

    /// Records writing `data` (at most 64 KiB) to the start of a block.
    pub fn update(&self, block: &Allocation, data: &[u8]) -> Result<()> {
        self.recorder().update(block, data)
    }

    /// Records setting the first `len` bytes of a block, rounded up to four, to zero.
    pub fn zero(&self, block: &Allocation, len: u64) -> Result<()> {
        self.recorder().zero(block, len)
    }

    /// Submits what is recorded, without waiting for it.
    pub fn submit(&self) -> Result<()> {
        self.recorder().submit(false).map(drop)
    }

    /// Has the device start on what is recorded; the timeline value after which all of it has run.
    pub fn start(&self) -> Result<u64> {
        let value = self.recorder().submit(true)?;
        self.submitter.try_flush()?;
        Ok(value)
    }

    /// Submits what is recorded and waits as long as a normal scheduler may: [`Retry::Later`] where that was not enough,
    /// [`Retry::Blocking`] where the device needs the scheduler's core.
    pub fn submit_and_look(&self) -> Attempt<()> {
        let value = self.start()?;
        match self.timeline.passes_soon(value)? {
            true => Ok(()),
            false => Err(if self.timeline.on_cpu() { Retry::Blocking } else { Retry::Later }.into()),
        }
    }

    /// Where callers are far ahead of the device, waits until half of what was submitted has run.
    pub fn keep_up(&self, blocking: Blocking) -> Attempt<()> {
        let ahead_of = |most| self.timeline.submitted.load(Relaxed).saturating_sub(most);
        if self.timeline.passed(ahead_of(MOST_AHEAD)) {
            return Ok(());
        }
        blocking.require()?;
        Ok(self.wait(ahead_of(MOST_AHEAD / 2))?)
    }

    /// Submits what is recorded and waits until all of it has run.
    pub fn finish(&self) -> Result<()> {
        let value = self.submit_now()?;
        self.wait(value)
    }

    /// The recorder, tried for a while before sleeping: recording a command takes a microsecond or two, being woken much
    /// longer. A device that is the CPU itself needs the core.
    fn recorder(&self) -> MutexGuard<'_, Recorder> {
        let tries = if self.timeline.on_cpu() { 0 } else { TRIES };
        let tried = (0..tries).find_map(|_| {
            let recorder = self.recorder.try_lock();
            if recorder.is_none() {
                std::hint::spin_loop();
            }
            recorder
        });
        tried.unwrap_or_else(|| self.recorder.lock())
    }

    fn submit_now(&self) -> Result<u64> {
        let value = self.recorder().submit(true)?;
        self.submitter.flush()?;
        Ok(value)
    }

    fn wait(&self, value: u64) -> Result<()> {
        let waited = self.timeline.wait(value);
        if let Err(error) = &waited {
            self.submitter.fail(error.clone());
        }
        waited
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.submitter.close();
    }
}

/// Some tens of microseconds.
const TRIES: u32 = 500;

/// Submissions that may wait for the device. A driver's queue ends somewhere too, and there blocks whoever comes next;
/// and each submission holds its commands' memory.
const MOST_AHEAD: u64 = 256;

/// See [`Stream::batch`].
pub struct SubmissionGuard<'a>(&'a Stream);

impl Drop for SubmissionGuard<'_> {
    fn drop(&mut self) {
        // The recorder keeps a failure for the next call.
        let _ = self.0.recorder().release();
    }
}
