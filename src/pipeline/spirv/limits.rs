//! What a device lets a kernel use: limits and capabilities, read from the opened device. Decides nothing about a module.

use std::collections::BTreeSet;

use ::spirv::{Capability, Op};
use vulkano::Version;
use vulkano::device::Device;
use vulkano::device::physical::SubgroupFeatures;

use super::structure::CAPABILITIES;

/// What a device lets a kernel use.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Most invocations of a workgroup along each axis.
    pub max_local_size: [u32; 3],
    /// Most invocations of a workgroup in all.
    pub max_invocations: u32,
    /// Most bytes of workgroup memory.
    pub max_shared_memory: u32,
    /// Highest SPIR-V version, major and minor.
    pub max_version: (u8, u8),
    /// The capabilities whose features are enabled.
    pub capabilities: BTreeSet<Capability>,
}

impl Limits {
    /// The limits of a device as it was opened: a feature that it has but that was not enabled counts as missing.
    pub fn of(device: &Device) -> Self {
        let properties = device.physical_device().properties();
        Self {
            max_local_size: properties.max_compute_work_group_size,
            max_invocations: properties.max_compute_work_group_invocations,
            max_shared_memory: properties.max_compute_shared_memory_size,
            max_version: match device.api_version() {
                version if version >= Version::V1_3 => (1, 6),
                version if version >= Version::V1_2 => (1, 5),
                version if version >= Version::V1_1 => (1, 3),
                _ => (1, 0),
            },
            capabilities: CAPABILITIES.iter().copied().filter(|capability| enabled(device, *capability)).collect(),
        }
    }
}

/// A capability that a built-in kernel's module declares and whose feature is not enabled, if there is one.
pub fn missing_capability(device: &Device, words: &[u32]) -> Option<Capability> {
    let mut rest = words.get(5..)?;
    // Capabilities come first.
    while let [first, capability, ..] = *rest {
        let (count, opcode) = (first >> 16, first & 0xffff);
        if opcode != Op::Capability as u32 || count != 2 {
            return None;
        }
        let known = Capability::from_u32(capability);
        if let Some(missing) = known.filter(|&c| c != Capability::PhysicalStorageBufferAddresses && !enabled(device, c))
        {
            return Some(missing);
        }
        rest = &rest[2..];
    }
    None
}

/// Whether what a capability needs is enabled on a device.
fn enabled(device: &Device, capability: Capability) -> bool {
    use Capability as C;
    let (f, p) = (device.enabled_features(), device.physical_device().properties());
    let subgroup = |operation| p.subgroup_supported_operations.unwrap_or_default().intersects(operation);
    let any = |widths: [Option<bool>; 3]| widths.contains(&Some(true));
    match capability {
        C::Matrix | C::Shader => true,
        C::Float16 => f.shader_float16,
        C::Float64 => f.shader_float64,
        C::Int8 => f.shader_int8,
        C::Int16 => f.shader_int16,
        C::Int64 => f.shader_int64,
        C::Int64Atomics => f.shader_buffer_int64_atomics && f.shader_shared_int64_atomics,
        C::StorageBuffer8BitAccess => f.storage_buffer8_bit_access,
        C::UniformAndStorageBuffer8BitAccess => f.uniform_and_storage_buffer8_bit_access,
        C::StoragePushConstant8 => f.storage_push_constant8,
        C::StorageBuffer16BitAccess => f.storage_buffer16_bit_access,
        C::UniformAndStorageBuffer16BitAccess => f.uniform_and_storage_buffer16_bit_access,
        C::StoragePushConstant16 => f.storage_push_constant16,
        C::AtomicFloat32AddEXT => f.shader_buffer_float32_atomic_add && f.shader_shared_float32_atomic_add,
        C::AtomicFloat64AddEXT => f.shader_buffer_float64_atomic_add && f.shader_shared_float64_atomic_add,
        C::AtomicFloat16AddEXT => f.shader_buffer_float16_atomic_add && f.shader_shared_float16_atomic_add,
        C::AtomicFloat32MinMaxEXT => f.shader_buffer_float32_atomic_min_max && f.shader_shared_float32_atomic_min_max,
        C::AtomicFloat64MinMaxEXT => f.shader_buffer_float64_atomic_min_max && f.shader_shared_float64_atomic_min_max,
        C::AtomicFloat16MinMaxEXT => f.shader_buffer_float16_atomic_min_max && f.shader_shared_float16_atomic_min_max,
        C::GroupNonUniform => subgroup(SubgroupFeatures::BASIC),
        C::GroupNonUniformVote => subgroup(SubgroupFeatures::VOTE),
        C::GroupNonUniformArithmetic => subgroup(SubgroupFeatures::ARITHMETIC),
        C::GroupNonUniformBallot => subgroup(SubgroupFeatures::BALLOT),
        C::GroupNonUniformShuffle => subgroup(SubgroupFeatures::SHUFFLE),
        C::GroupNonUniformShuffleRelative => subgroup(SubgroupFeatures::SHUFFLE_RELATIVE),
        C::GroupNonUniformClustered => subgroup(SubgroupFeatures::CLUSTERED),
        C::GroupNonUniformQuad => subgroup(SubgroupFeatures::QUAD),
        C::DotProduct | C::DotProductInputAll | C::DotProductInput4x8Bit | C::DotProductInput4x8BitPacked => {
            f.shader_integer_dot_product
        }
        C::CooperativeMatrixKHR => f.cooperative_matrix,
        // vulkano does not know these features. Where the device lacks them, no kernel asks for them.
        C::BFloat16TypeKHR
        | C::BFloat16CooperativeMatrixKHR
        | C::CooperativeMatrixReductionsNV
        | C::CooperativeMatrixConversionsNV
        | C::CooperativeMatrixPerElementOperationsNV => f.cooperative_matrix,
        C::VulkanMemoryModel => f.vulkan_memory_model,
        C::VulkanMemoryModelDeviceScope => f.vulkan_memory_model_device_scope,
        C::DenormPreserve => {
            any([p.shader_denorm_preserve_float16, p.shader_denorm_preserve_float32, p.shader_denorm_preserve_float64])
        }
        C::DenormFlushToZero => any([
            p.shader_denorm_flush_to_zero_float16,
            p.shader_denorm_flush_to_zero_float32,
            p.shader_denorm_flush_to_zero_float64,
        ]),
        C::SignedZeroInfNanPreserve => any([
            p.shader_signed_zero_inf_nan_preserve_float16,
            p.shader_signed_zero_inf_nan_preserve_float32,
            p.shader_signed_zero_inf_nan_preserve_float64,
        ]),
        C::RoundingModeRTE => any([
            p.shader_rounding_mode_rte_float16,
            p.shader_rounding_mode_rte_float32,
            p.shader_rounding_mode_rte_float64,
        ]),
        C::RoundingModeRTZ => any([
            p.shader_rounding_mode_rtz_float16,
            p.shader_rounding_mode_rtz_float32,
            p.shader_rounding_mode_rtz_float64,
        ]),
        _ => false,
    }
}
