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
    /// The driver's identifier of the device, in hexadecimal; empty where the driver gives none.
    pub uuid: String,
}

/// The devices as they are listed.
pub fn listed(devices: &[Arc<PhysicalDevice>]) -> Vec<Listed> {
    let listed = |device: &Arc<PhysicalDevice>| {
        let properties = device.properties();
        let (name, kind) = (properties.device_name.clone(), kind_name(properties.device_type));
        Listed { name, kind, uuid: uuid(device) }
    };
    devices.iter().map(listed).collect()
}

fn uuid(device: &PhysicalDevice) -> String {
    device.properties().device_uuid.iter().flatten().map(|byte| format!("{byte:02x}")).collect()
}

/// The index of a device in a list by its UUID (with dashes or without), its own index or part of its name. A number is an index and never
/// part of a name: a driver's version is in many.
pub fn find(list: &[Arc<PhysicalDevice>], wanted: &str) -> Option<usize> {
    find_listed(&listed(list), wanted)
}

fn find_listed(list: &[Listed], wanted: &str) -> Option<usize> {
    let wanted = wanted.trim().to_lowercase();
    let plain = wanted.replace('-', "");
    let is_uuid = plain.len() == 2 * ash::vk::UUID_SIZE;
    let by_uuid = list.iter().position(|device| is_uuid && device.uuid == plain);
    if by_uuid.is_some() {
        return by_uuid;
    }
    if wanted.bytes().all(|byte| byte.is_ascii_digit()) {
        return wanted.parse().ok().filter(|&index| index < list.len());
    }
    list.iter().position(|device| device.name.to_lowercase().contains(&wanted))
}

/// The devices of a list by their indices, for messages.
pub fn names(list: &[Arc<PhysicalDevice>]) -> String {
    let named = |(i, d): (usize, &Arc<PhysicalDevice>)| format!("{i}: {}", d.properties().device_name);
    list.iter().enumerate().map(named).collect::<Vec<_>>().join(", ")
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

fn no_driver() -> Error {
    Error::NoDevice("the Vulkan loader found no driver: install one (Mesa's lavapipe runs on any CPU)".into())
}

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
        Validated::Error(VulkanError::IncompatibleDriver) => no_driver(),
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

/// Picks the device, by its index in the list: the first usable one, or the one that `NX_VULKAN_DEVICE` names as [`find`] has it.
pub fn choose(list: &[Arc<PhysicalDevice>], wanted: Option<&str>) -> Result<usize> {
    let found = match wanted {
        None | Some("") => list.iter().position(|d| missing(d).is_none()).or((!list.is_empty()).then_some(0)),
        Some(wanted) => find(list, wanted),
    };
    let Some(index) = found else {
        return Err(match wanted {
            Some(wanted) => {
                Error::NoDevice(format!("NX_VULKAN_DEVICE={wanted} fits none of the devices ({})", names(list)))
            }
            None => no_driver(),
        });
    };
    usable(&list[index]).map(|()| index)
}

/// Fails where the device lacks what every device must have.
pub fn usable(device: &PhysicalDevice) -> Result<()> {
    let lacks = |what| {
        let name = &device.properties().device_name;
        Error::NoDevice(format!("{name} lacks {what}, which nx_vulkan needs"))
    };
    missing(device).map_or(Ok(()), |what| Err(lacks(what)))
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

/// A family that transfers and does nothing else: a copy engine of the device beside its kernels.
pub(super) fn transfer_family(device: &PhysicalDevice) -> Option<u32> {
    let besides = QueueFlags::TRANSFER | QueueFlags::SPARSE_BINDING | QueueFlags::PROTECTED;
    let mut families = (0..).zip(device.queue_family_properties());
    let transfers = |flags: QueueFlags| flags.contains(QueueFlags::TRANSFER) && besides.contains(flags);
    families.find(|(_, family)| transfers(family.queue_flags)).map(|(index, _)| index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_found_by_index_uuid_and_part_of_its_name() {
        let device = |name: &str, uuid: &str| Listed { name: name.into(), kind: "other", uuid: uuid.into() };
        let uuid = "00112233445566778899aabbccddeeff";
        let list = [
            device("NVIDIA H200", ""),
            device("llvmpipe (LLVM 19.1.7, 256 bits)", uuid),
            device("NVIDIA H200", "00000000000000000000000000000001"),
        ];
        for (wanted, found) in [
            ("0", Some(0)),
            (" 2 ", Some(2)),
            ("LLVMpipe", Some(1)),
            ("19.1.7", Some(1)),
            ("h200", Some(0)),
            ("00112233-4455-6677-8899-AABBCCDDEEFF", Some(1)),
            // Digits alone, and no index.
            ("00000000000000000000000000000001", Some(2)),
            // Both are in a name.
            ("3", None),
            ("19", None),
            ("99999999999999999999999999", None),
            ("", None),
            ("radeon", None),
        ] {
            assert_eq!(find_listed(&list, wanted), found, "{wanted}");
        }
    }
}
