//! The process's device with all that belongs to it: memory pool, stream and pipelines, made once and fallibly. This module connects
//! the layers below it and moves data between host and device; it knows no kernels.

mod exit;
mod transfer;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use once_cell::sync::OnceCell;
use vulkano::device::{Device, Queue};

use crate::device::{self, Capabilities, Clock, DisabledFeatures, Listed};
use crate::error::{Attempt, Error, Result, Retry, Unfinished};
use crate::memory::{AllocationHandle, Blocking, MemoryKind, Pool};
use crate::pipeline::{DiskCache, Pipelines};
use crate::stream::Stream;
pub use exit::wait_until_idle;
pub use transfer::Readback;

/// The objects that a device has one of.
pub struct Gpu {
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
    /// All devices in the order in which they are preferred: the order of `NX_VULKAN_DEVICE`'s index.
    pub listed: Vec<Listed>,
    /// Whether the last kernel over large tensors traversed them in reverse.
    pub reversed: AtomicBool,
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

impl Gpu {
    fn new() -> Result<Self> {
        let wanted = std::env::var("NX_VULKAN_DEVICE").ok();
        let devices = device::physical_devices(&device::instance()?)?;
        let physical = device::choose(&devices, wanted.as_deref())?;
        let disabled = DisabledFeatures::from_env()?;
        let (device, queue) = device::open(&physical, &disabled)?;
        let disk = DiskCache::new(&physical)?;
        // A probe that fails answers no, which is only slower.
        let ask = |question, probe: fn(&Arc<Queue>) -> _| disk.remember(question, || probe(&queue)).unwrap_or(false);
        let fma = ask("whether fma rounds once", device::fma_rounds_once);
        let has_float64 = device.enabled_features().shader_float64;
        let fast_float64 = has_float64 && ask("whether doubles are fast", device::doubles_are_fast);
        let caps = Capabilities::of(&physical, [fma, fast_float64], &disabled);
        caps.fix_layout();
        let stream = Stream::new(device.clone(), queue)?;
        Ok(Self {
            pool: Pool::new(device.clone(), stream.timeline(), memory_limit(&caps)?),
            stream,
            pipelines: Pipelines::new(device.clone(), disk),
            clock: Clock::hold(&physical)?,
            device,
            caps,
            listed: device::listed(&devices),
            reversed: AtomicBool::new(false),
        })
    }

    /// An allocation of at least `bytes` bytes, contents undefined. Where limit or device are exhausted, pending work is finished, free
    /// allocations are released and the allocation tried again before [`Error::OutOfMemory`].
    pub fn allocate(&self, kind: MemoryKind, bytes: u64, blocking: Blocking) -> Attempt<AllocationHandle> {
        match self.pool.allocate(kind, bytes, blocking) {
            Err(Unfinished::Failed(Error::OutOfMemory(_))) if blocking == Blocking::Allowed => {
                self.stream.finish()?;
                self.pool.trim();
                self.pool.allocate(kind, bytes, blocking)
            }
            other => other,
        }
    }
}

/// `NX_VULKAN_MEMORY_LIMIT` in bytes. Unset, it is nine tenths of the device's memory, and half of a CPU device's, which is the machine's.
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
