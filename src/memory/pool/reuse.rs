//! Which free allocations are taken again, and which are given back to the driver.

use std::sync::atomic::Ordering::Relaxed;

use super::{Allocation, MemoryKind, PoolShared, PoolState};

/// The most free allocations of a size that the device still uses, before a transfer waits for the oldest rather than take more memory: one
/// for each of the batches that a serving prepares while the device runs one.
const MAX_USED_BY_TRANSFERS: usize = 3;

impl PoolShared {
    /// A test for allocations that the device no longer uses. It asks for the timeline's value once, not for each allocation, and for that of
    /// transfers where there was one.
    pub(super) fn finished(&self) -> impl Fn(&Allocation) -> bool {
        let retired = self.retired.load(Relaxed);
        let completed = if retired { u64::MAX } else { self.timeline.completed().unwrap_or(0) };
        move |allocation| {
            let transferred = retired || self.transfers.reached(allocation.last_transfer.load(Relaxed));
            transferred && allocation.last_use.load(Relaxed) <= completed
        }
    }

    pub(super) fn first_finished(&self, list: &[Allocation]) -> Option<usize> {
        if list.is_empty() { None } else { list.iter().position(self.finished()) }
    }

    /// Takes a free allocation of the class. The host may write or read only what the device no longer uses; the stream's barriers order
    /// the uses of device memory.
    pub(super) fn reuse(&self, state: &mut PoolState, kind: MemoryKind, size: u64) -> Option<Allocation> {
        let list = state.free.get_mut(&(kind, size))?;
        match kind {
            MemoryKind::Device | MemoryKind::Predicates => list.pop(),
            MemoryKind::Upload | MemoryKind::Readback | MemoryKind::Record => {
                let index = self.first_finished(list)?;
                Some(list.swap_remove(index))
            }
        }
    }

    /// Takes a free allocation that the device no longer uses, or the oldest of several that it still uses.
    pub(super) fn reuse_for_transfer(&self, state: &mut PoolState, size: u64) -> Option<Allocation> {
        let full = state.reserved + size > self.limit;
        let list = state.free.get_mut(&(MemoryKind::Device, size))?;
        let oldest = (list.len() >= MAX_USED_BY_TRANSFERS || full && !list.is_empty()).then_some(0);
        let index = self.first_finished(list).or(oldest)?;
        Some(list.remove(index))
    }

    /// Takes free allocations that the device no longer uses, `bytes` bytes of them or all. Dropping them frees their memory, which takes
    /// the driver long: the caller drops them once the state is unlocked.
    #[must_use]
    pub(super) fn release(&self, state: &mut PoolState, bytes: u64) -> Vec<Allocation> {
        let (mut released, mut sum) = (vec![], 0);
        if bytes == 0 {
            return released;
        }
        let finished = self.finished();
        let mut release_from = |list: &mut Vec<Allocation>| {
            let mut index = 0;
            while index < list.len() && sum < bytes {
                if finished(&list[index]) {
                    let allocation = list.swap_remove(index);
                    sum += allocation.size;
                    released.push(allocation);
                } else {
                    index += 1;
                }
            }
        };
        state.free.values_mut().for_each(&mut release_from);
        self.thread_cache.lock_each().for_each(|mut cached| release_from(&mut cached));
        state.free.retain(|_, list| !list.is_empty());
        state.reserved -= sum;
        released
    }
}
