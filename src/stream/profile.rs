//! Profiles: what each command took on the device, by timestamps around it, and on the host. This module owns the queries and the
//! samples of a profile; it changes neither the order of commands nor the barriers between them.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ash::vk;
use parking_lot::Mutex;
use vulkano::VulkanObject;
use vulkano::device::{Device, Queue};
use vulkano::query::{QueryPool, QueryPoolCreateInfo, QueryResultFlags, QueryType};

use super::batch::{Batch, Command};
use crate::device::fault;
use crate::error::{Error, Result};

/// The most commands of a profile: a sample takes about 100 bytes, and its two queries 16 of the device's memory.
const MAX_SAMPLES: usize = 1 << 18;

/// A command as it was recorded.
pub struct RecordedSample {
    /// The kernel's name, or the kind of transfer.
    pub name: Arc<str>,
    /// Workgroups along each axis; zeros for a transfer.
    pub groups: [u32; 3],
    /// Bytes of the memory that the command reads from: whole allocations for a kernel.
    pub read: u64,
    /// Bytes of the memory that the command writes to.
    pub written: u64,
    /// Arithmetic operations; 0 where they are not counted.
    pub operations: u64,
    /// When it was recorded, since the profile's beginning.
    pub recorded: Duration,
    /// The host's time since the command before was recorded, waits for the device excepted.
    pub host: Duration,
}

/// A command with its times.
pub struct CommandSample {
    /// The command.
    pub recorded: RecordedSample,
    /// When it began and ended on the device, since the profile's beginning. The two clocks are set to each other such that no command
    /// begins before it was recorded.
    pub device: Range<Duration>,
}

/// What was done while a profile was on.
pub struct Profile {
    /// The commands in the order of their submission.
    pub commands: Vec<CommandSample>,
    /// When the host waited for the device, since the profile's beginning.
    pub waits: Vec<Range<Duration>>,
    /// Commands that there was no room for.
    pub dropped: u64,
    /// From its beginning to its end, with the wait for the device.
    pub elapsed: Duration,
}

/// The timestamps of the batches of a profile that is on.
pub(super) struct Profiler {
    device: Arc<Device>,
    /// Nanoseconds of a tick.
    period: f64,
    /// The bits of a timestamp that count.
    mask: u64,
    encoded: Mutex<Vec<TimedBatch>>,
}

struct TimedBatch {
    samples: Vec<RecordedSample>,
    /// Two timestamps for each sample.
    queries: Arc<QueryPool>,
}

/// The samples of a batch, whose commands get timestamps.
pub(super) struct BatchSamples {
    profiler: Arc<Profiler>,
    pub list: Vec<RecordedSample>,
}

impl Profiler {
    /// Fails where the queue writes no timestamps.
    pub fn new(device: Arc<Device>, queue: &Queue) -> Result<Arc<Self>> {
        let physical = device.physical_device();
        let family = &physical.queue_family_properties()[queue.queue_family_index() as usize];
        let bits = family.timestamp_valid_bits.unwrap_or(0);
        let mask = match bits {
            0 => return Err(Error::Unsupported("the device's queue writes no timestamps".into())),
            64.. => u64::MAX,
            _ => (1 << bits) - 1,
        };
        let period = f64::from(physical.properties().timestamp_period);
        Ok(Arc::new(Self { device, period, mask, encoded: Mutex::default() }))
    }

    /// Samples for a batch that has no commands yet.
    pub fn batch(self: &Arc<Self>) -> BatchSamples {
        BatchSamples { profiler: self.clone(), list: vec![] }
    }

    /// The samples of all batches, which must have run, with their times; `recorded` times are since the profile's beginning.
    fn samples(&self) -> Result<Vec<CommandSample>> {
        let mut all: Vec<(RecordedSample, [u64; 2])> = vec![];
        for TimedBatch { samples, queries } in self.encoded.lock().drain(..) {
            let mut ticks = vec![0_u64; 2 * samples.len()];
            fault::point(&self.device, "vkGetQueryPoolResults").map_err(|e| Error::vulkan("timestamps", e))?;
            let available = queries
                .get_results(0..ticks.len() as u32, &mut ticks, QueryResultFlags::WAIT)
                .map_err(|e| Error::DispatchFailed(format!("timestamps: {e:?}")))?;
            if !available {
                return Err(Error::DispatchFailed("timestamps that were not written".into()));
            }
            all.extend(samples.into_iter().zip(ticks.as_chunks().0.iter().copied()));
        }
        let Some(first) = all.first().map(|(_, ticks)| ticks[0]) else { return Ok(vec![]) };
        let since_first = |ticks: u64| (ticks.wrapping_sub(first) & self.mask) as f64 * self.period;
        // A command begins when the one before has ended: the first timestamp of some drivers does not wait for that.
        let mut end = 0.0_f64;
        let mut times: Vec<Range<f64>> = vec![];
        for (_, [from, to]) in &all {
            let begin = since_first(*from).max(end);
            end = since_first(*to).max(begin);
            times.push(begin..end);
        }
        let lag =
            |((sample, _), time): (&(RecordedSample, _), &Range<f64>)| sample.recorded.as_nanos() as f64 - time.start;
        let shift = all.iter().zip(&times).map(lag).fold(0.0, f64::max);
        let at = |time: f64| Duration::from_nanos((time + shift) as u64);
        let sample = |((recorded, _), time): ((RecordedSample, _), Range<f64>)| CommandSample {
            recorded,
            device: at(time.start)..at(time.end),
        };
        Ok(all.into_iter().zip(times).map(sample).collect())
    }
}

