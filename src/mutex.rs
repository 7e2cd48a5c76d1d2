//! The mutex of what all callers use in each operation.

use parking_lot::{Mutex, MutexGuard};

/// Tries before a thread sleeps: some tens of microseconds in all.
const TRIES: u32 = 24;
/// The longest pause between two tries, in spins. A thread that has just released the lock takes it again in such a pause, while what it
/// protects is still in that core's cache.
const MAX_PAUSE: u32 = 64;

/// A mutex that is held for a fraction of a microsecond. Waiting threads spin before they sleep, as being woken takes much longer. Their
/// pauses double: the cache line of a lock that many cores try moves between them in place of serving its holder. The mutex has cache lines
/// of its own, so that callers that read what lies beside it do not wait for them.
#[repr(align(128))]
pub struct AdaptiveMutex<T> {
    mutex: Mutex<T>,
    /// Zero where the threads that spin would take the core from a CPU device.
    tries: u32,
}

impl<T> AdaptiveMutex<T> {
    /// A mutex of a device. `cpu` says whether the device needs the cores that wait for it.
    pub fn new(value: T, cpu: bool) -> Self {
        Self { mutex: Mutex::new(value), tries: if cpu { 0 } else { TRIES } }
    }

    /// Locks it.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.mutex.try_lock().unwrap_or_else(|| self.lock_contended())
    }

    /// Locks it within `limit`, or not.
    pub fn try_lock_for(&self, limit: std::time::Duration) -> Option<MutexGuard<'_, T>> {
        self.mutex.try_lock_for(limit)
    }

    #[cold]
    fn lock_contended(&self) -> MutexGuard<'_, T> {
        let mut pause = 1;
        for _ in 0..self.tries {
            (0..pause).for_each(|_| std::hint::spin_loop());
            // A read alone leaves the cache line shared.
            if !self.mutex.is_locked()
                && let Some(guard) = self.mutex.try_lock()
            {
                return guard;
            }
            pause = (2 * pause).min(MAX_PAUSE);
        }
        self.mutex.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_lock_it_exclude_each_other() {
        for cpu in [false, true] {
            let counts = AdaptiveMutex::new([0_u32; 2], cpu);
            let count = || {
                for _ in 0..10_000 {
                    let mut counts = counts.lock();
                    let before = counts[0];
                    counts[1] += 1;
                    counts[0] = before + 1;
                }
            };
            std::thread::scope(|scope| (0..8).for_each(|_| drop(scope.spawn(count))));
            assert_eq!(*counts.lock(), [80_000; 2]);
        }
    }
}
