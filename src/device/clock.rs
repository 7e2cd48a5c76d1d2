//! The device's clock: NVIDIA's driver lowers it while Vulkan runs small kernels, and keeps it up while a CUDA context lives in the
//! process. This module owns that context and calls CUDA for nothing else; it knows no stream and no memory.

use std::ffi::{c_int, c_uint, c_void};
use std::mem::ManuallyDrop;
use std::ptr::null_mut;
use std::sync::Arc;
use std::time::Duration;

use ash::vk;
use libloading::Library;
use parking_lot::{Condvar, Mutex};
use vulkano::VulkanObject;
use vulkano::device::physical::PhysicalDevice;
use vulkano::memory::MemoryHeapFlags;

use crate::error::{Error, Result};

/// The vendor id of NVIDIA's devices.
const NVIDIA: u32 = 0x10DE;

/// The first result of a process comes before the context, which takes the driver some 100 ms.
const HOLD_AFTER: Duration = Duration::from_millis(200);

/// The CUDA driver's library. It comes with NVIDIA's driver, as Vulkan does.
const LIBRARY: &str = "libcuda.so.1";

/// Bytes of a device's UUID, by which Vulkan and CUDA name the same device.
const UUID_BYTES: usize = vk::UUID_SIZE;

/// Whether and how a device's clock is held up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClockState {
    /// It is not, for this reason.
    Free(String),
    /// It will be: the device was opened a moment ago.
    Due,
    /// CUDA makes the context.
    Starting,
    /// It is, by a CUDA context.
    Held {
        /// By how much the device's free memory shrank while the context was made; `None` where the driver does not tell.
        bytes: Option<u64>,
    },
}

impl ClockState {
    fn is_settled(&self) -> bool {
        !matches!(self, Self::Due | Self::Starting)
    }
}

/// The hold on a device's clock, for as long as the process lives.
#[derive(Clone)]
pub struct Clock(Arc<(Mutex<ClockState>, Condvar)>);

impl Clock {
    /// Holds the device's clock up, in the background, where the setting and the device ask for it.
    pub fn hold(physical: &Arc<PhysicalDevice>) -> Result<Self> {
        let setting = std::env::var("NX_VULKAN_HOLD_CLOCK").ok();
        let state = match reason_against(setting.as_deref(), physical.properties().vendor_id)? {
            None => ClockState::Due,
            Some(reason) => ClockState::Free(reason.into()),
        };
        let clock = Self(Arc::new((Mutex::new(state.clone()), Condvar::new())));
        if state == ClockState::Due {
            let (thread, physical) = (clock.clone(), physical.clone());
            let spawned =
                std::thread::Builder::new().name("nx_vulkan clock".into()).spawn(move || thread.work(&physical));
            if let Err(error) = spawned {
                clock.set(ClockState::Free(format!("no thread: {error}")));
            }
        }
        Ok(clock)
    }

    /// Waits up to `limit` until it is known whether the clock is held.
    pub fn settled(&self, limit: Duration) -> ClockState {
        let (state, changed) = &*self.0;
        let mut state = state.lock();
        changed.wait_while_for(&mut state, |state| !state.is_settled(), limit);
        state.clone()
    }

    /// Calls CUDA no more, and waits up to `limit` for a call in progress: the process ends. The context goes with the process.
    pub fn stop(&self, limit: Duration) {
        let (state, changed) = &*self.0;
        let mut state = state.lock();
        if *state == ClockState::Due {
            *state = ClockState::Free("the process ends".into());
            changed.notify_all();
        }
        changed.wait_while_for(&mut state, |state| !state.is_settled(), limit);
    }

    fn work(&self, physical: &PhysicalDevice) {
        {
            let (state, changed) = &*self.0;
            let mut state = state.lock();
            changed.wait_while_for(&mut state, |state| *state == ClockState::Due, HOLD_AFTER);
            if *state != ClockState::Due {
                return;
            }
            *state = ClockState::Starting;
        }
        let before = free_memory(physical);
        self.set(match retain_context(physical.properties().device_uuid) {
            Err(reason) => ClockState::Free(reason),
            Ok(()) => {
                let taken = before.zip(free_memory(physical)).map(|(before, after)| before.saturating_sub(after));
                ClockState::Held { bytes: taken }
            }
        });
    }

    fn set(&self, new: ClockState) {
        let (state, changed) = &*self.0;
        *state.lock() = new;
        changed.notify_all();
    }
}

