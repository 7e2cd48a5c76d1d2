//! How rows are sorted: which method, and how it is spread over workgroups. This module owns the choices of `shaders/lib/sort`; what
//! the elements are, except for their size, it need not know.

use super::cpu_group_threads;
use crate::device::Capabilities;

/// Threads of a workgroup that merges, and of a GPU's that sorts by radix.
pub const SORT_THREADS: u32 = 256;
/// Values of the eight bits that a radix pass sorts by.
pub const RADIX_DIGITS: u64 = 256;
/// Up to this many blocks a radix pass adds up the counts of blocks itself, instead of in a kernel of its own.
pub const MAX_SUMMED_BLOCKS: u64 = 8;
/// Elements of a thread that the first bound of a selection is taken from.
pub const SELECT_PROBE: u64 = 16;

/// The most items of a thread that merges. A CPU device's compiler takes long over more, and sorts longer rows as fast by radix.
const MAX_MERGE_ITEMS: u32 = 16;
const MAX_CPU_MERGE_ITEMS: u32 = 4;

/// Items of a radix sort's thread in a tile, at most; with few elements in all, larger tiles leave most of the device idle.
const MAX_RADIX_ITEMS: u32 = 16;
const FEW_RADIX_ITEMS: u32 = 4;
const MAX_FEW_RADIX_ELEMENTS: u64 = 1 << 18;
/// Items where there are even fewer elements. An H200 sorts 2^15 words in 48 µs instead of 54, 2^17 in 57 instead of 58, but 2^18 in 69 instead
/// of 66.
const MIN_RADIX_ITEMS: u32 = 2;
const MAX_FEWEST_RADIX_ELEMENTS: u64 = 1 << 17;
/// Workgroups of a radix pass that fill a GPU: more of them only make more counts.
const RADIX_GROUPS: u64 = 1024;
/// Workgroups of a radix pass on a CPU device. With a power of two of them all counts would lie in the same few cache lines.
const CPU_RADIX_GROUPS: u64 = 31;
/// Shared memory for the tokens of [`MAX_RADIX_ITEMS`] items a thread, which are words, and 4 KiB for the rest.
const FULL_RADIX_SHARED: u32 = 24 << 10;

/// The fewest elements of a row of which some are selected, and of a piece of one.
const MIN_SELECT_ROW: u64 = 256;
const MIN_SELECT_PIECE: u64 = 4096;
/// The fewest elements of a row, and of a piece, for each one kept.
const MIN_ELEMENTS_PER_KEPT: u64 = 32;
/// The same for a row on a CPU device, whose sort by radix is not much slower.
const MIN_CPU_ELEMENTS_PER_KEPT: u64 = 128;
/// The most elements that a workgroup of a selection gathers while a quarter of them is kept.
const MAX_SELECT_ROOM: u64 = 2048;

