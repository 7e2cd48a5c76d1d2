//! Instance, choice of device, features, limits and queue: one global [`Gpu`], made once and fallibly.

mod exit;
mod matrix;
mod probe;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use once_cell::sync::OnceCell;
use vulkano::device::physical::{PhysicalDevice, PhysicalDeviceType, SubgroupFeatures};
use vulkano::device::{Device, DeviceCreateInfo, DeviceExtensions, DeviceFeatures, Queue, QueueCreateInfo, QueueFlags};
use vulkano::instance::{Instance, InstanceCreateFlags, InstanceCreateInfo};
use vulkano::shader::ShaderStages;
use vulkano::{Validated, Version, VulkanError, VulkanLibrary};

use crate::error::{Attempt, Error, Result, Retry};
use crate::memory::Pool;
use crate::pipeline::{Disk, Pipelines};
use crate::program::types::lay_out;
use crate::stream::Stream;
pub use matrix::Matrices;

/// Everything that exists once: the device, its queue, the stream, the memory pool and the pipelines.
pub struct Gpu {
    pub device: Arc<Device>,
    pub caps: Capabilities,
    pub pool: Pool,
    pub stream: Stream,
    pub pipelines: Pipelines,
    /// All devices in the order in which they are preferred: the order of `NX_VULKAN_DEVICE`'s index.
    pub listed: Vec<Listed>,
    /// Whether the last kernel over large tensors traversed them in reverse.
    pub reversed: AtomicBool,
}

/// What kernels and dispatches may use on this device.
#[derive(Clone, Debug)]
pub struct Capabilities {
    pub name: String,
    pub driver: String,
    pub api_version: String,
    pub kind: &'static str,
    pub cpu: bool,
    pub float64: bool,
    pub int64: bool,
    pub int8: bool,
    pub int16: bool,
    pub denorm_preserve: bool,
    pub denorm_preserve64: bool,
    pub round_to_even: bool,
    pub signed_zero_inf_nan: bool,
    pub signed_zero_inf_nan64: bool,
    /// Whether `fma` rounds once.
    pub fma: bool,
    /// Whether formulas for floats are best computed in double.
    pub fast_float64: bool,
    pub push_descriptor: bool,
    pub matrices: Matrices,
    /// How many processors run workgroups side by side; a middling device's where no extension tells.
    pub processors: u64,
    pub max_groups: [u32; 3],
    pub max_push_constants: u32,
    /// Bytes of memory that the invocations of a workgroup share.
    pub max_shared: u32,
    /// Invocations of a workgroup at most.
    pub max_threads: u32,
    /// Invocations of a subgroup, 0 where those cannot exchange values.
    pub subgroup: u32,
    pub max_storage_range: u64,
    pub storage_alignment: u64,
    /// Size in bytes of the largest device-local heap.
    pub heap: u64,
}

/// Of a device that does not tell.
const PROCESSORS: u64 = 32;

/// The features that `NX_VULKAN_DISABLE` turns off, as if the device had them not: what it does then can be tested. Without
/// `processor`, a device that is one gets the kernels of GPUs.
struct Disabled(Vec<String>);

impl Disabled {
    const NAMES: [&str; 12] = [
        "float64",
        "fast_float64",
        "int64",
        "int8",
        "int16",
        "float16",
        "denorm_preserve",
        "fma",
        "push_descriptor",
        "subgroup",
        "cooperative_matrix",
        "processor",
    ];

    fn from_env() -> Result<Self> {
        let text = std::env::var("NX_VULKAN_DISABLE").unwrap_or_default();
        let names: Vec<String> =
            text.split(',').map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).collect();
        match names.iter().find(|name| !Self::NAMES.contains(&name.as_str())) {
            None => Ok(Self(names)),
            Some(name) => {
                Err(Error::NoDevice(format!("NX_VULKAN_DISABLE={text}: {name} is none of {}", Self::NAMES.join(", "))))
            }
        }
    }

    fn matrices(&self, physical: &PhysicalDevice) -> Matrices {
        let needed = ["cooperative_matrix", "float16", "int16"];
        if needed.iter().any(|name| self.has(name)) { Matrices::default() } else { Matrices::of(physical) }
    }

    fn has(&self, name: &str) -> bool {
        self.0.iter().any(|disabled| disabled == name)
    }
}

