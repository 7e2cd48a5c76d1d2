//! What a device does but does not report: asked of it once, by kernels built with the crate.

use std::sync::Arc;
use std::time::{Duration, Instant};

use vulkano::buffer::{Buffer, BufferCreateInfo, BufferUsage, Subbuffer};
use vulkano::command_buffer::allocator::StandardCommandBufferAllocator;
use vulkano::command_buffer::{
    AutoCommandBufferBuilder, CommandBufferUsage, PrimaryAutoCommandBuffer, PrimaryCommandBufferAbstract,
};
use vulkano::descriptor_set::allocator::StandardDescriptorSetAllocator;
use vulkano::descriptor_set::{DescriptorSet, WriteDescriptorSet};
use vulkano::device::{DeviceOwned, Queue};
use vulkano::memory::allocator::{
    AllocationCreateInfo, MemoryAllocatePreference, MemoryTypeFilter, StandardMemoryAllocator,
};
use vulkano::pipeline::compute::ComputePipelineCreateInfo;
use vulkano::pipeline::layout::PipelineDescriptorSetLayoutCreateInfo;
use vulkano::pipeline::{ComputePipeline, PipelineBindPoint, PipelineLayout, PipelineShaderStageCreateInfo};
use vulkano::shader::ShaderModule;
use vulkano::sync::GpuFuture;

mod rounding {
    vulkano_shaders::shader! {
        ty: "compute",
        src: r"
            #version 450
            layout(local_size_x = 64) in;
            layout(set = 0, binding = 0) buffer Data { float values[128]; uint inexact[64]; };
            void main() {
                uint i = gl_GlobalInvocationID.x;
                precise float a = values[2 * i], b = values[2 * i + 1], p = a * b, e = fma(a, b, -p);
                inexact[i] = uint(e != 0.0);
            }",
    }
}

mod comparisons {
    vulkano_shaders::shader! { ty: "compute", path: "src/device/compares.comp", include: ["shaders"] }
}

mod conversions {
    vulkano_shaders::shader! { ty: "compute", path: "src/device/converts.comp", include: ["shaders"] }
}

mod float {
    vulkano_shaders::shader! { ty: "compute", define: [("REAL", "float")], path: "src/device/rate.comp" }
}

mod double {
    vulkano_shaders::shader! { ty: "compute", define: [("REAL", "double")], path: "src/device/rate.comp" }
}

/// The answer of a kernel that is asked something of the device.
pub type Probed<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Whether the device's `fma` rounds once, so that `fma(a, b, -(a · b))` is the rounding error of the product. Vulkan
/// allows it to round twice, which gives 0.
pub fn fma_rounds_once(queue: &Arc<Queue>) -> Probed<bool> {
    // Products of these numbers, which have 24 significant bits, are never exact.
    let values: Vec<u32> =
        (0..128_u16).map(|i| (1.0 + f32::from(2 * i + 1) * f32::EPSILON).to_bits()).chain([0; 64]).collect();
    let (data, _) = Probe::new(queue, rounding::load(queue.device().clone())?, 192, 1)?.run(&values)?;
    Ok(data[128..].iter().all(|&inexact| inexact == 1))
}

/// Whether the device's own comparisons tell subnormal 32-bit floats from each other and from zero in a kernel that does not ask to
/// preserve them.
pub fn compares_subnormals(queue: &Arc<Queue>) -> Probed<bool> {
    // In ascending order, as the kernel expects.
    let tiny = f32::from_bits;
    let values = [-1.0, -tiny(0x7F_FFFF), -tiny(1), 0.0, tiny(1), tiny(2), tiny(0x7F_FFFF), f32::MIN_POSITIVE];
    let words: Vec<u32> = values.map(f32::to_bits).into_iter().chain([0; 64]).collect();
    let (data, _) = Probe::new(queue, comparisons::load(queue.device().clone())?, 72, 1)?.run(&words)?;
    Ok(data[8..].iter().all(|&right| right == 1))
}

/// Whether products of doubles and the conversion to 32-bit floats keep subnormals in a kernel that does not ask to preserve them. The device
/// must have doubles.
pub fn keeps_subnormal_doubles(queue: &Arc<Queue>) -> Probed<bool> {
    let others = [0.0, f32::MIN_POSITIVE, 1.5, f32::MAX, f32::INFINITY, 0.1, 3e-38, 1e-37];
    let subnormals = (0..24).map(|i| f32::from_bits(0x7F_FFFF >> i));
    let narrow: Vec<f32> = subnormals.chain(others).flat_map(|x| [x, -x]).collect();
    // Quarters of the least subnormal: ties, and numbers on either side of one.
    let quarter = |i: usize| (i / 2 % 4) as f64 * f64::from(f32::from_bits(1)) / 4.0;
    let wide: Vec<f64> = narrow.iter().enumerate().map(|(i, &x)| f64::from(x) + quarter(i)).collect();
    let words = |bits: u64| [bits as u32, (bits >> 32) as u32];
    let data: Vec<u32> = narrow
        .iter()
        .flat_map(|&x| words(f64::from(x).to_bits()))
        .chain(wide.iter().flat_map(|x| words(x.to_bits())))
        .chain(narrow.iter().map(|x| x.to_bits()))
        .chain(wide.iter().map(|&x| (x as f32).to_bits()))
        .chain([0; 64])
        .collect();
    let (data, _) = Probe::new(queue, conversions::load(queue.device().clone())?, data.len() as u64, 1)?.run(&data)?;
    Ok(data[data.len() - 64..].iter().all(|&right| right == 1))
}

