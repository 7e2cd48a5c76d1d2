//! Cooperative matrices: what the device has of them, and the device made with what vulkano does not know of them yet: bfloat16, and
//! operations on their elements and rows.

use std::ffi::{CStr, c_char};
use std::sync::Arc;

use ash::vk;
use vulkano::device::physical::PhysicalDevice;
use vulkano::device::{Device, DeviceCreateInfo, DeviceExtensions, DeviceFeatures};
use vulkano::{Version, VulkanObject};

use super::Queues;
use crate::error::{Error, Result};

const BFLOAT16_EXTENSION: &CStr = c"VK_KHR_shader_bfloat16";
/// `VK_COMPONENT_TYPE_BFLOAT16_KHR` and `VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_BFLOAT16_FEATURES_KHR`.
const BFLOAT16_TYPE: i32 = 1_000_141_000;

/// `VkPhysicalDeviceShaderBfloat16FeaturesKHR`.
#[repr(C)]
struct Bfloat16Features {
    s_type: vk::StructureType,
    p_next: *mut std::ffi::c_void,
    ty: vk::Bool32,
    dot_product: vk::Bool32,
    cooperative_matrix: vk::Bool32,
}

impl Bfloat16Features {
    fn new() -> Self {
        let s_type = vk::StructureType::from_raw(BFLOAT16_TYPE);
        Self { s_type, p_next: std::ptr::null_mut(), ty: 0, dot_product: 0, cooperative_matrix: 0 }
    }
}

const OPERATIONS_EXTENSION: &CStr = c"VK_NV_cooperative_matrix2";
/// `VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_2_FEATURES_NV`.
const OPERATIONS_TYPE: i32 = 1_000_593_000;

/// `VkPhysicalDeviceCooperativeMatrix2FeaturesNV`.
#[repr(C)]
struct OperationsFeatures {
    s_type: vk::StructureType,
    p_next: *mut std::ffi::c_void,
    workgroup_scope: vk::Bool32,
    flexible_dimensions: vk::Bool32,
    reductions: vk::Bool32,
    conversions: vk::Bool32,
    per_element_operations: vk::Bool32,
    tensor_addressing: vk::Bool32,
    block_loads: vk::Bool32,
}

impl OperationsFeatures {
    /// With those that kernels use as they are given.
    fn new(used: vk::Bool32) -> Self {
        Self {
            s_type: vk::StructureType::from_raw(OPERATIONS_TYPE),
            p_next: std::ptr::null_mut(),
            workgroup_scope: 0,
            flexible_dimensions: 0,
            reductions: used,
            conversions: used,
            per_element_operations: used,
            tensor_addressing: 0,
            block_loads: 0,
        }
    }
}

/// Which types a subgroup can multiply as matrices of 16×16 with sums in f32.
#[derive(Clone, Copy, Debug, Default)]
pub struct MatrixTypes {
    /// f16.
    pub float16: bool,
    /// bf16.
    pub bfloat16: bool,
    /// Whether sums can be reduced along their rows, changed element by element and converted to factors, by SPIR-V 1.6.
    pub operations: bool,
}

impl MatrixTypes {
    /// What the device has.
    pub fn of(physical: &PhysicalDevice) -> Self {
        let (features, extensions) = (physical.supported_features(), physical.supported_extensions());
        let properties = physical.properties();
        // Kernels count on the number of subgroups.
        let fixed = properties.min_subgroup_size.is_some()
            && properties.min_subgroup_size == properties.max_subgroup_size
            && properties.subgroup_size == properties.max_subgroup_size;
        if !(extensions.khr_cooperative_matrix
            && features.cooperative_matrix
            && features.vulkan_memory_model_device_scope
            && fixed)
        {
            return Self::default();
        }
        let has = |ty: vk::ComponentTypeKHR| {
            shapes(physical).iter().any(|shape| {
                [shape.m_size, shape.n_size, shape.k_size] == [16; 3]
                    && [shape.a_type, shape.b_type] == [ty; 2]
                    && [shape.c_type, shape.result_type] == [vk::ComponentTypeKHR::FLOAT32; 2]
                    && shape.scope == vk::ScopeKHR::SUBGROUP
            })
        };
        let float16 = features.shader_float16 && has(vk::ComponentTypeKHR::FLOAT16);
        let bfloat16 =
            features.shader_float16 && has_bfloat16(physical) && has(vk::ComponentTypeKHR::from_raw(BFLOAT16_TYPE));
        Self { float16, bfloat16, operations: (float16 || bfloat16) && has_operations(physical) }
    }
}

