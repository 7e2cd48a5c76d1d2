//! The devices of the process: which there are, which is the default, and each once it is open. This module opens devices one after the
//! other; what an open device consists of is not known here.
//!
//! The loader walks its lists of devices without a lock while others enumerate or open them, and crashes: devices are enumerated once, and
//! are opened under one lock.

use std::sync::Arc;

use once_cell::sync::OnceCell;
use parking_lot::{Mutex, RwLock};
use vulkano::device::physical::PhysicalDevice;

use super::{Gpu, exit, tried};
use crate::device::{self, DisabledFeatures, Listed};
use crate::error::{Attempt, Error, Result, Retry};

/// The devices that the process may use.
pub struct Devices {
    /// The devices of the machine in the order in which they are preferred.
    physical: Vec<Arc<PhysicalDevice>>,
    /// The devices by their indices in the process.
    logical: Vec<LogicalDevice>,
    /// The index of the default device, once one was chosen.
    default: OnceCell<usize>,
    /// Whether `NX_VULKAN_DEVICES` lists the devices.
    pub restricted: bool,
}

/// A device of the process. Several may be of one physical device.
struct LogicalDevice {
    /// The index among the devices of the machine.
    physical: usize,
    open: RwLock<Option<&'static Gpu>>,
}

impl LogicalDevice {
    /// The device, if it is open and was not lost.
    fn gpu(&self) -> Option<&'static Gpu> {
        self.open.read().filter(|gpu| !gpu.stream.is_lost())
    }
}

static DEVICES: OnceCell<Devices> = OnceCell::new();
/// Held while the loader enumerates or opens devices.
static LOADER: Mutex<()> = Mutex::new(());
/// All devices that were opened.
static OPENED: RwLock<Vec<&'static Gpu>> = RwLock::new(vec![]);

/// The global device, made on the first call. Callers that come while it is being made wait for it.
pub fn gpu() -> Result<&'static Gpu> {
    match default_if_open() {
        Some(gpu) => Ok(gpu),
        None => open_default(),
    }
}

/// The device of an index, or the global one, as [`gpu`] gives it.
pub fn gpu_at(index: Option<usize>) -> Result<&'static Gpu> {
    let Some(index) = index else { return gpu() };
    if let Some(gpu) = open_at(index) {
        return Ok(gpu);
    }
    let _loader = LOADER.lock();
    DEVICES.get_or_try_init(Devices::enumerate)?.gpu(index)
}

/// Makes a device anew, the global one without an index: its tensors are lost.
pub fn reset(index: Option<usize>) -> Result<()> {
    let gpu = gpu_at(index)?;
    gpu.stream.lose(Error::DeviceLost("it was reset".into()));
    gpu_at(Some(gpu.index)).map(drop)
}

/// How many devices of the process were lost: what was made on one of them is lost, too.
pub fn losses() -> usize {
    OPENED.read().iter().filter(|gpu| gpu.stream.is_lost()).count()
}

/// The device of an index, or the global one, if it is open already, else [`Retry::Blocking`]: making it takes too long for a normal
/// scheduler.
pub fn gpu_if_ready(index: Option<usize>) -> Attempt<&'static Gpu> {
    index.map_or_else(default_if_open, open_at).ok_or(Retry::Blocking.into())
}

/// All devices of the process that were opened.
pub(super) fn opened() -> Vec<&'static Gpu> {
    OPENED.read().clone()
}

/// The devices of the process, with the default one open.
pub fn devices() -> Result<&'static Devices> {
    gpu()?;
    DEVICES.get().ok_or_else(|| Error::NoDevice("the devices are not listed".into()))
}

fn open_at(index: usize) -> Option<&'static Gpu> {
    DEVICES.get()?.logical.get(index)?.gpu()
}

fn default_if_open() -> Option<&'static Gpu> {
    open_at(*DEVICES.get()?.default.get()?)
}

/// Keeps a device for as long as the process lives.
pub(super) fn keep(gpu: Gpu) -> &'static Gpu {
    let gpu: &'static Gpu = Box::leak(Box::new(gpu));
    gpu.pool.set_owner(gpu);
    OPENED.write().push(gpu);
    gpu
}

