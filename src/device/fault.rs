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

/// As [`point`], before a call that makes a device.
#[cfg(not(test))]
#[inline(always)]
pub fn opening_point(_call: &'static str) -> Result<(), vk::Result> {
    Ok(())
}

#[cfg(test)]
pub use injected::{Fault, inject, inject_opening, opening_point, point, withdraw, withdraw_opening};

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

    /// By the device. What is to fail while a device is opened, which has no handle yet, is of the null handle.
    static FAULTS: Mutex<Vec<(vk::Device, Fault)>> = Mutex::new(vec![]);

    /// Has a call of the device fail.
    pub fn inject(device: &Device, fault: Fault) {
        FAULTS.lock().push((device.handle(), fault));
    }

    /// Has a call fail by which the next device is opened.
    pub fn inject_opening(fault: Fault) {
        FAULTS.lock().push((vk::Device::null(), fault));
    }

    /// Takes back what has not failed yet, and says how much that was.
    pub fn withdraw(device: &Device) -> usize {
        withdraw_of(device.handle())
    }

    /// As [`withdraw`], of a device that is opened.
    pub fn withdraw_opening() -> usize {
        withdraw_of(vk::Device::null())
    }

    fn withdraw_of(device: vk::Device) -> usize {
        let mut faults = FAULTS.lock();
        let before = faults.len();
        faults.retain(|(of, _)| *of != device);
        before - faults.len()
    }

    /// Stands before a call that makes a device, which fails in its place where a test wants it to.
    pub fn opening_point(call: &'static str) -> Result<(), vk::Result> {
        point_of(vk::Device::null(), call)
    }

    /// Stands before a call of Vulkan, which fails in its place where a test wants it to.
    pub fn point(device: &Device, call: &'static str) -> Result<(), vk::Result> {
        point_of(device.handle(), call)
    }

    fn point_of(device: vk::Device, call: &'static str) -> Result<(), vk::Result> {
        let mut faults = FAULTS.lock();
        let of_device = |of: vk::Device| of == device || of == vk::Device::null();
        let Some(index) = faults.iter().position(|(of, fault)| of_device(*of) && fault.call == call) else {
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
