//! One compute pipeline from valid SPIR-V, by raw handles. Owns these handles and their layout; checks of the module and
//! caches are its callers'.

use std::ffi::CString;
use std::sync::Arc;

use ash::vk;
use once_cell::sync::OnceCell;
use vulkano::VulkanObject;
use vulkano::device::Device;
use vulkano::pipeline::cache::{PipelineCache, PipelineCacheCreateInfo};

use crate::device::fault;
use crate::error::{Error, Result};
use crate::memory::KernelBuild;

/// How a pipeline is made from its module.
pub struct PipelineCreateInfo<'a> {
    /// What profiles call it.
    pub name: &'a str,
    /// Bytes of push constants.
    pub push_bytes: u32,
    /// Storage buffers in set 0, at bindings 0 and up, given with each dispatch.
    pub bindings: u32,
    /// The name of the module's entry point.
    pub entry_point: &'a str,
}

/// A compute pipeline with its layout, which the driver may still be building. Made of raw handles: vulkano's own parser of
/// SPIR-V panics on modules that a validator accepts.
pub struct Pipeline {
    device: Arc<Device>,
    name: Arc<str>,
    /// Empty while the driver builds.
    handle: OnceCell<Result<vk::Pipeline>>,
    build: Arc<KernelBuild>,
    layout: vk::PipelineLayout,
    set_layout: vk::DescriptorSetLayout,
}

impl Pipeline {
    /// The Vulkan pipeline, which lives no longer than this value. Waits while the driver builds.
    pub fn handle(&self) -> Result<vk::Pipeline> {
        self.handle.wait().clone()
    }

    /// Whether [`Pipeline::handle`] would not wait.
    pub fn is_built(&self) -> bool {
        self.handle.get().is_some()
    }

    /// Whether the driver has built it, for what depends on that.
    pub fn build(&self) -> &Arc<KernelBuild> {
        &self.build
    }

