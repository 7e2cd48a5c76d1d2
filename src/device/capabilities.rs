//! What a device can do: its features and limits as kernels and dispatches use them, and the features that are turned off.

use once_cell::sync::OnceCell;
use vulkano::device::physical::{DriverId, PhysicalDevice, PhysicalDeviceType, SubgroupFeatures};
use vulkano::shader::ShaderStages;

use super::choose::kind_name;
use super::{Findings, MatrixTypes};
use crate::error::{Error, Result};

/// What kernels and dispatches may use on this device.
#[derive(Clone, Debug)]
pub struct Capabilities {
    /// The device's name.
    pub name: String,
    /// Name and version of the driver.
    pub driver: String,
    /// The Vulkan version.
    pub api_version: String,
    /// Discrete, integrated or virtual GPU, CPU, or other, as `Nx.Vulkan.device_info/0` names it.
    pub kind: &'static str,
    /// Whether the device is the CPU, and gets kernels made for it.
    pub cpu: bool,
    /// Kernels may compute with 64-bit floats.
    pub float64: bool,
    /// Kernels may compute with 64-bit integers.
    pub int64: bool,
    /// Kernels may load and store single bytes.
    pub int8: bool,
    /// Kernels may load and store 16-bit words.
    pub int16: bool,
    /// Subnormal 32-bit floats can be kept.
    pub denorm_preserve: bool,
    /// Subnormal 64-bit floats can be kept.
    pub denorm_preserve64: bool,
    /// The device's own comparisons tell subnormal 32-bit floats from each other and from zeros, as measured. Elsewhere kernels compare
    /// their bits.
    pub compares_subnormals: bool,
    /// Products of doubles and their conversion to 32-bit floats keep subnormals, as measured. Elsewhere conversions go by the bits.
    pub subnormal_doubles: bool,
    /// 32-bit floats can be rounded to even.
    pub round_to_even: bool,
    /// Signed zeros, infinities and NaN of 32-bit floats can be kept.
    pub signed_zero_inf_nan: bool,
    /// Signed zeros, infinities and NaN of 64-bit floats can be kept.
    pub signed_zero_inf_nan64: bool,
    /// Whether `fma` rounds once.
    pub fma: bool,
    /// Whether formulas for floats are best computed in double.
    pub fast_float64: bool,
    /// Descriptors can be pushed. Elsewhere user SPIR-V gets its buffers by descriptor sets.
    pub push_descriptor: bool,
    /// Dispatches can run under a predicate on the device.
    pub conditional_rendering: bool,
    /// The driver looks for paths through a loop without remembering where it was, and builds a kernel in a time that grows faster than
    /// the kernel: SwiftShader.
    pub exponential_loops: bool,
    /// Which types cooperative matrices have.
    pub matrices: MatrixTypes,
    /// Multiprocessors, which run workgroups side by side: streaming multiprocessors or compute units.
    pub multiprocessors: u64,
    /// The most workgroups along each axis of a dispatch.
    pub max_groups: [u32; 3],
    /// The most bytes of push constants.
    pub max_push_constants: u32,
    /// Bytes of memory that the invocations of a workgroup share.
    pub max_shared: u32,
    /// The most invocations of a workgroup.
    pub max_threads: u32,
    /// Invocations of a subgroup, 0 where those cannot exchange values.
    pub subgroup: u32,
    /// Vector registers of the host's CPU and the bytes of each, for a device that is that CPU.
    pub vector_registers: [u64; 2],
    /// The most bytes of a storage buffer's binding.
    pub max_storage_range: u64,
    /// Bytes that the offset of a storage buffer's binding is a multiple of.
    pub storage_alignment: u64,
    /// Size in bytes of the largest device-local heap.
    pub heap: u64,
}

/// What a device does not report and kernels find out, less what is turned off.
pub struct ProbedFeatures {
    /// Whether `fma` rounds once.
    pub fma: bool,
    /// Whether doubles are fast.
    pub fast_float64: bool,
    /// Whether comparisons tell subnormals from zeros.
    pub compares_subnormals: bool,
    /// Whether doubles keep subnormals.
    pub subnormal_doubles: bool,
}