/// Why a device's clock is not to be held, by the value of `NX_VULKAN_HOLD_CLOCK` and the device's vendor; `None` where it is. Fails for a
/// value that the variable does not have.
fn reason_against(setting: Option<&str>, vendor: u32) -> Result<Option<&'static str>> {
    match setting.unwrap_or_default().trim() {
        "" => Ok((vendor != NVIDIA).then_some("only NVIDIA's driver needs it")),
        "0" => Ok(Some("NX_VULKAN_HOLD_CLOCK=0")),
        "1" => Ok(None),
        other => Err(Error::NoDevice(format!("NX_VULKAN_HOLD_CLOCK={other} is neither 0 nor 1"))),
    }
}

/// Bytes of the device's own memory that nobody uses; `None` where the driver does not tell.
fn free_memory(physical: &PhysicalDevice) -> Option<u64> {
    if !physical.supported_extensions().ext_memory_budget {
        return None;
    }
    let mut budget = vk::PhysicalDeviceMemoryBudgetPropertiesEXT::default();
    let mut properties = vk::PhysicalDeviceMemoryProperties2::default().push_next(&mut budget);
    let query = physical.instance().fns().v1_1.get_physical_device_memory_properties2;
    // SAFETY: the device has Vulkan 1.2 and the extension of the chained structure; both structures outlive the call.
    unsafe { query(physical.handle(), &mut properties) };
    let own = |flags: MemoryHeapFlags| flags.intersects(MemoryHeapFlags::DEVICE_LOCAL);
    let heaps = physical.memory_properties().memory_heaps.iter().enumerate().filter(|(_, heap)| own(heap.flags));
    Some(heaps.map(|(i, _)| budget.heap_budget[i].saturating_sub(budget.heap_usage[i])).sum())
}

/// The functions of CUDA's driver library that a context takes, with their types in cuda.h.
struct Cuda {
    init: unsafe extern "C" fn(c_uint) -> c_int,
    count: unsafe extern "C" fn(*mut c_int) -> c_int,
    device: unsafe extern "C" fn(*mut c_int, c_int) -> c_int,
    uuid: unsafe extern "C" fn(*mut [u8; UUID_BYTES], c_int) -> c_int,
    retain: unsafe extern "C" fn(*mut *mut c_void, c_int) -> c_int,
}

impl Cuda {
    fn open() -> Result<Self, libloading::Error> {
        // SAFETY: programs of any kind load CUDA's driver library by this name; the fields have the functions' types.
        unsafe {
            // It stays open: the library has threads of its own once it is initialised.
            let library = ManuallyDrop::new(Library::new(LIBRARY)?);
            Ok(Self {
                init: *library.get(b"cuInit\0")?,
                count: *library.get(b"cuDeviceGetCount\0")?,
                device: *library.get(b"cuDeviceGet\0")?,
                uuid: *library.get(b"cuDeviceGetUuid\0")?,
                retain: *library.get(b"cuDevicePrimaryCtxRetain\0")?,
            })
        }
    }
}

/// Retains the primary CUDA context of the device with this UUID, or says why not.
fn retain_context(wanted: Option<[u8; UUID_BYTES]>) -> Result<(), String> {
    let cuda = Cuda::open().map_err(|error| error.to_string())?;
    let succeeded = |name: &str, code| if code == 0 { Ok(()) } else { Err(format!("{name}: CUDA's error {code}")) };
    let (mut count, mut device, mut uuid, mut context) = (0, 0, [0; UUID_BYTES], null_mut());
    // SAFETY: the functions have these types; what the pointers point to outlives the calls.
    unsafe {
        succeeded("cuInit", (cuda.init)(0))?;
        succeeded("cuDeviceGetCount", (cuda.count)(&mut count))?;
        for index in 0..count {
            succeeded("cuDeviceGet", (cuda.device)(&mut device, index))?;
            succeeded("cuDeviceGetUuid", (cuda.uuid)(&mut uuid, device))?;
            if Some(uuid) == wanted {
                return succeeded("cuDevicePrimaryCtxRetain", (cuda.retain)(&mut context, device));
            }
        }
    }
    Err("CUDA does not see the device".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTEL: u32 = 0x8086;

    #[test]
    fn the_clock_of_nvidias_devices_is_held_unless_the_setting_says_otherwise() {
        let held = |setting, vendor| reason_against(setting, vendor).map(|reason| reason.is_none()).ok();
        for unset in [None, Some(""), Some(" ")] {
            assert_eq!([held(unset, NVIDIA), held(unset, INTEL)], [Some(true), Some(false)]);
        }
        for vendor in [NVIDIA, INTEL] {
            let settings = ["0", "1", "yes"].map(|setting| held(Some(setting), vendor));
            assert_eq!(settings, [Some(false), Some(true), None]);
        }
    }
}
