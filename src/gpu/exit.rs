//! The wait of a process before it ends: a driver that still builds or runs a kernel while its own exit handlers run crashes. LLVM, which
//! lavapipe builds kernels with, did so in two of eight tries.

use std::ffi::c_int;
use std::time::{Duration, Instant};

use super::GPU;
use crate::pipeline::BUILDING;

/// The longest wait: a kernel of a user's may loop forever.
const MAX_EXIT_WAIT: Duration = Duration::from_secs(10);

unsafe extern "C" {
    fn atexit(handler: extern "C" fn()) -> c_int;
}

/// Registers the wait. The driver is loaded by now: its handlers are registered before this one and called after it.
pub(super) fn wait_at_exit() {
    // SAFETY: the handler is of this library, whose handlers are called before it is unloaded, and does not unwind. Where there
    // is no room for it, the process ends as it would without.
    unsafe { atexit(wait) };
}

extern "C" fn wait() {
    // No build begins from now on.
    if let Some(building) = BUILDING.try_write_for(MAX_EXIT_WAIT) {
        std::mem::forget(building);
    }
    let (start, timeline) = (Instant::now(), GPU.get().map(|gpu| gpu.stream.timeline()));
    while timeline.as_ref().is_some_and(|timeline| !timeline.idle()) && start.elapsed() < MAX_EXIT_WAIT {
        std::thread::sleep(Duration::from_millis(1));
    }
}
