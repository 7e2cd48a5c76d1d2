//! The Vulkan instance and the choice of the physical device.

use std::sync::Arc;

use vulkano::device::QueueFlags;
use vulkano::device::physical::{PhysicalDevice, PhysicalDeviceType};
use vulkano::instance::{Instance, InstanceCreateFlags, InstanceCreateInfo, InstanceExtensions};
use vulkano::{Validated, Version, VulkanError, VulkanLibrary};

use crate::error::{Error, Result};

/// A device as `mix nx_vulkan.doctor` lists it.
#[derive(Clone, Debug)]
pub struct Listed {
    /// The device's name.
    pub name: String,
    /// Its kind, as `Nx.Vulkan.device_info/0` names it.
    pub kind: &'static str,
}

/// The devices as they are listed.
pub fn listed(devices: &[Arc<PhysicalDevice>]) -> Vec<Listed> {
    let properties = devices.iter().map(|device| device.properties());
    properties.map(|p| Listed { name: p.device_name.clone(), kind: kind_name(p.device_type) }).collect()
}

pub(super) fn kind_name(kind: PhysicalDeviceType) -> &'static str {
    match kind {
        PhysicalDeviceType::DiscreteGpu => "discrete_gpu",
        PhysicalDeviceType::IntegratedGpu => "integrated_gpu",
        PhysicalDeviceType::VirtualGpu => "virtual_gpu",
        PhysicalDeviceType::Cpu => "cpu",
        _ => "other",
    }
}

const NO_DRIVER: &str = "the Vulkan loader found no driver: install one (Mesa's lavapipe runs on any CPU)";

pub(super) fn no_device(error: impl std::fmt::Debug) -> Error {
    Error::NoDevice(format!("no Vulkan device: {error:?}"))
}

/// The Vulkan instance; fails where there is no loader or no driver.
pub fn instance() -> Result<Arc<Instance>> {
    let library = VulkanLibrary::new()
        .map_err(|e| Error::NoDevice(format!("the Vulkan loader (libvulkan) could not be opened: {e}")))?;
    // Debuggers and profilers show the names of kernels and buffers.
    let named = InstanceExtensions { ext_debug_utils: true, ..InstanceExtensions::empty() };
    let create_info = InstanceCreateInfo {
        flags: InstanceCreateFlags::ENUMERATE_PORTABILITY,
        enabled_extensions: library.supported_extensions().intersection(&named),
        ..Default::default()
    };
    Instance::new(library, create_info).map_err(|error| match error {
        Validated::Error(VulkanError::IncompatibleDriver) => Error::NoDevice(NO_DRIVER.into()),
        other => no_device(other),
    })
}

/// All devices in the order in which they are preferred: discrete, integrated and virtual GPUs, then CPUs.
pub fn physical_devices(instance: &Arc<Instance>) -> Result<Vec<Arc<PhysicalDevice>>> {
    let mut list: Vec<_> = instance.enumerate_physical_devices().map_err(no_device)?.collect();
    // Stable, so devices of one kind keep the loader's order.
    list.sort_by_key(|device| match device.properties().device_type {
        PhysicalDeviceType::DiscreteGpu => 0,
        PhysicalDeviceType::IntegratedGpu => 1,
        PhysicalDeviceType::VirtualGpu => 2,
        PhysicalDeviceType::Cpu => 3,
        _ => 4,
    });
    Ok(list)
}

/// Picks the device: the first usable one, or the one `NX_VULKAN_DEVICE` names by index or by part of its name.
pub fn choose(list: &[Arc<PhysicalDevice>], wanted: Option<&str>) -> Result<Arc<PhysicalDevice>> {
    let names = || {
        let named = |(i, d): (usize, &Arc<PhysicalDevice>)| format!("{i}: {}", d.properties().device_name);
        list.iter().enumerate().map(named).collect::<Vec<_>>().join(", ")
    };
    let found = match wanted {
        None | Some("") => list.iter().find(|d| missing(d).is_none()).or(list.first()),
        Some(wanted) => {
            let by_index = wanted.parse::<usize>().ok().and_then(|i| list.get(i));
            let lower = wanted.to_lowercase();
            by_index.or_else(|| list.iter().find(|d| d.properties().device_name.to_lowercase().contains(&lower)))
        }
    };
    let Some(device) = found else {
        return Err(Error::NoDevice(match wanted {
            Some(wanted) => format!("NX_VULKAN_DEVICE={wanted} fits none of the devices ({})", names()),
            None => NO_DRIVER.into(),
        }));
    };
    match missing(device) {
        None => Ok(device.clone()),
        Some(what) => {
            Err(Error::NoDevice(format!("{} lacks {what}, which nx_vulkan needs", device.properties().device_name)))
        }
    }
}

/// What every device must have, by name, if this one has it not.
fn missing(device: &PhysicalDevice) -> Option<&'static str> {
    let f = device.supported_features();
    let required = [
        (device.api_version() >= Version::V1_2, "Vulkan 1.2"),
        (f.timeline_semaphore, "timeline semaphores"),
        (f.buffer_device_address, "buffer device addresses"),
        (f.scalar_block_layout, "scalar block layout"),
        (f.robust_buffer_access, "robust buffer access"),
        (compute_family(device).is_some(), "a compute queue"),
    ];
    required.iter().find(|(has, _)| !has).map(|&(_, what)| what)
}

/// The first family that computes without graphics: on an H200, a submission is over 1.5 µs sooner there than in one
/// with them, after long kernels 23. Else the first that computes.
pub(super) fn compute_family(device: &PhysicalDevice) -> Option<u32> {
    let families = (0..).zip(device.queue_family_properties());
    let computing = families.filter(|(_, family)| family.queue_flags.contains(QueueFlags::COMPUTE));
    computing.min_by_key(|(_, family)| family.queue_flags.contains(QueueFlags::GRAPHICS)).map(|(index, _)| index)
}
