//! The device's timeline semaphore: which submissions have run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use ash::vk;
use vulkano::VulkanObject;
use vulkano::device::Device;
use vulkano::sync::semaphore::{Semaphore, SemaphoreCreateInfo, SemaphoreType};

use super::{failure, fault};
use crate::error::{Error, Result};

/// Counts finished submissions: value n is reached once the n-th submission has run.
pub struct Timeline {
    device: Arc<Device>,
    semaphore: Semaphore,
    /// The value of the last submission, which the recorder counts.
    pub submitted: AtomicU64,
    completed: AtomicU64,
    /// Whether nothing is submitted any more: values that are not reached by then may never be.
    abandoned: AtomicBool,
    cpu: bool,
    /// A device that finishes no submission for this long counts as hung: a kernel of a user's may loop forever.
    timeout: Duration,
}

/// A wait for a GPU spins this long before it sleeps: being woken takes 40 to 500 µs, a twentieth of this.
const GPU_SPIN: Duration = Duration::from_millis(10);
/// A wait for a CPU device spins less, as the device needs the core.
const CPU_SPIN: Duration = Duration::from_micros(20);
/// A call on a normal scheduler waits this long for a GPU: half of the time that its process may spend in NIFs at once.
const NONBLOCKING_SPIN: Duration = Duration::from_micros(250);
/// The setting of the seconds after which a device counts as hung.
const TIMEOUT: &str = "NX_VULKAN_TIMEOUT";
/// What the setting is where the environment has none.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(600);
/// The point at which a test lets that time pass.
pub const HUNG: &str = "the time after which a device counts as hung";

impl Timeline {
    /// A timeline at value 0. `cpu` says whether the device needs the cores that wait for it.
    pub fn new(device: Arc<Device>, cpu: bool) -> Result<Self> {
        let timeout = timeout(std::env::var(TIMEOUT).ok().as_deref())?;
        fault::point(&device, "vkCreateSemaphore").map_err(|e| Error::vulkan("timeline semaphore", e))?;
        let create_info =
            SemaphoreCreateInfo { semaphore_type: SemaphoreType::Timeline, initial_value: 0, ..Default::default() };
        let semaphore = Semaphore::new(device.clone(), create_info)
            .map_err(|e| Error::DispatchFailed(format!("timeline semaphore: {e:?}")))?;
        Ok(Self {
            device,
            semaphore,
            submitted: AtomicU64::new(0),
            completed: AtomicU64::new(0),
            abandoned: AtomicBool::new(false),
            cpu,
            timeout,
        })
    }

    /// Whether the device is the CPU itself.
    pub fn on_cpu(&self) -> bool {
        self.cpu
    }

    /// The semaphore's Vulkan handle.
    pub fn handle(&self) -> vk::Semaphore {
        self.semaphore.handle()
    }

    /// The last value that is reached.
    pub fn completed(&self) -> Result<u64> {
        let fns = self.device.fns();
        let mut value = 0;
        // SAFETY: device and semaphore are alive and the semaphore is a timeline.
        let result = fault::point(&self.device, "vkGetSemaphoreCounterValue").and_then(|()| unsafe {
            (fns.v1_2.get_semaphore_counter_value)(self.device.handle(), self.semaphore.handle(), &mut value).result()
        });
        result.map_err(|e| failure(&self.device, "reading the timeline", e))?;
        self.completed.fetch_max(value, Relaxed);
        Ok(value)
    }

    /// The last value that is known to be reached, without asking the driver.
    pub fn known_completed(&self) -> u64 {
        self.completed.load(Relaxed)
    }

    /// Whether a value is reached. A device that no longer answers has reached none.
    pub fn reached(&self, value: u64) -> bool {
        self.completed.load(Relaxed) >= value || self.completed().is_ok_and(|completed| completed >= value)
    }

    /// Has waits end with an error that nothing else ends: the next submissions failed.
    pub fn abandon(&self) {
        self.abandoned.store(true, Relaxed);
    }

    /// Whether a value is reached as long as a normal scheduler may wait for it: a change to a dirty scheduler and back costs tens of
    /// microseconds.
    pub fn reached_soon(&self, value: u64) -> Result<bool> {
        self.reached_within(value, if self.cpu { Duration::ZERO } else { NONBLOCKING_SPIN })
    }

    fn reached_within(&self, value: u64, limit: Duration) -> Result<bool> {
        let start = Instant::now();
        loop {
            if self.completed()? >= value {
                return Ok(true);
            }
            if start.elapsed() >= limit {
                return Ok(false);
            }
            std::hint::spin_loop();
        }
    }

    /// Waits until a value is reached: spins briefly, then sleeps.
    pub fn wait(&self, value: u64) -> Result<()> {
        if self.reached_within(value, if self.cpu { CPU_SPIN } else { GPU_SPIN })? {
            return Ok(());
        }
        let (mut seen, mut since) = (self.completed()?, Instant::now());
        loop {
            let (semaphore, values) = ([self.semaphore.handle()], [value]);
            let info = vk::SemaphoreWaitInfo::default().semaphores(&semaphore).values(&values);
            let slice = Duration::from_secs(1).as_nanos() as u64;
            // SAFETY: `info` and what it points at outlive the call.
            let wait = || unsafe { (self.device.fns().v1_2.wait_semaphores)(self.device.handle(), &info, slice) };
            match fault::point(&self.device, "vkWaitSemaphores").map_or_else(|fault| fault, |()| wait()) {
                vk::Result::SUCCESS => {
                    self.completed.fetch_max(value, Relaxed);
                    return Ok(());
                }
                vk::Result::TIMEOUT => {
                    let now = self.completed()?;
                    if now > seen {
                        (seen, since) = (now, Instant::now());
                    } else if self.abandoned.load(Relaxed) {
                        return Err(Error::DispatchFailed("the commands were not submitted".into()));
                    } else if since.elapsed() > self.timeout || fault::point(&self.device, HUNG).is_err() {
                        let seconds = self.timeout.as_secs();
                        return Err(Error::DispatchFailed(format!("the device has finished nothing for {seconds} s")));
                    }
                }
                error => return Err(failure(&self.device, "waiting for the device", error)),
            }
        }
    }
}

/// The time after which a device counts as hung, by the value of `NX_VULKAN_TIMEOUT`.
fn timeout(setting: Option<&str>) -> Result<Duration> {
    let Some(text) = setting else { return Ok(DEFAULT_TIMEOUT) };
    let seconds = text.trim().parse().ok().filter(|seconds: &u64| *seconds > 0);
    seconds
        .map(Duration::from_secs)
        .ok_or_else(|| Error::NoDevice(format!("{TIMEOUT}={text} is not a positive number of seconds")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timeout_is_a_positive_number_of_seconds() {
        assert_eq!(timeout(None), Ok(DEFAULT_TIMEOUT));
        assert_eq!(timeout(Some(" 30 ")), Ok(Duration::from_secs(30)));
        for wrong in ["", "0", "-1", "1.5", "10s", "never"] {
            let Err(Error::NoDevice(text)) = timeout(Some(wrong)) else { panic!("{wrong} was taken") };
            assert_eq!(text, format!("NX_VULKAN_TIMEOUT={wrong} is not a positive number of seconds"));
        }
    }
}
