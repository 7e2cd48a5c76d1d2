//! Bytes between host and device.

use parking_lot::Mutex;

use super::Gpu;
use crate::error::{Attempt, Error, Result, Retry, Unfinished};
use crate::memory::{Allocation, AllocationHandle, Blocking, Buffer, Kind};
use crate::stream::Copy;

/// Up to this size data travels within the command buffer: cheaper than staging.
const INLINE: usize = 16 << 10;
/// Copying more than this on a normal scheduler would hold it up.
const PROMPT: usize = 256 << 10;

/// Up to this size results are read on a normal scheduler where they are at hand.
const PROMPT_READ: u64 = 64 << 10;

/// Larger data go to the device in pieces: it fetches one while the next are copied to staging memory.
const PIECE: usize = 4 << 20;
/// From this size on several threads copy: one does not read and write as fast as the bus takes it.
const PARALLEL: usize = 4 * PIECE;
/// Memory for results of this size takes the driver milliseconds to make: garbage is collected first, in which the
/// memory of earlier ones may be.
const LARGE_READBACK: u64 = 4 << 20;

/// How many threads copy: a quarter of the processors, since their memory is shared by all.
fn copiers() -> usize {
    std::thread::available_parallelism().map_or(1, |processors| (processors.get() / 4).clamp(1, 4))
}

/// Bytes read back, in staging memory of their own.
pub struct Readback {
    allocation: AllocationHandle,
    len: usize,
}

impl Readback {
    pub fn bytes(&self) -> &[u8] {
        self.allocation.mapped(self.len)
    }

    /// Makes what the device wrote visible where the memory is not coherent.
    fn visible(self) -> Result<Self> {
        let visible = self.allocation.buffer.read().map(drop);
        visible.map_err(|e| Error::DispatchFailed(format!("staging memory cannot be read: {e:?}")))?;
        Ok(self)
    }
}

impl Gpu {
    /// A buffer of `len` zero bytes.
    pub fn zeroed(&self, len: u64, blocking: Blocking) -> Attempt<Buffer> {
        let allocation = self.allocate(Kind::Device, len, blocking)?;
        self.stream.zero(&allocation, len)?;
        Ok(Buffer::new(len, allocation))
    }

    /// A buffer that holds `data`.
    pub fn upload(&self, data: &[u8], blocking: Blocking) -> Attempt<Buffer> {
        if data.len() > PROMPT {
            blocking.require()?;
        }
        let allocation = self.allocate(Kind::Device, data.len() as u64, blocking)?;
        self.write(&allocation, data, blocking)?;
        Ok(Buffer::new(data.len() as u64, allocation))
    }

    /// Overwrites all of a buffer.
    pub fn upload_into(&self, buffer: &Buffer, data: &[u8], blocking: Blocking) -> Attempt<()> {
        if buffer.len() != data.len() as u64 {
            return Err(Error::SizeMismatch.into());
        }
        if data.len() > PROMPT {
            blocking.require()?;
        }
        self.write(&*buffer.allocation()?, data, blocking)
    }

    fn write(&self, block: &Allocation, data: &[u8], blocking: Blocking) -> Attempt<()> {
        if data.is_empty() {
            return Ok(());
        }
        if data.len() <= INLINE {
            return Ok(self.stream.update(block, data)?);
        }
        let pieces = Mutex::new(data.chunks(PIECE).enumerate());
        let copy = || -> Attempt<()> {
            loop {
                let Some((index, piece)) = pieces.lock().next() else { return Ok(()) };
                self.stage(block, index * PIECE, piece, blocking)?;
                if data.len() > PIECE {
                    self.stream.submit()?;
                }
            }
        };
        let helpers = if data.len() < PARALLEL { 0 } else { copiers() - 1 };
        std::thread::scope(|scope| {
            let helpers: Vec<_> = (0..helpers).map(|_| scope.spawn(copy)).collect();
            let copied = copy();
            let failed = |_| Err(Error::DispatchFailed("a thread that copies panicked".into()).into());
            helpers.into_iter().fold(copied, |done, helper| done.and(helper.join().unwrap_or_else(failed)))
        })
    }

