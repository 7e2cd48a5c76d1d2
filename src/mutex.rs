//! The mutex of what all callers use in each operation, and what each thread has one of instead.

use std::array;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

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

/// How many values threads share: as many as most machines have schedulers.
const VALUES: usize = 16;

/// A value for each thread, or for several where there are many. Threads hardly ever wait for each other's.
pub struct PerThread<T>([AdaptiveMutex<T>; VALUES]);

impl<T: Default> Default for PerThread<T> {
    fn default() -> Self {
        Self(array::from_fn(|_| AdaptiveMutex::new(T::default(), true)))
    }
}

impl<T> PerThread<T> {
    /// Locks the calling thread's value.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        static THREADS: AtomicUsize = AtomicUsize::new(0);
        thread_local! {
            static INDEX: usize = THREADS.fetch_add(1, Relaxed) % VALUES;
        }
        self.0[INDEX.with(|&index| index)].lock()
    }

    /// Locks the values of all threads, one after the other.
    pub fn lock_each(&self) -> impl Iterator<Item = MutexGuard<'_, T>> {
        self.0.iter().map(AdaptiveMutex::lock)
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

    #[test]
    fn threads_have_values_of_their_own() {
        let values = PerThread::<Vec<usize>>::default();
        std::thread::scope(|scope| {
            (0..2 * VALUES).for_each(|_| drop(scope.spawn(|| (0..3).for_each(|_| values.lock().push(1)))));
        });
        let lengths: Vec<_> = values.lock_each().map(|value| value.len()).collect();
        assert_eq!(lengths.iter().sum::<usize>(), 6 * VALUES);
        assert!(lengths.iter().filter(|&&length| length > 0).count() > VALUES / 2, "{lengths:?}");
    }
}