fn shapes(physical: &PhysicalDevice) -> Vec<vk::CooperativeMatrixPropertiesKHR<'static>> {
    let query = physical.instance().fns().khr_cooperative_matrix.get_physical_device_cooperative_matrix_properties_khr;
    let mut count = 0;
    // SAFETY: the device is alive and has the extension; a null pointer asks for the count.
    let _ = unsafe { query(physical.handle(), &mut count, std::ptr::null_mut()) };
    let mut shapes = vec![vk::CooperativeMatrixPropertiesKHR::default(); count as usize];
    // SAFETY: there is room for `count` shapes, and the driver writes no more.
    let _ = unsafe { query(physical.handle(), &mut count, shapes.as_mut_ptr()) };
    shapes.truncate(count as usize);
    shapes
}

fn has_bfloat16(physical: &PhysicalDevice) -> bool {
    let mut bfloat16 = Bfloat16Features::new();
    // SAFETY: the structure is the extension's.
    let has = unsafe { has_features(physical, BFLOAT16_EXTENSION, (&raw mut bfloat16).cast()) };
    has && bfloat16.ty != 0 && bfloat16.cooperative_matrix != 0
}

fn has_operations(physical: &PhysicalDevice) -> bool {
    let mut operations = OperationsFeatures::new(0);
    // SAFETY: the structure is the extension's.
    let has = unsafe { has_features(physical, OPERATIONS_EXTENSION, (&raw mut operations).cast()) };
    let used = [operations.reductions, operations.conversions, operations.per_element_operations];
    has && physical.api_version() >= Version::V1_3 && used.iter().all(|&feature| feature != 0)
}

/// Whether the device has an extension, whose structure of features is filled in then.
///
/// # Safety
///
/// `chain` points to the extension's structure of features, with its type and no next one.
unsafe fn has_features(physical: &PhysicalDevice, extension: &CStr, chain: *mut std::ffi::c_void) -> bool {
    let fns = physical.instance().fns();
    let enumerate = fns.v1_0.enumerate_device_extension_properties;
    let mut count = 0;
    // SAFETY: the device is alive; a null pointer asks for the count.
    let _ = unsafe { enumerate(physical.handle(), std::ptr::null(), &mut count, std::ptr::null_mut()) };
    let mut list = vec![vk::ExtensionProperties::default(); count as usize];
    // SAFETY: there is room for `count` extensions, and the driver writes no more.
    let _ = unsafe { enumerate(physical.handle(), std::ptr::null(), &mut count, list.as_mut_ptr()) };
    if !list.iter().any(|listed| listed.extension_name_as_c_str() == Ok(extension)) {
        return false;
    }
    let mut features = vk::PhysicalDeviceFeatures2 { p_next: chain, ..Default::default() };
    // SAFETY: the device has the extension, whose structure is chained with its type.
    unsafe { (fns.v1_1.get_physical_device_features2)(physical.handle(), &mut features) };
    true
}

