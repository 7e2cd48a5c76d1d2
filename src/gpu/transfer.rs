//! Transfers between host and device, by way of staging memory.

use parking_lot::Mutex;

use super::Gpu;
use crate::error::{Attempt, Error, Result, Retry, Unfinished};
use crate::memory::{Allocation, AllocationHandle, Blocking, Buffer, MemoryKind};
use crate::stream::{Copy, Transfer};

/// Data up to this size travels within the command buffer, which is cheaper than staging.
const MAX_INLINE_BYTES: usize = 16 << 10;
/// The largest copy that a normal scheduler makes; a larger one would occupy it for too long.
const MAX_NONBLOCKING_COPY_BYTES: usize = 256 << 10;

/// Results up to this size are read on a normal scheduler where the device has them soon.
const MAX_NONBLOCKING_READ_BYTES: u64 = 64 << 10;

/// Transfers from this size on run beside the kernels: the device starts on those of other callers meanwhile. For smaller ones the
/// submission costs more than that.
const MIN_CONCURRENT_BYTES: usize = 4 << 20;

/// Larger data is staged in chunks: the device fetches one while the next are copied to staging memory.
const STAGING_BYTES: usize = 4 << 20;
/// From this size on several threads copy: one is slower than the bus.
const MIN_PARALLEL_BYTES: usize = 4 * STAGING_BYTES;
/// Staging memory for results from this size on takes the driver milliseconds to make. Garbage is collected first, as the memory of earlier
/// results may be in it.
const MIN_COLLECTED_READBACK_BYTES: u64 = 4 << 20;

/// How many threads copy: a quarter of the cores, as all of them share the memory's bandwidth.
fn copy_threads() -> usize {
    std::thread::available_parallelism().map_or(1, |threads| (threads.get() / 4).clamp(1, 4))
}

/// Bytes read back, in staging memory of their own.
pub struct Readback {
    allocation: AllocationHandle,
    len: usize,
}

impl Readback {
    /// The bytes that the device wrote.
    pub fn bytes(&self) -> &[u8] {
        self.allocation.mapped(self.len)
    }

    /// Makes what the device wrote visible where the memory is not coherent. Fails where it came of an index that was out
    /// of bounds, or of a kernel that the driver refused.
    fn visible(self) -> Result<Self> {
        self.make_visible()?;
        Ok(self)
    }

    fn make_visible(&self) -> Result<()> {
        self.allocation.checks.failure().map_or(Ok(()), Err)?;
        let visible = self.allocation.buffer.read().map(drop);
        visible.map_err(|e| Error::DispatchFailed(format!("staging memory cannot be read: {e:?}")))
    }
}

fn require_within(buffer: &Buffer, offset: u64, len: u64) -> Result<()> {
    let within = offset.checked_add(len).is_some_and(|end| end <= buffer.len());
    if within { Ok(()) } else { Err(Error::SizeMismatch) }
}

/// Bytes on their way to staging memory.
pub struct PendingRead {
    readback: Readback,
    /// The timeline value after which they are there.
    value: u64,
}

impl Gpu {
    /// A buffer of `len` zero bytes.
    pub fn zeroed(&self, len: u64, blocking: Blocking) -> Attempt<Buffer> {
        let allocation = self.allocate(MemoryKind::Device, len, blocking)?;
        self.stream.zero(&allocation, len)?;
        Ok(Buffer::new(len, allocation))
    }

    /// A buffer that holds `data`.
    pub fn upload(&self, data: &[u8], blocking: Blocking) -> Attempt<Buffer> {
        if data.len() > MAX_NONBLOCKING_COPY_BYTES {
            blocking.require()?;
        }
        let len = data.len() as u64;
        let allocation = if data.len() >= MIN_CONCURRENT_BYTES && self.stream.has_transfer_queue() {
            self.allocate_for_transfer(len, blocking)?
        } else {
            self.allocate(MemoryKind::Device, len, blocking)?
        };
        self.write(&allocation, data, blocking)?;
        Ok(Buffer::new(len, allocation))
    }

    /// Overwrites all of a buffer.
    pub fn upload_into(&self, buffer: &Buffer, data: &[u8], blocking: Blocking) -> Attempt<()> {
        if buffer.len() != data.len() as u64 {
            return Err(Error::SizeMismatch.into());
        }
        if data.len() > MAX_NONBLOCKING_COPY_BYTES {
            blocking.require()?;
        }
        self.write(&*buffer.allocation()?, data, blocking)
    }

    fn write(&self, allocation: &Allocation, data: &[u8], blocking: Blocking) -> Attempt<()> {
        if data.is_empty() {
            return Ok(());
        }
        if data.len() <= MAX_INLINE_BYTES {
            return Ok(self.stream.update(allocation, data)?);
        }
        let chunks = Mutex::new(data.chunks(STAGING_BYTES).enumerate());
        let copy = || -> Attempt<()> {
            loop {
                let Some((index, chunk)) = chunks.lock().next() else { return Ok(()) };
                let staging = self.stage(chunk, blocking)?;
                let (from, len, to_offset) = (&*staging, chunk.len() as u64, (index * STAGING_BYTES) as u64);
                let copy = Copy { from, from_offset: 0, to: allocation, to_offset, len, to_host: false };
                if data.len() >= MIN_CONCURRENT_BYTES {
                    self.stream.transfer(&copy)?;
                } else {
                    self.stream.copy(&copy)?;
                }
            }
        };
        let helpers = if data.len() < MIN_PARALLEL_BYTES { 0 } else { copy_threads() - 1 };
        std::thread::scope(|scope| {
            let helpers: Vec<_> = (0..helpers).map(|_| scope.spawn(copy)).collect();
            let copied = copy();
            let failed = |_| Err(Error::DispatchFailed("a thread that copies panicked".into()).into());
            helpers.into_iter().fold(copied, |done, helper| done.and(helper.join().unwrap_or_else(failed)))
        })
    }

