//! Points at which the crate's unit tests let a call of Vulkan fail. This module owns the list of faults to come; in other builds there is
//! none, and [`point`] is nothing.

use ash::vk;
use vulkano::device::Device;

/// Stands before a call of Vulkan, which fails in its place where a test wants it to.
#[cfg(not(test))]
#[inline(always)]
pub fn point(_device: &Device, _call: &'static str) -> Result<(), vk::Result> {
    Ok(())
}

#[cfg(test)]
pub use injected::{inject, point};

#[cfg(test)]
mod injected {
    use parking_lot::Mutex;
    use vulkano::VulkanObject;

    use super::*;

    /// A call of a device that is to fail, and how.
    type Fault = (vk::Device, &'static str, vk::Result);

    static FAULTS: Mutex<Vec<Fault>> = Mutex::new(vec![]);

    /// Has the device's next call of this name fail, and all that follow where the device is lost.
    pub fn inject(device: &Device, call: &'static str, result: vk::Result) {
        FAULTS.lock().push((device.handle(), call, result));
    }

    /// Stands before a call of Vulkan, which fails in its place where a test wants it to.
    pub fn point(device: &Device, call: &'static str) -> Result<(), vk::Result> {
        let mut faults = FAULTS.lock();
        let found = faults.iter().position(|fault| (fault.0, fault.1) == (device.handle(), call));
        found.map_or(Ok(()), |index| match faults[index].2 {
            lost @ vk::Result::ERROR_DEVICE_LOST => Err(lost),
            _ => Err(faults.swap_remove(index).2),
        })
    }
}