impl Capabilities {
    /// The features' names as atoms for people: what a program may ask about.
    pub fn feature_names(&self) -> Vec<&'static str> {
        [
            ("float64", self.float64),
            ("fast_float64", self.fast_float64),
            ("int64", self.int64),
            ("int8", self.int8),
            ("int16", self.int16),
            ("denorm_preserve", self.denorm_preserve),
            ("fma", self.fma),
            ("push_descriptor", self.push_descriptor),
            ("cooperative_matrix", self.matrices.float16),
            ("cooperative_matrix_bfloat16", self.matrices.bfloat16),
        ]
        .into_iter()
        .filter_map(|(name, has)| has.then_some(name))
        .collect()
    }

    fn of(physical: &PhysicalDevice, [fma, fast_float64]: [bool; 2], disabled: &Disabled) -> Self {
        let (p, f) = (physical.properties(), physical.supported_features());
        let heap = physical
            .memory_properties()
            .memory_heaps
            .iter()
            .filter(|heap| heap.flags.intersects(vulkano::memory::MemoryHeapFlags::DEVICE_LOCAL))
            .map(|heap| heap.size)
            .max()
            .unwrap_or(0);
        let exchange = SubgroupFeatures::ARITHMETIC | SubgroupFeatures::BALLOT | SubgroupFeatures::SHUFFLE;
        let subgroups = p.subgroup_supported_operations.is_some_and(|operations| operations.contains(exchange))
            && p.subgroup_supported_stages.is_some_and(|stages| stages.intersects(ShaderStages::COMPUTE))
            && !disabled.has("subgroup");
        let processors = p.shader_sm_count.or(p.active_compute_unit_count).or(p.shader_core_count);
        Self {
            name: p.device_name.clone(),
            driver: [&p.driver_name, &p.driver_info]
                .into_iter()
                .flatten()
                .map(String::as_str)
                .collect::<Vec<_>>()
                .join(" "),
            api_version: physical.api_version().to_string(),
            kind: kind_name(p.device_type),
            cpu: p.device_type == PhysicalDeviceType::Cpu && !disabled.has("processor"),
            float64: f.shader_float64 && !disabled.has("float64"),
            int64: f.shader_int64 && !disabled.has("int64"),
            int8: f.shader_int8 && f.storage_buffer8_bit_access && !disabled.has("int8"),
            int16: f.shader_int16 && f.storage_buffer16_bit_access && !disabled.has("int16"),
            denorm_preserve: p.shader_denorm_preserve_float32.unwrap_or(false) && !disabled.has("denorm_preserve"),
            denorm_preserve64: p.shader_denorm_preserve_float64.unwrap_or(false) && !disabled.has("denorm_preserve"),
            round_to_even: p.shader_rounding_mode_rte_float32.unwrap_or(false),
            signed_zero_inf_nan: p.shader_signed_zero_inf_nan_preserve_float32.unwrap_or(false),
            signed_zero_inf_nan64: p.shader_signed_zero_inf_nan_preserve_float64.unwrap_or(false),
            fma: fma && !disabled.has("fma"),
            fast_float64: fast_float64 && !disabled.has("float64") && !disabled.has("fast_float64"),
            push_descriptor: physical.supported_extensions().khr_push_descriptor && !disabled.has("push_descriptor"),
            matrices: disabled.matrices(physical),
            processors: processors.filter(|&count| count > 0).map_or(PROCESSORS, u64::from),
            max_groups: p.max_compute_work_group_count,
            max_push_constants: p.max_push_constants_size,
            max_shared: p.max_compute_shared_memory_size,
            max_threads: p.max_compute_work_group_invocations,
            subgroup: p.subgroup_size.filter(|_| subgroups).unwrap_or(0),
            max_storage_range: p.max_storage_buffer_range as u64,
            storage_alignment: p.min_storage_buffer_offset_alignment.as_devicesize(),
            heap,
        }
    }
}

static GPU: OnceCell<Gpu> = OnceCell::new();

/// The global device, made on the first call. Callers that come while it is being made wait for it.
pub fn gpu() -> Result<&'static Gpu> {
    GPU.get_or_try_init(|| {
        let gpu = Gpu::new()?;
        exit::wait_at_exit();
        Ok(gpu)
    })
}

/// The global device if it exists already, else [`Retry::Blocking`]: making it takes too long for a normal scheduler.
pub fn gpu_if_ready() -> Attempt<&'static Gpu> {
    GPU.get().ok_or(Retry::Blocking.into())
}

/// A device as people see it in a list.
#[derive(Clone, Debug)]
pub struct Listed {
    pub name: String,
    pub kind: &'static str,
}

fn kind_name(kind: PhysicalDeviceType) -> &'static str {
    match kind {
        PhysicalDeviceType::DiscreteGpu => "discrete_gpu",
        PhysicalDeviceType::IntegratedGpu => "integrated_gpu",
        PhysicalDeviceType::VirtualGpu => "virtual_gpu",
        PhysicalDeviceType::Cpu => "cpu",
        _ => "other",
    }
}

const NO_DRIVER: &str = "the Vulkan loader found no driver: install one (Mesa's lavapipe runs on any CPU)";