/// The rows of a sort.
#[derive(Clone, Copy, Debug)]
pub struct SortShape {
    pub rows: u64,
    pub len: u64,
    /// Elements of each row that are kept.
    pub keep: u64,
    /// Bytes of an element.
    pub bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SortMethod {
    /// The first few elements of pieces of each row, then of what those left.
    Select,
    /// A workgroup merges whole rows in shared memory, with this many items a thread.
    Merge {
        items: u32,
    },
    Radix,
}

pub fn method(caps: &Capabilities, shape: SortShape) -> SortMethod {
    if selects(caps, shape) {
        return SortMethod::Select;
    }
    match merge_items(caps, shape) {
        Some(items) => SortMethod::Merge { items },
        None => SortMethod::Radix,
    }
}

/// Whether few enough elements of long enough rows are kept to select them.
fn selects(caps: &Capabilities, shape: SortShape) -> bool {
    let per_kept = if caps.cpu { MIN_CPU_ELEMENTS_PER_KEPT } else { MIN_ELEMENTS_PER_KEPT };
    shape.len >= MIN_SELECT_ROW.max(per_kept * shape.keep)
        && 4 * shape.keep <= select_tile(caps, shape).room.min(MAX_SELECT_ROOM)
}

/// How many neighbours in a row a thread sorts and merges; `None` where a workgroup has no room for a row.
fn merge_items(caps: &Capabilities, SortShape { len, bytes, .. }: SortShape) -> Option<u32> {
    let most = if caps.cpu { MAX_CPU_MERGE_ITEMS } else { MAX_MERGE_ITEMS };
    // Keys and indices, and one in 32 more.
    let tile = |items: u32| u64::from(SORT_THREADS * items);
    let fits = |items| shared_bytes(tile(items) * 33 / 32 + 1, bytes) <= caps.max_shared.into();
    let enough = |items| u64::from(items) >= len.min(4) && tile(items) >= len;
    [2, 4, 8, 16].into_iter().find(|&items| items <= most && enough(items) && fits(items))
}

/// Bytes of shared memory that `count` keys and indices take.
fn shared_bytes(count: u64, element_bytes: u64) -> u64 {
    count * (element_bytes.max(4) + 4)
}

/// How a radix pass counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RadixMethod {
    /// Each lane of a CPU device's workgroup is a block of its own and counts alone, in memory.
    Lanes { threads: u32 },
    /// A workgroup arranges tiles of its block in shared memory; `subgroup` is the size of subgroups that rank by votes.
    Tiles { items: u32, subgroup: Option<u32> },
}

impl RadixMethod {
    /// Threads of a workgroup.
    pub fn threads(self) -> u32 {
        match self {
            Self::Lanes { threads } => threads,
            Self::Tiles { .. } => SORT_THREADS,
        }
    }

    /// Blocks of a workgroup.
    pub fn group_blocks(self) -> u64 {
        match self {
            Self::Lanes { threads } => threads.into(),
            Self::Tiles { .. } => 1,
        }
    }
}

/// How rows are split by a radix sort: the same in all passes.
#[derive(Clone, Copy, Debug)]
pub struct RadixSplit {
    pub method: RadixMethod,
    pub blocks: u64,
    pub block_len: u64,
    /// Whether a kernel of its own adds up the counts of blocks.
    pub sums: bool,
}

pub fn radix_split(caps: &Capabilities, rows: u64, len: u64) -> RadixSplit {
    if caps.cpu {
        let threads = cpu_group_threads(caps);
        let blocks = (CPU_RADIX_GROUPS / rows).max(1) * u64::from(threads);
        return RadixSplit {
            method: RadixMethod::Lanes { threads },
            blocks,
            block_len: len.div_ceil(blocks),
            sums: true,
        };
    }
    let full = caps.max_shared >= FULL_RADIX_SHARED;
    // Where larger tiles need no kernel that adds up counts, smaller ones are slower.
    let sums = len > MAX_SUMMED_BLOCKS * u64::from(SORT_THREADS * FEW_RADIX_ITEMS);
    let items = match rows * len {
        ..=MAX_FEWEST_RADIX_ELEMENTS if sums => MIN_RADIX_ITEMS,
        ..=MAX_FEW_RADIX_ELEMENTS => FEW_RADIX_ITEMS,
        _ if full => MAX_RADIX_ITEMS,
        _ => MAX_RADIX_ITEMS / 2,
    };
    let tile = u64::from(SORT_THREADS * items);
    let tiles = len.div_ceil(tile);
    let block_tiles = (rows * tiles).div_ceil(RADIX_GROUPS).min(tiles);
    let blocks = tiles.div_ceil(block_tiles);
    // The counters of subgroups take as much as the tokens of MAX_RADIX_ITEMS items a thread.
    let subgroup = Some(caps.subgroup).filter(|size| full && matches!(size, 8 | 16 | 32));
    let method = RadixMethod::Tiles { items, subgroup };
    RadixSplit { method, blocks, block_len: block_tiles * tile, sums: blocks > MAX_SUMMED_BLOCKS }
}

/// What a workgroup of a selection is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SelectTile {
    pub threads: u64,
    /// Elements that a thread loads before it uses the first.
    pub items: u64,
    /// How many elements the workgroup gathers in shared memory.
    pub room: u64,
}

