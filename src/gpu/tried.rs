//! The choice of a device whose driver works: one of a driver that was not seen before is tried in a process of its own, and the findings
//! are remembered on disk. What is tried, and what ends that process, is not known here.
//!
//! Meanwhile this process does what every program does that uses Vulkan: it makes an instance and a device. It has the driver build a kernel
//! only after the other process has.

use std::sync::Arc;
use std::thread::JoinHandle;

use vulkano::device::physical::PhysicalDevice;
use vulkano::device::{Device, Queue};

use crate::device::{self, DEVICE, DisabledFeatures, Findings, ProbeRun};
use crate::error::{Error, Result};
use crate::pipeline::{DiskCache, Pipeline, PipelineCreateInfo, glsl};

/// A device that is open, and how it came to that.
pub(super) struct Chosen {
    /// All devices in the order in which they are preferred.
    pub devices: Vec<Arc<PhysicalDevice>>,
    pub physical: Arc<PhysicalDevice>,
    /// The device with its queue, and with the features that are not disabled.
    pub opened: (Arc<Device>, Arc<Queue>),
    /// What `NX_VULKAN_DISABLE` and the findings turn off.
    pub disabled: DisabledFeatures,
    /// What the probe process found; `None` where it found nothing out.
    pub findings: Option<Findings>,
}

/// The name under which the findings are remembered.
const FINDINGS: &str = "findings";

/// The device as [`device::choose`] chooses it. One that the probe process refuses is passed over, or fails where it is the one that is
/// wanted or the last.
pub(super) fn choose(wanted: Option<&str>, disabled: &DisabledFeatures) -> Result<Chosen> {
    // The process begins before the driver is loaded here where nothing can be remembered. It chooses the same device.
    let mut begun = DiskCache::is_empty_folder().then(|| Trial::start(wanted.unwrap_or_default()));
    let devices = device::physical_devices(&device::instance()?)?;
    let mut left = devices.clone();
    loop {
        let physical = device::choose(&left, wanted)?;
        let disk = DiskCache::new(&physical)?;
        let remembered = disk.recall(FINDINGS).map(|text| Findings::parse(&text));
        let (findings, opened) = if remembered.is_some() {
            (remembered, None)
        } else {
            let index = devices.iter().position(|device| *device == physical).unwrap_or(0);
            let trial = begun.take().unwrap_or_else(|| Trial::start(&index.to_string()));
            let opened = device::open(&physical, disabled)?;
            let findings = trial.and_then(|trial| trial.findings(&opened.0));
            findings.iter().for_each(|findings| disk.remember(FINDINGS, &findings.text()));
            (findings, Some(opened))
        };
        if let Some(reason) = findings.as_ref().and_then(|findings| findings.reason_against(DEVICE)) {
            left.retain(|device| *device != physical);
            if wanted.is_some() || left.is_empty() {
                return Err(refusal(&physical, &disk, reason));
            }
            continue;
        }
        let all = findings.as_ref().is_none_or(|findings| findings.refused().next().is_none());
        let disabled = disabled.clone().and(findings.as_ref());
        let opened = match opened.filter(|_| all) {
            Some(opened) => opened,
            None => device::open(&physical, &disabled)?,
        };
        return Ok(Chosen { devices, physical, opened, disabled, findings });
    }
}

fn refusal(physical: &PhysicalDevice, disk: &DiskCache, reason: &str) -> Error {
    let name = &physical.properties().device_name;
    let kept = disk
        .folder()
        .map_or(String::new(), |folder| format!("; {} remembers it until the driver changes", folder.display()));
    Error::NoDevice(format!("{name} is refused: it was tried in a process of its own, and {reason}{kept}"))
}

/// The smallest kernel.
const SMALLEST: &str = "#version 460\nlayout(local_size_x = 1) in;\nvoid main() {}\n";

/// The smallest kernel, which is compiled on a thread: the compiler's own start takes as long as some kernels.
pub(super) struct SmallestKernel(JoinHandle<Result<Vec<u32>>>);

impl SmallestKernel {
    /// Starts compiling. `None` where there is no thread for it.
    pub fn compile() -> Option<Self> {
        std::thread::Builder::new().name("nx_vulkan build".into()).spawn(|| glsl::compile(SMALLEST)).ok().map(Self)
    }

    /// Has the driver build the kernel: one that loads its compiler for the first kernel has it then.
    pub fn build(self, device: &Arc<Device>) -> Result<()> {
        let panicked = |_| Err(Error::DispatchFailed("the compiler panicked".into()));
        let info = PipelineCreateInfo { push_bytes: 0, bindings: 0, entry_point: "main", name: "the smallest" };
        Pipeline::build_now(device, &self.0.join().unwrap_or_else(panicked)?, &info, &[]).map(drop)
    }
}

/// A probe process at work, and what this process prepares for its own first kernels.
struct Trial {
    probe: ProbeRun,
    smallest: Option<SmallestKernel>,
}

impl Trial {
    /// Starts trying a device, which is given as `NX_VULKAN_DEVICE` gives it. `None` where that cannot be.
    fn start(wanted: &str) -> Option<Self> {
        Some(Self { probe: ProbeRun::start(wanted)?, smallest: SmallestKernel::compile() })
    }

    /// What the probe process found of the device, which is open here.
    fn findings(mut self, device: &Arc<Device>) -> Option<Findings> {
        if let Some(smallest) = self.smallest
            && self.probe.has_built()
        {
            // A driver that refuses it here refuses the first call's kernel, too, and that call says so.
            let _ = smallest.build(device);
        }
        self.probe.findings()
    }
}
