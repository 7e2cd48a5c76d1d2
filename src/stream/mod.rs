//! The stream: records commands in the order of the calls, with barriers only where two conflict, submits them in batches, and waits only
//! for reads. It knows allocations and pipelines, and nothing of kernels or tensors.

mod batch;
mod descriptors;
mod encoder;
mod profile;
mod recorder;
mod submitter;
mod transfers;

pub use profile::{CommandSample, Profile, RecordedSample};
pub use recorder::{Binding, Copy, Dispatch, DispatchPredicate, Transfer};

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use vulkano::device::{Device, Queue};

use crate::device::{Queues, Timeline};
use crate::error::{Attempt, Error, Result, Retry};
use crate::memory::{Allocation, Blocking};
use crate::mutex::AdaptiveMutex;
use profile::{ProfileRecorder, Profiler};
use recorder::Recorder;
use submitter::Submitter;

/// The order of all work on the device.
pub struct Stream {
    recorder: AdaptiveMutex<Recorder>,
    submitter: Arc<Submitter>,
    timeline: Arc<Timeline>,
    /// Whether a profile is on.
    profiling: AtomicBool,
    device: Arc<Device>,
    queue: Arc<Queue>,
}

impl Stream {
    /// A stream on queues that nothing else uses, of a device that messages call `name`. `cpu` says whether the device needs the cores that
    /// wait for it.
    pub fn new(device: Arc<Device>, queues: Queues, name: String, cpu: bool) -> Result<Self> {
        let timeline = Arc::new(Timeline::new(device.clone(), cpu)?);
        let queue = queues.compute.clone();
        let submitter = Submitter::new(device.clone(), queues, timeline.clone(), name)?;
        let recorder = Recorder::new(timeline.clone(), submitter.clone());
        let (recorder, profiling) = (AdaptiveMutex::new(recorder, cpu), AtomicBool::new(false));
        Ok(Self { recorder, submitter, timeline, profiling, device, queue })
    }

    /// The timeline of the submissions.
    pub fn timeline(&self) -> Arc<Timeline> {
        self.timeline.clone()
    }

    /// The timeline of the transfers that run beside the kernels.
    pub fn transfer_timeline(&self) -> Arc<Timeline> {
        self.submitter.transfers.timeline.clone()
    }

    /// Whether large transfers have a queue of their own.
    pub fn has_transfer_queue(&self) -> bool {
        !Arc::ptr_eq(&self.queue, &self.submitter.transfers.queue)
    }

    /// Records one dispatch.
    pub fn dispatch(&self, dispatch: &Dispatch) -> Result<()> {
        self.record(|recorder| recorder.dispatch(dispatch))
    }

