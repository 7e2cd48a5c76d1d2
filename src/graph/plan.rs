//! The memory plan of a graph: which of the allocations that its commands write share memory.

/// The memory that each allocation takes, and the size of each piece of memory.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct MemoryPlan {
    pub slots: Vec<usize>,
    pub sizes: Vec<u64>,
}

impl MemoryPlan {
    /// Plans memory for allocations of these sizes. `uses` names the allocations that each command reads or writes; the first use of an
    /// allocation is a write. Allocations in `kept` outlive the graph: their memory is not used again.
    pub fn new(sizes: &[u64], uses: &[impl AsRef<[usize]>], kept: &[usize]) -> Self {
        let mut last_use = vec![0; sizes.len()];
        for (command, used) in uses.iter().enumerate() {
            used.as_ref().iter().for_each(|&allocation| last_use[allocation] = command);
        }
        kept.iter().for_each(|&allocation| last_use[allocation] = usize::MAX);
        let mut plan = Self { slots: vec![usize::MAX; sizes.len()], sizes: vec![] };
        // Slots whose allocations no later command uses.
        let mut free: Vec<usize> = vec![];
        for (command, used) in uses.iter().enumerate() {
            for &allocation in used.as_ref() {
                if plan.slots[allocation] != usize::MAX {
                    continue;
                }
                let reusable = free.iter().rposition(|&slot| plan.sizes[slot] == sizes[allocation]);
                plan.slots[allocation] = match reusable {
                    Some(position) => free.swap_remove(position),
                    None => {
                        plan.sizes.push(sizes[allocation]);
                        plan.sizes.len() - 1
                    }
                };
            }
            for &allocation in used.as_ref() {
                let slot = plan.slots[allocation];
                if last_use[allocation] == command && !free.contains(&slot) {
                    free.push(slot);
                }
            }
        }
        plan
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_takes_two_allocations() {
        let uses: Vec<Vec<usize>> = vec![vec![0], vec![0, 1], vec![1, 2], vec![2, 3]];
        let plan = MemoryPlan::new(&[64; 4], &uses, &[3]);
        assert_eq!(plan, MemoryPlan { slots: vec![0, 1, 0, 1], sizes: vec![64, 64] });
    }

    #[test]
    fn results_share_with_nothing_that_comes_later() {
        let uses: Vec<Vec<usize>> = vec![vec![0], vec![0, 1], vec![1, 2]];
        let plan = MemoryPlan::new(&[64; 3], &uses, &[0, 2]);
        assert_eq!(plan.slots, [0, 1, 2]);
    }

    #[test]
    fn memory_of_another_size_is_not_shared() {
        let uses: Vec<Vec<usize>> = vec![vec![0], vec![1], vec![2]];
        let plan = MemoryPlan::new(&[64, 128, 64], &uses, &[]);
        assert_eq!(plan, MemoryPlan { slots: vec![0, 1, 0], sizes: vec![64, 128] });
    }

    #[test]
    fn a_command_never_writes_over_what_it_reads() {
        let uses: Vec<Vec<usize>> = vec![vec![0], vec![0, 1, 2], vec![2, 3, 1]];
        let plan = MemoryPlan::new(&[64; 4], &uses, &[]);
        for used in &uses {
            let mut slots: Vec<_> = used.iter().map(|&allocation| plan.slots[allocation]).collect();
            slots.sort_unstable();
            slots.dedup();
            assert_eq!(slots.len(), used.len(), "{plan:?}");
        }
    }
}
