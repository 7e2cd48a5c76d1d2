//! The memory plan of a graph: which of the allocations that its commands write share memory.

use smallvec::SmallVec;

/// The size from which allocations share memory even where that takes a barrier: commands that write so much fill the device for longer
/// than a barrier takes.
const MIN_BARRIER_BYTES: u64 = 4 << 20;

/// The allocations that a command reads and writes.
#[derive(Default)]
pub(super) struct CommandUses {
    pub reads: SmallVec<[usize; 4]>,
    pub writes: SmallVec<[usize; 2]>,
}

impl CommandUses {
    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = usize> {
        self.reads.iter().chain(&self.writes).copied()
    }
}

/// The memory that each allocation takes, and the size of each piece of memory.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct MemoryPlan {
    pub slots: Vec<usize>,
    pub sizes: Vec<u64>,
}

/// The intervals between barriers in which a piece of memory was used last.
#[derive(Clone, Copy, Default)]
struct LastEpochs {
    written: usize,
    used: usize,
}

impl MemoryPlan {
    /// Plans memory for allocations of these sizes. The first use of an allocation is a write. Allocations in `kept` outlive the graph:
    /// their memory is not used again. Memory is used again only where no barrier is needed for it, as barriers keep commands apart that
    /// are independent, or where it is large.
    pub fn new(sizes: &[u64], uses: &[CommandUses], kept: &[usize]) -> Self {
        let mut last_use = vec![0; sizes.len()];
        for (command, used) in uses.iter().enumerate() {
            used.all().for_each(|allocation| last_use[allocation] = command);
        }
        kept.iter().for_each(|&allocation| last_use[allocation] = usize::MAX);
        let mut plan = Self { slots: vec![usize::MAX; sizes.len()], sizes: vec![] };
        // Slots whose allocations no later command uses, and of all slots when they were used, as the stream counts it.
        let (mut free, mut epochs, mut epoch): (Vec<usize>, Vec<LastEpochs>, _) = (vec![], vec![], 1);
        for (command, used) in uses.iter().enumerate() {
            let last = |&allocation: &usize| epochs.get(plan.slots[allocation]).copied().unwrap_or_default();
            let conflicts = used.reads.iter().any(|read| last(read).written == epoch)
                || used.writes.iter().any(|write| last(write).used == epoch);
            epoch += usize::from(conflicts);
            for allocation in used.all() {
                if plan.slots[allocation] != usize::MAX {
                    continue;
                }
                let size = sizes[allocation];
                let unused = |slot: usize| epochs[slot].used < epoch || size >= MIN_BARRIER_BYTES;
                let reusable = free.iter().rposition(|&slot| plan.sizes[slot] == size && unused(slot));
                plan.slots[allocation] = match reusable {
                    Some(position) => free.swap_remove(position),
                    None => {
                        plan.sizes.push(size);
                        epochs.push(LastEpochs::default());
                        plan.sizes.len() - 1
                    }
                };
                epoch += usize::from(epochs[plan.slots[allocation]].used == epoch);
            }
            used.all().for_each(|allocation| epochs[plan.slots[allocation]].used = epoch);
            used.writes.iter().for_each(|&allocation| epochs[plan.slots[allocation]].written = epoch);
            for allocation in used.all() {
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

    /// A command that reads and writes these allocations.
    fn command(reads: &[usize], writes: &[usize]) -> CommandUses {
        CommandUses { reads: SmallVec::from_slice(reads), writes: SmallVec::from_slice(writes) }
    }

    fn chain() -> [CommandUses; 4] {
        [command(&[], &[0]), command(&[0], &[1]), command(&[1], &[2]), command(&[2], &[3])]
    }

    #[test]
    fn a_chain_takes_two_allocations() {
        let plan = MemoryPlan::new(&[64; 4], &chain(), &[3]);
        assert_eq!(plan, MemoryPlan { slots: vec![0, 1, 0, 1], sizes: vec![64, 64] });
    }

    #[test]
    fn results_share_with_nothing_that_comes_later() {
        let plan = MemoryPlan::new(&[64; 3], &chain()[..3], &[0, 2]);
        assert_eq!(plan.slots, [0, 1, 2]);
    }

    #[test]
    fn memory_of_another_size_is_not_shared() {
        let plan = MemoryPlan::new(&[64, 128, 64, 128], &chain(), &[]);
        assert_eq!(plan, MemoryPlan { slots: vec![0, 1, 0, 1], sizes: vec![64, 128] });
        let plan = MemoryPlan::new(&[64, 64, 128, 64], &chain(), &[]);
        assert_eq!(plan.slots, [0, 1, 2, 1]);
    }

    #[test]
    fn independent_commands_share_only_what_is_large() {
        // Two times two commands that follow each other, and no result is used later.
        let pairs = || [command(&[], &[0]), command(&[0], &[1]), command(&[], &[2]), command(&[2], &[3])];
        let small = MemoryPlan::new(&[64; 4], &pairs(), &[]);
        assert_eq!(small.slots, [0, 1, 2, 1]);
        let large = MemoryPlan::new(&[MIN_BARRIER_BYTES; 4], &pairs(), &[]);
        assert_eq!(large.sizes.len(), 2);
        let same = [command(&[], &[0]), command(&[], &[1]), command(&[], &[2])];
        assert_eq!(MemoryPlan::new(&[64; 3], &same, &[]).slots, [0, 1, 2]);
    }

    #[test]
    fn a_command_never_writes_over_what_it_reads() {
        for size in [64, MIN_BARRIER_BYTES] {
            let uses = [command(&[], &[0]), command(&[0], &[1, 2]), command(&[2, 1], &[3])];
            let plan = MemoryPlan::new(&[size; 4], &uses, &[]);
            for used in &uses {
                let mut slots: Vec<_> = used.all().map(|allocation| plan.slots[allocation]).collect();
                slots.sort_unstable();
                slots.dedup();
                assert_eq!(slots.len(), used.all().count(), "{plan:?}");
            }
        }
    }
}
