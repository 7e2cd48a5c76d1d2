//! The process's devices, each with all that belongs to it: memory pool, stream and pipelines, made once and fallibly. This module connects
//! the layers below it and moves data between host and device; it knows no kernels.

mod devices;
mod exit;
mod transfer;
mod tried;

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use once_cell::sync::OnceCell;
use vulkano::device::{Device, Queue};

use crate::device::{self, Capabilities, Clock, DisabledFeatures, Findings, Probed, ProbedFeatures};
use crate::error::{Attempt, Error, Result, Unfinished};
use crate::memory::{AllocationHandle, Blocking, MemoryKind, Pool};
use crate::pipeline::{DiskCache, Pipelines, glsl};
use crate::stream::Stream;
pub use devices::{Devices, devices, gpu, gpu_at, gpu_if_ready, losses, reset};
pub use exit::wait_until_idle;
pub use transfer::{PendingRead, Readback};
use tried::{Opened, SmallestKernel};

/// The objects that a device has one of.
pub struct Gpu {
    /// The device's index in the process.
    pub index: usize,
    /// The logical device.
    pub device: Arc<Device>,
    /// What the device can do.
    pub caps: Capabilities,
    /// The memory that tensors live in.
    pub pool: Pool,
    /// The order of all work.
    pub stream: Stream,
    /// All kernels that were built.
    pub pipelines: Pipelines,
    /// The hold on the device's clock.
    pub clock: Clock,
    /// What the probe process found of the device; empty where there was none.
    pub findings: Findings,
    /// Whether the last kernel over large tensors traversed them in reverse.
    pub reversed: AtomicBool,
    /// What a layer above keeps for the device.
    kept: OnceCell<Box<dyn Kept>>,
}

/// What a layer above keeps for a device.
pub trait Kept: Any + Send + Sync {
    /// Forgets all that holds the device's memory or pipelines, as the device was lost.
    fn clear(&self);
}

/// The device that is wanted as it is, without what is turned off: for the process that finds out what else has to be. `built` is called
/// once the driver has built the smallest kernel; `ask` is called as in [`Gpu::new`].
pub fn open_untried(wanted: &str, disabled: DisabledFeatures, built: impl FnOnce(), ask: Ask) -> Result<&'static Gpu> {
    let smallest = SmallestKernel::compile();
    let list = device::physical_devices(&device::instance()?)?;
    let physical = list[device::choose(&list, Some(wanted))?].clone();
    let (device, queues) = device::open(&physical, &disabled)?;
    if let Some(smallest) = smallest {
        smallest.build(&device)?;
        built();
    }
    let opened = Opened { physical, device, queues, disabled, findings: None };
    Ok(devices::keep(Gpu::new(opened, (0, 1), ask)?))
}

/// Answers whether the device has a feature that its driver does not report, by the feature's name or the kernel that finds it out.
type Ask<'a> = &'a dyn Fn(&str, &dyn Fn() -> bool) -> bool;

impl Gpu {
    /// `index` is that in the process, of as many devices with the same memory as `sharing` says.
    fn new(opened: Opened, (index, sharing): (usize, u64), ask: Ask) -> Result<Self> {
        let Opened { physical, device, queues, disabled, findings } = opened;
        // A kernel that fails finds nothing, which is only slower.
        let probe = |name, kernel: fn(&Arc<Queue>) -> Probed<bool>| {
            !disabled.has(name) && ask(name, &|| kernel(&queues.compute).unwrap_or(false))
        };
        let doubles = device.enabled_features().shader_float64;
        // NVIDIA's compiler, which keeps subnormals where a kernel asks for it, compares them wrongly in some other kernels. The
        // probe's kernel compares too little to show that: such a device is not asked.
        let keeps_unasked = !physical.properties().shader_denorm_preserve_float32.unwrap_or(false);
        let probed = ProbedFeatures {
            fma: probe("fma", device::fma_rounds_once),
            fast_float64: doubles && probe("fast_float64", device::doubles_are_fast),
            subnormal_doubles: doubles && probe("subnormal_doubles", device::keeps_subnormal_doubles),
            compares_subnormals: keeps_unasked && probe("compares_subnormals", device::compares_subnormals),
        };
        let mut caps = Capabilities::of(&physical, &probed, &disabled);
        caps.matrices.operations = caps.matrices.operations && glsl::has_matrix_operations();
        caps.fix_layout()?;
        let stream = Stream::new(device.clone(), queues, label(index, &caps.name), caps.cpu)?;
        Ok(Self {
            index,
            pool: Pool::new(
                device.clone(),
                stream.timeline(),
                stream.transfer_timeline(),
                memory_limit(&caps, sharing)?,
            ),
            stream,
            pipelines: Pipelines::new(device.clone(), DiskCache::new(&physical)?, caps.exponential_loops)?,
            clock: Clock::hold(&physical)?,
            device,
            caps,
            findings: findings.unwrap_or_default(),
            reversed: AtomicBool::new(false),
            kept: OnceCell::new(),
        })
    }