/// Multiprocessors of a device that has no extension to tell their number.
const DEFAULT_MULTIPROCESSORS: u64 = 32;

/// The features that `NX_VULKAN_DISABLE` turns off as if the device lacked them: what the backend does then can be tested. Without `cpu`
/// a CPU device gets the kernels of GPUs.
#[derive(Clone)]
pub struct DisabledFeatures(Vec<String>);

impl DisabledFeatures {
    const NAMES: [&str; 16] = [
        "float64",
        "fast_float64",
        "int64",
        "int8",
        "int16",
        "float16",
        "denorm_preserve",
        "compares_subnormals",
        "subnormal_doubles",
        "fma",
        "push_descriptor",
        "conditional_rendering",
        "subgroup",
        "cooperative_matrix",
        "cooperative_matrix2",
        "cpu",
    ];

    /// Reads the variable; fails for a name that is none of the features'.
    pub fn from_env() -> Result<Self> {
        let text = std::env::var("NX_VULKAN_DISABLE").unwrap_or_default();
        Self::parse(&text)
            .map_err(|name| Error::NoDevice(format!("NX_VULKAN_DISABLE={text}: {name} is none of {}", Self::names())))
    }

    /// The features' names in one line.
    pub fn names() -> String {
        Self::NAMES.join(", ")
    }

    /// The features of a list; fails with the first name that is none of theirs.
    pub fn parse(text: &str) -> Result<Self, String> {
        let names: Vec<String> =
            text.split(',').map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).collect();
        match names.iter().find(|name| !Self::NAMES.contains(&name.as_str())) {
            None => Ok(Self(names)),
            Some(name) => Err(name.clone()),
        }
    }

    /// These and those that are refused.
    pub fn and(mut self, findings: Option<&Findings>) -> Self {
        self.0.extend(findings.into_iter().flat_map(Findings::refused).map(|(name, _)| name.to_owned()));
        self
    }

    pub(super) fn matrices(&self, physical: &PhysicalDevice) -> MatrixTypes {
        let needed = ["cooperative_matrix", "float16", "int16"];
        if needed.iter().any(|name| self.has(name)) {
            return MatrixTypes::default();
        }
        let types = MatrixTypes::of(physical);
        MatrixTypes { operations: types.operations && !self.has("cooperative_matrix2"), ..types }
    }

    /// Whether a feature is turned off.
    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|disabled| disabled == name)
    }
}

