//! The order of a graph's commands: those that depend on none of each other stand beside each other, so that few barriers separate them.
//! This module owns the order; it does not know what commands do.

use super::plan::CommandUses;

/// Levels before the one that needs a command among which one is looked for that has room for it.
const MAX_LEVELS_BEFORE: usize = 32;

/// What the order of a command rests on besides what it uses.
#[derive(Clone, Copy)]
pub(super) struct CommandSize {
    /// Whether it writes so much that its results should not live longer than they must: it keeps its place among others of that kind.
    pub large: bool,
    /// Its workgroups.
    pub groups: u64,
}

/// When an allocation was used, in levels.
#[derive(Clone, Copy, Default)]
struct LastLevels {
    /// The level after that of its last write.
    written: usize,
    /// The level after those of its last reads.
    read: usize,
}

/// The commands by their levels: a command stands one level after the last command that it depends on, and one that depends on none where few
/// workgroups run, before what needs it. Large commands keep their order.
pub(super) fn by_level(uses: &[CommandUses], sizes: &[CommandSize]) -> Vec<usize> {
    let allocations = uses.iter().flat_map(CommandUses::all).max().map_or(0, |last| last + 1);
    let mut last = vec![LastLevels::default(); allocations];
    let mut after_large = 0;
    let mut levels = Vec::with_capacity(uses.len());
    for (used, &CommandSize { large, .. }) in uses.iter().zip(sizes) {
        let reads = used.reads.iter().map(|&read| last[read].written);
        let writes = used.writes.iter().map(|&written| last[written].written.max(last[written].read));
        let earliest = if large { after_large } else { 0 };
        let level = reads.chain(writes).fold(earliest, usize::max);
        used.reads.iter().for_each(|&read| last[read].read = last[read].read.max(level + 1));
        used.writes.iter().for_each(|&written| last[written].written = level + 1);
        if large {
            after_large = level;
        }
        levels.push(level);
    }
    put_off(&mut levels, uses, sizes, allocations);
    let mut order: Vec<usize> = (0..uses.len()).collect();
    // The sort is stable.
    order.sort_by_key(|&command| levels[command]);
    order
}

/// Moves the commands of the first level, such as copies of a cache, to later ones: all of them together would keep the device from what many
/// levels wait for, where a workgroup of a norm leaves it idle.
fn put_off(levels: &mut [usize], uses: &[CommandUses], sizes: &[CommandSize], allocations: usize) {
    let mut groups = vec![0; levels.iter().max().map_or(0, |last| last + 1)];
    for (&level, size) in levels.iter().zip(sizes) {
        groups[level] += size.groups;
    }
    // Of each allocation, the first level at which a later command uses it, and writes it.
    let (mut used, mut written) = (vec![usize::MAX; allocations], vec![usize::MAX; allocations]);
    for command in (0..uses.len()).rev() {
        let (uses, size) = (&uses[command], sizes[command]);
        let readers = uses.writes.iter().map(|&write| used[write]);
        let needed = readers.chain(uses.reads.iter().map(|&read| written[read])).min();
        if let Some(needed) = needed.filter(|&needed| needed != usize::MAX && levels[command] == 0 && !size.large) {
            groups[0] -= size.groups;
            let levels_before = needed.saturating_sub(MAX_LEVELS_BEFORE)..needed;
            levels[command] = levels_before.rev().min_by_key(|&level| groups[level]).unwrap_or_default();
            groups[levels[command]] += size.groups;
        }
        let level = levels[command];
        uses.all().for_each(|allocation| used[allocation] = used[allocation].min(level));
        uses.writes.iter().for_each(|&write| written[write] = written[write].min(level));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by_level_of(uses: &[CommandUses], large: &[bool]) -> Vec<usize> {
        by_level(uses, &large.iter().map(|&large| CommandSize { large, groups: 1 }).collect::<Vec<_>>())
    }

    fn order(uses: &[CommandUses]) -> Vec<usize> {
        by_level_of(uses, &vec![false; uses.len()])
    }

    #[test]
    fn what_depends_on_nothing_runs_where_few_workgroups_do() {
        // Two copies, which the third and the fifth command of a chain read.
        let uses = [
            CommandUses::of(&[0], &[1]),
            CommandUses::of(&[0], &[2]),
            CommandUses::of(&[3], &[4]),
            CommandUses::of(&[4], &[5]),
            CommandUses::of(&[1, 5], &[6]),
            CommandUses::of(&[6], &[7]),
            CommandUses::of(&[2, 7], &[8]),
        ];
        let sizes = |groups: [u64; 7]| groups.map(|groups| CommandSize { large: false, groups });
        assert_eq!(by_level(&uses, &sizes([50, 50, 100, 1, 90, 80, 1])), [2, 0, 1, 3, 4, 5, 6]);
        assert_eq!(by_level(&uses, &sizes([50, 50, 1, 100, 90, 80, 1])), [0, 1, 2, 3, 4, 5, 6]);
        // What is written where others read, too.
        let in_place = [
            CommandUses::of(&[0], &[1]),
            CommandUses::of(&[2], &[3]),
            CommandUses::of(&[3], &[4]),
            CommandUses::of(&[4], &[0]),
        ];
        assert_eq!(order(&in_place), [1, 0, 2, 3]);
        // Nothing is put off behind what waits for it, nor what nothing waits for.
        assert_eq!(order(&[CommandUses::of(&[0], &[1]), CommandUses::of(&[1], &[2])]), [0, 1]);
    }

    #[test]
    fn independent_chains_run_side_by_side() {
        let chains = [
            CommandUses::of(&[0], &[1]),
            CommandUses::of(&[1], &[2]),
            CommandUses::of(&[0], &[3]),
            CommandUses::of(&[3], &[4]),
        ];
        assert_eq!(order(&chains), [0, 2, 1, 3]);
        // Large results keep their order.
        assert_eq!(by_level_of(&chains, &[true; 4]), [0, 1, 2, 3]);
        assert_eq!(by_level_of(&chains, &[true, true, false, false]), [0, 2, 1, 3]);
    }

    #[test]
    fn what_is_written_again_waits_for_its_readers_and_writers() {
        let uses = [
            CommandUses::of(&[], &[0]),
            CommandUses::of(&[0], &[1]),
            CommandUses::of(&[], &[0]),
            CommandUses::of(&[0], &[2]),
        ];
        assert_eq!(order(&uses), [0, 1, 2, 3]);
        let parts = [
            CommandUses::of(&[], &[0]),
            CommandUses::of(&[], &[0]),
            CommandUses::of(&[], &[1]),
            CommandUses::of(&[0, 1], &[2]),
        ];
        // The third command, which the first level has room for, is put off to the level of the second.
        assert_eq!(order(&parts), [0, 1, 2, 3]);
        let updated = [
            CommandUses::of(&[0], &[0]),
            CommandUses::of(&[1], &[1]),
            CommandUses::of(&[0], &[0]),
            CommandUses::of(&[1], &[2]),
        ];
        assert_eq!(order(&updated), [0, 1, 2, 3]);
    }
}