    /// What profiles call it.
    pub fn name(&self) -> &Arc<str> {
        &self.name
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
    pub fn build_now(
        device: &Arc<Device>,
        words: &[u32],
        create_info: &PipelineCreateInfo,
        driver_data: &[u8],
    ) -> Result<(Self, Vec<u8>)> {
        let pipeline = Self::unbuilt(device, create_info)?;
        let mut new_data = vec![];
        pipeline.finish(words, create_info.entry_point, driver_data, |data| new_data = data);
        pipeline.handle()?;
        Ok((pipeline, new_data))
    }

    /// A pipeline that has its layout alone. Until [`Pipeline::finish`] or [`Pipeline::fail`] is called, asking for its handle waits.
    pub fn unbuilt(device: &Arc<Device>, create_info: &PipelineCreateInfo) -> Result<Self> {
        // Owns the handles made so far, so that an early return destroys them.
        let mut pipeline = Self {
            device: device.clone(),
            name: create_info.name.into(),
            handle: OnceCell::new(),
            build: Arc::default(),
            layout: vk::PipelineLayout::null(),
            set_layout: vk::DescriptorSetLayout::null(),
        };
        pipeline.make_layout(create_info)?;
        Ok(pipeline)
    }

    /// Has the driver build the pipeline, from the arguments of [`Pipeline::build_now`]. `keep` gets the driver's data for doing so faster next
    /// time, before anyone gets the handle.
    pub fn finish(&self, words: &[u32], entry_point: &str, driver_data: &[u8], keep: impl FnOnce(Vec<u8>)) {
        let built = self.make(words, entry_point, driver_data).map(|(handle, data)| {
            keep(data);
            handle
        });
        self.settle(built);
    }

    /// Has the pipeline be one that could not be built, unless it is finished.
    pub fn fail(&self, error: Error) {
        if !self.is_built() {
            self.settle(Err(error));
        }
    }

    fn settle(&self, built: Result<vk::Pipeline>) {
        let built = built.map_err(|error| match error {
            Error::OutOfMemory(what) => Error::OutOfMemory(format!("the kernel {}: {what}", self.name)),
            other => Error::DispatchFailed(format!("the kernel {}: {other}", self.name)),
        });
        // Those who wait for the handle ask for the build's outcome next.
        self.build.end(built.as_ref().err().cloned());
        let _ = self.handle.set(built);
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
        if create_info.bindings > 0 {
            fault::point(&self.device, "vkCreateDescriptorSetLayout")
                .map_err(|e| Error::vulkan("descriptor set layout", e))?;
        }
        fault::point(&self.device, "vkCreatePipelineLayout").map_err(|e| Error::vulkan("pipeline layout", e))?;
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

    fn make(&self, words: &[u32], entry_point: &str, driver_data: &[u8]) -> Result<(vk::Pipeline, Vec<u8>)> {
        let cache_info = PipelineCacheCreateInfo { initial_data: driver_data.to_vec(), ..Default::default() };
        fault::point(&self.device, "vkCreatePipelineCache").map_err(|e| Error::vulkan("pipeline cache", e))?;
        fault::point(&self.device, "vkCreateShaderModule").map_err(|e| Error::vulkan("shader module", e))?;
        // SAFETY: the data is empty or was read from a file with a checksum that the same device and driver wrote.
        let cache = unsafe { PipelineCache::new(self.device.clone(), cache_info) }
            .map_err(|e| Error::DispatchFailed(format!("pipeline cache: {e:?}")))?;
        let (fns, device) = (self.device.fns(), self.device.handle());
        let name = CString::new(entry_point)
            .map_err(|_| Error::DispatchFailed("an entry point's name holds a zero byte".into()))?;
        let module_info = vk::ShaderModuleCreateInfo::default().code(words);
        let (mut module, mut pipeline) = (vk::ShaderModule::null(), vk::Pipeline::null());
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
            let create = fns.v1_0.create_compute_pipelines;
            let mut build = || create(device, cache.handle(), 1, &info, std::ptr::null(), &mut pipeline).result();
            let result = fault::point(&self.device, "vkCreateComputePipelines").and_then(|()| build());
            (fns.v1_0.destroy_shader_module)(device, module, std::ptr::null());
            result
        };
        result.map_err(|e| Error::vulkan("compute pipeline", e))?;
        self.set_name(pipeline);
        Ok((pipeline, cache.get_data().unwrap_or_default()))
    }
}

impl Pipeline {
    /// Gives the pipeline the kernel's name in debuggers and profilers.
    fn set_name(&self, pipeline: vk::Pipeline) {
        if !self.device.instance().enabled_extensions().ext_debug_utils {
            return;
        }
        let Ok(name) = CString::new(&*self.name) else { return };
        let info = vk::DebugUtilsObjectNameInfoEXT::default().object_handle(pipeline).object_name(&name);
        let set = self.device.fns().ext_debug_utils.set_debug_utils_object_name_ext;
        // SAFETY: the extension is enabled; the pipeline is alive and no other thread has its handle; the name lives over the call. A
        // failure costs the name alone.
        let _ = unsafe { set(self.device.handle(), &info) };
    }
}

impl Drop for Pipeline {
    fn drop(&mut self) {
        let (fns, device) = (self.device.fns(), self.device.handle());
        let pipeline = self.handle.get().and_then(|built| built.as_ref().ok()).copied().unwrap_or_default();
        // SAFETY: the handles were made by this value or are null; the stream keeps a pipeline until its last dispatch has run.
        unsafe {
            (fns.v1_0.destroy_pipeline)(device, pipeline, std::ptr::null());
            (fns.v1_0.destroy_pipeline_layout)(device, self.layout, std::ptr::null());
            (fns.v1_0.destroy_descriptor_set_layout)(device, self.set_layout, std::ptr::null());
        }
    }
}
