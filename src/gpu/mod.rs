//! The process's device with all that belongs to it: memory pool, stream and pipelines, made once and fallibly. This module connects
//! the layers below it and moves data between host and device; it knows no kernels.

mod exit;
mod transfer;
mod tried;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use once_cell::sync::OnceCell;
use vulkano::device::{Device, Queue};

use crate::device::{self, Capabilities, Clock, DisabledFeatures, Findings, Listed, Probed};
use crate::error::{Attempt, Error, Result, Retry, Unfinished};
use crate::memory::{AllocationHandle, Blocking, MemoryKind, Pool};
use crate::pipeline::{DiskCache, Pipelines};
use crate::stream::Stream;
pub use exit::wait_until_idle;
pub use transfer::Readback;
use tried::{Chosen, SmallestKernel};

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
    /// What the probe process found of the device; empty where there was none.
    pub findings: Findings,
    /// Whether the last kernel over large tensors traversed them in reverse.
    pub reversed: AtomicBool,
}

static GPU: OnceCell<Gpu> = OnceCell::new();

/// The global device, made on the first call. Callers that come while it is being made wait for it.
pub fn gpu() -> Result<&'static Gpu> {
    GPU.get_or_try_init(|| {
        let gpu = Gpu::tried()?;
        exit::wait_at_exit();
        Ok(gpu)
    })
}

/// The global device if it exists already, else [`Retry::Blocking`]: making it takes too long for a normal scheduler.
pub fn gpu_if_ready() -> Attempt<&'static Gpu> {
    GPU.get().ok_or(Retry::Blocking.into())
}

/// The device that is wanted as it is, without what is turned off: for the process that finds out what else has to be. `built` is called
/// once the driver has built the smallest kernel; `ask` is called as in [`Gpu::new`].
pub fn open_untried(wanted: &str, disabled: DisabledFeatures, built: impl FnOnce(), ask: Ask) -> Result<&'static Gpu> {
    GPU.get_or_try_init(|| {
        let smallest = SmallestKernel::compile();
        let devices = device::physical_devices(&device::instance()?)?;
        let physical = device::choose(&devices, Some(wanted))?;
        let opened = device::open(&physical, &disabled)?;
        if let Some(smallest) = smallest {
            smallest.build(&opened.0)?;
            built();
        }
        Gpu::new(Chosen { devices, physical, opened, disabled, findings: None }, ask)
    })
}

/// Answers whether the device has a feature that its driver does not report, by the feature's name or the kernel that finds it out.
type Ask<'a> = &'a dyn Fn(&str, &dyn Fn() -> bool) -> bool;

impl Gpu {
    fn tried() -> Result<Self> {
        let wanted = std::env::var("NX_VULKAN_DEVICE").ok().filter(|wanted| !wanted.is_empty());
        let chosen = tried::choose(wanted.as_deref(), &DisabledFeatures::from_env()?)?;
        match chosen.findings.clone() {
            Some(findings) => Self::new(chosen, &|name, _| findings.works(name)),
            None => Self::new(chosen, &|_, kernel| kernel()),
        }
    }

    fn new(chosen: Chosen, ask: Ask) -> Result<Self> {
        let Chosen { devices, physical, opened: (device, queue), disabled, findings } = chosen;
        // A kernel that fails finds nothing, which is only slower.
        let probe = |name, kernel: fn(&Arc<Queue>) -> Probed<bool>| {
            !disabled.has(name) && ask(name, &|| kernel(&queue).unwrap_or(false))
        };
        let fma = probe("fma", device::fma_rounds_once);
        let fast_float64 = device.enabled_features().shader_float64 && probe("fast_float64", device::doubles_are_fast);
        let caps = Capabilities::of(&physical, [fma, fast_float64], &disabled);
        caps.fix_layout();
        let stream = Stream::new(device.clone(), queue)?;
        Ok(Self {
            pool: Pool::new(device.clone(), stream.timeline(), memory_limit(&caps)?),
            stream,
            pipelines: Pipelines::new(device.clone(), DiskCache::new(&physical)?),
            clock: Clock::hold(&physical)?,
            device,
            caps,
            listed: device::listed(&devices),
            findings: findings.unwrap_or_default(),
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
