//! The thread cache: small free allocations that each thread keeps, as allocators of host memory do. A process takes what it has freed
//! again without the lock that all share.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use parking_lot::MutexGuard;

use super::pool::{Allocation, MemoryKind};
use crate::mutex::PerThread;

/// The largest allocation that a thread keeps for itself.
const MAX_CACHED_BYTES: u64 = 64 << 10;
/// The most allocations that a thread keeps.
const MAX_CACHED: usize = 16;

/// The allocations that threads keep.
#[derive(Default)]
pub(super) struct ThreadCache(PerThread<Vec<Allocation>>);

impl ThreadCache {
    /// Keeps a free allocation for the calling thread, or gives it back to the caller. None is kept once the pool has `retired`.
    pub fn keep(&self, allocation: Allocation, retired: &AtomicBool) -> Option<Allocation> {
        if allocation.kind != MemoryKind::Device || allocation.size > MAX_CACHED_BYTES {
            return Some(allocation);
        }
        let mut cached = self.0.lock();
        // A pool that retires releases what is here once it has said so.
        if cached.len() >= MAX_CACHED || retired.load(Relaxed) {
            return Some(allocation);
        }
        cached.push(allocation);
        None
    }

    /// Takes an allocation that the calling thread has freed.
    pub fn take(&self, kind: MemoryKind, size: u64) -> Option<Allocation> {
        if kind != MemoryKind::Device || size > MAX_CACHED_BYTES {
            return None;
        }
        let mut cached = self.0.lock();
        let last = cached.iter().rposition(|allocation| allocation.size == size)?;
        Some(cached.swap_remove(last))
    }

    /// What each thread keeps.
    pub fn lock_each(&self) -> impl Iterator<Item = MutexGuard<'_, Vec<Allocation>>> {
        self.0.lock_each()
    }
}
