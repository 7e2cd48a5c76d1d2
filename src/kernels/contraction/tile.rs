//! Which part of a product a workgroup computes.

use std::collections::HashMap;
use std::iter;

use once_cell::sync::Lazy;
use parking_lot::Mutex;

use crate::device::Capabilities;
use crate::program::types::Compute;

/// How a tile is computed: the file under `shaders/lib`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Through shared memory.
    Shared,
    /// By invocations that are the lanes of a processor.
    Lanes,
    /// By cooperative matrices.
    Matrix,
}

impl Method {
    pub fn file(self) -> &'static str {
        match self {
            Method::Shared => "matmul",
            Method::Lanes => "matmul_lanes",
            Method::Matrix => "matmul_matrix",
        }
    }
}

/// What a workgroup computes of a product, in steps of `depth`, and a thread of it or, with matrices, a subgroup. Each of
/// `slices` of a step has threads of its own, whose sums are added in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tile {
    pub method: Method,
    pub rows: u32,
    pub columns: u32,
    pub depth: u32,
    pub thread_rows: u32,
    pub thread_columns: u32,
    pub slices: u32,
}

const fn tile([rows, columns, depth]: [u32; 3], [thread_rows, thread_columns]: [u32; 2]) -> Tile {
    Tile { method: Method::Shared, rows, columns, depth, thread_rows, thread_columns, slices: 1 }
}

const fn sliced(slices: u32, tile: Tile) -> Tile {
    Tile { slices, ..tile }
}

/// From the least work for each element that is loaded to the most workgroups.
pub const TILES: [Tile; 12] = [
    tile([128, 128, 8], [8, 8]),
    tile([64, 128, 8], [8, 8]),
    sliced(4, tile([64, 64, 16], [8, 8])),
    sliced(2, tile([64, 64, 8], [8, 8])),
    tile([64, 64, 8], [4, 8]),
    tile([32, 128, 8], [4, 8]),
    tile([128, 32, 8], [8, 4]),
    sliced(4, tile([32, 64, 16], [8, 8])),
    tile([32, 32, 16], [4, 4]),
    tile([128, 16, 16], [4, 4]),
    tile([16, 128, 16], [4, 4]),
    sliced(4, tile([16, 32, 32], [4, 4])),
];

const fn matrix(shape: [u32; 3], subgroup: [u32; 2]) -> Tile {
    Tile { method: Method::Matrix, ..tile(shape, subgroup) }
}

/// For cooperative matrices, likewise, with subgroups of 32.
const MATRIX_TILES: [Tile; 4] = [
    matrix([128, 256, 32], [64, 64]),
    matrix([128, 128, 32], [64, 64]),
    matrix([64, 128, 32], [32, 64]),
    matrix([64, 64, 64], [32, 32]),
];

/// Invocations of a workgroup where they are lanes.
const LANES: u32 = 32;

/// Elements along k whose places are found together, where that takes divisions: a larger multiple of any tile's `depth`.
pub const DEPTHS: u32 = 128;

/// Shorter parts of k are not worth the sum over them.
const SHORT: u64 = 128;

/// What was chosen for which computing types, borders and sizes: the search takes longer than the rest of a small product's
/// call.
static CHOSEN: Lazy<Mutex<HashMap<Question, (Tile, u64)>>> = Lazy::new(Mutex::default);
type Question = ([Compute; 2], bool, [u64; 4]);
/// So many choices are remembered.
const REMEMBERED: usize = 4096;

/// What that sum takes at least, as multiplications in f32 by one processor: 3 µs of an H200.
const SUM: u64 = 1 << 20;

impl Tile {
    pub fn threads(&self) -> u32 {
        let parts = self.rows / self.thread_rows * (self.columns / self.thread_columns) * self.slices;
        if self.method == Method::Matrix { parts * 32 } else { parts }
    }

    pub fn lanes(&self) -> bool {
        self.method == Method::Lanes
    }

    /// The tile of cooperative matrices for products of these sizes, and into how many parts k is split, if any fits the
    /// device.
    pub fn matrix(caps: &Capabilities, sizes: [u64; 4]) -> Option<(Self, u64)> {
        let fits = |tile: &&Tile| 2 * (tile.rows + tile.columns) * (tile.depth + tile.depth / 8) <= caps.max_shared;
        if caps.subgroup != 32 || sizes[1..].iter().any(|&size| size < 64) {
            return None;
        }
        // What a processor takes for a step along k goes with what it loads, and with how often it waits for the loads:
        // as many workgroups as have the largest tile's sums run at once and wait together. A unit is 16 multiplications.
        let step = |tile: &Tile, turns: u64| {
            let waits = (turns * u64::from(tile.rows * tile.columns)).div_ceil(128 * 256);
            16 * (turns * u64::from(tile.rows + tile.columns) + 128 * waits)
        };
        cheapest(MATRIX_TILES.iter().filter(fits), caps, sizes, step)
    }

    /// Of cooperative matrices: whether a workgroup has a processor to itself, by its registers. As bare bf16 kernels on an
    /// H200, 4096² matrices then take 405 instead of 415 µs and 2048² 51 instead of 55; with tiles of 64×128, 1024² matrices
    /// 18 instead of 20.
    pub fn late(&self) -> bool {
        self.threads() >= 256
    }

    pub fn groups(&self, m: u64, n: u64) -> u64 {
        m.div_ceil(self.rows.into()) * n.div_ceil(self.columns.into())
    }

