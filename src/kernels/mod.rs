//! Kernel families: when each applies, its grid and its parameters.

pub mod assemble;
pub mod contraction;
pub mod dot;
pub mod foreign;
pub mod fourier;
pub mod linalg;
pub mod plan;
pub mod program;
pub mod scan;
pub mod scatter;
pub mod sort;
mod tensor;
pub mod window;

use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_128;

use crate::device::Gpu;
use crate::error::{Attempt, Error, Result};
use crate::memory::{Allocation, Blocking, Kind};
use crate::pipeline::Pipeline;
use crate::program::emit::Params;
use crate::stream::Dispatch;
pub use tensor::{Rows, Tensor};

/// The most elements of a window for which kernels have its extents as constants and are straight code, which compilers take
/// the longer over the more there are. From how many windows on that pays off depends on what a kernel saves by it.
const STRAIGHT: u64 = 32;

/// Spreads `groups` workgroups over two axes: devices promise no more than 65,535 along one. Evenly, as workgroups beyond the
/// last one cost time too: with 65,534 of them a pass over 2^27 numbers took an H200 305 us instead of 258.
fn grid(gpu: &Gpu, groups: u64) -> Result<[u32; 3]> {
    let most = u64::from(gpu.caps.max_groups[0]).min(65_535);
    let y = groups.div_ceil(most).max(1);
    if y > u64::from(gpu.caps.max_groups[1]) {
        return Err(Error::Unsupported(format!("{groups} workgroups are more than the device runs at once")));
    }
    let x = groups.div_ceil(y).max(1);
    Ok([x as u32, y as u32, 1])
}

/// Fails where indices need 64 bits and the device has no such integers.
pub fn check_indices(gpu: &Gpu, wide: bool) -> Result<()> {
    if wide && !gpu.caps.int64 {
        return Err(Error::Unsupported(format!("{} has no 64-bit integers to index 2^31 elements", gpu.caps.name)));
    }
    Ok(())
}

/// A kernel of ours with what one run of it needs.
pub struct Kernel<'a> {
    /// All that the source depends on, the parameters' declarations included.
    pub key: &'a [u8],
    /// Adds the parameters.
    pub params: &'a dyn Fn(&mut Params),
    /// The source, from the GLSL of the parameters' block.
    pub source: &'a dyn Fn(&str) -> String,
    pub groups: u64,
    pub reads: &'a [&'a Allocation],
    pub writes: &'a [&'a Allocation],
}

impl Kernel<'_> {
    /// Builds the pipeline where it is not in memory yet, and records the run.
    pub fn launch(&self, gpu: &Gpu, blocking: Blocking) -> Attempt<()> {
        let mut params = Params::default();
        (self.params)(&mut params);
        let pipeline = self.pipeline(gpu, 4 * params.words().len(), blocking)?;
        plan::launch(gpu, &pipeline, grid(gpu, self.groups)?, params, [self.reads, self.writes], blocking)
    }

    fn pipeline(&self, gpu: &Gpu, bytes: usize, blocking: Blocking) -> Attempt<Arc<Pipeline>> {
        let buffered = buffered(gpu, bytes);
        let size = if buffered { 8 } else { bytes as u32 };
        gpu.pipelines.kernel(xxh3_128(self.key), size, blocking, || {
            let mut declared = Params::with_declarations();
            (self.params)(&mut declared);
            (self.source)(&declared.block(buffered))
        })
    }
}

/// Whether parameters are too many to be pushed. They go into a block of their own then, whose address is pushed.
fn buffered(gpu: &Gpu, bytes: usize) -> bool {
    bytes > gpu.caps.max_push_constants.min(256) as usize
}

/// Records one run of a kernel of ours.
fn record(
    gpu: &Gpu,
    pipeline: &Arc<Pipeline>,
    params: &[u8],
    groups: [u32; 3],
    reads: &[&Allocation],
    writes: &[&Allocation],
    blocking: Blocking,
) -> Attempt<()> {
    if !buffered(gpu, params.len()) {
        return Ok(gpu.stream.dispatch(&Dispatch { pipeline, push: params, groups, reads, writes, bindings: &[] })?);
    }
    let block = gpu.allocate(Kind::Device, params.len() as u64, blocking)?;
    gpu.stream.update(&block, params)?;
    let push = &block.address.to_le_bytes();
    let reads = &[reads, &[&block]].concat();
    Ok(gpu.stream.dispatch(&Dispatch { pipeline, push, groups, reads, writes, bindings: &[] })?)
}