/// Opens the device that is preferred and whose driver works.
fn open_default() -> Result<&'static Gpu> {
    let _loader = LOADER.lock();
    // The default device stays the same where it was lost.
    if let Some(devices) = DEVICES.get()
        && let Some(index) = devices.default_index()
    {
        return devices.gpu(index);
    }
    let wanted = std::env::var("NX_VULKAN_DEVICE").ok().filter(|wanted| !wanted.is_empty());
    let wanted = wanted.as_deref();
    // The process that tries a device begins before the driver is loaded here where it chooses as this one does.
    let early = DEVICES.get().is_none() && restriction().is_none();
    let mut begun = if early { tried::Trial::begin(wanted) } else { None };
    let devices = DEVICES.get_or_try_init(Devices::enumerate)?;
    let mut left: Vec<usize> = (0..devices.logical.len()).collect();
    loop {
        let candidates: Vec<_> = left.iter().map(|&index| devices.physical(index).clone()).collect();
        let index = left[device::choose(&candidates, wanted)?];
        let opened = match open_at(index) {
            Some(gpu) => Ok(gpu),
            None => devices.open(index, begun.take())?,
        };
        match opened {
            Ok(gpu) => {
                let _ = devices.default.set(index);
                return Ok(gpu);
            }
            Err(reason) => {
                left.retain(|other| *other != index);
                if wanted.is_some() || left.is_empty() {
                    return Err(devices.refusal(index, &reason));
                }
            }
        }
    }
}

/// `NX_VULKAN_DEVICES`, where it is set.
fn restriction() -> Option<String> {
    std::env::var("NX_VULKAN_DEVICES").ok().filter(|list| !list.trim().is_empty())
}

impl Devices {
    /// The devices of the machine, and those of `NX_VULKAN_DEVICES` or all of them as the devices of the process.
    fn enumerate() -> Result<Self> {
        let physical = device::physical_devices(&device::instance()?)?;
        let list = restriction();
        let found = |wanted: &str| {
            let fits_none = || {
                let names = device::names(&physical);
                Error::NoDevice(format!("NX_VULKAN_DEVICES: {wanted} fits none of the devices ({names})"))
            };
            device::find(&physical, wanted.trim()).ok_or_else(fits_none)
        };
        let indices = match &list {
            Some(list) => list.split(',').map(found).collect::<Result<Vec<_>>>()?,
            None => (0..physical.len()).collect(),
        };
        let logical = indices.into_iter().map(|physical| LogicalDevice { physical, open: RwLock::new(None) }).collect();
        Ok(Self { physical, logical, default: OnceCell::new(), restricted: list.is_some() })
    }

    fn physical(&self, index: usize) -> &Arc<PhysicalDevice> {
        &self.physical[self.logical[index].physical]
    }

    fn physical_list(&self) -> Vec<Arc<PhysicalDevice>> {
        (0..self.logical.len()).map(|index| self.physical(index).clone()).collect()
    }

    /// A device, which is opened where it is not open, or was lost. `LOADER` is locked.
    fn gpu(&self, index: usize) -> Result<&'static Gpu> {
        self.check(index)?;
        match self.logical[index].gpu() {
            Some(gpu) => Ok(gpu),
            None => self.open(index, None)?.map_err(|reason| self.refusal(index, &reason)),
        }
    }

    fn check(&self, index: usize) -> Result<()> {
        if index < self.logical.len() {
            return device::usable(self.physical(index));
        }
        let names = device::names(&self.physical_list());
        Err(Error::NoDevice(format!("there is no device {index}: the devices are {names}")))
    }

    /// Opens a device, or says why it is refused. `LOADER` is locked.
    fn open(&self, index: usize, begun: Option<tried::Trial>) -> Result<Result<&'static Gpu, String>> {
        let (physical, position) = (self.physical(index), self.logical[index].physical);
        let opened = match tried::open(physical, position, begun, &DisabledFeatures::from_env()?)? {
            Ok(opened) => opened,
            Err(reason) => return Ok(Err(reason)),
        };
        let sharing = self.logical.iter().filter(|other| other.physical == position).count() as u64;
        let gpu = keep(match opened.findings.clone() {
            Some(findings) => Gpu::new(opened, (index, sharing), &|name, _| findings.works(name))?,
            None => Gpu::new(opened, (index, sharing), &|_, kernel| kernel())?,
        });
        if let Some(lost) = self.logical[index].open.write().replace(gpu) {
            lost.retire();
        }
        exit::wait_at_exit();
        Ok(Ok(gpu))
    }

    fn refusal(&self, index: usize, reason: &str) -> Error {
        let name = &self.physical(index).properties().device_name;
        Error::NoDevice(format!("{name} is refused: it was tried in a process of its own, and {reason}"))
    }

    /// The devices of the process, by their indices.
    pub fn listed(&self) -> Vec<Listed> {
        device::listed(&self.physical_list())
    }

    /// The index of the default device.
    pub fn default_index(&self) -> Option<usize> {
        self.default.get().copied()
    }

    /// The index of a device by its UUID or part of its name.
    pub fn find(&self, wanted: &str) -> Result<usize> {
        let list = self.physical_list();
        let none = || Error::NoDevice(format!("{wanted} fits none of the devices ({})", device::names(&list)));
        device::find(&list, wanted).ok_or_else(none)
    }
}
