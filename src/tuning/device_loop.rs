//! Which loops one workgroup runs, with how many invocations, and how many iterations a dispatch has. The functions are pure: they know a
//! loop by the elements and operations of its steps alone.

use super::cpu_group_threads;
use crate::device::Capabilities;

/// The most elements of a step: more are faster with kernels of many workgroups.
const MAX_STEP_ELEMENTS: u64 = 1 << 14;
/// The most elements of all steps of an iteration.
const MAX_ITERATION_ELEMENTS: u64 = 1 << 16;
/// The most operations on elements of an iteration. On lavapipe of two cores kernels are faster from 400,000 on; a GPU's multiprocessor takes
/// some 20 us for that of a GPU, which issuing kernels and reading the condition takes, too.
const MAX_CPU_WORK: u64 = 1 << 18;
const MAX_GPU_WORK: u64 = 1 << 20;
/// The most steps of a loop, whose kernel holds each of them. Lavapipe builds one of 160 steps in 0.2 s, and a kernel for each step takes it ten
/// times as long as the step does here.
const MAX_CPU_STEPS: usize = 256;
const MAX_GPU_STEPS: usize = 64;
/// The most operations of a loop: compiling takes longer with each.
const MAX_CPU_OPERATIONS: u64 = 1600;
const MAX_GPU_OPERATIONS: u64 = 400;
/// The fewest invocations of a workgroup on a GPU.
const MIN_GPU_THREADS: u64 = 32;
/// Nanoseconds that a dispatch may take: the first one, and every later one, which the host waits for only after the next is due.
const FIRST_DISPATCH: u64 = 2_000_000;
const MAX_DISPATCH: u64 = 64_000_000;
/// Nanoseconds of a step with its barrier, and of one operation on one element by one invocation: upper bounds, by measurement on an H200 and
/// on lavapipe.
const STEP_TIME: u64 = 500;
const OPERATION_TIME: u64 = 10;
/// Iterations of all loops of a kernel's invocation on a CPU device: llvmpipe's source has a limit of 65,535.
const MAX_CPU_ITERATIONS: u64 = 60_000;

/// What a step costs.
#[derive(Clone, Copy, Debug)]
pub struct StepCost {
    /// Elements that it computes or reduces.
    pub elements: u64,
    /// Operations on each.
    pub operations: u64,
}

/// Whether one workgroup runs a loop of these steps in less time than kernels that the host issues.
pub fn fits(steps: &[StepCost], caps: &Capabilities) -> bool {
    let elements = |step: &StepCost| step.elements;
    let work = |step: &StepCost| step.elements.saturating_mul(step.operations);
    let (most_steps, most_operations, most_work) = if caps.cpu {
        (MAX_CPU_STEPS, MAX_CPU_OPERATIONS, MAX_CPU_WORK)
    } else {
        (MAX_GPU_STEPS, MAX_GPU_OPERATIONS, MAX_GPU_WORK)
    };
    !caps.exponential_loops
        && steps.len() <= most_steps
        && steps.iter().all(|step| step.elements <= MAX_STEP_ELEMENTS)
        && steps.iter().map(elements).sum::<u64>() <= MAX_ITERATION_ELEMENTS
        && steps.iter().map(|step| step.operations).sum::<u64>() <= most_operations
        && steps.iter().map(work).sum::<u64>() <= most_work
}

/// Invocations of the workgroup, a power of two; `shared_bytes` is the shared memory that each needs.
pub fn threads(steps: &[StepCost], shared_bytes: u64, caps: &Capabilities) -> u32 {
    if caps.cpu {
        return cpu_group_threads(caps);
    }
    let largest = steps.iter().map(|step| step.elements).max().unwrap_or(1);
    let most = (u64::from(caps.max_threads) + 1).next_power_of_two() / 2;
    let mut threads = largest.next_power_of_two().clamp(MIN_GPU_THREADS, most);
    while threads * shared_bytes > u64::from(caps.max_shared) {
        threads /= 2;
    }
    threads as u32
}

