//! How programs run: the schedules of their kernels, and how many workgroups each has. The choices rest on the program, its layout and
//! the device's capabilities alone.

mod reduce;
mod tile;
mod vectors;

#[cfg(test)]
mod tests;

use crate::device::Capabilities;
use crate::program::emit::{
    Accumulator, LoopNest, MAX_PARTS, MapTraversal, SCALARS_PER_THREAD, Schedule, Staging, VECTORS_PER_THREAD,
    VectorInputs,
};
use crate::program::epilogue::{EpilogueProgram, EpilogueReduction};
use crate::program::layout::Layout;
use crate::program::{Node, Program};
use crate::tuning::cpu_group_threads;

/// Threads of a GPU's workgroup.
const THREADS: u32 = 256;

/// Threads of a workgroup whose threads make an output each in a loop over all that it is made of.
const FOLD_THREADS: u32 = 64;

/// Workgroups for each multiprocessor of a GPU that reduce their results: `argmax` of a row of 768 times GPT-2's 50,257 × 768 f32 takes an H200 47.3 µs
/// with 12 to 24 of them, 50 with 4 to 8, and as long with a workgroup for each 8 elements.
const REDUCING_GROUPS: u64 = 16;
/// Those that compute a row first: with 2, 4 and 8 of them a token of GPT-2 takes 0.449 to 0.459, 0.445 to 0.448 and 0.447 to 0.459 ms.
const PROLOGUE_GROUPS: u64 = 4;
/// The longest row that they compute: for rows of 2,048 and 50,257 × 2,048 bf16 a token takes 0.912 to 0.927 ms, with a kernel for the row 0.903 to 0.915.
const MAX_REDUCING_PROLOGUE: u64 = 1024;

/// Bytes of each operand that a workgroup of an element-wise kernel moves: with 8 KiB an H200 took up to 2 % longer.
const MAP_GROUP_BYTES: u32 = 4 << 10;
/// The fewest threads of such a workgroup, and those of one whose program takes longer than moving its operands.
const MIN_MAP_THREADS: u32 = 128;

/// Workgroups that keep the cores of a CPU device busy.
const CPU_MAP_GROUPS: u64 = 128;
/// The fewest elements of one of them: a workgroup costs as much as some hundred elements.
const MIN_CPU_GROUP_ELEMENTS: u64 = 1024;

/// The most compute-bound operations of one kernel where the driver's time to build it grows faster than its length. Processes
/// with one kernel of 4, 8 and 16 powers took SwiftShader 1.9, 4.9 and 16.9 s of a processor; one of 40 was not built after 111.
const MAX_SLOW_COMPUTE_BOUND: usize = 8;

/// How a program runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FusionStrategy {
    OnePass(FusionLaunch),
    /// A reduction in two passes: partial results of `chunks` chunks for each output, then of these.
    TwoPasses {
        partial: FusionLaunch,
        combining: FusionLaunch,
        chunks: u64,
    },
    /// What is reduced is computed by a kernel of its own first.
    ComputedFirst,
}

/// One launch of a program's kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FusionLaunch {
    pub schedule: Schedule,
    /// Elements of a chunk: of the results, or of what is reduced to one output.
    pub chunk: u64,
    pub groups: u64,
}

impl FusionLaunch {
    /// Bytes of shared memory through which a reduction's workgroup exchanges accumulators of so many bytes, and what an epilogue reduces its
    /// results to, of `result` bytes.
    pub fn shared_bytes(&self, accumulator: u64, result: u64) -> Option<u64> {
        match self.schedule.nest {
            LoopNest::Reduce(reduce) => {
                Some(reduce.exchanged_bytes(accumulator) + u64::from(reduce.outputs()) * result)
            }
            LoopNest::Window(window) => Some(u64::from(window.threads) * result),
            LoopNest::Map { .. } | LoopNest::Tile { .. } | LoopNest::Fold { .. } => None,
        }
    }
}

/// Whether the driver builds a kernel of these programs in seconds.
pub fn builds_in_seconds<'a>(programs: impl IntoIterator<Item = &'a Program>, caps: &Capabilities) -> bool {
    let compute_bound = programs.into_iter().map(Program::compute_bound_nodes);
    !caps.exponential_loops || compute_bound.sum::<usize>() <= MAX_SLOW_COMPUTE_BOUND
}

/// How many of a program's sums one kernel adds up.
pub fn sums_of_a_kernel(program: &Program, layout: &Layout, caps: &Capabilities) -> usize {
    match Accumulator::of(program, layout, caps) {
        Some(accumulator) if !caps.exponential_loops => MAX_PARTS * accumulator.results / accumulator.parts.len(),
        _ => 1,
    }
}

