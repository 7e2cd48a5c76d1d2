//! The Vulkan buffers of allocations: the usage and the memory of each kind. This module makes them of an allocator's memory, and does not
//! know which allocations there are.

use std::sync::Arc;

use ash::vk;
use smallvec::SmallVec;
use vulkano::VulkanObject;
use vulkano::buffer::sys::RawBuffer;
use vulkano::buffer::{Buffer, BufferCreateInfo, BufferUsage, Subbuffer};
use vulkano::device::{Device, DeviceOwned};
use vulkano::memory::allocator::{
    AllocationCreateInfo, AllocationType, DeviceLayout, MemoryAllocatePreference, MemoryAllocator, MemoryTypeFilter,
    StandardMemoryAllocator,
};
use vulkano::memory::{MemoryPropertyFlags, ResourceMemory};
use vulkano::sync::Sharing;

use super::Blocking;
use super::pool::{ALIGNMENT_BYTES, MemoryKind};

/// A buffer of `size` bytes for an allocation of this kind: for a call that may not block from memory that the driver has given before, or
/// none. Fails with the reason.
pub(super) fn create_buffer(
    allocator: &Arc<StandardMemoryAllocator>,
    kind: MemoryKind,
    size: u64,
    blocking: Blocking,
) -> Result<Subbuffer<[u8]>, String> {
    let (usage, memory_type_filter) = usage_and_memory(kind);
    let allocate_preference = match blocking {
        Blocking::Refused => MemoryAllocatePreference::NeverAllocate,
        Blocking::Allowed => MemoryAllocatePreference::Unknown,
    };
    let layout = DeviceLayout::from_size_alignment(size, ALIGNMENT_BYTES).ok_or("too large")?;
    let memory = AllocationCreateInfo { memory_type_filter, allocate_preference, ..Default::default() };
    let buffer = match kind {
        MemoryKind::Predicates => predicate_buffer(allocator, usage, memory, layout)?,
        _ => {
            let info = BufferCreateInfo { usage, sharing: sharing(allocator.device()), ..Default::default() };
            Buffer::new(allocator.clone(), info, memory, layout).map_err(|error| format!("{error:?}"))?
        }
    };
    Ok(Subbuffer::new(buffer))
}

/// Kernels and transfers use a buffer in turns, on queues that may be of two families.
fn sharing(device: &Device) -> Sharing<SmallVec<[u32; 4]>> {
    match device.active_queue_family_indices() {
        [] | [_] => Sharing::Exclusive,
        families => Sharing::Concurrent(families.into()),
    }
}

fn usage_and_memory(kind: MemoryKind) -> (BufferUsage, MemoryTypeFilter) {
    let transfer = BufferUsage::TRANSFER_SRC | BufferUsage::TRANSFER_DST;
    let kernels = BufferUsage::STORAGE_BUFFER | BufferUsage::SHADER_DEVICE_ADDRESS;
    let on_device = MemoryTypeFilter {
        required_flags: MemoryPropertyFlags::DEVICE_LOCAL,
        // On many machines the host sees only a small window of the device's memory.
        not_preferred_flags: MemoryPropertyFlags::HOST_VISIBLE,
        ..MemoryTypeFilter::empty()
    };
    match kind {
        MemoryKind::Device | MemoryKind::Predicates => (transfer | kernels, on_device),
        MemoryKind::Upload => (transfer, MemoryTypeFilter::PREFER_HOST | MemoryTypeFilter::HOST_SEQUENTIAL_WRITE),
        MemoryKind::Readback => (transfer, MemoryTypeFilter::PREFER_HOST | MemoryTypeFilter::HOST_RANDOM_ACCESS),
        MemoryKind::Record => (
            kernels,
            MemoryTypeFilter {
                required_flags: MemoryPropertyFlags::HOST_VISIBLE | MemoryPropertyFlags::HOST_COHERENT,
                preferred_flags: MemoryPropertyFlags::HOST_CACHED,
                not_preferred_flags: MemoryPropertyFlags::DEVICE_LOCAL,
            },
        ),
    }
}

/// As `Buffer::new`, of a buffer that predicates may stand in: a usage that vulkano has no name for. The device must have
/// `conditional_rendering`. Fails with the driver's words.
fn predicate_buffer(
    allocator: &Arc<StandardMemoryAllocator>,
    usage: BufferUsage,
    memory: AllocationCreateInfo,
    layout: DeviceLayout,
) -> Result<Arc<Buffer>, String> {
    let device = allocator.device();
    let info = vk::BufferCreateInfo::default()
        .size(layout.size())
        .usage(vk::BufferUsageFlags::from(usage) | vk::BufferUsageFlags::CONDITIONAL_RENDERING_EXT);
    let mut handle = vk::Buffer::null();
    // SAFETY: the structure is valid, and the device lives over the call.
    unsafe { (device.fns().v1_0.create_buffer)(device.handle(), &info, std::ptr::null(), &mut handle) }
        .result()
        .map_err(|e| e.to_string())?;
    let create_info = BufferCreateInfo { size: layout.size(), usage, ..Default::default() };
    // SAFETY: the buffer was made as `create_info` says, with one usage more, and nobody else owns it.
    let buffer = unsafe { RawBuffer::from_handle(device.clone(), handle, create_info) };
    let mut requirements = *buffer.memory_requirements();
    requirements.layout =
        requirements.layout.align_to(layout.alignment()).ok_or_else(|| "too large an alignment".to_owned())?;
    let allocation =
        allocator.allocate(requirements, AllocationType::Linear, memory, None).map_err(|e| format!("{e:?}"))?;
    // SAFETY: the allocator has just made the allocation.
    let memory = unsafe { ResourceMemory::from_allocation(allocator.clone(), allocation) };
    buffer.bind_memory(memory).map(Arc::new).map_err(|(e, ..)| format!("{e:?}"))
}
