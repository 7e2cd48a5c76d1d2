//! Batches: recorded commands before they are a command buffer.

use std::ops::Range;
use std::sync::Arc;

use ash::vk;

use super::profile::BatchSamples;
use crate::pipeline::Pipeline;

/// Submit after this many commands. Measured on an H200: the device starting early on a chain of small commands is worth
/// more than the submissions that larger batches save.
pub(super) const MIN_BATCH_COMMANDS: u32 = 16;
/// Submit after this many commands even where the device has work: an H200 pauses for about 10 µs between submissions.
pub(super) const MAX_BATCH_COMMANDS: u32 = 8 * MIN_BATCH_COMMANDS;

/// The most commands of a batch, by the batches since the host last waited for the device. The first ones are small and grow: the device runs
/// each while the next is encoded.
pub(super) fn max_commands(since_wait: u32) -> u32 {
    let doublings = since_wait.saturating_sub(1).min((MAX_BATCH_COMMANDS / MIN_BATCH_COMMANDS).ilog2());
    MIN_BATCH_COMMANDS << doublings
}

/// Bits of the hash by which a batch finds pipelines that it has: a training step of a small network has some 20.
const KEPT_BITS: u32 = 5;
/// Multiplier of Fibonacci hashing: 2^64 divided by the golden ratio.
const ADDRESS_HASH: u64 = 0x9E37_79B9_7F4A_7C15;

/// Commands that are submitted together, in order.
#[derive(Default)]
pub(super) struct Batch {
    pub commands: Vec<Command>,
    /// Bytes of push constants and updates.
    pub data: Vec<u8>,
    /// Storage buffers of user SPIR-V.
    pub bindings: Vec<vk::DescriptorBufferInfo>,
    /// The dispatches' pipelines.
    pub pipelines: Vec<Arc<Pipeline>>,
    /// The position of the pipeline that was kept last of those with a hash of their address.
    kept: [u16; 1 << KEPT_BITS],
    /// The value of the other queue's timeline that is reached before it begins; 0 where it waits for nothing.
    pub after: u64,
    /// Of each dispatch and transfer, while a profile is on.
    pub samples: Option<BatchSamples>,
}

/// A command with checked arguments. Its pipeline lives with the batch, its buffers longer: the pool destroys them only after their last use.
pub(super) enum Command {
    /// The storage buffers of the next dispatch, in the batch's list, for the pipeline's layout and its set 0.
    Bind {
        layout: vk::PipelineLayout,
        set_layout: vk::DescriptorSetLayout,
        bindings: Range<usize>,
    },
    /// `push` lies in the batch's data, `pipeline` in its list.
    Dispatch {
        pipeline: usize,
        layout: vk::PipelineLayout,
        groups: [u32; 3],
        push: Range<usize>,
    },
    /// The dispatches up to the next [`Command::EndPredicate`] run where the word at this offset is not zero.
    BeginPredicate {
        buffer: vk::Buffer,
        offset: u64,
    },
    EndPredicate,
    Copy {
        from: vk::Buffer,
        to: vk::Buffer,
        region: vk::BufferCopy,
    },
    /// The data, a multiple of four bytes, to the buffer's start.
    Update {
        buffer: vk::Buffer,
        data: Range<usize>,
    },
    /// Zeros in the first `len` bytes, a multiple of four.
    Zero {
        buffer: vk::Buffer,
        len: u64,
    },
    /// A memory barrier from the first stages and accesses to the second.
    Barrier {
        stages: [vk::PipelineStageFlags; 2],
        access: [vk::AccessFlags; 2],
    },
}

impl Batch {
    pub fn with_room(commands: usize) -> Self {
        Self { commands: Vec::with_capacity(commands), data: Vec::with_capacity(32 * commands), ..Self::default() }
    }

    /// A batch that begins after this value of the other queue's timeline.
    pub fn after(value: u64) -> Self {
        Self { after: value, ..Self::default() }
    }

    /// Keeps a command's pipeline and returns its position. Most dispatches share a reference with an earlier one: the counter's cache line
    /// is in use by the thread that submits.
    pub fn keep(&mut self, pipeline: &Arc<Pipeline>) -> usize {
        let address = Arc::as_ptr(pipeline) as u64;
        let slot = (address.wrapping_mul(ADDRESS_HASH) >> (u64::BITS - KEPT_BITS)) as usize;
        let kept = usize::from(self.kept[slot]);
        if self.pipelines.get(kept).is_some_and(|kept| Arc::ptr_eq(kept, pipeline)) {
            return kept;
        }
        self.pipelines.push(pipeline.clone());
        let position = self.pipelines.len() - 1;
        // Beyond what a slot holds the pipeline is not found again, and kept once more.
        self.kept[slot] = position as u16;
        position
    }

    /// Whether the driver has built all pipelines, so that encoding does not wait.
    pub fn is_built(&self) -> bool {
        self.pipelines.iter().all(|pipeline| pipeline.is_built())
    }

    /// Stores bytes; returns their range in the batch's data.
    pub fn store(&mut self, bytes: &[u8]) -> Range<usize> {
        let start = self.data.len();
        self.data.extend_from_slice(bytes);
        start..self.data.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_grow_from_a_wait_on() {
        assert_eq!([0, 1, 2, 3, 4, 5, u32::MAX].map(max_commands), [16, 16, 32, 64, 128, 128, 128]);
    }
}