impl BatchSamples {
    /// Queries for the samples' timestamps, reset in a command buffer that begins.
    pub fn begin(&self, to: vk::CommandBuffer) -> Result<Arc<QueryPool>> {
        let device = &self.profiler.device;
        let query_count = 2 * self.list.len() as u32;
        let info = QueryPoolCreateInfo { query_count, ..QueryPoolCreateInfo::query_type(QueryType::Timestamp) };
        fault::point(device, "vkCreateQueryPool").map_err(|e| Error::vulkan("queries of timestamps", e))?;
        let queries = QueryPool::new(device.clone(), info)
            .map_err(|e| Error::OutOfMemory(format!("queries of timestamps: {e:?}")))?;
        // SAFETY: the command buffer is in the recording state, and nothing else uses the queries.
        unsafe { (device.fns().v1_0.cmd_reset_query_pool)(to, queries.handle(), 0, query_count) };
        Ok(queries)
    }

    /// Keeps the samples of a batch whose command buffer writes these queries.
    pub fn keep(self, queries: Arc<QueryPool>) {
        self.profiler.encoded.lock().push(TimedBatch { samples: self.list, queries });
    }
}

/// Records a timestamp.
///
/// # Safety
///
/// The command buffer must be in the recording state, and `query` one of the queries, which it has reset and not written.
pub(super) unsafe fn write_timestamp(
    device: &Device,
    to: vk::CommandBuffer,
    stage: vk::PipelineStageFlags,
    queries: &QueryPool,
    query: u32,
) {
    // SAFETY: as the caller promises.
    unsafe { (device.fns().v1_0.cmd_write_timestamp)(to, stage, queries.handle(), query) };
}

/// The recorder's part of a profile that is on.
pub(super) struct ProfileRecorder {
    profiler: Arc<Profiler>,
    began: Instant,
    /// When the last command was recorded, or the last wait ended.
    last: Instant,
    /// The host's time between the last command and the last wait.
    before_wait: Duration,
    waits: Vec<Range<Duration>>,
    samples: usize,
    dropped: u64,
}

impl ProfileRecorder {
    pub fn new(profiler: Arc<Profiler>) -> Self {
        let began = Instant::now();
        Self { profiler, began, last: began, before_wait: Duration::ZERO, waits: vec![], samples: 0, dropped: 0 }
    }

    /// Samples for the next batch, where there is room.
    pub fn batch(&self) -> Option<BatchSamples> {
        (self.samples < MAX_SAMPLES).then(|| self.profiler.batch())
    }

    /// Adds a command to the batch that is being recorded: with the bytes that it reads and those that it writes.
    pub fn command(
        &mut self,
        batch: &mut Batch,
        name: Arc<str>,
        groups: [u32; 3],
        [read, written]: [u64; 2],
        operations: u64,
    ) {
        let now = Instant::now();
        let host = self.before_wait + (now - self.last);
        (self.last, self.before_wait) = (now, Duration::ZERO);
        let recorded = now - self.began;
        match &mut batch.samples {
            Some(samples) => {
                self.samples += 1;
                samples.list.push(RecordedSample { name, groups, read, written, operations, recorded, host });
            }
            None => self.dropped += 1,
        }
    }

    /// Counts a wait of the host, which ends now.
    pub fn waited(&mut self, since: Instant) {
        let now = Instant::now();
        self.before_wait += since.saturating_duration_since(self.last);
        self.last = now;
        self.waits.push(since.saturating_duration_since(self.began)..now - self.began);
    }

    /// The profile, once its batches have run.
    pub fn finish(self) -> Result<Profile> {
        let commands = self.profiler.samples()?;
        Ok(Profile { commands, waits: self.waits, dropped: self.dropped, elapsed: self.began.elapsed() })
    }
}

impl Command {
    /// Whether it has a sample in a profile.
    pub fn is_sampled(&self) -> bool {
        !matches!(self, Self::Bind { .. } | Self::Barrier { .. } | Self::BeginPredicate { .. } | Self::EndPredicate)
    }
}
