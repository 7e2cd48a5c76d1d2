use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use ash::vk;
use vulkano::VulkanObject;
use vulkano::device::Device;
use vulkano::device::physical::PhysicalDeviceType;
use vulkano::sync::semaphore::{Semaphore, SemaphoreCreateInfo, SemaphoreType};

use crate::error::{Error, Result};

/// Counts finished submissions: value n has passed once the n-th submission has run.
pub struct Timeline {
    device: Arc<Device>,
    semaphore: Semaphore,
    /// The value of the last submission; the recorder counts it.
    pub submitted: AtomicU64,
    completed: AtomicU64,
    cpu: bool,
}

/// A wait spins this long before it sleeps: being woken takes a GPU's caller 40 to 500 µs, a twentieth of this. A device
/// that is the CPU itself needs the core.
const SPIN_GPU: Duration = Duration::from_millis(10);
const SPIN_CPU: Duration = Duration::from_micros(20);
/// A caller on a normal scheduler waits this long for a GPU, half of what its process may spend in NIFs at a time.
const PROMPT_GPU: Duration = Duration::from_micros(250);
/// How long the device may go without finishing a submission before it counts as hung: a foreign kernel may loop forever.
const NO_PROGRESS: Duration = Duration::from_secs(600);

impl Timeline {
    pub fn new(device: Arc<Device>) -> Result<Self> {
        let create_info =
            SemaphoreCreateInfo { semaphore_type: SemaphoreType::Timeline, initial_value: 0, ..Default::default() };
        let semaphore = Semaphore::new(device.clone(), create_info)
            .map_err(|e| Error::DispatchFailed(format!("timeline semaphore: {e:?}")))?;
        let cpu = device.physical_device().properties().device_type == PhysicalDeviceType::Cpu;
        Ok(Self { device, semaphore, submitted: AtomicU64::new(0), completed: AtomicU64::new(0), cpu })
    }

    /// Whether the device is the CPU itself.
    pub fn on_cpu(&self) -> bool {
        self.cpu
    }

    pub fn handle(&self) -> vk::Semaphore {
        self.semaphore.handle()
    }

    /// The newest value that has passed.
    pub fn completed(&self) -> Result<u64> {
        let fns = self.device.fns();
        let mut value = 0;
        // SAFETY: device and semaphore are alive and the semaphore is a timeline.
        let result = unsafe {
            (fns.v1_2.get_semaphore_counter_value)(self.device.handle(), self.semaphore.handle(), &mut value)
        };
        result.result().map_err(|e| Error::vulkan("reading the timeline", e))?;
        self.completed.fetch_max(value, Relaxed);
        Ok(value)
    }

    /// Whether a value has passed. A device that no longer answers has passed nothing.
    pub fn passed(&self, value: u64) -> bool {
        self.completed.load(Relaxed) >= value || self.completed().is_ok_and(|completed| completed >= value)
    }

    /// Whether all that was submitted has run.
    pub fn idle(&self) -> bool {
        self.passed(self.submitted.load(Relaxed))
    }

    /// Whether a value passes before a normal scheduler should turn to other work: a change to a dirty scheduler and back
    /// costs tens of microseconds.
    pub fn passes_soon(&self, value: u64) -> Result<bool> {
        self.passes_within(value, if self.cpu { Duration::ZERO } else { PROMPT_GPU })
    }

    fn passes_within(&self, value: u64, most: Duration) -> Result<bool> {
        let start = Instant::now();
        loop {
            if self.completed()? >= value {
                return Ok(true);
            }
            if start.elapsed() >= most {
                return Ok(false);
            }
            std::hint::spin_loop();
        }
    }

    /// Waits until a value has passed: spins briefly, then sleeps.
    pub fn wait(&self, value: u64) -> Result<()> {
        if self.passes_within(value, if self.cpu { SPIN_CPU } else { SPIN_GPU })? {
            return Ok(());
        }
        let (mut seen, mut since) = (self.completed()?, Instant::now());
        loop {
            let (semaphore, values) = ([self.semaphore.handle()], [value]);
            let info = vk::SemaphoreWaitInfo::default().semaphores(&semaphore).values(&values);
            let slice = Duration::from_secs(1).as_nanos() as u64;
            // SAFETY: `info` and what it points at outlive the call.
            let result = unsafe { (self.device.fns().v1_2.wait_semaphores)(self.device.handle(), &info, slice) };
            match result {
                vk::Result::SUCCESS => {
                    self.completed.fetch_max(value, Relaxed);
                    return Ok(());
                }
                vk::Result::TIMEOUT => {
                    let now = self.completed()?;
                    if now > seen {
                        (seen, since) = (now, Instant::now());
                    } else if since.elapsed() > NO_PROGRESS {
                        let seconds = NO_PROGRESS.as_secs();
                        return Err(Error::DispatchFailed(format!("the device has finished nothing for {seconds} s")));
                    }
                }
                error => return Err(Error::vulkan("waiting for the device", error)),
            }
        }
    }
}
