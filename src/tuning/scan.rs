//! How scans along rows are spread over workgroups. This module owns the tilings of `shaders/lib/scan.glsl`; what is scanned, and by
//! what operation, it need not know.

use super::cpu_group_threads;
use crate::device::Capabilities;

/// Consecutive elements that a GPU's thread holds in registers.
const ITEMS_PER_THREAD: u32 = 4;
/// The longest contiguous rows that take one thread each.
const MAX_THREAD_ROW: u64 = ITEMS_PER_THREAD as u64;
/// The longest contiguous rows that take fewer threads than a whole workgroup.
const MAX_SHORT_ROW: u64 = 64;
/// Rows from which on their number alone fills a GPU.
const MIN_ROWS_TO_FILL: u64 = 1 << 16;
/// Workgroups that fill a GPU.
const GPU_GROUPS: u64 = 2048;
/// The fewest tiles of a chunk: the totals of chunks are scanned, too, and shorter chunks have more of them.
const MIN_TILES_PER_CHUNK: u64 = 4;
/// Workgroups that fill a CPU device.
const CPU_GROUPS: u64 = 32;
/// The fewest elements of a chunk on a CPU device.
const MIN_CPU_CHUNK: u64 = 1024;

/// What a workgroup takes at a time: several rows, and of each a tile of `threads * items` elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ScanTile {
    /// Rows of a workgroup.
    pub rows: u32,
    /// Threads of a row.
    pub threads: u32,
    pub items: ScanItems,
}

/// Consecutive elements of a thread in a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScanItems {
    /// This many, which stay in registers.
    Registers(u32),
    /// The thread's part of a whole chunk, loaded twice.
    Reloaded,
}

/// How rows are split: `chunks` workgroups share a row, each of `chunk` elements but the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanTiling {
    pub tile: ScanTile,
    pub chunks: u64,
    pub chunk: u64,
}

impl ScanTile {
    /// Threads of a workgroup.
    pub fn group_threads(&self) -> u32 {
        self.rows * self.threads
    }
}

/// The tiling of `rows` rows of `len` elements, with a stride of `stride` elements.
pub fn tiling(caps: &Capabilities, rows: u64, len: u64, stride: u64) -> ScanTiling {
    if caps.cpu {
        return cpu_tiling(caps, rows, len, stride);
    }
    // Few shapes, so that few kernels serve all. Neighbouring threads read rows whose elements alternate.
    let (group_rows, threads) = match (stride, len) {
        (1, ..=MAX_THREAD_ROW) => (256, 1),
        (1, ..=MAX_SHORT_ROW) => (16, 16),
        (1, _) => (1, 256),
        (2..=8, _) => (4, 64),
        _ if rows >= MIN_ROWS_TO_FILL => (256, 1),
        _ => (32, 8),
    };
    let tile = ScanTile { rows: group_rows, threads, items: ScanItems::Registers(ITEMS_PER_THREAD) };
    let tile_len = u64::from(threads * ITEMS_PER_THREAD);
    let tiles = len.div_ceil(tile_len);
    let groups = rows.div_ceil(group_rows.into());
    let chunks = (GPU_GROUPS / groups).min(tiles / MIN_TILES_PER_CHUNK).max(1);
    let chunk = tiles.div_ceil(chunks) * tile_len;
    ScanTiling { tile, chunks: len.div_ceil(chunk), chunk }
}

/// On a CPU device a chunk is one tile: each invocation takes a long run of elements.
fn cpu_tiling(caps: &Capabilities, rows: u64, len: u64, stride: u64) -> ScanTiling {
    let lanes = cpu_group_threads(caps);
    let (group_rows, threads) = if stride == 1 && len > MAX_SHORT_ROW { (1, lanes) } else { (lanes, 1) };
    let tile = ScanTile { rows: group_rows, threads, items: ScanItems::Reloaded };
    let groups = rows.div_ceil(group_rows.into());
    let chunks = (CPU_GROUPS / groups).min(len / MIN_CPU_CHUNK).max(1);
    let chunk = len.div_ceil(chunks).next_multiple_of(threads.into());
    ScanTiling { tile, chunks: len.div_ceil(chunk), chunk }
}

/// The tiling of the scan over the totals of chunks: each row's are one chunk.
pub fn totals_tiling(tiling: &ScanTiling) -> ScanTiling {
    match tiling.tile.items {
        ScanItems::Reloaded => {
            let chunk = tiling.chunks.next_multiple_of(tiling.tile.threads.into());
            ScanTiling { tile: tiling.tile, chunks: 1, chunk }
        }
        ScanItems::Registers(_) => {
            let tile = ScanTile { rows: 1, threads: 256, ..tiling.tile };
            ScanTiling { tile, chunks: 1, chunk: tiling.chunks }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tuning::devices::{h200, lavapipe};

    #[test]
    fn chunks_cover_the_rows_once() {
        for caps in [h200(), lavapipe()] {
            for (rows, len, stride) in
                [(1, 1, 1), (1, 1 << 24, 1), (3, 100_001, 1), (7, 65, 7), (1 << 17, 300, 1 << 17)]
            {
                let ScanTiling { chunks, chunk, tile } = tiling(&caps, rows, len, stride);
                assert!(chunks * chunk >= len && (chunks - 1) * chunk < len, "{rows} rows of {len}");
                assert_eq!(chunk % u64::from(tile.threads), 0);
                assert!(tile.group_threads() <= caps.max_threads);
            }
        }
    }

    #[test]
    fn few_long_rows_are_split_and_many_are_not() {
        assert_eq!(tiling(&h200(), 1, 1 << 24, 1).chunks, 2048);
        assert_eq!(tiling(&h200(), 1 << 16, 4096, 1).chunks, 1);
        assert_eq!(tiling(&h200(), 1, 4095, 1).chunks, 1);
        assert_eq!(tiling(&lavapipe(), 1, 1 << 24, 1).chunks, 32);
        assert_eq!(tiling(&lavapipe(), 1, 2047, 1).chunks, 1);
    }

    #[test]
    fn short_rows_share_a_workgroup() {
        let shape = |caps, rows, len, stride| {
            let ScanTile { rows, threads, .. } = tiling(&caps, rows, len, stride).tile;
            (rows, threads)
        };
        assert_eq!(shape(h200(), 1000, 4, 1), (256, 1));
        assert_eq!(shape(h200(), 1000, 64, 1), (16, 16));
        assert_eq!(shape(h200(), 1000, 65, 1), (1, 256));
        assert_eq!(shape(h200(), 1000, 64, 5), (4, 64));
        assert_eq!(shape(h200(), 1 << 16, 64, 9), (256, 1));
        assert_eq!(shape(lavapipe(), 1000, 64, 1), (8, 1));
        assert_eq!(shape(lavapipe(), 1000, 65, 1), (1, 8));
    }

    #[test]
    fn totals_of_a_row_are_one_chunk() {
        for caps in [h200(), lavapipe()] {
            let elements = tiling(&caps, 2, 1 << 22, 1);
            let totals = totals_tiling(&elements);
            assert!(totals.chunks == 1 && totals.chunk >= elements.chunks);
        }
    }
}
