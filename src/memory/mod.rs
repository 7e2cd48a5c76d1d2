//! Device memory: a pool of allocations in size classes, and the buffer that the BEAM holds. This module knows the device and its timeline,
//! and nothing of commands.
//!
//! Tensors live in device-local memory alone. Their allocations return to the pool when the last handle is dropped and may be handed out
//! again immediately: the stream orders the next use after the last one, as it orders any two uses of an allocation. Allocations that the host
//! maps (staging and records) are handed out again only when the timeline has reached their last use.

mod account;
mod bounds;
mod buffer;
mod checks;
mod create;
mod packing;
mod pool;
mod size_class;
mod thread_cache;
mod usage;

pub use account::{Account, Charge};
pub use bounds::{BOUNDS_RECORD_BYTES, BoundsCheck, CheckedIndices};
pub use buffer::Buffer;
pub use checks::{KernelBuild, PendingCheck, PendingChecks};
pub use packing::Packing;
pub use pool::{Allocation, AllocationHandle, MemoryInfo, MemoryKind, Pool};

use crate::error::{Attempt, Retry};

/// Whether a call may block its thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocking {
    /// On a dirty scheduler or in a test: waits, compiles and copies as the call needs.
    Allowed,
    /// On a normal scheduler: [`Retry::Blocking`] in place of a wait, a compilation or a large copy.
    Refused,
}

impl Blocking {
    /// `Ok` where the call may block, else [`Retry::Blocking`].
    pub fn require(self) -> Attempt<()> {
        match self {
            Blocking::Refused => Err(Retry::Blocking.into()),
            Blocking::Allowed => Ok(()),
        }
    }

    /// `Ok` where `commands` commands may be recorded without blocking: more of them occupy a normal scheduler for too long.
    pub fn require_for(self, commands: u64) -> Attempt<()> {
        if commands > NONBLOCKING_COMMANDS { self.require() } else { Ok(()) }
    }
}

/// A command takes 1 to 3 µs to record, its share of a submission included.
const NONBLOCKING_COMMANDS: u64 = 128;
