//! What a process waits for before it ends: a driver that still builds or runs a kernel while its own handlers take it apart
//! crashes. LLVM, which lavapipe builds with, did in two of eight tries.

use std::ffi::c_int;
use std::time::{Duration, Instant};

use super::GPU;
use crate::pipeline::BUILDING;

/// It waits no longer than this: a foreign kernel may loop forever.
const LONGEST: Duration = Duration::from_secs(10);

unsafe extern "C" {
    fn atexit(handler: extern "C" fn()) -> c_int;
}

/// Has the process wait. The driver is loaded, so that its handlers, registered before, are called after.
pub(super) fn wait_at_exit() {
    // SAFETY: the handler is of this library, whose handlers are called before it is unloaded, and does not unwind. Where there
    // is no room for it, the process ends as it would without.
    unsafe { atexit(wait) };
}

extern "C" fn wait() {
    // Nobody builds anything from now on.
    if let Some(building) = BUILDING.try_write_for(LONGEST) {
        std::mem::forget(building);
    }
    let (start, timeline) = (Instant::now(), GPU.get().map(|gpu| gpu.stream.timeline()));
    while timeline.as_ref().is_some_and(|timeline| !timeline.idle()) && start.elapsed() < LONGEST {
        std::thread::sleep(Duration::from_millis(1));
    }
}