    /// Staging memory that holds `data`.
    fn stage(&self, data: &[u8], blocking: Blocking) -> Attempt<AllocationHandle> {
        let staging = self.allocate(MemoryKind::Upload, data.len() as u64, blocking)?;
        staging
            .buffer
            .write()
            .map_err(|e| Error::DispatchFailed(format!("staging memory cannot be written: {e:?}")))?[..data.len()]
            .copy_from_slice(data);
        Ok(staging)
    }

    /// `len` bytes from `offset` on, once all that was recorded before has run.
    pub fn read(&self, buffer: &Buffer, offset: u64, len: u64) -> Attempt<Readback> {
        let [readback] = self.read_all([(buffer, offset, len)])?;
        Ok(readback)
    }

    /// Waits as long as a normal scheduler may. While the device works, garbage can be collected whose memory the next tensor needs:
    /// [`Retry::AfterCollection`], once.
    pub fn try_finish(&self) -> Attempt<()> {
        if self.pool.take_shortage() {
            self.stream.start()?;
            return Err(Retry::AfterCollection.into());
        }
        self.stream.submit_and_poll()?;
        if self.stream.has_transferred() { Ok(()) } else { Err(Retry::Blocking.into()) }
    }

    /// Starts to read what a normal scheduler may: a few bytes. For more bytes the device starts on what comes before, and the retry tells
    /// whether garbage should be collected before a dirty scheduler waits.
    pub fn try_read(&self, buffer: &Buffer, offset: u64, len: u64) -> Attempt<PendingRead> {
        require_within(buffer, offset, len)?;
        // A device that is the CPU needs this scheduler's core.
        if len <= MAX_NONBLOCKING_READ_BYTES && !self.stream.timeline().on_cpu() {
            match self.readback(len, Blocking::Refused) {
                Ok(readback) => return Ok(self.start_read(buffer, offset, readback)?),
                Err(Unfinished::Retry(_)) => {}
                Err(error) => return Err(error),
            }
        }
        self.stream.submit()?;
        let short =
            self.pool.take_shortage() || len >= MIN_COLLECTED_READBACK_BYTES && self.pool.must_grow_for_readback(len);
        Err(if short { Retry::AfterCollection } else { Retry::Blocking }.into())
    }

    /// Several ranges `(buffer, offset, len)` with one wait.
    pub fn read_all<const N: usize>(&self, ranges: [(&Buffer, u64, u64); N]) -> Attempt<[Readback; N]> {
        let record = |(buffer, offset, len)| self.record_read(buffer, offset, len, Blocking::Allowed);
        let readbacks = ranges.into_iter().map(record).collect::<Attempt<Vec<_>>>()?;
        let value = self.stream.start()?;
        if readbacks.iter().any(|(_, transfer)| transfer.is_none()) {
            self.stream.wait_for(value, Blocking::Allowed)?;
        }
        let transferred = |(readback, transfer): (Readback, Option<Transfer>)| {
            transfer.map_or(Ok(()), |transfer| self.stream.wait_for_transfer(transfer))?;
            readback.visible()
        };
        let readbacks = readbacks.into_iter().map(transferred).collect::<Result<Vec<_>>>()?;
        readbacks.try_into().map_err(|_| Error::SizeMismatch.into())
    }

    /// Records a copy to staging memory, which may be read once it has run. Large ones run beside the kernels.
    fn record_read(
        &self,
        buffer: &Buffer,
        offset: u64,
        len: u64,
        blocking: Blocking,
    ) -> Attempt<(Readback, Option<Transfer>)> {
        require_within(buffer, offset, len)?;
        let readback = self.readback(len, blocking)?;
        if readback.len < MIN_CONCURRENT_BYTES {
            self.record_readback(buffer, offset, &readback)?;
            return Ok((readback, None));
        }
        let (from, to) = (&*buffer.allocation()?, &*readback.allocation);
        // One that waits on the queue of transfers would hold up those of other callers.
        self.stream.wait_for_writes(from)?;
        let transfer =
            self.stream.transfer(&Copy { from, from_offset: offset, to, to_offset: 0, len, to_host: true })?;
        Ok((readback, transfer))
    }

    /// Staging memory for `len` bytes that are to be read.
    pub fn readback(&self, len: u64, blocking: Blocking) -> Attempt<Readback> {
        Ok(Readback { allocation: self.allocate(MemoryKind::Readback, len, blocking)?, len: len as usize })
    }

    fn record_readback(&self, buffer: &Buffer, from_offset: u64, readback: &Readback) -> Result<()> {
        if readback.len == 0 {
            return Ok(());
        }
        let (from, to, len) = (&*buffer.allocation()?, &*readback.allocation, readback.len as u64);
        self.stream.copy(&Copy { from, from_offset, to, to_offset: 0, len, to_host: true })
    }

    /// Records a copy of a buffer's bytes from `offset` on to staging memory of their size, and has the device start on all that is recorded.
    /// The caller has checked the range.
    pub fn start_read(&self, buffer: &Buffer, offset: u64, readback: Readback) -> Result<PendingRead> {
        self.record_readback(buffer, offset, &readback)?;
        Ok(PendingRead { readback, value: self.stream.start()? })
    }

    /// The bytes of a read that was started, once they are there; what was recorded later need not have run.
    pub fn finish_read<'r>(&self, read: &'r PendingRead, blocking: Blocking) -> Attempt<&'r [u8]> {
        self.stream.wait_for(read.value, blocking)?;
        read.readback.make_visible()?;
        Ok(read.readback.bytes())
    }
}
