//! The threads on which drivers build pipelines while calls go on. This module owns the threads and their queue; it does not know
//! what a job builds.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::error::{Error, Result};

/// Stack of a thread that builds: compilers recurse over nested code.
pub(super) const BUILD_STACK_BYTES: usize = 64 << 20;
/// The most threads. A driver's memory while it builds grows with them.
const MAX_BUILDERS: usize = 16;
/// The fewest threads: a build may wait for a lock of the driver.
const MIN_BUILDERS: usize = 2;

type Job = Box<dyn FnOnce() + Send>;

/// Jobs in the order in which they came, and as many threads as the machine has cores. A thread ends where no job is left.
#[derive(Clone, Default)]
pub(super) struct Builders(Arc<Mutex<Queue>>);

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    threads: usize,
}

impl Builders {
    /// Has a thread do the job. An error is that no thread could be started; the job is dropped then.
    pub fn start(&self, job: impl FnOnce() + Send + 'static) -> Result<()> {
        let cores = std::thread::available_parallelism().map_or(MIN_BUILDERS, usize::from);
        let mut queue = self.0.lock();
        queue.jobs.push_back(Box::new(job));
        if queue.threads == cores.clamp(MIN_BUILDERS, MAX_BUILDERS) {
            return Ok(());
        }
        let builders = self.clone();
        let thread = std::thread::Builder::new().name("nx_vulkan driver".into()).stack_size(BUILD_STACK_BYTES);
        match thread.spawn(move || builders.work()) {
            Ok(_) => queue.threads += 1,
            // The others do the job.
            Err(_) if queue.threads > 0 => {}
            Err(error) => {
                queue.jobs.pop_back();
                return Err(Error::DispatchFailed(format!("no thread: {error}")));
            }
        }
        Ok(())
    }

    fn work(&self) {
        loop {
            let job = {
                let mut queue = self.0.lock();
                let job = queue.jobs.pop_front();
                if job.is_none() {
                    queue.threads -= 1;
                }
                job
            };
            let Some(job) = job else { return };
            // What the job leaves unfinished shows that it panicked.
            let _ = catch_unwind(AssertUnwindSafe(job));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::*;

    #[test]
    fn every_job_is_done_also_after_one_that_panics() {
        let (builders, (sender, receiver)) = (Builders::default(), channel());
        for i in 0..100 {
            let sender = sender.clone();
            let job = move || {
                assert!(i % 10 != 3, "as it should");
                sender.send(i).unwrap();
            };
            builders.start(job).unwrap();
        }
        drop(sender);
        let mut done: Vec<u32> = receiver.iter().collect();
        done.sort_unstable();
        assert_eq!(done, (0..100).filter(|i| i % 10 != 3).collect::<Vec<_>>());
    }

    #[test]
    fn jobs_run_side_by_side_and_threads_end() {
        let builders = Builders::default();
        // Each of the two waits for the other.
        let ((to_first, first), (to_second, second)) = (channel(), channel());
        builders.start(move || to_second.send(first.recv().is_ok()).unwrap()).unwrap();
        let (done, finished) = channel();
        builders
            .start(move || {
                to_first.send(()).unwrap();
                done.send(second.recv().unwrap()).unwrap();
            })
            .unwrap();
        assert_eq!(finished.recv_timeout(Duration::from_secs(60)), Ok(true));
        let ended = (0..6_000).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            builders.0.lock().threads == 0
        });
        assert!(ended);
    }
}
