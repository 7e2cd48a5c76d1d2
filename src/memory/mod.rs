//! Device memory: a pool of blocks in size classes, and the buffer that the BEAM holds.
//!
//! Tensors live in device-local memory alone. Their blocks go back to the pool as soon as nobody holds them and may be
//! handed out again at once: the stream orders the next use after the last one, as it orders any two uses of a block.
//! Blocks that the host maps (staging) are handed out again only when the timeline has passed their last use.

mod buffer;
mod packing;
mod pool;
mod transfer;

pub use buffer::Buffer;
pub use packing::Packing;
pub use pool::{Block, Kind, Lease, MemoryInfo, Pool};
pub use transfer::Readback;

use crate::device::Gpu;
use crate::error::{Error, Result};

/// What a call may do to get what it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// On a normal scheduler: nothing that waits, compiles or copies much; [`Error::Defer`] instead.
    Prompt,
    /// On a dirty scheduler or in a test: whatever it takes.
    Patient,
}

impl Patience {
    /// `Ok` where waiting is fine, else [`Error::Defer`].
    pub fn may_wait(self) -> Result<()> {
        match self {
            Patience::Prompt => Err(Error::Defer),
            Patience::Patient => Ok(()),
        }
    }

    /// `Ok` where recording this many commands is fine: long chains of them hold up a normal scheduler.
    pub fn may_record(self, commands: u64) -> Result<()> {
        if commands > PROMPT_COMMANDS { self.may_wait() } else { Ok(()) }
    }
}

/// A command takes 1 to 3 µs to record, its share of a submission included.
const PROMPT_COMMANDS: u64 = 128;

impl Gpu {
    /// A block of at least `len` bytes, contents undefined. Where limit or device are exhausted, pending work is
    /// finished, free blocks are released and the allocation tried again before [`Error::OutOfMemory`].
    pub fn allocate(&self, kind: Kind, len: u64, patience: Patience) -> Result<Lease> {
        match self.pool.allocate(kind, len, patience) {
            Err(Error::OutOfMemory(_)) if patience == Patience::Patient => {
                self.stream.finish()?;
                self.pool.trim();
                self.pool.allocate(kind, len, patience)
            }
            other => other,
        }
    }
}
