//! How kernels get storage buffers: by pushed descriptors, or by descriptor sets where the device cannot push. Owns the pools of these
//! sets; it chooses neither buffers nor the order of commands.

use std::sync::Arc;

use ash::vk;
use vulkano::VulkanObject;
use vulkano::descriptor_set::layout::DescriptorType;
use vulkano::descriptor_set::pool::{DescriptorPool, DescriptorPoolCreateInfo};
use vulkano::device::Device;

use crate::device::fault;
use crate::error::{Error, Result};

/// Descriptor sets of a pool: the largest batch takes four pools.
const POOL_SETS: u32 = 32;
/// Storage buffers of a pool: eight for each set on average. One kernel has at most 32.
const POOL_BUFFERS: u32 = 256;

/// A pool of descriptor sets, and what is left in it.
pub(super) struct SetPool {
    pool: DescriptorPool,
    sets: u32,
    buffers: u32,
}

/// Binds storage buffers in command buffers. A pool serves one batch, and then the next one once that batch has run: there are never
/// more pools than the batches in flight need.
pub(super) struct Descriptors {
    device: Arc<Device>,
    free: Vec<SetPool>,
    /// The pools of the batch that is being encoded.
    used: Vec<SetPool>,
}

impl Descriptors {
    pub fn new(device: Arc<Device>) -> Self {
        Self { device, free: vec![], used: vec![] }
    }

    /// Binds storage buffers in set 0, from binding 0 up, for the dispatches that follow.
    ///
    /// # Safety
    ///
    /// `to` must be in the recording state. `layout` must begin with `set_layout`, and that must be of `buffers.len()` storage buffers.
    /// Layouts and buffers must be this device's and live until the command buffer has run.
    pub unsafe fn bind(
        &mut self,
        to: vk::CommandBuffer,
        layout: vk::PipelineLayout,
        set_layout: vk::DescriptorSetLayout,
        buffers: &[vk::DescriptorBufferInfo],
    ) -> Result<()> {
        let pushed = self.device.enabled_extensions().khr_push_descriptor;
        let set = if pushed { vk::DescriptorSet::null() } else { self.allocate(set_layout, buffers.len() as u32)? };
        let write = |(binding, buffer)| {
            vk::WriteDescriptorSet::default()
                .dst_set(set)
                .dst_binding(binding as u32)
                .descriptor_type(vk::DescriptorType::STORAGE_BUFFER)
                .buffer_info(std::slice::from_ref(buffer))
        };
        let writes: Vec<_> = buffers.iter().enumerate().map(write).collect();
        let (fns, count, none) = (self.device.fns(), writes.len() as u32, std::ptr::null());
        // SAFETY: as the caller promises; the set is new, and nothing else uses it; all pointers outlive the calls.
        unsafe {
            if pushed {
                let push = fns.khr_push_descriptor.cmd_push_descriptor_set_khr;
                push(to, vk::PipelineBindPoint::COMPUTE, layout, 0, count, writes.as_ptr());
            } else {
                (fns.v1_0.update_descriptor_sets)(self.device.handle(), count, writes.as_ptr(), 0, std::ptr::null());
                let bind = fns.v1_0.cmd_bind_descriptor_sets;
                bind(to, vk::PipelineBindPoint::COMPUTE, layout, 0, 1, &set, 0, none);
            }
        }
        Ok(())
    }

    /// The pools whose sets were bound since the last call: to be kept until the command buffer has run.
    pub fn take_used(&mut self) -> Vec<SetPool> {
        std::mem::take(&mut self.used)
    }

    /// Takes pools back.
    ///
    /// # Safety
    ///
    /// The command buffers that their sets were bound in must have run.
    pub unsafe fn recycle(&mut self, pools: Vec<SetPool>) {
        for mut entry in pools {
            // SAFETY: no set of the pool is in use. A pool that cannot be reset is dropped.
            if unsafe { entry.pool.reset() }.is_ok() {
                (entry.sets, entry.buffers) = (POOL_SETS, POOL_BUFFERS);
                self.free.push(entry);
            }
        }
    }

