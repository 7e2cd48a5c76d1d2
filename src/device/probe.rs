//! What a device does but does not report: asked of it once, by a kernel built with the crate.

use std::sync::Arc;

use vulkano::buffer::{Buffer, BufferCreateInfo, BufferUsage};
use vulkano::command_buffer::allocator::StandardCommandBufferAllocator;
use vulkano::command_buffer::{AutoCommandBufferBuilder, CommandBufferUsage, PrimaryCommandBufferAbstract};
use vulkano::descriptor_set::allocator::StandardDescriptorSetAllocator;
use vulkano::descriptor_set::{DescriptorSet, WriteDescriptorSet};
use vulkano::device::{Device, Queue};
use vulkano::memory::allocator::{AllocationCreateInfo, MemoryTypeFilter, StandardMemoryAllocator};
use vulkano::pipeline::compute::ComputePipelineCreateInfo;
use vulkano::pipeline::layout::PipelineDescriptorSetLayoutCreateInfo;
use vulkano::pipeline::{ComputePipeline, Pipeline, PipelineBindPoint, PipelineLayout, PipelineShaderStageCreateInfo};
use vulkano::sync::GpuFuture;

mod kernel {
    vulkano_shaders::shader! {
        ty: "compute",
        src: r"
            #version 450
            layout(local_size_x = 64) in;
            layout(set = 0, binding = 0) buffer Data { float values[128]; uint errors; };
            void main() {
                uint i = gl_GlobalInvocationID.x;
                precise float a = values[2 * i], b = values[2 * i + 1], p = a * b, e = fma(a, b, -p);
                if (e != 0.0) atomicAdd(errors, 1);
            }",
    }
}

/// Whether the device's `fma` rounds once, so that `fma(a, b, -(a · b))` is the rounding error of the product. Vulkan
/// allows it to round twice, which gives 0. A probe that fails says no: that is only slower.
pub fn fma_rounds_once(device: &Arc<Device>, queue: &Arc<Queue>) -> bool {
    // Products of these numbers, which have 24 significant bits, are never exact.
    let values: Vec<f32> = (0..128).map(|i| 1.0 + (2 * i + 1) as f32 * f32::EPSILON).collect();
    errors(device, queue, &values).is_ok_and(|errors| errors == 64)
}

fn errors(device: &Arc<Device>, queue: &Arc<Queue>, values: &[f32]) -> Result<u32, Box<dyn std::error::Error>> {
    let memory = Arc::new(StandardMemoryAllocator::new_default(device.clone()));
    let data = Buffer::from_iter(
        memory,
        BufferCreateInfo { usage: BufferUsage::STORAGE_BUFFER, ..Default::default() },
        AllocationCreateInfo { memory_type_filter: MemoryTypeFilter::HOST_RANDOM_ACCESS, ..Default::default() },
        values.iter().map(|value| value.to_bits()).chain([0]).collect::<Vec<u32>>(),
    )?;
    let entry_point = kernel::load(device.clone())?.entry_point("main").ok_or("no entry point")?;
    let stage = PipelineShaderStageCreateInfo::new(entry_point);
    let sets = PipelineDescriptorSetLayoutCreateInfo::from_stages([&stage]);
    let layout = PipelineLayout::new(device.clone(), sets.into_pipeline_layout_create_info(device.clone())?)?;
    let info = ComputePipelineCreateInfo::stage_layout(stage, layout.clone());
    let pipeline = ComputePipeline::new(device.clone(), None, info)?;
    let descriptors = Arc::new(StandardDescriptorSetAllocator::new(device.clone(), Default::default()));
    let writes = [WriteDescriptorSet::buffer(0, data.clone())];
    let set = DescriptorSet::new(descriptors, layout.set_layouts()[0].clone(), writes, [])?;
    let commands = Arc::new(StandardCommandBufferAllocator::new(device.clone(), Default::default()));
    let family = queue.queue_family_index();
    let mut builder = AutoCommandBufferBuilder::primary(commands, family, CommandBufferUsage::OneTimeSubmit)?;
    builder.bind_pipeline_compute(pipeline.clone())?.bind_descriptor_sets(
        PipelineBindPoint::Compute,
        pipeline.layout().clone(),
        0,
        set,
    )?;
    // SAFETY: one workgroup of 64, whose indices lie within the buffer.
    unsafe { builder.dispatch([1, 1, 1]) }?;
    builder.build()?.execute(queue.clone())?.then_signal_fence_and_flush()?.wait(None)?;
    let result = data.read()?;
    Ok(result[128])
}
