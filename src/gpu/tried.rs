//! The choice of a device whose driver works: one of a driver that was not seen before is tried in a process of its own, and the findings
//! are remembered on disk. What is tried, and what ends that process, is not known here.

use std::sync::Arc;

use vulkano::device::physical::PhysicalDevice;

use crate::device::{self, DEVICE, Findings};
use crate::error::{Error, Result};
use crate::pipeline::DiskCache;

/// The device as [`device::choose`] chooses it, and what the probe process found of it. A device that it refuses is passed over, or fails
/// where it is the one that is wanted or the last.
pub(super) fn choose(
    devices: &[Arc<PhysicalDevice>],
    wanted: Option<&str>,
) -> Result<(Arc<PhysicalDevice>, Option<Findings>)> {
    let mut left = devices.to_vec();
    loop {
        let physical = device::choose(&left, wanted)?;
        let disk = DiskCache::new(&physical)?;
        let index = devices.iter().position(|device| *device == physical).unwrap_or(0);
        let text = disk.remember("findings", || device::try_device(index).map(|findings| findings.text()));
        let findings = text.map(|text| Findings::parse(&text));
        let Some(reason) = findings.as_ref().and_then(|findings| findings.reason_against(DEVICE)) else {
            return Ok((physical, findings));
        };
        left.retain(|device| *device != physical);
        if wanted.is_some() || left.is_empty() {
            let name = &physical.properties().device_name;
            let kept = disk.folder().map_or(String::new(), |folder| {
                format!("; {} remembers it until the driver changes", folder.display())
            });
            return Err(Error::NoDevice(format!(
                "{name} is refused: it was tried in a process of its own, and {reason}{kept}"
            )));
        }
    }
}
