//! How reductions share their elements out among threads, workgroups and passes.

use std::cmp::Reverse;
use std::iter;

use super::tile::SECTOR_BYTES;
use super::{FusionLaunch, FusionProblem, FusionStrategy, THREADS};
use crate::program::emit::{Accumulator, LoopNest, ReduceSchedule, VectorInputs, WindowSchedule};
use crate::tuning::{MAX_UNROLLED_WINDOW, cpu_group_threads};

/// The fewest outputs for which an unrolled window pays off, and the fewest threads that make several outputs each. Of 65,536 2×2 or 3×3
/// windows it saves lavapipe 0.6 to 2 ms a call and takes 25 to 60 ms to build; `window` saves several times as much for an element.
const MIN_WINDOWS: u64 = 1 << 16;

/// Outputs of a GPU's thread, the most that fit. A depthwise convolution of 3×3 takes an H200 81 µs with one, 37 with four and 37 with eight,
/// ResNet's max pooling 61, 45 and 48.
const WINDOW_OUTPUTS: [u32; 2] = [4, 2];

/// Elements along the reduced axes that a thread takes at least where the outputs fill the device: what it loads at a time.
const MIN_ELEMENTS_PER_THREAD: u64 = 16;
/// The most loads that a GPU's thread has in flight for an output.
const MAX_UNROLLED: u64 = 8;
/// The same of vectors of 8 bytes, which take half the registers: 3,072 × 768 in bf16 by one row takes an H200 6.6 µs with all 12 loads of a
/// thread in flight, and 6.9 with four.
const MAX_UNROLLED_SHORT: u64 = 12;
/// Vectors of each of several sums' operands that a thread has in flight: each vector has doubles for every sum. Four sums over two
/// tensors of 29 million numbers take an H200 85 µs with two, and 126 with four.
const MAX_UNROLLED_SUMS: u32 = 2;
/// Elements that a thread adds up for each of few outputs, where there are threads enough: an H200 takes 5.2 µs for one row of 768
/// numbers with 768 × 768, 5.6 with twice as many for each thread and 9.3 with four times.
const MAX_COLUMN_ELEMENTS: u64 = 4;
/// Threads of a GPU's workgroup whose outputs are few, of one reduction and of several, whose accumulators take more registers.
const FEW_OUTPUTS_THREADS: u32 = 1024;
const FEW_OUTPUTS_THREADS_OF_SEVERAL: u32 = 512;
/// Threads that fill a GPU's multiprocessor.
const MULTIPROCESSOR_THREADS: u64 = 2048;

/// Neighbouring threads use all that they load, one after the other, where they read every fourth element or closer.
const MAX_STRIDE_IN_CACHE: i64 = 4;

/// Outputs from which a GPU's workgroup has output threads alone.
const MANY_OUTPUTS: u64 = 1 << 16;

/// Elements of a thread up to which a second pass takes longer than it saves: 3 to 4 µs of an H200.
const MAX_ONE_PASS_ELEMENTS: u64 = 16;
/// The same where one pass has a workgroup for most multiprocessors. For 4,096² numbers in 16 bits an H200 takes 17.9 µs so, and 15.4 and
/// the second pass otherwise.
const MAX_FILLING_ONE_PASS_ELEMENTS: u64 = 64;

/// Bytes of accumulators that take an addition no longer than a load. 3,072 × 768 in bf16 by one row takes an H200 6.6 µs with workgroups of
/// whole sectors and 7.2 with twice as many of half a sector, where sums are in f32; 8.4 and 7.8 in f64.
const CHEAP_ACCUMULATOR_BYTES: u64 = 4;

/// Neighbouring outputs of a workgroup at least.
const MIN_NEIGHBOURING_OUTPUTS: u32 = 8;

/// The widest workgroups, in threads with outputs of their own, that are taken for being fewer. With 16 in place of 8 products of 2,048 rows with
/// 6,144 and 8,192 columns in bf16 take an H200 1.6 and 1.0 µs longer, with 32 it is 6 and 5.
const MAX_WIDE_OUTPUT_THREADS: u32 = 16;

/// Neighbouring outputs of a workgroup that combines partial results: doubles of a line of memory.
const MIN_COMBINED_OUTPUTS: u32 = 16;

/// The fewest elements of a partial result where there are more of them than fill the device.
const MIN_PARTIAL_ELEMENTS: u64 = 1024;

