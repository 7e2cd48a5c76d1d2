//! The memory plan of a graph: which of the allocations that its commands write share memory.

use smallvec::SmallVec;

/// The size from which allocations share memory even where that takes a barrier: commands that write so much fill the device for longer
/// than a barrier takes.
pub(super) const MIN_BARRIER_BYTES: u64 = 4 << 20;

/// The allocations that a command reads and writes.
#[derive(Default)]
pub(super) struct CommandUses {
    pub reads: SmallVec<[usize; 4]>,
    pub writes: SmallVec<[usize; 2]>,
    /// Of `reads` those that the command reads at an index only before it writes there, each with the one of `writes` that may take its memory.
    pub in_place: SmallVec<[(usize, usize); 2]>,
    /// Whether the command does nothing but write the elements of the one read in `in_place`.
    pub copies: bool,
}

impl CommandUses {
    /// A command that reads and writes these.
    #[cfg(test)]
    pub fn of(reads: &[usize], writes: &[usize]) -> Self {
        Self { reads: SmallVec::from_slice(reads), writes: SmallVec::from_slice(writes), ..Self::default() }
    }

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

/// The intervals between barriers in which a piece of memory was used last, and the allocation that has it.
#[derive(Clone, Copy, Default)]
struct SlotUse {
    written: usize,
    used: usize,
    owner: usize,
}

/// A plan that is made, command by command.
struct Planner<'a> {
    sizes: &'a [u64],
    /// An allocation that shares memory with no other.
    alone: Option<usize>,
    /// The command that uses each allocation last.
    last_uses: Vec<Option<usize>>,
    plan: MemoryPlan,
    /// Slots whose allocations no later command uses.
    free: Vec<usize>,
    /// Of all slots when they were used, as the stream counts it.
    used: Vec<SlotUse>,
    epoch: usize,
}

impl MemoryPlan {
    /// Plans memory for allocations of these sizes. The last ones, from `donated` on, have memory from the start; the first use of all others is a
    /// write. Allocations in `kept` outlive the graph: their memory is not used again. Memory is used again only where no barrier is needed
    /// for it, as barriers keep commands apart that are independent, or where it is large. The allocation `alone` shares memory with no other.
    pub fn new(sizes: &[u64], donated: usize, uses: &[CommandUses], kept: &[usize], alone: Option<usize>) -> Self {
        let mut last_uses = vec![None; sizes.len()];
        for (command, used) in uses.iter().enumerate() {
            used.all().for_each(|allocation| last_uses[allocation] = Some(command));
        }
        kept.iter().for_each(|&allocation| last_uses[allocation] = Some(usize::MAX));
        let plan = Self { slots: vec![usize::MAX; sizes.len()], sizes: vec![] };
        let mut planner = Planner { sizes, alone, last_uses, plan, free: vec![], used: vec![], epoch: 1 };
        for allocation in donated..sizes.len() {
            planner.add_slot(allocation);
            if planner.last_uses[allocation].is_none() {
                planner.free.push(planner.plan.slots[allocation]);
            }
        }
        uses.iter().enumerate().for_each(|(command, used)| planner.command(command, used));
        planner.plan
    }
}

