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
pub use injected::{Fault, inject, point, withdraw};

#[cfg(test)]
mod injected {
    use parking_lot::Mutex;
    use vulkano::VulkanObject;

    use super::*;

    /// A call of a device that is to fail.
    pub struct Fault {
        /// The call's name.
        pub call: &'static str,
        /// How often it is left alone before.
        pub after: usize,
        /// What it returns. A device that is lost or hangs stays so: all later calls return it, too.
        pub result: vk::Result,
    }

    static FAULTS: Mutex<Vec<(vk::Device, Fault)>> = Mutex::new(vec![]);

    /// Has a call of the device fail.
    pub fn inject(device: &Device, fault: Fault) {
        FAULTS.lock().push((device.handle(), fault));
    }

    /// Takes back what has not failed yet, and says how much that was.
    pub fn withdraw(device: &Device) -> usize {
        let mut faults = FAULTS.lock();
        let before = faults.len();
        faults.retain(|(of, _)| *of != device.handle());
        before - faults.len()
    }

    /// Stands before a call of Vulkan, which fails in its place where a test wants it to.
    pub fn point(device: &Device, call: &'static str) -> Result<(), vk::Result> {
        let mut faults = FAULTS.lock();
        let Some(index) = faults.iter().position(|(of, fault)| (*of, fault.call) == (device.handle(), call)) else {
            return Ok(());
        };
        let fault = &mut faults[index].1;
        if fault.after > 0 {
            fault.after -= 1;
            return Ok(());
        }
        match fault.result {
            lasting @ (vk::Result::ERROR_DEVICE_LOST | vk::Result::TIMEOUT) => Err(lasting),
            _ => Err(faults.swap_remove(index).1.result),
        }
    }
}