impl Capabilities {
    /// Names of the features that the device has, as `Nx.Vulkan.device_info/0` tells them.
    pub fn feature_names(&self) -> Vec<&'static str> {
        [
            ("float64", self.float64),
            ("fast_float64", self.fast_float64),
            ("int64", self.int64),
            ("int8", self.int8),
            ("int16", self.int16),
            ("denorm_preserve", self.denorm_preserve),
            ("compares_subnormals", self.compares_subnormals),
            ("subnormal_doubles", self.subnormal_doubles),
            ("fma", self.fma),
            ("push_descriptor", self.push_descriptor),
            ("conditional_rendering", self.conditional_rendering),
            ("cooperative_matrix", self.matrices.float16),
            ("cooperative_matrix_bfloat16", self.matrices.bfloat16),
            ("cooperative_matrix2", self.matrices.operations),
        ]
        .into_iter()
        .filter_map(|(name, has)| has.then_some(name))
        .collect()
    }

    /// What the device has less what is turned off.
    pub fn of(physical: &PhysicalDevice, probed: &ProbedFeatures, disabled: &DisabledFeatures) -> Self {
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
        let multiprocessors = p.shader_sm_count.or(p.active_compute_unit_count).or(p.shader_core_count);
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
            cpu: p.device_type == PhysicalDeviceType::Cpu && !disabled.has("cpu"),
            float64: f.shader_float64 && !disabled.has("float64"),
            int64: f.shader_int64 && !disabled.has("int64"),
            int8: f.shader_int8 && f.storage_buffer8_bit_access && !disabled.has("int8"),
            int16: f.shader_int16 && f.storage_buffer16_bit_access && !disabled.has("int16"),
            denorm_preserve: p.shader_denorm_preserve_float32.unwrap_or(false) && !disabled.has("denorm_preserve"),
            denorm_preserve64: p.shader_denorm_preserve_float64.unwrap_or(false) && !disabled.has("denorm_preserve"),
            compares_subnormals: probed.compares_subnormals,
            subnormal_doubles: probed.subnormal_doubles && !disabled.has("float64"),
            round_to_even: p.shader_rounding_mode_rte_float32.unwrap_or(false),
            signed_zero_inf_nan: p.shader_signed_zero_inf_nan_preserve_float32.unwrap_or(false),
            signed_zero_inf_nan64: p.shader_signed_zero_inf_nan_preserve_float64.unwrap_or(false),
            fma: probed.fma,
            fast_float64: probed.fast_float64 && !disabled.has("float64"),
            push_descriptor: physical.supported_extensions().khr_push_descriptor && !disabled.has("push_descriptor"),
            conditional_rendering: f.conditional_rendering
                && physical.supported_extensions().ext_conditional_rendering
                && !disabled.has("conditional_rendering"),
            exponential_loops: p.driver_id == Some(DriverId::GoogleSwiftshader),
            matrices: disabled.matrices(physical),
            multiprocessors: multiprocessors.filter(|&count| count > 0).map_or(DEFAULT_MULTIPROCESSORS, u64::from),
            max_groups: p.max_compute_work_group_count,
            max_push_constants: p.max_push_constants_size,
            max_shared: p.max_compute_shared_memory_size,
            max_threads: p.max_compute_work_group_invocations,
            subgroup: p.subgroup_size.filter(|_| subgroups).unwrap_or(0),
            vector_registers: vector_registers(),
            max_storage_range: p.max_storage_buffer_range as u64,
            storage_alignment: p.min_storage_buffer_offset_alignment.as_devicesize(),
            heap,
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn vector_registers() -> [u64; 2] {
    if std::arch::is_x86_feature_detected!("avx512vl") { [32, 64] } else { [16, 32] }
}

#[cfg(not(target_arch = "x86_64"))]
fn vector_registers() -> [u64; 2] {
    [32, 16]
}

/// An integer feature that decides how elements are laid out in memory.
#[derive(Clone, Copy)]
pub enum IntegerFeature {
    /// Without it each 8-bit element has a 32-bit word of its own: invocations never write parts of one word.
    Int8 = 1,
    /// Without it each 16-bit element has a 32-bit word of its own.
    Int16 = 2,
    /// Without it kernels hold 64-bit integers in structures of two words, which `shaders/lib/int64.glsl` has the operations for.
    Int64 = 4,
}

/// The integer features that the process's devices lack, as bits: a type's layout is the same for all tensors.
static LACKING: OnceCell<u8> = OnceCell::new();

/// Whether the process's devices lack a feature.
pub fn lacks(feature: IntegerFeature) -> bool {
    LACKING.get().is_some_and(|lacking| lacking & feature as u8 != 0)
}

impl Capabilities {
    /// Fixes the layout of elements for the process, when its first device is made. Fails for a later one of another layout.
    pub fn fix_layout(&self) -> Result<()> {
        use IntegerFeature::{Int8, Int16, Int64};
        let features = [(self.int8, Int8), (self.int16, Int16), (self.int64, Int64)];
        let lacking = features.iter().filter(|(has, _)| !has).fold(0, |bits, &(_, feature)| bits | feature as u8);
        if *LACKING.get_or_init(|| lacking) == lacking {
            return Ok(());
        }
        Err(Error::NoDevice(format!(
            "{} and the device that was opened before it differ in the integers of 8, 16 or 64 bits that they have, and tensors \
             have one layout in a process: NX_VULKAN_DISABLE turns off what one lacks",
            self.name
        )))
    }
}
