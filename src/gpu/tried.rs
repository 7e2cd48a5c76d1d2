//! The choice of a device whose driver works: one of a driver that was not seen before is tried in a process of its own, and the findings
//! are remembered on disk. What is tried, and what ends that process, is not known here.
//!
//! Meanwhile this process does what every program does that uses Vulkan: it makes an instance and a device. It has the driver build a kernel
//! only after the other process has.

use std::sync::Arc;
use std::thread::JoinHandle;

use vulkano::device::Device;
use vulkano::device::physical::PhysicalDevice;

use crate::device::{self, DEVICE, DisabledFeatures, Findings, ProbeRun, Queues};
use crate::error::{Error, Result};
use crate::pipeline::{DiskCache, Pipeline, PipelineCreateInfo, glsl};

/// A device that is open, and how it came to that.
pub(super) struct Opened {
    pub physical: Arc<PhysicalDevice>,
    /// The device, with the features that are not disabled.
    pub device: Arc<Device>,
    pub queues: Queues,
    /// What `NX_VULKAN_DISABLE` and the findings turn off.
    pub disabled: DisabledFeatures,
    /// What the probe process found; `None` where it found nothing out.
    pub findings: Option<Findings>,
}

/// The name under which the findings are remembered: those of a list of features say nothing of another list.
fn findings_of() -> String {
    format!("findings of {}", DisabledFeatures::names())
}

/// Opens a device, the one at `position` of the machine's. `begun` is the probe process that has begun to try it. The inner error is why the
/// probe process refuses it.
pub(super) fn open(
    physical: &Arc<PhysicalDevice>,
    position: usize,
    begun: Option<Trial>,
    disabled: &DisabledFeatures,
) -> Result<Result<Opened, String>> {
    let disk = DiskCache::new(physical)?;
    let remembered = disk.recall(&findings_of()).map(|text| Findings::parse(&text));
    let (findings, opened) = if remembered.is_some() {
        (remembered, None)
    } else {
        let trial = begun.or_else(|| Trial::start(&position.to_string()));
        let opened = device::open(physical, disabled)?;
        let findings = trial.and_then(|trial| trial.findings(&opened.0));
        findings.iter().for_each(|findings| disk.remember(&findings_of(), &findings.text()));
        (findings, Some(opened))
    };
    if let Some(reason) = findings.as_ref().and_then(|findings| findings.reason_against(DEVICE)) {
        let kept = disk.folder().map(|folder| format!("; {} remembers it until the driver changes", folder.display()));
        return Ok(Err(format!("{reason}{}", kept.unwrap_or_default())));
    }
    let all = findings.as_ref().is_none_or(|findings| findings.refused().next().is_none());
    let disabled = disabled.clone().and(findings.as_ref());
    let (device, queues) = match opened.filter(|_| all) {
        Some(opened) => opened,
        None => device::open(physical, &disabled)?,
    };
    Ok(Ok(Opened { physical: physical.clone(), device, queues, disabled, findings }))
}

/// The smallest kernel.
const SMALLEST: &str = "#version 460\nlayout(local_size_x = 1) in;\nvoid main() {}\n";

/// The smallest kernel, which is compiled on a thread: the compiler's own start takes as long as some kernels.
pub(super) struct SmallestKernel(Option<JoinHandle<Result<Vec<u32>>>>);

impl SmallestKernel {
    /// Starts compiling. `None` where there is no thread for it.
    pub fn compile() -> Option<Self> {
        let thread = std::thread::Builder::new().name("nx_vulkan build".into());
        thread.spawn(|| glsl::compile(SMALLEST)).ok().map(|thread| Self(Some(thread)))
    }

    /// Waits for the compiler.
    fn join(&mut self) -> Option<Result<Vec<u32>>> {
        self.0.take()?.join().ok()
    }

    /// Has the driver build the kernel: one that loads its compiler for the first kernel has it then.
    pub fn build(mut self, device: &Arc<Device>) -> Result<()> {
        let panicked = || Err(Error::DispatchFailed("the compiler panicked".into()));
        let info = PipelineCreateInfo { push_bytes: 0, bindings: 0, entry_point: "main", name: "the smallest" };
        Pipeline::build_now(device, &self.join().unwrap_or_else(panicked)?, &info, &[]).map(drop)
    }
}

impl Drop for SmallestKernel {
    /// A process that ends while its compiler works takes the compiler's tables from it, and crashes.
    fn drop(&mut self) {
        self.join();
    }
}

/// A probe process at work, and what this process prepares for its own first kernels.
pub(super) struct Trial {
    probe: ProbeRun,
    smallest: Option<SmallestKernel>,
}

impl Trial {
    /// Starts trying the device that `NX_VULKAN_DEVICE` names, or the preferred one, before the driver is loaded here. `None` where it may have
    /// been tried before.
    pub fn begin(wanted: Option<&str>) -> Option<Self> {
        DiskCache::is_empty_folder().then(|| Self::start(wanted.unwrap_or_default())).flatten()
    }

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
