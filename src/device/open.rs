//! The logical device with its queues, and the features that it is made with.

use std::sync::Arc;

use vulkano::device::physical::PhysicalDevice;
use vulkano::device::{Device, DeviceCreateInfo, DeviceExtensions, DeviceFeatures, Queue, QueueCreateInfo};

use super::capabilities::DisabledFeatures;
use super::choose::{compute_family, no_device, transfer_family};
use super::{fault, matrix};
use crate::error::Result;

/// The queues of a device.
pub struct Queues {
    /// The queue of kernels.
    pub compute: Arc<Queue>,
    /// The queue of large transfers: one of its own where the device has a family for them, else the queue of kernels.
    pub transfers: Arc<Queue>,
}

impl Queues {
    /// The queues that a device was made with, in the order of its families in [`open`].
    pub(super) fn of(mut queues: impl Iterator<Item = Arc<Queue>>) -> Result<Self> {
        let compute = queues.next().ok_or_else(|| no_device("no queue"))?;
        Ok(Self { transfers: queues.next().unwrap_or_else(|| compute.clone()), compute })
    }
}

/// Opens the device with a compute queue and a transfer queue, and with the wanted features that it has.
pub fn open(physical: &Arc<PhysicalDevice>, disabled: &DisabledFeatures) -> Result<(Arc<Device>, Queues)> {
    let matrices = disabled.matrices(physical);
    let wanted = DeviceFeatures {
        timeline_semaphore: true,
        buffer_device_address: true,
        scalar_block_layout: true,
        robust_buffer_access: true,
        shader_float64: !disabled.has("float64"),
        shader_int64: !disabled.has("int64"),
        shader_int8: !disabled.has("int8"),
        shader_int16: !disabled.has("int16"),
        storage_buffer8_bit_access: !disabled.has("int8"),
        storage_buffer16_bit_access: !disabled.has("int16"),
        shader_float16: !disabled.has("float16"),
        variable_pointers_storage_buffer: true,
        // With the memory model and without the device's scope, kernels could have no atomics: theirs are of that scope.
        vulkan_memory_model: physical.supported_features().vulkan_memory_model_device_scope,
        vulkan_memory_model_device_scope: true,
        cooperative_matrix: matrices.float16 || matrices.bfloat16,
        conditional_rendering: !disabled.has("conditional_rendering"),
        device_fault: true,
        ..DeviceFeatures::empty()
    };
    let extensions = DeviceExtensions {
        khr_push_descriptor: !disabled.has("push_descriptor"),
        khr_cooperative_matrix: wanted.cooperative_matrix,
        ext_conditional_rendering: wanted.conditional_rendering,
        ext_device_fault: wanted.device_fault,
        ..DeviceExtensions::empty()
    };
    let families = [compute_family(physical).or(Some(0)), transfer_family(physical)].into_iter().flatten();
    let queue = |queue_family_index| QueueCreateInfo { queue_family_index, ..Default::default() };
    let create_info = DeviceCreateInfo {
        queue_create_infos: families.map(queue).collect(),
        enabled_features: physical.supported_features().intersection(&wanted),
        enabled_extensions: physical.supported_extensions().intersection(&extensions),
        ..Default::default()
    };
    fault::opening_point("vkCreateDevice").map_err(no_device)?;
    if matrices.bfloat16 || matrices.operations {
        return matrix::open_with(physical, create_info, matrices);
    }
    let (device, queues) = Device::new(physical.clone(), create_info).map_err(no_device)?;
    Ok((device, Queues::of(queues)?))
}
