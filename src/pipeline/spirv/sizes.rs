//! How large a module may be: the sizes that cost a checker or a driver time and memory, and no more. What would overrun a driver's tables has
//! limits that nobody can raise, beside the walks that find it.

use super::SpirvError;
use crate::error::{Error, Result};

/// A size of a module, and the most of it that is taken by default.
pub(super) struct Size {
    what: &'static str,
    most: u64,
}

/// Bytes of the module.
pub(super) const BYTES: Size = Size { what: "bytes", most: 4 << 20 };
/// One more than the largest id: drivers allocate a table of this length whatever the module holds.
pub(super) const IDS: Size = Size { what: "as the bound of its ids", most: 1 << 20 };
/// Basic blocks.
pub(super) const BLOCKS: Size = Size { what: "basic blocks", most: 1 << 14 };
/// Structured selections and loops.
pub(super) const CONSTRUCTS: Size = Size { what: "selections and loops", most: 1 << 11 };
/// Scalars that the instructions of a function produce, each call of a function counted.
pub(super) const SCALARS: Size =
    Size { what: "scalars that a function's instructions produce once inlined", most: 1 << 20 };
/// Scalars in all constants.
pub(super) const CONSTANT_SCALARS: Size = Size { what: "scalars in constants", most: 1 << 20 };
/// Bytes of variables that one invocation holds outside buffers and workgroup memory: CPU drivers put them on a thread's stack, once for each
/// lane.
pub(super) const PRIVATE_BYTES: Size = Size { what: "bytes of variables an invocation", most: 64 << 10 };

/// The limits of all sizes, as a multiple of the defaults.
#[derive(Clone, Copy, Debug)]
pub struct SizeLimits(f64);

/// The variable that sets the multiple.
const VARIABLE: &str = "NX_VULKAN_SPIRV_LIMITS";

impl SizeLimits {
    /// Without any limit: for a process that time and memory bound.
    pub(super) const NONE: Self = Self(f64::INFINITY);

    /// This multiple of the defaults.
    pub fn times(multiple: f64) -> Self {
        Self(multiple)
    }

    /// What `NX_VULKAN_SPIRV_LIMITS` says; the defaults where it is not set.
    pub fn of_environment() -> Result<Self> {
        let Ok(text) = std::env::var(VARIABLE) else { return Ok(Self(1.0)) };
        let multiple = text.trim().parse().ok().filter(|multiple: &f64| multiple.is_finite() && *multiple > 0.0);
        multiple.map(Self).ok_or_else(|| Error::NoDevice(format!("{VARIABLE}={text} is not a positive number")))
    }

    /// Refuses a module that has too much of something.
    pub(super) fn check(&self, size: &Size, is: u64) -> Result<(), SpirvError> {
        let most = (size.most as f64 * self.0) as u64;
        if is <= most {
            return Ok(());
        }
        let enough = (is as f64 / size.most as f64 * 10.0).ceil() / 10.0;
        Err(SpirvError::Unsupported(format!("{is} {}, more than {most}; {VARIABLE}={enough} takes it", size.what)))
    }
}
