//! How chain kernels are spread over invocations, memory and dispatches. The functions are pure: they know a log-density by the loops that
//! it makes.

use super::cpu_group_threads;
use crate::device::Capabilities;

/// Invocations of a chain's workgroup on a GPU, at least where subgroups are no larger, and at most.
const MIN_CHAIN_THREADS: u64 = 32;
const MAX_CHAIN_THREADS: u64 = 256;
/// Elements of the longest loop for which a GPU gets another invocation: with fewer, what each does besides takes longer.
const ELEMENTS_PER_THREAD: u64 = 2;
/// Subgroups of a multiprocessor that hide each other's latencies. With 1,024 chains on an H200, workgroups of 64 invocations took less time than
/// those of 32 and of 128.
const SUBGROUPS_TO_FILL: u64 = 12;
/// The most bytes of a workgroup's memory that chains use: more would leave room for few workgroups at once.
const MAX_CHAIN_SHARED_BYTES: u64 = 32 << 10;
/// Nanoseconds that a dispatch may take.
const MAX_CHAIN_DISPATCH: u64 = 100_000_000;
/// Nanoseconds of an operation of one invocation: upper bounds, functions included.
const GPU_OPERATION_TIME: u64 = 20;
const CPU_OPERATION_TIME: u64 = 60;
/// Workgroups that a multiprocessor runs at once, at least.
const RESIDENT_CHAINS: u64 = 2;
/// Iterations of all loops of an invocation on a CPU device: llvmpipe's source has a limit of 65,535.
pub const MAX_CPU_CHAIN_ITERATIONS: u64 = 60_000;
/// Elements of a position with a dense mass: a factor of more takes a second of a GPU, and has too many loops for llvmpipe.
const MAX_DENSE_DIMENSIONS: u64 = 512;
const MAX_CPU_DENSE_DIMENSIONS: u64 = 128;

/// Invocations of a chain's workgroup, a power of two; `longest` is the number of elements of its longest loop. Many chains have fewer
/// invocations each: what all invocations do besides the loop takes as long for two subgroups as for two chains.
pub fn chain_threads(longest: u64, chains: u64, caps: &Capabilities) -> u32 {
    if caps.cpu {
        return cpu_group_threads(caps);
    }
    let least = MIN_CHAIN_THREADS.max(caps.subgroup.into());
    let filling = caps.multiprocessors * SUBGROUPS_TO_FILL * u64::from(caps.subgroup.max(1)) / chains.max(1);
    let most = MAX_CHAIN_THREADS.min(caps.max_threads.into()).min(filling.next_power_of_two()).max(least);
    (longest / ELEMENTS_PER_THREAD).clamp(least, most).next_power_of_two().min(u64::from(caps.max_threads)) as u32
}

/// Bytes of a workgroup's memory that a chain may use, where it exchanges sums through `partial_bytes` of it.
pub fn shared_budget(partial_bytes: u64, caps: &Capabilities) -> u64 {
    u64::from(caps.max_shared).min(MAX_CHAIN_SHARED_BYTES).saturating_sub(partial_bytes)
}

/// The chains and the steps of a dispatch, where an evaluation has `operations` of one invocation and `iterations` of loops.
pub fn chain_dispatch(operations: u64, iterations: u64, chains: u64, steps: u64, caps: &Capabilities) -> (u64, u64) {
    let time = operations.max(1) * if caps.cpu { CPU_OPERATION_TIME } else { GPU_OPERATION_TIME };
    let at_once = if caps.cpu { 1 } else { caps.multiprocessors.max(1) * RESIDENT_CHAINS };
    let rounds = (MAX_CHAIN_DISPATCH / time).max(1);
    let chains = chains.min(rounds.saturating_mul(at_once)).max(1);
    let by_time = rounds / chains.div_ceil(at_once);
    (chains, steps.min(by_time).min(most_chain_steps(iterations, 0, caps)).max(1))
}

/// The most elements of a position that has a dense mass: its factor is made within a dispatch.
pub fn most_dense_dimensions(caps: &Capabilities) -> u64 {
    if caps.cpu { MAX_CPU_DENSE_DIMENSIONS } else { MAX_DENSE_DIMENSIONS }
}

/// The most steps of a dispatch, where a step makes `iterations` of loops, and the dispatch `once` besides.
pub fn most_chain_steps(iterations: u64, once: u64, caps: &Capabilities) -> u64 {
    let left = MAX_CPU_CHAIN_ITERATIONS.saturating_sub(once);
    let by_loops = if caps.cpu { left / (iterations + 1) } else { u32::MAX.into() };
    by_loops.saturating_sub(1).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tuning::devices::{h200, lavapipe};

    #[test]
    fn observations_share_the_invocations() {
        let threads = |longest| [chain_threads(longest, 1, &h200()), chain_threads(longest, 1, &lavapipe())];
        assert_eq!(threads(0), [32, 8]);
        assert_eq!(threads(200), [128, 8]);
        assert_eq!(threads(100_000), [256, 8]);
    }

    #[test]
    fn chains_that_fill_the_device_have_fewer_invocations_each() {
        let threads = |chains| [chain_threads(200, chains, &h200()), chain_threads(200, chains, &lavapipe())];
        assert_eq!(threads(512), [128, 8]);
        assert_eq!(threads(1024), [64, 8]);
        assert_eq!(threads(16_384), [32, 8]);
    }

    #[test]
    fn dispatches_stay_short() {
        // A small model's chains all run at once; a large one's are cut by steps, then by chains.
        assert_eq!(chain_dispatch(100, 10, 64, 32, &h200()), (64, 32));
        assert_eq!(chain_dispatch(100_000, 1000, 264, 1000, &h200()), (264, 50));
        assert_eq!(chain_dispatch(1_000_000, 10_000, 16_384, 1000, &h200()), (1320, 1));
        // llvmpipe's loops are limited.
        assert_eq!(most_chain_steps(59, 0, &lavapipe()), 999);
        assert_eq!(most_chain_steps(59, 30_000, &lavapipe()), 499);
        assert_eq!(most_chain_steps(100_000, 0, &lavapipe()), 1);
        assert_eq!(most_chain_steps(59, 30_000, &h200()), u64::from(u32::MAX) - 1);
        assert_eq!(chain_dispatch(10_000, 5_000, 1, 100, &lavapipe()), (1, 10));
        assert_eq!(chain_dispatch(100_000_000, 50_000, 10, 100, &lavapipe()), (1, 1));
    }
}