impl Planner<'_> {
    fn add_slot(&mut self, allocation: usize) {
        self.plan.slots[allocation] = self.plan.sizes.len();
        self.plan.sizes.push(self.sizes[allocation]);
        self.used.push(SlotUse { owner: allocation, ..SlotUse::default() });
    }

    /// Gives memory to what the command writes first, and takes back the memory of what it uses last.
    fn command(&mut self, command: usize, used: &CommandUses) {
        // A copy in place is left out.
        if used.copies && used.writes.iter().any(|&written| self.take_in_place(command, used, written, |_| true)) {
            return;
        }
        let last = |&allocation: &usize| self.used.get(self.plan.slots[allocation]).copied().unwrap_or_default();
        let conflicts = used.reads.iter().any(|read| last(read).written == self.epoch)
            || used.writes.iter().any(|write| last(write).used == self.epoch);
        self.epoch += usize::from(conflicts);
        let epoch = self.epoch;
        for &written in &used.writes {
            self.take_in_place(command, used, written, |slot| slot.used < epoch);
        }
        for allocation in used.all() {
            if self.plan.slots[allocation] == usize::MAX {
                self.take(allocation);
            }
        }
        let epoch = self.epoch;
        used.all().for_each(|allocation| self.used[self.plan.slots[allocation]].used = epoch);
        used.writes.iter().for_each(|&allocation| self.used[self.plan.slots[allocation]].written = epoch);
        for allocation in used.all() {
            let slot = self.plan.slots[allocation];
            let owned = self.used[slot].owner == allocation;
            if owned && self.last_uses[allocation] == Some(command) && !self.free.contains(&slot) {
                self.free.push(slot);
            }
        }
    }

    /// Gives what the command writes the memory of what it reads last, where it may be in place; `unused` says whether no barrier is needed.
    fn take_in_place(
        &mut self,
        command: usize,
        used: &CommandUses,
        written: usize,
        unused: impl Fn(&SlotUse) -> bool,
    ) -> bool {
        if self.plan.slots[written] != usize::MAX || self.alone == Some(written) {
            return false;
        }
        let size = self.sizes[written];
        let candidates = used.in_place.iter().filter(|pair| pair.1 == written).map(|pair| pair.0);
        let read = candidates.into_iter().find(|&read| {
            // Another result of the command may have taken it.
            let free = |slot: &SlotUse| slot.owner == read && (unused(slot) || size >= MIN_BARRIER_BYTES);
            self.last_uses[read] == Some(command)
                && self.sizes[read] == size
                && self.used.get(self.plan.slots[read]).is_some_and(free)
        });
        let Some(read) = read else { return false };
        let slot = self.plan.slots[read];
        self.plan.slots[written] = slot;
        self.used[slot].owner = written;
        true
    }

    fn take(&mut self, allocation: usize) {
        let size = self.sizes[allocation];
        let unused = |slot: usize| self.used[slot].used < self.epoch || size >= MIN_BARRIER_BYTES;
        let reusable = self.free.iter().rposition(|&slot| self.plan.sizes[slot] == size && unused(slot));
        let reusable = reusable.filter(|_| self.alone != Some(allocation));
        match reusable {
            Some(position) => {
                let slot = self.free.swap_remove(position);
                self.plan.slots[allocation] = slot;
                self.used[slot].owner = allocation;
            }
            None => self.add_slot(allocation),
        }
        self.epoch += usize::from(self.used[self.plan.slots[allocation]].used == self.epoch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A command that reads and writes these allocations.
    /// The plan of a graph without donated inputs.
    fn planned(sizes: &[u64], uses: &[CommandUses], kept: &[usize]) -> MemoryPlan {
        MemoryPlan::new(sizes, sizes.len(), uses, kept, None)
    }

    fn chain() -> [CommandUses; 4] {
        [
            CommandUses::of(&[], &[0]),
            CommandUses::of(&[0], &[1]),
            CommandUses::of(&[1], &[2]),
            CommandUses::of(&[2], &[3]),
        ]
    }

    #[test]
    fn a_chain_takes_two_allocations() {
        let plan = planned(&[64; 4], &chain(), &[3]);
        assert_eq!(plan, MemoryPlan { slots: vec![0, 1, 0, 1], sizes: vec![64, 64] });
    }

    #[test]
    fn results_share_with_nothing_that_comes_later() {
        let plan = planned(&[64; 3], &chain()[..3], &[0, 2]);
        assert_eq!(plan.slots, [0, 1, 2]);
    }

    #[test]
    fn what_stands_alone_shares_with_nothing_that_came_before() {
        let plan = MemoryPlan::new(&[64; 4], 4, &chain(), &[2], Some(2));
        assert_eq!(plan.slots, [0, 1, 2, 1]);
        let copied = [CommandUses::of(&[], &[0]), in_place(0, 1, true)];
        assert_eq!(MemoryPlan::new(&[64; 2], 2, &copied, &[1], Some(1)).slots, [0, 1]);
    }

    #[test]
    fn memory_of_another_size_is_not_shared() {
        let plan = planned(&[64, 128, 64, 128], &chain(), &[]);
        assert_eq!(plan, MemoryPlan { slots: vec![0, 1, 0, 1], sizes: vec![64, 128] });
        let plan = planned(&[64, 64, 128, 64], &chain(), &[]);
        assert_eq!(plan.slots, [0, 1, 2, 1]);
    }

    #[test]
    fn independent_commands_share_only_what_is_large() {
        // Two times two commands that follow each other, and no result is used later.
        let pairs = || {
            [
                CommandUses::of(&[], &[0]),
                CommandUses::of(&[0], &[1]),
                CommandUses::of(&[], &[2]),
                CommandUses::of(&[2], &[3]),
            ]
        };
        let small = planned(&[64; 4], &pairs(), &[]);
        assert_eq!(small.slots, [0, 1, 2, 1]);
        let large = planned(&[MIN_BARRIER_BYTES; 4], &pairs(), &[]);
        assert_eq!(large.sizes.len(), 2);
        let same = [CommandUses::of(&[], &[0]), CommandUses::of(&[], &[1]), CommandUses::of(&[], &[2])];
        assert_eq!(planned(&[64; 3], &same, &[]).slots, [0, 1, 2]);
    }

    #[test]
    fn a_command_never_writes_over_what_it_reads() {
        for size in [64, MIN_BARRIER_BYTES] {
            let uses = [CommandUses::of(&[], &[0]), CommandUses::of(&[0], &[1, 2]), CommandUses::of(&[2, 1], &[3])];
            let plan = planned(&[size; 4], &uses, &[]);
            for used in &uses {
                let mut slots: Vec<_> = used.all().map(|allocation| plan.slots[allocation]).collect();
                slots.sort_unstable();
                slots.dedup();
                assert_eq!(slots.len(), used.all().count(), "{plan:?}");
            }
        }
    }
    /// A command that reads the first allocation only where it writes the second.
    fn in_place(read: usize, write: usize, copies: bool) -> CommandUses {
        CommandUses { in_place: SmallVec::from_slice(&[(read, write)]), copies, ..CommandUses::of(&[read], &[write]) }
    }

    #[test]
    fn a_result_takes_the_memory_of_an_operand_that_no_later_command_uses() {
        let plan = |uses: &[CommandUses], kept: &[usize]| planned(&[64, 64, 64], uses, kept).slots;
        let made = || CommandUses::of(&[], &[0]);
        assert_eq!(plan(&[made(), in_place(0, 1, false), in_place(1, 2, false)], &[2]), [0, 0, 0]);
        // It is used later, kept, or of another size.
        assert_eq!(plan(&[made(), in_place(0, 1, false), CommandUses::of(&[0, 1], &[2])], &[2])[..2], [0, 1]);
        assert_eq!(plan(&[made(), in_place(0, 1, false)], &[0, 1])[..2], [0, 1]);
        assert_eq!(planned(&[64, 128], &[made(), in_place(0, 1, false)], &[1]).slots, [0, 1]);
        // Another command of the interval reads it, and a barrier would be needed.
        let uses = [made(), CommandUses::of(&[0], &[1]), in_place(0, 2, false)];
        assert_eq!(plan(&uses, &[1, 2]), [0, 1, 2]);
        // Not of a copy, which is left out, nor where much is written.
        let uses = [made(), CommandUses::of(&[0], &[1]), in_place(0, 2, true)];
        assert_eq!(plan(&uses, &[1, 2]), [0, 1, 0]);
        let uses = [made(), CommandUses::of(&[0], &[1]), in_place(0, 2, false)];
        assert_eq!(planned(&[MIN_BARRIER_BYTES; 3], &uses, &[1, 2]).slots, [0, 1, 0]);
    }

    #[test]
    fn each_of_several_results_takes_the_memory_of_an_operand_of_its_own() {
        let made = || CommandUses::of(&[], &[0, 1]);
        let update = |in_place: &[(usize, usize)]| CommandUses {
            in_place: SmallVec::from_slice(in_place),
            ..CommandUses::of(&[0, 1], &[2, 3])
        };
        let plan = |in_place: &[(usize, usize)]| planned(&[64; 4], &[made(), update(in_place)], &[2, 3]).slots;
        assert_eq!(plan(&[(0, 2), (1, 3)]), [0, 1, 0, 1]);
        assert_eq!(plan(&[(0, 2), (0, 3), (1, 2), (1, 3)]), [0, 1, 0, 1]);
        assert_eq!(plan(&[(0, 2), (0, 3)]), [0, 1, 0, 2]);
        assert_eq!(plan(&[(1, 3)]), [0, 1, 2, 1]);
    }

    #[test]
    fn memory_that_was_taken_in_place_is_free_after_its_last_use() {
        let uses = [
            CommandUses::of(&[], &[0]),
            in_place(0, 1, false),
            CommandUses::of(&[1], &[2]),
            CommandUses::of(&[2], &[3]),
        ];
        let plan = planned(&[64; 4], &uses, &[]);
        assert_eq!(plan.slots, [0, 0, 1, 0]);
    }

    #[test]
    fn donated_inputs_are_memory_once_they_are_dead() {
        // The first allocation is a result, the second a donated input.
        let plan = |uses: &[CommandUses]| MemoryPlan::new(&[64, 64], 1, uses, &[0], None);
        assert_eq!(plan(&[in_place(1, 0, true)]).slots, [0, 0]);
        assert_eq!(plan(&[in_place(1, 0, false)]).slots, [0, 0]);
        assert_eq!(plan(&[CommandUses::of(&[1], &[0])]).slots, [1, 0]);
        assert_eq!(plan(&[CommandUses::of(&[], &[0])]).slots, [0, 0]);
    }
}