/// How a program of at least one element runs.
pub fn choose(program: &Program, layout: &Layout, caps: &Capabilities) -> FusionStrategy {
    let problem = FusionProblem::new(program, layout, caps);
    if caps.exponential_loops && program.computed_first().is_some() {
        return FusionStrategy::ComputedFirst;
    }
    match Accumulator::of(program, layout, caps) {
        None if program.reduced_type().is_some() => FusionStrategy::OnePass(problem.fold()),
        None => FusionStrategy::OnePass(problem.map()),
        Some(accumulator) => problem.reduce(&accumulator),
    }
}

/// How a reduction of at least one element runs in one pass whose workgroups each compute a row first: no more than there are multiprocessors. A row
/// of 768 takes the 72 or 96 workgroups of GPT-2's products 0.8 to 1.3 µs of an H200, where a kernel of its own takes 3.2 and a barrier. Rows of
/// 2,048 in the 192 and 256 workgroups of larger products made a token of 12 layers take 1.23 to 1.24 ms in place of 1.18. Where an epilogue
/// `reduces` the results, these workgroups go through any number of outputs.
pub fn choose_with_prologue(
    program: &Program,
    layout: &Layout,
    reduces: bool,
    caps: &Capabilities,
) -> Option<FusionLaunch> {
    let accumulator = Accumulator::of(program, layout, caps)?;
    let most_groups = caps.multiprocessors;
    let one_pass = |problem: FusionProblem| match problem.reduce(&accumulator) {
        FusionStrategy::OnePass(launch) => {
            let loops = reduces
                && layout.reduced() <= MAX_REDUCING_PROLOGUE
                && matches!(launch.schedule.nest, LoopNest::Reduce(_));
            (loops || launch.groups <= most_groups).then_some(launch)
        }
        _ => None,
    };
    let problem = FusionProblem::new(program, layout, caps);
    one_pass(problem).or_else(|| one_pass(FusionProblem { most_groups: Some(most_groups), ..problem }))
}

/// The pass over the partial results of `chunks` chunks that a kernel before has left; `None` where the program accumulates nothing.
pub fn combining(program: &Program, layout: &Layout, chunks: u64, caps: &Capabilities) -> Option<FusionLaunch> {
    let accumulator = Accumulator::of(program, layout, caps)?;
    Some(FusionProblem::new(program, layout, caps).combining(&accumulator, chunks))
}

/// The launch that stores the results of a program of at least one element; `None` where that is another program's.
pub fn storing(program: &Program, layout: &Layout, caps: &Capabilities) -> Option<FusionLaunch> {
    match choose(program, layout, caps) {
        FusionStrategy::OnePass(launch) | FusionStrategy::TwoPasses { combining: launch, .. } => Some(launch),
        FusionStrategy::ComputedFirst => None,
    }
}

/// The workgroups of a launch whose results an epilogue reduces: each goes through several times as many outputs as otherwise, and reduces what
/// it has of them once.
pub fn reducing_groups(launch: &FusionLaunch, prologue: bool, caps: &Capabilities) -> u64 {
    let each = if prologue { PROLOGUE_GROUPS } else { REDUCING_GROUPS };
    let most = if caps.cpu { CPU_MAP_GROUPS } else { caps.multiprocessors * each };
    if matches!(launch.schedule.nest, LoopNest::Reduce(_)) { launch.groups.min(most) } else { launch.groups }
}

/// Whether an epilogue's reduction alone takes two passes. Where it takes one, its kernel costs no more than a second pass.
pub fn takes_two_passes(EpilogueReduction { program, layout }: &EpilogueReduction, caps: &Capabilities) -> bool {
    matches!(choose(program, layout, caps), FusionStrategy::TwoPasses { .. })
}

/// Bytes of a partial result of an epilogue's reduction, whatever the width of indices.
pub fn result_bytes(EpilogueReduction { program, .. }: &EpilogueReduction, caps: &Capabilities) -> u64 {
    let accumulator = program.nodes.last().and_then(|node| Accumulator::of_node(program, node, true, caps));
    accumulator.map_or(0, |accumulator| accumulator.bytes())
}

/// Whether the workgroups of a sum's kernel can reduce their results: shared memory holds what each of them contributes.
pub fn reduces_results(program: &Program, reduction: &EpilogueReduction, caps: &Capabilities) -> bool {
    let Ok(layout) = Layout::new(program) else { return false };
    let Some(launch) = storing(program, &layout, caps) else { return false };
    let accumulator = Accumulator::of(program, &layout, caps).map_or(0, |accumulator| accumulator.bytes());
    launch.shared_bytes(accumulator, result_bytes(reduction, caps)).is_some_and(|bytes| bytes <= caps.max_shared.into())
}

/// What is read for four neighbours along the last axis of rows, where each row is of whole vectors.
pub fn row_vectors(program: &Program, layout: &Layout, caps: &Capabilities) -> Option<VectorInputs> {
    let last = layout.dims.len().checked_sub(1).filter(|&axis| axis >= layout.kept)?;
    let whole = layout.dims[last].is_multiple_of(4);
    whole.then(|| FusionProblem::new(program, layout, caps).reduced_vectors()).filter(|vectors| vectors.vec4 != 0)
}