    /// Bytes that a workgroup shares: two steps of both tiles, whose rows are a vector longer, tables of places and words, and
    /// a column of all threads' sums but the first slice's.
    fn shared(&self, element: u64, accumulator: u64) -> u64 {
        let vector = element.max(16);
        let tables = 2 * u64::from(DEPTHS) * (2 * 8 + 4);
        let parts = u64::from(self.threads() / self.slices * (self.slices - 1) * self.thread_rows) * accumulator;
        u64::from(2 * self.depth) * (u64::from(self.rows + self.columns) * element + 2 * vector) + tables + parts
    }

    /// The tile for `batch` products of m×k and k×n matrices on the device, where elements may be `missing` beyond borders,
    /// and into how many parts k is split.
    pub fn chosen(caps: &Capabilities, computes: [Compute; 2], missing: bool, sizes: [u64; 4]) -> (Self, u64) {
        let mut chosen = CHOSEN.lock();
        if chosen.len() >= REMEMBERED {
            chosen.clear();
        }
        *chosen.entry((computes, missing, sizes)).or_insert_with(|| Self::choose(caps, computes, missing, sizes))
    }

    fn choose(
        caps: &Capabilities,
        [element, accumulator]: [Compute; 2],
        missing: bool,
        sizes: [u64; 4],
    ) -> (Self, u64) {
        if caps.cpu {
            let rows = sizes[1].next_power_of_two().min(if accumulator.size() > 4 { 8 } else { 16 }) as u32;
            return (Tile { method: Method::Lanes, ..tile([rows, LANES, 1], [rows, 1]) }, 1);
        }
        // Registers hold the sums of a thread. LLVM fails to compile some deep tiles with borders for lavapipe.
        let sums = 512 / accumulator.size().max(element.size()).max(4);
        let fits = |tile: &&Tile| {
            tile.shared(element.size(), accumulator.size()) <= caps.max_shared.into()
                && u64::from(tile.thread_rows * tile.thread_columns) <= sums
                && !(missing && tile.slices > 1)
        };
        // What an element along k takes a processor, as multiplications: the products, those beyond the edges included, the
        // loads for them from memory and from shared memory, and what few threads wait for both. Fitted to bare kernels in
        // f32 on an H200, of ten tiles and eight sizes, which it tells within 8 %.
        let step = |tile: &Tile, turns: u64| {
            let &Tile { rows, columns, thread_rows, thread_columns, .. } = tile;
            let products = rows * columns;
            let work = products + 16 * (rows + columns) + products / thread_rows + products / thread_columns;
            u64::from(work) * turns + u64::from(40 * work / tile.threads())
        };
        cheapest(TILES.iter().filter(fits), caps, sizes, step).unwrap_or((TILES[8], 1))
    }
}

/// The tile, and the number of parts of k, of least cost, where an element along k takes `step` with so many workgroups
/// for each processor.
fn cheapest<'a>(
    tiles: impl Iterator<Item = &'a Tile>,
    caps: &Capabilities,
    [batch, m, n, k]: [u64; 4],
    step: impl Fn(&Tile, u64) -> u64,
) -> Option<(Tile, u64)> {
    // The number of parts keeps all multiprocessors busy once or a few times. No part is short.
    let parts = |groups: u64| (1..=4).map(move |turns| (turns * caps.multiprocessors / groups).min(k / SHORT));
    let ways = tiles.flat_map(|tile| {
        let groups = batch * tile.groups(m, n);
        let splits = iter::once(1).chain(parts(groups).filter(|&splits| splits > 1));
        splits.map(move |splits| (tile, groups, splits))
    });
    let cost = |&(tile, groups, splits): &(&Tile, u64, u64)| {
        let turns = (groups * splits).div_ceil(caps.multiprocessors);
        let sum = if splits > 1 { SUM + splits * batch * m * n } else { 0 };
        step(tile, turns).saturating_mul(k.div_ceil(splits)).saturating_add(sum)
    };
    ways.min_by_key(cost).map(|(tile, _, splits)| (*tile, splits))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_fill_the_processors_and_fit_the_device() {
        let caps = crate::gpu::gpu().unwrap().caps.clone();
        for processors in [8, 32, 132] {
            let caps = Capabilities { cpu: false, multiprocessors: processors, max_shared: 48 << 10, ..caps.clone() };
            for (element, accumulator) in [
                (Compute::Float, Compute::Float),
                (Compute::Float, Compute::Double),
                (Compute::Double, Compute::Double),
                (Compute::ComplexDouble, Compute::ComplexDouble),
            ] {
                for sizes in
                    [[1, 256, 256, 256], [1, 64, 64, 8192], [1, 1024, 1024, 1024], [1, 4096, 32, 512], [9, 16, 16, 16]]
                {
                    let (tile, splits) = Tile::choose(&caps, [element, accumulator], false, sizes);
                    let [batch, m, n, k] = sizes;
                    assert!(tile.shared(element.size(), accumulator.size()) <= 48 << 10, "{sizes:?} {tile:?}");
                    // A quarter of the multiprocessors work, unless the product is small.
                    let groups = batch * tile.groups(m, n) * splits;
                    assert!(4 * groups >= processors || m * n * k < 1 << 20, "{sizes:?} {tile:?} {splits}");
                }
            }
            let (tile, splits) = Tile::choose(&caps, [Compute::Float; 2], false, [1, 8192, 8192, 8192]);
            assert_eq!((tile, splits), (TILES[0], 1), "nothing is lost by the tile of the least work");
        }
    }
}