    /// A set of a layout of `buffers` storage buffers, from the last pool in use or from another one.
    fn allocate(&mut self, layout: vk::DescriptorSetLayout, buffers: u32) -> Result<vk::DescriptorSet> {
        if self.used.last().is_none_or(|pool| pool.sets == 0 || pool.buffers < buffers) {
            let next = self.free.pop().map_or_else(|| self.new_pool(), Ok)?;
            self.used.push(next);
        }
        let failed = |what| Error::OutOfMemory(format!("descriptor set: {what}"));
        let pool = self.used.last_mut().ok_or_else(|| failed("no pool".to_owned()))?;
        let info = vk::DescriptorSetAllocateInfo::default()
            .descriptor_pool(pool.pool.handle())
            .set_layouts(std::slice::from_ref(&layout));
        let mut set = vk::DescriptorSet::null();
        let fns = self.device.fns();
        // SAFETY: pool and layout are alive, and `&mut self` is the only way to the pool; there is room for one set.
        let mut allocate =
            || unsafe { (fns.v1_0.allocate_descriptor_sets)(self.device.handle(), &info, &mut set) }.result();
        fault::point(&self.device, "vkAllocateDescriptorSets")
            .and_then(|()| allocate())
            .map_err(|e| failed(e.to_string()))?;
        (pool.sets, pool.buffers) = (pool.sets - 1, pool.buffers.saturating_sub(buffers));
        Ok(set)
    }

    fn new_pool(&self) -> Result<SetPool> {
        let create_info = DescriptorPoolCreateInfo {
            max_sets: POOL_SETS,
            pool_sizes: [(DescriptorType::StorageBuffer, POOL_BUFFERS)].into_iter().collect(),
            ..Default::default()
        };
        fault::point(&self.device, "vkCreateDescriptorPool").map_err(|e| Error::vulkan("descriptor pool", e))?;
        let pool = DescriptorPool::new(self.device.clone(), create_info)
            .map_err(|e| Error::OutOfMemory(format!("descriptor pool: {e:?}")))?;
        Ok(SetPool { pool, sets: POOL_SETS, buffers: POOL_BUFFERS })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use vulkano::descriptor_set::layout::{
        DescriptorSetLayout, DescriptorSetLayoutBinding, DescriptorSetLayoutCreateInfo,
    };
    use vulkano::shader::ShaderStages;

    use super::*;
    use crate::device::{DisabledFeatures, choose, instance, open, physical_devices};

    #[test]
    fn pools_serve_again_once_their_batch_has_run() {
        let wanted = std::env::var("NX_VULKAN_DEVICE").ok();
        let list = physical_devices(&instance().unwrap()).unwrap();
        let physical = &list[choose(&list, wanted.as_deref()).unwrap()];
        let (device, _queue) = open(physical, &DisabledFeatures::from_env().unwrap()).unwrap();
        let mut descriptors = Descriptors::new(device.clone());
        let count = 2 * POOL_SETS;
        // Pools run out of sets, then of buffers.
        for (buffers, pools) in [(1, 2), (3, 2), (32, 8), (1, 2)] {
            let binding = DescriptorSetLayoutBinding {
                stages: ShaderStages::COMPUTE,
                ..DescriptorSetLayoutBinding::descriptor_type(DescriptorType::StorageBuffer)
            };
            let bindings = (0..buffers).map(|i| (i, binding.clone())).collect();
            let create_info = DescriptorSetLayoutCreateInfo { bindings, ..Default::default() };
            let layout = DescriptorSetLayout::new(device.clone(), create_info).unwrap();
            for _ in 0..50 {
                let sets: HashSet<_> =
                    (0..count).map(|_| descriptors.allocate(layout.handle(), buffers).unwrap()).collect();
                let used = descriptors.take_used();
                assert_eq!((sets.len(), used.len()), (count as usize, pools), "sets of {buffers}");
                // SAFETY: the sets were bound in no command buffer.
                unsafe { descriptors.recycle(used) };
                assert!(descriptors.free.len() <= 8, "{} pools", descriptors.free.len());
            }
        }
    }
}
