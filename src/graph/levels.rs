//! The order of a graph's commands: those that depend on none of each other stand beside each other, so that few barriers separate them.
//! This module owns the order; it does not know what commands do.

use super::plan::CommandUses;

/// When an allocation was used, in levels.
#[derive(Clone, Copy, Default)]
struct LastLevels {
    /// The level after that of its last write.
    written: usize,
    /// The level after those of its last reads.
    read: usize,
}

/// The commands by their levels: a command stands one level after the last command that it depends on. `large` says which of them write so
/// much that their results should not live longer than they must: those keep their order.
pub(super) fn by_level(uses: &[CommandUses], large: &[bool]) -> Vec<usize> {
    let allocations = uses.iter().flat_map(CommandUses::all).max().map_or(0, |last| last + 1);
    let mut last = vec![LastLevels::default(); allocations];
    let mut after_large = 0;
    let mut levels = Vec::with_capacity(uses.len());
    for (used, &large) in uses.iter().zip(large) {
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
    let mut order: Vec<usize> = (0..uses.len()).collect();
    // The sort is stable.
    order.sort_by_key(|&command| levels[command]);
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(uses: &[CommandUses]) -> Vec<usize> {
        by_level(uses, &vec![false; uses.len()])
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
        assert_eq!(by_level(&chains, &[true; 4]), [0, 1, 2, 3]);
        assert_eq!(by_level(&chains, &[true, true, false, false]), [0, 2, 1, 3]);
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
        assert_eq!(order(&parts), [0, 2, 1, 3]);
        let updated = [
            CommandUses::of(&[0], &[0]),
            CommandUses::of(&[1], &[1]),
            CommandUses::of(&[0], &[0]),
            CommandUses::of(&[1], &[2]),
        ];
        assert_eq!(order(&updated), [0, 1, 2, 3]);
    }
}