/// The workgroup that keeps `keep` elements of a piece of `len`.
pub fn select_tile(caps: &Capabilities, SortShape { len, keep, bytes, .. }: SortShape) -> SelectTile {
    if caps.cpu {
        // Its sorting is what costs: the room is no larger than it must be.
        let (threads, items) = (u64::from(cpu_group_threads(caps)), 8);
        return SelectTile { threads, items, room: (4 * keep).max(2 * threads * items).next_power_of_two() };
    }
    // Short pieces are too little for many threads: an H200 took the first 5 of 65536 rows of 1000 elements in 950 us with
    // 256 threads a row, in 430 with 64. The first 10 of 1024 rows of 50000 it took in 200 us, and in 290.
    let most = if shared_bytes(8 * 256, bytes) < caps.max_shared.into() { 256 } else { 128 };
    let threads = (len / SELECT_PROBE).max(keep.div_ceil(2)).next_power_of_two().clamp(32, most);
    SelectTile { threads, items: 2, room: (8 * threads).max(512) }
}

/// The pieces of each row that are selected from at once: each leaves a small part of it.
pub fn select_pieces(caps: &Capabilities, SortShape { rows, len, keep, .. }: SortShape) -> u64 {
    // Workgroups that fill the device with threads.
    let groups = if caps.cpu { 32 } else { 8 * caps.multiprocessors };
    (groups / rows).min(len / MIN_SELECT_PIECE.max(MIN_ELEMENTS_PER_KEPT * keep)).max(1)
}

/// The attribute of loops over a thread's items. What such a loop's counter indexes stays in a GPU's registers only without
/// the loop. A CPU's compiler takes seconds over the unrolled text, and gains nothing.
pub fn items_loop(caps: &Capabilities) -> &'static str {
    if caps.cpu { "dont_unroll" } else { "unroll" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tuning::devices::{h200, lavapipe};

    fn shape(rows: u64, len: u64, keep: u64) -> SortShape {
        SortShape { rows, len, keep, bytes: 4 }
    }

    #[test]
    fn short_rows_are_merged_and_long_ones_sorted_by_radix() {
        assert_eq!(method(&h200(), shape(100, 4, 4)), SortMethod::Merge { items: 4 });
        assert_eq!(method(&h200(), shape(100, 4096, 4096)), SortMethod::Merge { items: 16 });
        assert_eq!(method(&h200(), shape(100, 4097, 4097)), SortMethod::Radix);
        assert_eq!(method(&lavapipe(), shape(100, 1024, 1024)), SortMethod::Merge { items: 4 });
        assert_eq!(method(&lavapipe(), shape(100, 1025, 1025)), SortMethod::Radix);
    }

    #[test]
    fn few_elements_of_long_rows_are_selected() {
        assert_eq!(method(&h200(), shape(1, 1 << 20, 10)), SortMethod::Select);
        assert_eq!(method(&lavapipe(), shape(1, 1 << 20, 10)), SortMethod::Select);
        assert_eq!(method(&h200(), shape(1, 1 << 20, 1 << 12)), SortMethod::Radix);
        assert_eq!(method(&h200(), shape(1, 255, 1)), SortMethod::Merge { items: 4 });
    }

    #[test]
    fn blocks_cover_the_rows() {
        for caps in [h200(), lavapipe()] {
            for (rows, len) in [(1, 5000), (1, 300_007), (2000, 5000), (1, 1 << 27)] {
                let split = radix_split(&caps, rows, len);
                assert!(split.blocks * split.block_len >= len, "{rows} rows of {len}");
                assert_eq!(split.blocks % split.method.group_blocks(), 0);
            }
        }
    }

    #[test]
    fn pieces_are_long_enough_to_leave_little() {
        for caps in [h200(), lavapipe()] {
            for (rows, len, keep) in [(1, 1 << 20, 10), (1000, 50_000, 5), (1, 1 << 24, 512)] {
                let pieces = select_pieces(&caps, shape(rows, len, keep));
                assert!(pieces * keep * MIN_ELEMENTS_PER_KEPT <= len || pieces == 1);
            }
        }
    }
}