    /// The device that an allocation is on.
    pub fn of(allocation: &AllocationHandle) -> Result<&'static Self> {
        let owner = allocation.owner().and_then(|owner| owner.downcast_ref());
        owner.ok_or_else(|| Error::Invalid("memory of no device".into()))
    }

    /// The device's name with its index, for messages.
    pub fn label(&self) -> String {
        label(self.index, &self.caps.name)
    }

    /// Gives back what a lost device holds of memory and pipelines, once it runs nothing any more. The device's own object stays until the
    /// process ends: tensors refer to it, and say that they are lost.
    fn retire(&'static self) {
        // The wait may take as long as a kernel that loops. Without a thread the memory stays.
        let _ = std::thread::Builder::new().name("nx_vulkan retire".into()).spawn(move || {
            if self.stream.retire() {
                self.pipelines.clear();
                self.kept.get().inspect(|kept| kept.clear());
                self.pool.retire();
                // Lavapipe keeps a destroyed pipeline's code until its queue is used the next time.
                self.stream.wait_idle();
            }
        });
    }

    /// What a layer above keeps for the device. There is one such value.
    pub fn kept<T: Default + Kept>(&self) -> Result<&T> {
        let kept = self.kept.get_or_init(|| Box::new(T::default()));
        let kept: &dyn Any = &**kept;
        kept.downcast_ref().ok_or_else(|| Error::Invalid("another value is kept for the device".into()))
    }

    /// An allocation of at least `bytes` bytes, contents undefined. Where limit or device are exhausted, pending work is finished, free
    /// allocations are released and the allocation tried again before [`Error::OutOfMemory`].
    pub fn allocate(&self, kind: MemoryKind, bytes: u64, blocking: Blocking) -> Attempt<AllocationHandle> {
        self.allocate_by(blocking, || self.pool.allocate(kind, bytes, blocking))
    }

    /// As [`Gpu::allocate`], device memory that a transfer writes.
    pub fn allocate_for_transfer(&self, bytes: u64, blocking: Blocking) -> Attempt<AllocationHandle> {
        self.allocate_by(blocking, || self.pool.allocate_for_transfer(bytes, blocking))
    }

    fn allocate_by(
        &self,
        blocking: Blocking,
        allocate: impl Fn() -> Attempt<AllocationHandle>,
    ) -> Attempt<AllocationHandle> {
        match allocate() {
            Err(Unfinished::Failed(Error::OutOfMemory(_))) if blocking == Blocking::Allowed => {
                self.stream.finish()?;
                self.pool.trim();
                allocate()
            }
            other => other,
        }
    }
}

fn label(index: usize, name: &str) -> String {
    format!("device {index} ({name})")
}

/// `NX_VULKAN_MEMORY_LIMIT` in bytes. Unset, it is nine tenths of the device's memory, and half of a CPU device's, which is the machine's,
/// divided by the number of devices that share it.
fn memory_limit(caps: &Capabilities, sharing: u64) -> Result<u64> {
    match std::env::var("NX_VULKAN_MEMORY_LIMIT") {
        Ok(text) => text
            .trim()
            .parse()
            .map_err(|_| Error::NoDevice(format!("NX_VULKAN_MEMORY_LIMIT={text} is not a number of bytes"))),
        Err(_) if caps.cpu => Ok(caps.heap / 2 / sharing),
        Err(_) => Ok(caps.heap / 10 * 9 / sharing),
    }
}

#[cfg(test)]
mod loss_tests;
