//! Kernel families: when each applies, its grid and its parameters.

pub mod assemble;
pub mod contraction;
pub mod dot;
pub mod fourier;
pub mod fusion;
pub mod linalg;
pub mod scan;
pub mod scatter;
pub mod sort;
mod spec;
mod tensor;
pub mod user_spirv;
pub mod window;

use crate::device::Capabilities;
use crate::error::{Error, Result};
pub use spec::{KernelSpec, launch};
pub use tensor::{Rows, Tensor};

/// Fails where indices need 64 bits and the device has no such integers.
pub fn check_indices(caps: &Capabilities, wide: bool) -> Result<()> {
    if wide && !caps.int64 {
        return Err(Error::Unsupported(format!("{} has no 64-bit integers to index 2^31 elements", caps.name)));
    }
    Ok(())
}
