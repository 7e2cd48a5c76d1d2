//! The wait of a process before it ends: a driver that still builds or runs a kernel while its own exit handlers run crashes. LLVM, which
//! lavapipe builds kernels with, did so in two of eight tries.

use std::ffi::c_int;
use std::sync::Once;
use std::time::{Duration, Instant};

use super::devices::opened;
use crate::pipeline::stop_builds;

/// The longest wait: a kernel of a user's may loop forever.
const MAX_EXIT_WAIT: Duration = Duration::from_secs(10);

/// The BEAM and each device that was opened call the wait: a kernel that loops forever would hold each of them up.
static WAITED: Once = Once::new();

unsafe extern "C" {
    fn atexit(handler: extern "C" fn()) -> c_int;
}

/// Registers the wait with the process, for programs that are no BEAM. The driver is loaded by now: the handlers that it registered so
/// far are called after this one.
pub(super) fn wait_at_exit() {
    // SAFETY: the handler is of this library, whose handlers are called before it is unloaded, and does not unwind. Where there
    // is no room for it, the process ends as it would without.
    unsafe { atexit(wait) };
}

extern "C" fn wait() {
    wait_until_idle();
}

/// Waits until nothing is built, CUDA is not being called and the devices are idle. Every later build and command fails: the process ends,
/// and what is begun now would go on while it is taken apart.
pub fn wait_until_idle() {
    WAITED.call_once(wait_once);
}

fn wait_once() {
    stop_builds(MAX_EXIT_WAIT);
    let gpus = opened();
    for gpu in &gpus {
        gpu.clock.stop(MAX_EXIT_WAIT);
        gpu.stream.stop(MAX_EXIT_WAIT);
    }
    let start = Instant::now();
    while gpus.iter().any(|gpu| !gpu.stream.idle()) && start.elapsed() < MAX_EXIT_WAIT {
        std::thread::sleep(Duration::from_millis(1));
    }
}
