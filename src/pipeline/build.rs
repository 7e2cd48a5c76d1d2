//! One compute pipeline from valid SPIR-V, by raw handles. Owns these handles and their layout; checks of the module and
//! caches are its callers'.

use std::ffi::CString;
use std::sync::Arc;

use ash::vk;
use vulkano::VulkanObject;
use vulkano::device::Device;
use vulkano::pipeline::cache::{PipelineCache, PipelineCacheCreateInfo};

use crate::error::{Error, Result};

/// How a pipeline is made from its module.
pub struct PipelineCreateInfo<'a> {
    /// Bytes of push constants.
    pub push_bytes: u32,
    /// Storage buffers in set 0, at bindings 0 and up, given with each dispatch.
    pub bindings: u32,
    /// The name of the module's entry point.
    pub entry_point: &'a str,
}

/// A compute pipeline with its layout. Made of raw handles: vulkano's own parser of SPIR-V panics on modules that a
/// validator accepts.
pub struct Pipeline {
    device: Arc<Device>,
    handle: vk::Pipeline,
    layout: vk::PipelineLayout,
    set_layout: vk::DescriptorSetLayout,
}

impl Pipeline {
    /// The Vulkan pipeline, which lives no longer than this value.
    pub fn handle(&self) -> vk::Pipeline {
        self.handle
    }

    /// The layout of its push constants and of descriptor set 0; it lives no longer than this value.
    pub fn layout(&self) -> vk::PipelineLayout {
        self.layout
    }

    /// The layout of descriptor set 0, null where there is none; it lives no longer than this value.
    pub fn set_layout(&self) -> vk::DescriptorSetLayout {
        self.set_layout
    }

    /// Builds a pipeline, and the driver's data for building it faster next time. `words` must be valid SPIR-V.
    pub fn build(
        device: &Arc<Device>,
        words: &[u32],
        create_info: &PipelineCreateInfo,
        driver_data: &[u8],
    ) -> Result<(Self, Vec<u8>)> {
        let cache_info = PipelineCacheCreateInfo { initial_data: driver_data.to_vec(), ..Default::default() };
        // SAFETY: the data is empty or was read from a file with a checksum that the same device and driver wrote.
        let cache = unsafe { PipelineCache::new(device.clone(), cache_info) }
            .map_err(|e| Error::DispatchFailed(format!("pipeline cache: {e:?}")))?;
        // Owns the handles made so far, so that an early return destroys them.
        let mut pipeline = Self {
            device: device.clone(),
            handle: vk::Pipeline::null(),
            layout: vk::PipelineLayout::null(),
            set_layout: vk::DescriptorSetLayout::null(),
        };
        pipeline.make_layout(create_info)?;
        pipeline.make(words, create_info, cache.handle())?;
        Ok((pipeline, cache.get_data().unwrap_or_default()))
    }

    fn make_layout(&mut self, create_info: &PipelineCreateInfo) -> Result<()> {
        let (fns, device) = (self.device.fns(), self.device.handle());
        let bindings: Vec<_> = (0..create_info.bindings)
            .map(|binding| {
                vk::DescriptorSetLayoutBinding::default()
                    .binding(binding)
                    .descriptor_type(vk::DescriptorType::STORAGE_BUFFER)
                    .descriptor_count(1)
                    .stage_flags(vk::ShaderStageFlags::COMPUTE)
            })
            .collect();
        let flags = match self.device.enabled_extensions().khr_push_descriptor {
            true => vk::DescriptorSetLayoutCreateFlags::PUSH_DESCRIPTOR_KHR,
            false => vk::DescriptorSetLayoutCreateFlags::empty(),
        };
        let set_info = vk::DescriptorSetLayoutCreateInfo::default().flags(flags).bindings(&bindings);
        let range =
            [vk::PushConstantRange::default().stage_flags(vk::ShaderStageFlags::COMPUTE).size(create_info.push_bytes)];
        let mut info = vk::PipelineLayoutCreateInfo::default();
        if create_info.push_bytes > 0 {
            info = info.push_constant_ranges(&range);
        }
        // SAFETY: the create infos and what they point at live over the calls; the device is alive.
        unsafe {
            if create_info.bindings > 0 {
                (fns.v1_0.create_descriptor_set_layout)(device, &set_info, std::ptr::null(), &mut self.set_layout)
                    .result()
                    .map_err(|e| Error::vulkan("descriptor set layout", e))?;
                info = info.set_layouts(std::slice::from_ref(&self.set_layout));
            }
            (fns.v1_0.create_pipeline_layout)(device, &info, std::ptr::null(), &mut self.layout)
                .result()
                .map_err(|e| Error::vulkan("pipeline layout", e))
        }
    }

    fn make(&mut self, words: &[u32], create_info: &PipelineCreateInfo, cache: vk::PipelineCache) -> Result<()> {
        let (fns, device) = (self.device.fns(), self.device.handle());
        let name = CString::new(create_info.entry_point)
            .map_err(|_| Error::DispatchFailed("an entry point's name holds a zero byte".into()))?;
        let module_info = vk::ShaderModuleCreateInfo::default().code(words);
        let mut module = vk::ShaderModule::null();
        // SAFETY: the SPIR-V is of our compiler or was validated; all pointers live over the calls; the module is destroyed once.
        let result = unsafe {
            (fns.v1_0.create_shader_module)(device, &module_info, std::ptr::null(), &mut module)
                .result()
                .map_err(|e| Error::vulkan("shader module", e))?;
            let stage = vk::PipelineShaderStageCreateInfo::default()
                .stage(vk::ShaderStageFlags::COMPUTE)
                .module(module)
                .name(&name);
            let info = vk::ComputePipelineCreateInfo::default().stage(stage).layout(self.layout);
            let result =
                (fns.v1_0.create_compute_pipelines)(device, cache, 1, &info, std::ptr::null(), &mut self.handle);
            (fns.v1_0.destroy_shader_module)(device, module, std::ptr::null());
            result
        };
        result.result().map_err(|e| Error::vulkan("compute pipeline", e))
    }
}

impl Drop for Pipeline {
    fn drop(&mut self) {
        let (fns, device) = (self.device.fns(), self.device.handle());
        // SAFETY: the handles were made by this value or are null; the stream keeps a pipeline until its last dispatch has run.
        unsafe {
            (fns.v1_0.destroy_pipeline)(device, self.handle, std::ptr::null());
            (fns.v1_0.destroy_pipeline_layout)(device, self.layout, std::ptr::null());
            (fns.v1_0.destroy_descriptor_set_layout)(device, self.set_layout, std::ptr::null());
        }
    }
}