/// Invocations that share an output of a reduction, a power of two.
pub fn reduction_threads(outputs: u64, reduced: u64, threads: u32) -> u32 {
    let free = u64::from(threads) / outputs.next_power_of_two().min(u64::from(threads));
    free.min(reduced.next_power_of_two()) as u32
}

/// How often the dispatch of that index evaluates the condition of a loop with these steps: it takes well below a second, and later ones take
/// longer.
pub fn conditions(steps: &[StepCost], threads: u32, dispatch: u64, caps: &Capabilities) -> u64 {
    let rounds = |step: &StepCost| step.elements.div_ceil(threads.into()).max(1);
    let time: u64 = steps.iter().map(|step| STEP_TIME + rounds(step) * step.operations * OPERATION_TIME).sum();
    let allowed = (FIRST_DISPATCH << dispatch.min(8)).min(MAX_DISPATCH);
    let by_time = allowed / time.max(1);
    let loops: u64 = 1 + steps.iter().map(|step| 8 + rounds(step)).sum::<u64>();
    let most = if caps.cpu { MAX_CPU_ITERATIONS / loops } else { u64::from(u32::MAX / 2) };
    by_time.min(most).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tuning::devices::{h200, lavapipe};

    fn step(elements: u64, operations: u64) -> StepCost {
        StepCost { elements, operations }
    }

    #[test]
    fn small_loops_fit_and_large_ones_do_not() {
        let fits = |steps: &[_]| [h200(), lavapipe()].map(|caps| fits(steps, &caps));
        assert_eq!(fits(&[step(4096, 3), step(1, 2)]), [true; 2]);
        assert_eq!(fits(&[step(1 << 15, 1)]), [false; 2]);
        assert_eq!(fits(&[step(1 << 14, 1); 5]), [false; 2]);
        assert_eq!(fits(&[step(1, 1); 65]), [false, true]);
        assert_eq!(fits(&[step(1, 1); 257]), [false; 2]);
        assert_eq!(fits(&[step(1, 401)]), [false, true]);
        assert_eq!(fits(&[step(1, 1601)]), [false; 2]);
        // One multiprocessor of a GPU computes these functions in time, and a CPU device's core does not.
        assert_eq!(fits(&[step(1 << 14, 30)]), [true, false]);
        assert_eq!(fits(&[step(1 << 14, 100)]), [false; 2]);
    }

    #[test]
    fn a_workgroup_has_the_threads_of_its_largest_step() {
        let threads = |elements, shared, caps: &_| threads(&[step(1, 1), step(elements, 1)], shared, caps);
        assert_eq!(threads(1, 0, &h200()), 32);
        assert_eq!(threads(300, 16, &h200()), 512);
        assert_eq!(threads(1 << 14, 16, &h200()), 1024);
        assert_eq!(threads(1 << 14, 64, &h200()), 512);
        assert_eq!(threads(1 << 14, 64, &lavapipe()), 8);
    }

    #[test]
    fn outputs_share_the_threads() {
        assert_eq!(reduction_threads(1, 4096, 256), 256);
        assert_eq!(reduction_threads(1, 3, 256), 4);
        assert_eq!(reduction_threads(10, 4096, 256), 16);
        assert_eq!(reduction_threads(1000, 4096, 256), 1);
    }

    #[test]
    fn dispatches_grow_and_stay_short() {
        let steps = [step(4096, 3), step(4096, 2), step(1, 2)];
        let conditions = |dispatch| conditions(&steps, 1024, dispatch, &h200());
        assert!(conditions(0) > 500 && conditions(1) >= 2 * conditions(0) && conditions(20) == conditions(5));
        assert_eq!(super::conditions(&[step(1 << 14, 200); 4], 8, 0, &lavapipe()), 1);
    }
}