/// What a kernel reads for four neighbours that it stores at once through an epilogue. `None` where the epilogue reads unaligned elements.
pub fn epilogue_vectors(epilogue: &EpilogueProgram, caps: &Capabilities) -> Option<VectorInputs> {
    let EpilogueProgram { program, layout, .. } = epilogue;
    FusionProblem::new(program, layout, caps).epilogue_vectors()
}

/// What is chosen for.
#[derive(Clone, Copy)]
struct FusionProblem<'a> {
    program: &'a Program,
    layout: &'a Layout,
    caps: &'a Capabilities,
    /// The most workgroups of a reduction, where they should be few.
    most_groups: Option<u64>,
}

impl<'a> FusionProblem<'a> {
    fn new(program: &'a Program, layout: &'a Layout, caps: &'a Capabilities) -> Self {
        Self { program, layout, caps, most_groups: None }
    }
}

impl FusionProblem<'_> {
    fn launch(&self, nest: LoopNest, chunk: u64, groups: u64) -> FusionLaunch {
        // A CPU device has no use for it, and partial results stay in caches.
        let large = match nest {
            LoopNest::Map { .. } | LoopNest::Tile { .. } | LoopNest::Window(_) => true,
            LoopNest::Reduce(reduce) => !reduce.from_partial,
            LoopNest::Fold { .. } => false,
        };
        let schedule = Schedule { nest, reversible: large && !self.caps.cpu };
        FusionLaunch { schedule, chunk, groups }
    }

    /// The order is the function's: all that runs in parallel is the outputs.
    fn fold(&self) -> FusionLaunch {
        let groups = self.layout.outputs().div_ceil(FOLD_THREADS.into());
        self.launch(LoopNest::Fold { threads: FOLD_THREADS }, self.layout.reduced(), groups)
    }

    fn map(&self) -> FusionLaunch {
        let (cpu, outputs) = (self.caps.cpu, self.layout.outputs());
        if self.caps.exponential_loops {
            return self.single();
        }
        if let Some(mut tile) = self.tile() {
            tile.staging = match (self.tile_in_vectors(&tile), cpu) {
                (true, false) => Staging::SharedVectors,
                (true, true) => Staging::Registers,
                (false, false) => Staging::SharedScalars,
                (false, true) => Staging::Caches,
            };
            if tile.staging == Staging::Caches {
                tile.inputs = 0;
            }
            let threads = if cpu { cpu_group_threads(self.caps) } else { THREADS };
            return self.launch(LoopNest::Tile { threads, tile }, 0, self.tiles(&tile));
        }
        let vectors = self.map_vectors();
        if cpu {
            let (threads, width) = (cpu_group_threads(self.caps), if vectors.is_some() { 4 } else { 1 });
            let runs = outputs / width;
            let chunk = runs.div_ceil(CPU_MAP_GROUPS).max(MIN_CPU_GROUP_ELEMENTS / width);
            let chunk = chunk.next_multiple_of(threads.into());
            let nest = LoopNest::Map { threads, traversal: MapTraversal::Chunk, vectors };
            return self.launch(nest, chunk, runs.div_ceil(chunk));
        }
        let few = outputs <= self.caps.multiprocessors * u64::from(MIN_MAP_THREADS);
        if self.program.is_long() || few && self.program.compute_bound_nodes() > 0 {
            return self.single();
        }
        let elements = if vectors.is_some() { 4 * VECTORS_PER_THREAD } else { SCALARS_PER_THREAD };
        let threads = self.map_threads(elements);
        let traversal =
            if self.program.has_compute_bound_complex() { MapTraversal::Rolled } else { MapTraversal::Unrolled };
        // Vectors and the scalars that they leave over.
        let groups = (outputs + 3).div_ceil((threads * elements).into());
        self.launch(LoopNest::Map { threads, traversal, vectors }, 0, groups)
    }

    /// An element a thread.
    fn single(&self) -> FusionLaunch {
        let (threads, traversal) = (MIN_MAP_THREADS, MapTraversal::Single);
        let nest = LoopNest::Map { threads, traversal, vectors: None };
        self.launch(nest, 0, self.layout.outputs().div_ceil(threads.into()))
    }

    /// Threads of an element-wise workgroup on a GPU, whose threads make `elements` elements each. It should move
    /// [`MAP_GROUP_BYTES`] of each operand, unless what is computed takes longer than that.
    fn map_threads(&self, elements: u32) -> u32 {
        let program = self.program;
        let is_compute_bound = |node: &Node| node.op.real.is_some_and(|formula| formula.compute_bound);
        if program.nodes.iter().any(|node| is_compute_bound(node) || program.is_complex(node)) {
            return MIN_MAP_THREADS;
        }
        let sizes = program.inputs.iter().map(|input| input.ty.size()).chain([program.result().size()]);
        let size = sizes.max().unwrap_or(1) as u32;
        (MAP_GROUP_BYTES / (elements * size)).min(self.caps.max_threads.min(1024)).max(MIN_MAP_THREADS)
    }
}