/// Whether a double operation takes less than [`FAST`] times a float's. It does on devices made for computing; on most others it takes 16
/// to 64 times as long. The device must have doubles.
pub fn doubles_are_fast(queue: &Arc<Queue>) -> Probed<bool> {
    // Drivers build the two kernels side by side.
    let (float, double) = std::thread::scope(|scope| {
        let double = scope.spawn(|| Probe::new(queue, double::load(queue.device().clone())?, 2, PROBE_GROUPS));
        let float = float::load(queue.device().clone()).map_err(Into::into);
        let float = float.and_then(|module| Probe::new(queue, module, 2, PROBE_GROUPS));
        (float, double.join().unwrap_or_else(|_| Err("building the kernel panicked".into())))
    });
    let (float, double) = (float?, double?);
    // Other work can only add to a run's time.
    let time = |probe: &Probe, steps: u32| -> Probed<Duration> {
        let runs = (0..3).map(|_| Ok(probe.run(&[steps, 0])?.1)).collect::<Probed<Vec<_>>>()?;
        Ok(runs.into_iter().min().unwrap_or_default())
    };
    let mut steps = 64;
    let mut float_time = time(&float, steps)?;
    while float_time < LONG_ENOUGH && steps < 1 << 20 {
        steps *= 4;
        float_time = time(&float, steps)?;
    }
    Ok(time(&double, steps)? < float_time * FAST)
}

/// Formulas in double are faster than double words of floats where a double operation takes less than this many times a float's.
const FAST: u32 = 6;
/// The least duration of a timed run. The submission itself takes up to a tenth of it.
const LONG_ENOUGH: Duration = Duration::from_micros(500);
const PROBE_GROUPS: u32 = 512;

/// A kernel over one buffer of words.
struct Probe {
    queue: Arc<Queue>,
    data: Subbuffer<[u32]>,
    commands: Arc<PrimaryAutoCommandBuffer>,
}

impl Probe {
    /// `groups` workgroups of the module's kernel over `words` words.
    fn new(queue: &Arc<Queue>, module: Arc<ShaderModule>, words: u64, groups: u32) -> Probed<Self> {
        let device = queue.device();
        let stage = PipelineShaderStageCreateInfo::new(module.entry_point("main").ok_or("no entry point")?);
        let sets = PipelineDescriptorSetLayoutCreateInfo::from_stages([&stage]);
        let layout = PipelineLayout::new(device.clone(), sets.into_pipeline_layout_create_info(device.clone())?)?;
        let info = ComputePipelineCreateInfo::stage_layout(stage, layout.clone());
        let pipeline = ComputePipeline::new(device.clone(), None, info)?;
        let data = Buffer::new_slice(
            Arc::new(StandardMemoryAllocator::new_default(device.clone())),
            BufferCreateInfo { usage: BufferUsage::STORAGE_BUFFER, ..Default::default() },
            AllocationCreateInfo {
                memory_type_filter: MemoryTypeFilter::HOST_RANDOM_ACCESS,
                // A dedicated allocation, because vulkano's allocator reserves 256 MiB at a time.
                allocate_preference: MemoryAllocatePreference::AlwaysAllocate,
                ..Default::default()
            },
            words,
        )?;
        let descriptors = Arc::new(StandardDescriptorSetAllocator::new(device.clone(), Default::default()));
        let writes = [WriteDescriptorSet::buffer(0, data.clone())];
        let set = DescriptorSet::new(descriptors, layout.set_layouts()[0].clone(), writes, [])?;
        let allocator = Arc::new(StandardCommandBufferAllocator::new(device.clone(), Default::default()));
        let (family, usage) = (queue.queue_family_index(), CommandBufferUsage::MultipleSubmit);
        let mut builder = AutoCommandBufferBuilder::primary(allocator, family, usage)?;
        builder.bind_pipeline_compute(pipeline)?.bind_descriptor_sets(PipelineBindPoint::Compute, layout, 0, set)?;
        // SAFETY: the kernels above index the buffer they are given within its bounds.
        unsafe { builder.dispatch([groups, 1, 1]) }?;
        Ok(Self { queue: queue.clone(), data, commands: builder.build()? })
    }

    /// The words after a run that begins with these, and how long it took with its submission.
    fn run(&self, words: &[u32]) -> Probed<(Vec<u32>, Duration)> {
        self.data.write()?.copy_from_slice(words);
        let start = Instant::now();
        self.commands.clone().execute(self.queue.clone())?.then_signal_fence_and_flush()?.wait(None)?;
        let elapsed = start.elapsed();
        let result = self.data.read()?.to_vec();
        Ok((result, elapsed))
    }
}