    /// Copies to staging memory, and records the way from there.
    fn stage(&self, block: &Allocation, to_offset: usize, data: &[u8], blocking: Blocking) -> Attempt<()> {
        let staging = self.allocate(Kind::Upload, data.len() as u64, blocking)?;
        staging
            .buffer
            .write()
            .map_err(|e| Error::DispatchFailed(format!("staging memory cannot be written: {e:?}")))?[..data.len()]
            .copy_from_slice(data);
        let (to_offset, len) = (to_offset as u64, data.len() as u64);
        Ok(self.stream.copy(&Copy { from: &staging, from_offset: 0, to: block, to_offset, len, to_host: false })?)
    }

    /// `len` bytes from `offset` on, once all that was recorded before has run.
    pub fn read(&self, buffer: &Buffer, offset: u64, len: u64) -> Attempt<Readback> {
        let [readback] = self.read_all([(buffer, offset, len)])?;
        Ok(readback)
    }

    /// What a normal scheduler can do about waiting. While the device works, garbage can be collected whose memory the next
    /// tensor needs: [`Retry::AfterCollection`], once.
    pub fn finish_promptly(&self) -> Attempt<()> {
        if self.pool.take_low() {
            self.stream.start()?;
            return Err(Retry::AfterCollection.into());
        }
        self.stream.submit_and_look()
    }

    /// What a normal scheduler can do about reading: a few bytes, if the device has them soon, else [`Retry::Later`]. With more
    /// the device starts meanwhile, and the error tells whether garbage should be collected before a dirty scheduler waits.
    pub fn read_promptly(&self, buffer: &Buffer, offset: u64, len: u64) -> Attempt<Readback> {
        // A device that is the CPU needs this scheduler's core.
        if len <= PROMPT_READ && !self.stream.timeline().on_cpu() {
            match self.record_read(buffer, offset, len, Blocking::Refused) {
                Ok(readback) => {
                    self.stream.submit_and_look()?;
                    return Ok(readback.visible()?);
                }
                Err(Unfinished::Retry(_)) => {}
                Err(error) => return Err(error),
            }
        }
        self.stream.submit()?;
        let short = self.pool.take_low() || len >= LARGE_READBACK && self.pool.is_short_of_readback(len);
        Err(if short { Retry::AfterCollection } else { Retry::Blocking }.into())
    }

    /// Several ranges `(buffer, offset, len)` with one wait.
    pub fn read_all<const N: usize>(&self, ranges: [(&Buffer, u64, u64); N]) -> Attempt<[Readback; N]> {
        let record = |(buffer, offset, len)| self.record_read(buffer, offset, len, Blocking::Allowed);
        let readbacks = ranges.into_iter().map(record).collect::<Attempt<Vec<_>>>()?;
        self.stream.finish()?;
        let readbacks = readbacks.into_iter().map(Readback::visible).collect::<Result<Vec<_>>>()?;
        readbacks.try_into().map_err(|_| Error::SizeMismatch.into())
    }

    /// Records a copy to staging memory, which may be read once it has run.
    fn record_read(&self, buffer: &Buffer, offset: u64, len: u64, blocking: Blocking) -> Attempt<Readback> {
        if offset.checked_add(len).is_none_or(|end| end > buffer.len()) {
            return Err(Error::SizeMismatch.into());
        }
        let from = buffer.allocation()?;
        let allocation = self.allocate(Kind::Readback, len, blocking)?;
        if len > 0 {
            let to: &Allocation = &allocation;
            self.stream.copy(&Copy { from: &from, from_offset: offset, to, to_offset: 0, len, to_host: true })?;
        }
        Ok(Readback { allocation, len: len as usize })
    }
}