    /// What is recorded while the guard lives is submitted together: the device pauses between submissions.
    pub fn batch(&self) -> SubmissionGuard<'_> {
        self.recorder.lock().begin_batch();
        SubmissionGuard(self)
    }

    /// Records a copy between two different allocations.
    pub fn copy(&self, copy: &Copy) -> Result<()> {
        self.record(|recorder| recorder.copy(copy))
    }

    /// Has the device copy between two different allocations, beside kernels that use neither. `None` where the copy is recorded with the other
    /// commands, as by [`Stream::copy`].
    pub fn transfer(&self, copy: &Copy) -> Result<Option<Transfer>> {
        let transfer = self.record(|recorder| recorder.transfer(copy))?;
        match transfer {
            Some(_) => self.submitter.flush_transfers()?,
            None => self.copy(copy)?,
        }
        Ok(transfer)
    }

    /// Records writing `data` (at most 64 KiB) to the start of an allocation.
    pub fn update(&self, allocation: &Allocation, data: &[u8]) -> Result<()> {
        self.record(|recorder| recorder.update(allocation, data))
    }

    /// Records setting the first `len` bytes of an allocation, rounded up to four, to zero.
    pub fn zero(&self, allocation: &Allocation, len: u64) -> Result<()> {
        self.record(|recorder| recorder.zero(allocation, len))
    }

    /// Submits what is recorded, without waiting for it.
    pub fn submit(&self) -> Result<()> {
        self.record(|recorder| recorder.submit(false).map(drop))
    }

    /// Has the device start on what is recorded. Returns the timeline value after which all of it has run.
    pub fn start(&self) -> Result<u64> {
        let value = self.record(Recorder::submit_for_wait)?;
        self.submitter.try_flush()?;
        Ok(value)
    }

    /// Submits what is recorded and waits as long as a normal scheduler may: [`Retry::Later`] where that was not enough,
    /// [`Retry::Blocking`] where the device needs the scheduler's core.
    pub fn submit_and_poll(&self) -> Attempt<()> {
        let value = self.start()?;
        self.poll(value)
    }

    fn poll(&self, value: u64) -> Attempt<()> {
        let reached = self.timed(|| self.timeline.reached_soon(value)).map_err(|error| self.lost(error))?;
        match reached {
            true => Ok(()),
            false => Err(if self.timeline.on_cpu() { Retry::Blocking } else { Retry::Later }.into()),
        }
    }

    /// Where callers are far ahead of the device, waits until half of the submissions have run. Fails where the device was lost.
    pub fn apply_backpressure(&self, blocking: Blocking) -> Attempt<()> {
        self.submitter.check()?;
        let ahead_of = |most| self.timeline.submitted.load(Relaxed).saturating_sub(most);
        if self.timeline.reached(ahead_of(MAX_PENDING_SUBMISSIONS)) {
            return Ok(());
        }
        blocking.require()?;
        Ok(self.wait(ahead_of(MAX_PENDING_SUBMISSIONS / 2))?)
    }

    /// Submits what is recorded and waits until all of it has run, transfers included.
    pub fn finish(&self) -> Result<()> {
        let value = self.record(Recorder::submit_for_wait)?;
        self.submitter.flush()?;
        let transfer = self.submitter.transfers.timeline.submitted.load(Relaxed);
        self.wait_for_transfer(Transfer { after: value, value: transfer })
    }

    /// Waits until a transfer has run.
    pub fn wait_for_transfer(&self, transfer: Transfer) -> Result<()> {
        self.submitter.flush()?;
        // The device may take long for what comes before, and makes progress meanwhile.
        self.wait(transfer.after)?;
        let transfers = &self.submitter.transfers.timeline;
        self.timed(|| transfers.wait(transfer.value)).map_err(|error| self.lost(error))
    }

    /// Waits until the commands that write an allocation have run; those that were recorded later need not have.
    pub fn wait_for_writes(&self, allocation: &Allocation) -> Result<()> {
        self.record(Recorder::submit_for_wait)?;
        self.submitter.flush()?;
        self.wait(allocation.last_write.load(Relaxed))
    }

    /// Whether all transfers have run.
    pub fn has_transferred(&self) -> bool {
        let transfers = &self.submitter.transfers.timeline;
        transfers.reached(transfers.submitted.load(Relaxed))
    }

    /// Records commands, and has what is due submitted once the recorder is free for other callers.
    fn record<T>(&self, record: impl FnOnce(&mut Recorder) -> Result<T>) -> Result<T> {
        let (result, due) = {
            let mut recorder = self.recorder.lock();
            (record(&mut recorder), recorder.take_due())
        };
        due.map_or(Ok(()), |due| self.submitter.run(due))?;
        result
    }

    /// Discards what is recorded and not yet submitted, and has every later command fail: the process ends, and nobody reads the results. A
    /// layer whose own exit handlers have run crashes on a submission. `limit` bounds the wait for another thread that submits.
    pub fn stop(&self, limit: Duration) {
        // A thread may hold the lock that waits for a driver.
        if let Some(mut recorder) = self.recorder.try_lock_for(limit) {
            recorder.discard();
        }
        // The device's failure ends the wait for it, too.
        let _ = self.submitter.flush_within(limit);
        self.submitter.end(Error::DispatchFailed("the process ends".into()));
    }

    /// Whether the device was lost: every command fails since then.
    pub fn is_lost(&self) -> bool {
        self.submitter.is_lost()
    }

    /// Has every later command fail, as the device is lost for this reason.
    pub fn lose(&self, reason: Error) {
        self.submitter.fail(reason);
    }

    /// Drops what is recorded on a lost device, and waits until the device runs nothing any more. False where that is not known.
    pub fn retire(&self) -> bool {
        self.recorder.lock().forget();
        self.submitter.drain()
    }

    /// Waits until the device runs nothing. False where that is not known.
    pub fn wait_idle(&self) -> bool {
        self.submitter.wait_idle()
    }

    /// Whether the device has nothing to do. What is not submitted does not count.
    pub fn idle(&self) -> bool {
        self.submitter.idle()
    }

    /// Has all commands from now on get timestamps, until [`Stream::stop_profile`]. Waits for the commands before. Fails where a profile is
    /// on, and where the device has no timestamps.
    pub fn start_profile(&self) -> Result<()> {
        let profiler = Profiler::new(self.device.clone(), &self.queue)?;
        self.finish()?;
        self.record(|recorder| recorder.start_profile(profiler))?;
        self.profiling.store(true, Relaxed);
        Ok(())
    }

    /// Waits for the commands of the profile that is on, and returns it.
    pub fn stop_profile(&self) -> Result<Profile> {
        let profile = self.take_profile().ok_or_else(|| Error::Argument("no profile of this device is on".into()))?;
        self.finish()?;
        profile.finish()
    }

    /// Gives the profile up that is on, if one is.
    pub fn give_up_profile(&self) {
        self.take_profile();
    }

    fn take_profile(&self) -> Option<ProfileRecorder> {
        self.profiling.store(false, Relaxed);
        // A failure is that of the next call.
        self.record(|recorder| Ok(recorder.stop_profile())).ok().flatten()
    }

    /// Does what waits for the device, which a profile counts.
    fn timed<T>(&self, wait: impl FnOnce() -> T) -> T {
        let start = self.profiling.load(Relaxed).then(Instant::now);
        let result = wait();
        if let Some(start) = start {
            self.recorder.lock().waited(start);
        }
        result
    }

    /// Waits until the timeline has reached a value that [`Stream::start`] returned. A call that may not block waits as
    /// [`Stream::submit_and_poll`] does.
    pub fn wait_for(&self, value: u64, blocking: Blocking) -> Attempt<()> {
        match blocking {
            Blocking::Refused => self.poll(value),
            Blocking::Allowed => {
                self.submitter.flush()?;
                Ok(self.wait(value)?)
            }
        }
    }

    fn wait(&self, value: u64) -> Result<()> {
        self.timed(|| self.timeline.wait(value)).map_err(|error| self.lost(error))
    }

    /// The failure of a device that does not answer: the first one is the cause of later ones.
    fn lost(&self, error: Error) -> Error {
        self.submitter.fail(error.clone());
        self.submitter.check().err().unwrap_or(error)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.submitter.close();
    }
}

/// Submissions that may be pending. A driver's queue has a limit, too, at which the next call blocks; each submission keeps its commands'
/// memory.
const MAX_PENDING_SUBMISSIONS: u64 = 256;

/// See [`Stream::batch`].
pub struct SubmissionGuard<'a>(&'a Stream);

impl Drop for SubmissionGuard<'_> {
    fn drop(&mut self) {
        // The recorder keeps a failure for the next call.
        let _ = self.0.record(Recorder::end_batch);
    }
}