/// The threads of a reduction's workgroup and what each reads; see [`ReduceSchedule`].
#[derive(Clone, Copy)]
struct ReduceThreads {
    output_threads: u32,
    reduction_threads: u32,
    vectors: VectorInputs,
    output_vectors: u32,
    /// Whether neighbouring threads share an output.
    neighbours_share: bool,
}

impl FusionProblem<'_> {
    pub(super) fn reduce(&self, accumulator: &Accumulator) -> FusionStrategy {
        let (outputs, reduced) = (self.layout.outputs(), self.layout.reduced());
        let threads = self.reduce_threads(accumulator);
        if self.is_window(threads) {
            return FusionStrategy::OnePass(self.window());
        }
        let groups = outputs.div_ceil(u64::from(threads.output_threads) * u64::from(4 * threads.output_vectors).max(1));
        let chunks = self.chunks(groups, threads.reduction_threads);
        if chunks == 1 {
            let schedule = self.reduce_schedule(threads, accumulator);
            return FusionStrategy::OnePass(self.launch(LoopNest::Reduce(schedule), reduced, groups));
        }
        let chunk = reduced.div_ceil(chunks).next_multiple_of(4);
        let chunks = reduced.div_ceil(chunk);
        let all = self.reduce_schedule(threads, accumulator);
        let schedule = ReduceSchedule { to_partial: true, exact: false, ..all };
        let partial = self.launch(LoopNest::Reduce(schedule), chunk, groups * chunks);
        FusionStrategy::TwoPasses { partial, combining: self.combining(accumulator, chunks), chunks }
    }

    /// The pass over the partial results of `chunks` chunks.
    pub(super) fn combining(&self, accumulator: &Accumulator, chunks: u64) -> FusionLaunch {
        let outputs = self.layout.outputs();
        let (output_threads, reduction_threads) = match outputs {
            0.. if self.caps.cpu => {
                let lanes = cpu_group_threads(self.caps);
                if outputs < lanes.into() { (1, lanes) } else { (lanes, 1) }
            }
            64.. => {
                let reduction_threads = (chunks / MAX_UNROLLED).clamp(4, 32).next_power_of_two() as u32;
                let most = self.most_sharing_threads(accumulator, 1) / reduction_threads;
                ((THREADS / reduction_threads).max(MIN_COMBINED_OUTPUTS).min(most), reduction_threads)
            }
            _ => (1, THREADS),
        };
        let vectors = VectorInputs::default();
        // Threads of one output are neighbours, and exchange by shuffles.
        let neighbours_share = output_threads == 1 && !self.caps.cpu;
        let threads = ReduceThreads { output_threads, reduction_threads, vectors, output_vectors: 0, neighbours_share };
        let all = self.reduce_schedule(threads, accumulator);
        let schedule = ReduceSchedule { from_partial: true, exact: false, ..all };
        self.launch(LoopNest::Reduce(schedule), chunks, outputs.div_ceil(output_threads.into()))
    }

    /// Chunks of what is reduced to each output. It is split where the outputs alone do not fill the device: a second pass costs an
    /// H200 as much as half of its threads. Smaller chunks balance the load better, but leave more to the second pass.
    fn chunks(&self, groups: u64, reduction_threads: u32) -> u64 {
        let (fills, most) = if self.caps.cpu { (32, 32) } else { (512, 8192) };
        if groups >= fills || self.fits_one_pass(groups, reduction_threads) {
            return 1;
        }
        let least = u64::from(reduction_threads) * 8;
        let chunks =
            |groups_wanted: u64, min: u64| (groups_wanted / groups).min(self.layout.reduced() / min.max(least));
        chunks(fills, 1).max(chunks(most, MIN_PARTIAL_ELEMENTS)).max(1)
    }

    /// Whether one pass with these workgroups and threads for an output is fast.
    fn fits_one_pass(&self, groups: u64, reduction_threads: u32) -> bool {
        let fills = !self.caps.cpu && (groups * 4 >= self.caps.multiprocessors * 3 || self.most_groups.is_some());
        let most = if fills { MAX_FILLING_ONE_PASS_ELEMENTS } else { MAX_ONE_PASS_ELEMENTS };
        self.layout.reduced() <= u64::from(reduction_threads) * most
    }

    /// The schedule of one pass over the inputs.
    fn reduce_schedule(&self, threads: ReduceThreads, accumulator: &Accumulator) -> ReduceSchedule {
        let ReduceThreads { output_threads, reduction_threads, vectors, output_vectors, neighbours_share } = threads;
        let lanes = self.exchanging_lanes(threads);
        let few_registers = !self.caps.cpu && output_vectors > 0 && self.program.reductions().len() > 1;
        let unrolled = match output_vectors {
            _ if self.caps.exponential_loops => 1,
            1.. if few_registers => MAX_UNROLLED_SUMS.div_ceil(output_vectors),
            0 if vectors.vec4 == 0 && accumulator.parts.len() == 1 && !self.caps.cpu => 8,
            _ => 4 / output_vectors.max(1),
        };
        let unrolled =
            if self.caps.cpu || few_registers { unrolled } else { self.overlapping(threads, accumulator, unrolled) };
        let width = if output_vectors == 0 && vectors.vec4 != 0 { 4 } else { 1 };
        let exact = self.layout.reduced() == u64::from(reduction_threads) * width * u64::from(unrolled);
        ReduceSchedule {
            output_threads,
            reduction_threads,
            vectors,
            output_vectors,
            unrolled,
            exact,
            lanes,
            neighbours_share,
            from_partial: false,
            to_partial: false,
        }
    }

    /// Threads of a subgroup that share an output.
    fn exchanging_lanes(&self, threads: ReduceThreads) -> u32 {
        let ReduceThreads { output_threads, reduction_threads, neighbours_share, .. } = threads;
        let (subgroup, all) = (self.caps.subgroup, output_threads * reduction_threads);
        if self.caps.cpu {
            return if all <= subgroup { reduction_threads } else { 1 };
        }
        if !subgroup.is_power_of_two() || !all.is_multiple_of(subgroup) {
            return 1;
        }
        match threads.output_vectors {
            _ if neighbours_share => reduction_threads.min(subgroup),
            1 if self.halves_outputs(output_threads) => (subgroup / output_threads).min(reduction_threads),
            _ => 1,
        }
    }

    /// Whether a subgroup has the four threads for each vector of outputs that hand each other all but one of these.
    fn halves_outputs(&self, output_threads: u32) -> bool {
        self.caps.subgroup.is_power_of_two() && 4 * output_threads <= self.caps.subgroup
    }

    /// The most threads of a workgroup of few outputs, whose accumulators of `outputs` outputs each fit shared memory.
    fn most_sharing_threads(&self, accumulator: &Accumulator, outputs: u32) -> u32 {
        let fits = u64::from(self.caps.max_shared) / (u64::from(outputs) * accumulator.bytes());
        let several = self.program.reductions().len() > 1;
        let wanted = if several { FEW_OUTPUTS_THREADS_OF_SEVERAL } else { FEW_OUTPUTS_THREADS };
        let most = fits.clamp(THREADS.into(), wanted.into()) as u32;
        (1 << most.ilog2()).min(self.caps.max_threads)
    }

    /// Loads of a GPU's thread that are in flight at once, `unrolled` where it has many: few ones are not left to one iteration each.
    fn overlapping(&self, threads: ReduceThreads, accumulator: &Accumulator, unrolled: u32) -> u32 {
        let short = threads.output_vectors == 1 && accumulator.bytes() <= CHEAP_ACCUMULATOR_BYTES;
        let most = if short && self.vector_bytes(threads.vectors) <= 8 { MAX_UNROLLED_SHORT } else { MAX_UNROLLED };
        let width = if threads.output_vectors == 0 && threads.vectors.vec4 != 0 { 4 } else { 1 };
        let loads = self.layout.reduced() / (u64::from(threads.reduction_threads) * width);
        match loads.max(1) {
            few if few < unrolled.into() => few as u32,
            few if few <= most && self.program.compute_bound_nodes() == 0 => few as u32,
            _ => unrolled,
        }
    }

    /// Whether the reduced axes are a small window, in which each position would be found by division, and a thread may have all of it.
    fn is_window(&self, threads: ReduceThreads) -> bool {
        let (outputs, reduced) = (self.layout.outputs(), self.layout.reduced());
        let scalars = threads.reduction_threads == 1 && threads.output_vectors == 0 && threads.vectors.vec4 == 0;
        let whole = scalars || threads.output_vectors > 0 && !self.caps.cpu;
        let has_indices = self.layout.dims.len() > self.layout.kept + 1 || !self.layout.padded.is_empty();
        whole && has_indices && reduced <= MAX_UNROLLED_WINDOW && outputs >= MIN_WINDOWS
    }

    /// A GPU's threads make several neighbouring outputs, unless these are too few for that or take long to compute: windows of neighbours
    /// overlap, and the position of the first is found once.
    fn window(&self) -> FusionLaunch {
        let outputs = self.layout.outputs();
        let neighbours = self.layout.kept.checked_sub(1).map_or(1, |axis| self.layout.dims[axis]);
        let enough = |&each: &u32| outputs / u64::from(each) >= MIN_WINDOWS && neighbours.is_multiple_of(each.into());
        let one = self.caps.cpu || self.program.compute_bound_nodes() > 0;
        let each = if one { 1 } else { WINDOW_OUTPUTS.into_iter().find(enough).unwrap_or(1) };
        let threads = if self.caps.cpu { cpu_group_threads(self.caps) } else { THREADS };
        let vectors = if each == 4 { self.output_vectors() } else { VectorInputs::default() };
        let schedule = WindowSchedule { threads, outputs: each, vectors };
        let groups = outputs.div_ceil(u64::from(threads * each));
        self.launch(LoopNest::Window(schedule), self.layout.reduced(), groups)
    }

    /// Neighbouring threads, and the neighbours that one thread takes, should read neighbouring elements.
    fn reduce_threads(&self, accumulator: &Accumulator) -> ReduceThreads {
        let kept = self.layout.kept;
        let inner_kept = self.widest_stride(kept.checked_sub(1));
        let inner_reduced = self.widest_stride(self.layout.dims.len().checked_sub(1).filter(|&axis| axis >= kept));
        if self.caps.cpu {
            return self.cpu_reduce_threads(inner_reduced <= inner_kept);
        }
        let (outputs, reduced) = (self.layout.outputs(), self.layout.reduced());
        let up = |n: u64| n.clamp(1, THREADS.into()).next_power_of_two() as u32;
        if inner_kept < inner_reduced.saturating_mul(MAX_STRIDE_IN_CACHE) {
            // A thread has an accumulator in shared memory for each neighbour of a vector.
            let fits = u64::from(4 * THREADS) * accumulator.bytes() <= self.caps.max_shared.into();
            let vectors = if fits { self.output_vectors() } else { VectorInputs::default() };
            let width = if vectors.vec4 != 0 { 4 } else { 1 };
            let most = if outputs >= MANY_OUTPUTS { THREADS / width } else { 32 };
            let reduction_threads = |output_threads: u32| up(reduced.div_ceil(4)).min(THREADS / output_threads);
            let all_threads = |output_threads: u32| {
                if outputs >= MANY_OUTPUTS {
                    return reduction_threads(output_threads);
                }
                let most = self.most_sharing_threads(accumulator, width) / output_threads;
                let wanted = reduced.div_ceil(MAX_COLUMN_ELEMENTS).clamp(1, most.into());
                wanted.next_power_of_two().min(most.into()) as u32
            };
            let widest = up(outputs / u64::from(width)).min(most);
            let groups = |output_threads: u32| outputs.div_ceil(u64::from(output_threads * width));
            // Where wide workgroups leave multiprocessors idle, narrower ones with more threads for an output need no second pass. Whole sectors
            // count for more than half of the multiprocessors, where what is computed takes few of them.
            let multiprocessors = self.caps.multiprocessors;
            let narrowest = self.narrowest(vectors).div_ceil(width).min(widest);
            let (busy, one_pass) = (groups(narrowest), self.fits_one_pass(groups(narrowest), all_threads(narrowest)));
            let least = if accumulator.bytes() <= CHEAP_ACCUMULATOR_BYTES && one_pass { 4 } else { 2 };
            let narrowest = match busy * least <= multiprocessors {
                true => narrowest.min(MIN_NEIGHBOURING_OUTPUTS / width),
                false => narrowest,
            };
            let candidates = iter::successors(Some(widest), |threads| Some(threads / 2))
                .take_while(|&threads| {
                    threads >= narrowest && (threads == widest || groups(threads) <= 2 * multiprocessors)
                })
                .filter(|&threads| self.fits_one_pass(groups(threads), all_threads(threads)))
                .filter(|&threads| {
                    self.most_groups.is_none_or(|most| groups(threads) <= most && threads <= MAX_WIDE_OUTPUT_THREADS)
                });
            // Whole lines of memory count for more than the other half of the multiprocessors.
            let whole_lines =
                |&threads: &u32| width > 1 && self.halves_outputs(threads) && 2 * groups(threads) >= multiprocessors;
            let output_threads = candidates
                .clone()
                .find(whole_lines)
                .or_else(|| candidates.min_by_key(|&threads| Reverse(groups(threads).min(multiprocessors))));
            let (output_threads, reduction_threads) = match output_threads {
                Some(threads) => (threads, all_threads(threads)),
                None => (widest, reduction_threads(widest)),
            };
            let (output_vectors, neighbours_share) = (width / 4, false);
            return ReduceThreads { output_threads, reduction_threads, vectors, output_vectors, neighbours_share };
        }
        let few = up(reduced.div_ceil(MIN_ELEMENTS_PER_THREAD));
        let fills = outputs * u64::from(few) >= MULTIPROCESSOR_THREADS * self.caps.multiprocessors;
        let subgroup = self.caps.subgroup;
        // Threads of one subgroup hand each other what they have without a barrier.
        let few = if few > subgroup && reduced <= u64::from(subgroup) * 4 * MAX_UNROLLED { subgroup } else { few };
        let reduction_threads = if fills { few } else { up(reduced.div_ceil(4)) };
        let (output_threads, vectors) = (THREADS / reduction_threads, self.reduced_vectors());
        ReduceThreads { output_threads, reduction_threads, vectors, output_vectors: 0, neighbours_share: true }
    }

    /// Neighbouring outputs whose elements are a sector of memory.
    fn narrowest(&self, vectors: VectorInputs) -> u32 {
        ((4 * SECTOR_BYTES / self.vector_bytes(vectors)) as u32).max(MIN_NEIGHBOURING_OUTPUTS)
    }

    /// Bytes of the widest vector of four elements.
    fn vector_bytes(&self, vectors: VectorInputs) -> u64 {
        let inputs = self.program.inputs.iter().enumerate().filter(|(i, _)| *i < 32 && vectors.vec4 >> i & 1 == 1);
        inputs.map(|(_, input)| 4 * input.ty.size()).max().unwrap_or(16)
    }

    /// The threads of one subgroup. `neighbours_reduced` says that elements are closer along the reduced axes.
    fn cpu_reduce_threads(&self, neighbours_reduced: bool) -> ReduceThreads {
        let (outputs, reduced) = (self.layout.outputs(), self.layout.reduced());
        let lanes = cpu_group_threads(self.caps);
        if self.caps.exponential_loops {
            let (output_threads, reduction_threads) = if outputs < lanes.into() { (1, lanes) } else { (lanes, 1) };
            let vectors = VectorInputs::default();
            return ReduceThreads {
                output_threads,
                reduction_threads,
                vectors,
                output_vectors: 0,
                neighbours_share: false,
            };
        }
        let vectors = self.reduced_vectors();
        if outputs < lanes.into() || neighbours_reduced && vectors.vec4 != 0 && reduced >= 64 {
            return ReduceThreads {
                output_threads: 1,
                reduction_threads: lanes,
                vectors,
                output_vectors: 0,
                neighbours_share: false,
            };
        }
        let vectors = self.output_vectors();
        // Whole lines of memory: what is read of a row lies far from what is read of the next.
        let output_vectors = match outputs {
            _ if vectors.vec4 == 0 => 0,
            _ if outputs.is_multiple_of(16) && outputs >= u64::from(64 * lanes) => 4,
            _ => 1,
        };
        ReduceThreads { output_threads: lanes, reduction_threads: 1, vectors, output_vectors, neighbours_share: false }
    }

    /// The widest stride of all views along an axis, the largest number where none moves. The widest counts: what is read again and
    /// again comes from a cache.
    fn widest_stride(&self, axis: Option<usize>) -> i64 {
        let stride = |axis: usize| self.layout.views.iter().map(|view| view.strides[axis].abs()).max();
        axis.and_then(stride).filter(|&stride| stride != 0).unwrap_or(i64::MAX)
    }
}
