//! The device: which one is used, what it can do, how it is opened, its timeline and its clock. This module knows nothing of memory, streams
//! or kernels.

mod capabilities;
mod choose;
mod clock;
mod failure;
pub mod fault;
mod matrix;
mod open;
mod probe;
mod probe_process;
mod timeline;

pub use capabilities::{Capabilities, DisabledFeatures, IntegerFeature, ProbedFeatures, lacks};
pub use choose::{Listed, choose, find, instance, listed, names, physical_devices, usable};
pub use clock::{Clock, ClockState};
pub use failure::failure;
pub use matrix::MatrixTypes;
pub use open::{Queues, open};
pub use probe::{Probed, compares_subnormals, doubles_are_fast, fma_rounds_once, keeps_subnormal_doubles};
pub use probe_process::{
    DEVICE, Findings, ProbeRun, SUPERVISE, TRY, TRY_AT_ONCE, Verdict, beginning, built, confine, end,
    ends_by_its_own_fault, line, probe_executable, set_probe_executable, supervise,
};
#[cfg(test)]
pub use timeline::HUNG;
pub use timeline::Timeline;
