//! Kernel families: when each applies, its grid and its parameters.

pub mod dot;
pub mod foreign;
pub mod program;

use std::sync::Arc;

use crate::device::Gpu;
use crate::error::{Error, Result};
use crate::memory::{Block, Kind, Lease, Patience};
use crate::pipeline::Pipeline;
use crate::stream::Dispatch;

/// Spreads `groups` workgroups over two axes: devices promise no more than 65,535 along one.
pub fn grid(gpu: &Gpu, groups: u64) -> Result<[u32; 3]> {
    let most = u64::from(gpu.caps.max_groups[0]).min(65_535);
    let x = groups.min(most).max(1);
    let y = groups.div_ceil(x).max(1);
    if y > u64::from(gpu.caps.max_groups[1]) {
        return Err(Error::Unsupported(format!("{groups} workgroups are more than the device runs at once")));
    }
    Ok([x as u32, y as u32, 1])
}

/// The most bytes of parameters that are pushed; more go through a buffer.
pub fn max_push(gpu: &Gpu) -> usize {
    gpu.caps.max_push_constants.min(256) as usize
}

/// A run of a kernel of ours, whose buffers are addresses within `params`.
pub struct Launch<'a> {
    pub pipeline: &'a Arc<Pipeline>,
    pub params: &'a [u8],
    /// Whether the parameters go into a block of their own, whose address is pushed.
    pub buffered: bool,
    pub groups: [u32; 3],
    pub reads: &'a [&'a Block],
    pub writes: &'a [&'a Block],
}

impl Launch<'_> {
    pub fn record(&self, gpu: &Gpu, patience: Patience) -> Result<()> {
        let &Self { pipeline, params, groups, reads, writes, .. } = self;
        if !self.buffered {
            return gpu.stream.dispatch(&Dispatch { pipeline, push: params, groups, reads, writes, bindings: &[] });
        }
        let block: Lease = gpu.allocate(Kind::Device, params.len() as u64, patience)?;
        gpu.stream.update(&block, params)?;
        let push = block.address.to_le_bytes();
        let mut reads = reads.to_vec();
        reads.push(&block);
        gpu.stream.dispatch(&Dispatch { pipeline, push: &push, groups, reads: &reads, writes, bindings: &[] })
    }
}