fn no_device(error: impl std::fmt::Debug) -> Error {
    Error::NoDevice(format!("no Vulkan device: {error:?}"))
}

fn instance() -> Result<Arc<Instance>> {
    let library = VulkanLibrary::new()
        .map_err(|e| Error::NoDevice(format!("the Vulkan loader (libvulkan) could not be opened: {e}")))?;
    let create_info = InstanceCreateInfo { flags: InstanceCreateFlags::ENUMERATE_PORTABILITY, ..Default::default() };
    Instance::new(library, create_info).map_err(|error| match error {
        Validated::Error(VulkanError::IncompatibleDriver) => Error::NoDevice(NO_DRIVER.into()),
        other => no_device(other),
    })
}

fn physical_devices(instance: &Arc<Instance>) -> Result<Vec<Arc<PhysicalDevice>>> {
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
fn choose(list: &[Arc<PhysicalDevice>], wanted: Option<&str>) -> Result<Arc<PhysicalDevice>> {
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
fn compute_family(device: &PhysicalDevice) -> Option<u32> {
    let families = (0..).zip(device.queue_family_properties());
    let computing = families.filter(|(_, family)| family.queue_flags.contains(QueueFlags::COMPUTE));
    computing.min_by_key(|(_, family)| family.queue_flags.contains(QueueFlags::GRAPHICS)).map(|(index, _)| index)
}

impl Gpu {
    fn new() -> Result<Self> {
        let wanted = std::env::var("NX_VULKAN_DEVICE").ok();
        let devices = physical_devices(&instance()?)?;
        let physical = choose(&devices, wanted.as_deref())?;
        let disabled = Disabled::from_env()?;
        let (device, queue) = open(&physical, &disabled)?;
        let disk = Disk::new(&physical);
        // A probe that fails says no: that is only slower.
        let ask = |question, probe: fn(&Arc<Queue>) -> _| disk.remember(question, || probe(&queue)).unwrap_or(false);
        let fma = ask("whether fma rounds once", probe::fma_rounds_once);
        let has_float64 = device.enabled_features().shader_float64;
        let fast_float64 = has_float64 && ask("whether doubles are fast", probe::doubles_are_fast);
        let caps = Capabilities::of(&physical, [fma, fast_float64], &disabled);
        lay_out(&caps);
        let stream = Stream::new(device.clone(), queue)?;
        let listed = |d: &Arc<PhysicalDevice>| {
            let p = d.properties();
            Listed { name: p.device_name.clone(), kind: kind_name(p.device_type) }
        };
        Ok(Self {
            pool: Pool::new(device.clone(), stream.timeline(), memory_limit(&caps)?),
            stream,
            pipelines: Pipelines::new(device.clone(), disk, &caps),
            device,
            caps,
            listed: devices.iter().map(listed).collect(),
            reversed: AtomicBool::new(false),
        })
    }
}

/// `NX_VULKAN_MEMORY_LIMIT` in bytes, or nine tenths of the device's memory (a CPU device's is the machine's: half).
fn memory_limit(caps: &Capabilities) -> Result<u64> {
    match std::env::var("NX_VULKAN_MEMORY_LIMIT") {
        Ok(text) => text
            .trim()
            .parse()
            .map_err(|_| Error::NoDevice(format!("NX_VULKAN_MEMORY_LIMIT={text} is not a number of bytes"))),
        Err(_) if caps.cpu => Ok(caps.heap / 2),
        Err(_) => Ok(caps.heap / 10 * 9),
    }
}

fn open(physical: &Arc<PhysicalDevice>, disabled: &Disabled) -> Result<(Arc<Device>, Arc<Queue>)> {
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
        vulkan_memory_model: true,
        cooperative_matrix: matrices.float16 || matrices.bfloat16,
        ..DeviceFeatures::empty()
    };
    let extensions = DeviceExtensions {
        khr_push_descriptor: true,
        khr_cooperative_matrix: wanted.cooperative_matrix,
        ..DeviceExtensions::empty()
    };
    let create_info = DeviceCreateInfo {
        queue_create_infos: vec![QueueCreateInfo {
            queue_family_index: compute_family(physical).unwrap_or(0),
            ..Default::default()
        }],
        enabled_features: physical.supported_features().intersection(&wanted),
        enabled_extensions: physical.supported_extensions().intersection(&extensions),
        ..Default::default()
    };
    if matrices.bfloat16 {
        return matrix::open_with_bfloat16(physical, create_info);
    }
    let (device, mut queues) = Device::new(physical.clone(), create_info).map_err(no_device)?;
    let queue = queues.next().ok_or_else(|| no_device("no queue"))?;
    Ok((device, queue))
}