/// As `Device::new` for these features, extensions and queues, and with what vulkano does not know of these matrices.
pub fn open_with(
    physical: &Arc<PhysicalDevice>,
    create_info: DeviceCreateInfo,
    types: MatrixTypes,
) -> Result<(Arc<Device>, Queues)> {
    let DeviceFeatures {
        timeline_semaphore,
        buffer_device_address,
        scalar_block_layout,
        robust_buffer_access,
        shader_float64,
        shader_int64,
        shader_int8,
        shader_int16,
        storage_buffer8_bit_access,
        storage_buffer16_bit_access,
        shader_float16,
        variable_pointers_storage_buffer,
        vulkan_memory_model,
        vulkan_memory_model_device_scope,
        cooperative_matrix,
        conditional_rendering,
        device_fault,
        ..
    } = create_info.enabled_features;
    let mut bfloat16 = Bfloat16Features { ty: 1, cooperative_matrix: 1, ..Bfloat16Features::new() };
    let mut operations = OperationsFeatures::new(1);
    let mut matrices = vk::PhysicalDeviceCooperativeMatrixFeaturesKHR::default().cooperative_matrix(cooperative_matrix);
    let mut conditional =
        vk::PhysicalDeviceConditionalRenderingFeaturesEXT::default().conditional_rendering(conditional_rendering);
    let mut fault = vk::PhysicalDeviceFaultFeaturesEXT::default().device_fault(device_fault);
    let mut v11 = vk::PhysicalDeviceVulkan11Features::default()
        .storage_buffer16_bit_access(storage_buffer16_bit_access)
        .variable_pointers_storage_buffer(variable_pointers_storage_buffer);
    let mut v12 = vk::PhysicalDeviceVulkan12Features::default()
        .timeline_semaphore(timeline_semaphore)
        .buffer_device_address(buffer_device_address)
        .scalar_block_layout(scalar_block_layout)
        .shader_int8(shader_int8)
        .storage_buffer8_bit_access(storage_buffer8_bit_access)
        .shader_float16(shader_float16)
        .vulkan_memory_model(vulkan_memory_model)
        .vulkan_memory_model_device_scope(vulkan_memory_model_device_scope);
    let mut features = vk::PhysicalDeviceFeatures2::default()
        .features(
            vk::PhysicalDeviceFeatures::default()
                .robust_buffer_access(robust_buffer_access)
                .shader_float64(shader_float64)
                .shader_int64(shader_int64)
                .shader_int16(shader_int16),
        )
        .push_next(&mut matrices)
        .push_next(&mut v11)
        .push_next(&mut v12);
    let extensions = &create_info.enabled_extensions;
    // Without the extensions their structures may not be in the chain.
    if extensions.ext_conditional_rendering {
        features = features.push_next(&mut conditional);
    }
    if extensions.ext_device_fault {
        features = features.push_next(&mut fault);
    }
    let names = extension_names(extensions, types);
    let queues: Vec<_> = create_info
        .queue_create_infos
        .iter()
        .map(|queue| {
            vk::DeviceQueueCreateInfo::default()
                .queue_family_index(queue.queue_family_index)
                .queue_priorities(&queue.queues)
        })
        .collect();
    // ash does not know these structures, so they go before the chain.
    let mut chain: *mut std::ffi::c_void = (&raw mut features).cast();
    if types.bfloat16 {
        bfloat16.p_next = chain;
        chain = (&raw mut bfloat16).cast();
    }
    if types.operations {
        operations.p_next = chain;
        chain = (&raw mut operations).cast();
    }
    let mut info = vk::DeviceCreateInfo::default().queue_create_infos(&queues).enabled_extension_names(&names);
    info.p_next = chain;
    // SAFETY: all structures live over the call; the device has the features and extensions that are asked for, and `create_info` names them.
    unsafe { create(physical, &info, create_info.clone()) }
}

/// The names of the extensions, with those that vulkano does not know.
fn extension_names(extensions: &DeviceExtensions, types: MatrixTypes) -> Vec<*const c_char> {
    [
        (extensions.khr_push_descriptor, ash::khr::push_descriptor::NAME),
        (extensions.khr_cooperative_matrix, ash::khr::cooperative_matrix::NAME),
        (extensions.ext_conditional_rendering, ash::ext::conditional_rendering::NAME),
        (extensions.ext_device_fault, ash::ext::device_fault::NAME),
        (types.bfloat16, BFLOAT16_EXTENSION),
        (types.operations, OPERATIONS_EXTENSION),
    ]
    .into_iter()
    .filter_map(|(has, name)| has.then_some(name.as_ptr()))
    .collect()
}

/// Makes a device by Vulkan's own structure.
///
/// # Safety
///
/// The structure is valid, the device has what it asks for, and `create_info` says the same.
unsafe fn create(
    physical: &Arc<PhysicalDevice>,
    info: &vk::DeviceCreateInfo,
    create_info: DeviceCreateInfo,
) -> Result<(Arc<Device>, Queues)> {
    let mut handle = vk::Device::null();
    // SAFETY: as the caller promises.
    unsafe { (physical.instance().fns().v1_0.create_device)(physical.handle(), info, std::ptr::null(), &mut handle) }
        .result()
        .map_err(|e| Error::NoDevice(format!("no Vulkan device: {e:?}")))?;
    // SAFETY: the device was made from `physical` with what `create_info` says.
    let (device, queues) = unsafe { Device::from_handle(physical.clone(), handle, create_info) };
    Ok((device, Queues::of(queues)?))
}
