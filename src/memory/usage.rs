//! How much device memory is in use, counted without a lock. Nothing is known here of the memory.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What is in use, counted without a lock.
#[derive(Default)]
pub(super) struct Usage {
    /// Bytes of the device allocations in use.
    pub used: AtomicU64,
    /// The most bytes of device allocations in use at a time, since the start or the last reset.
    pub most_used: AtomicU64,
    /// How many device allocations are in use.
    pub live: AtomicU64,
    /// How many allocations were ever handed out: the last one's identity.
    pub handed_out: AtomicU64,
}

impl Usage {
    /// Counts an allocation that is handed out.
    pub fn take(&self, size: u64) {
        let used = self.used.fetch_add(size, Relaxed) + size;
        if used > self.most_used.load(Relaxed) {
            self.most_used.fetch_max(used, Relaxed);
        }
        self.live.fetch_add(1, Relaxed);
    }

    /// Counts an allocation that is free.
    pub fn give_back(&self, size: u64) {
        self.used.fetch_sub(size, Relaxed);
        self.live.fetch_sub(1, Relaxed);
    }
}
