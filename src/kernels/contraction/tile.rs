//! Which part of a product a workgroup computes.

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

/// What a workgroup computes of a product, in steps of `depth`, and a thread of it or, with matrices, a subgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tile {
    pub method: Method,
    pub rows: u32,
    pub columns: u32,
    pub depth: u32,
    pub thread_rows: u32,
    pub thread_columns: u32,
}

const fn tile([rows, columns, depth]: [u32; 3], [thread_rows, thread_columns]: [u32; 2]) -> Tile {
    Tile { method: Method::Shared, rows, columns, depth, thread_rows, thread_columns }
}

/// From the least work for each element that is loaded to the most workgroups.
pub const TILES: [Tile; 8] = [
    tile([128, 128, 8], [8, 8]),
    tile([64, 128, 8], [8, 8]),
    tile([64, 64, 8], [4, 8]),
    tile([32, 128, 8], [4, 8]),
    tile([128, 32, 8], [8, 4]),
    tile([32, 32, 16], [4, 4]),
    tile([128, 16, 16], [4, 4]),
    tile([16, 128, 16], [4, 4]),
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

/// As many workgroups fill a large device.
const FULL: u64 = 128;

impl Tile {
    pub fn threads(&self) -> u32 {
        let parts = self.rows / self.thread_rows * (self.columns / self.thread_columns);
        if self.method == Method::Matrix { parts * 32 } else { parts }
    }

    pub fn lanes(&self) -> bool {
        self.method == Method::Lanes
    }

    /// The tile of cooperative matrices for products of these sizes, if any fits the device.
    pub fn matrix(caps: &Capabilities, [batch, m, n, k]: [u64; 4]) -> Option<(Self, u64)> {
        let fits = |tile: &&Tile| 2 * (tile.rows + tile.columns) * (tile.depth + tile.depth / 8) <= caps.max_shared;
        if caps.subgroup != 32 || m < 64 || n < 64 || k < 64 {
            return None;
        }
        // What a processor takes for a step along k goes with what it loads, and with how often it waits for the loads:
        // as many workgroups as have the largest tile's sums run at once and wait together.
        let cost = |tile: &&Tile| {
            let turns = (batch * tile.groups(m, n)).div_ceil(caps.processors);
            let waits = (turns * u64::from(tile.rows * tile.columns)).div_ceil(128 * 256);
            turns * u64::from(tile.rows + tile.columns) + 128 * waits
        };
        let best = MATRIX_TILES.iter().filter(fits).min_by_key(cost)?;
        Some((*best, splits(best.groups(m, n) * batch, k)))
    }

    /// Of cooperative matrices: whether a workgroup has a processor to itself, by its registers. As bare bf16 kernels on an
    /// H200, 4096² matrices then take 405 instead of 415 µs and 2048² 51 instead of 55; with tiles of 64×128, 1024² matrices
    /// 18 instead of 20.
    pub fn late(&self) -> bool {
        self.threads() >= 256
    }

    /// Whether most steps are best without branches. Where 256 threads have 64 sums of 32 bits each, two workgroups share a
    /// processor's registers if a thread takes 128: branches keep the driver of an H200 from moving loads to where they take
    /// more, which it would keep in shared memory. For 4096² matrices that is 48 instead of 44 TFLOP/s, for all other tiles 2
    /// to 20 % less.
    pub fn eager(&self, accumulator: Compute) -> bool {
        let sums = u64::from(self.thread_rows * self.thread_columns) * accumulator.size();
        self.threads() < 256 || sums != 256
    }

    pub fn groups(&self, m: u64, n: u64) -> u64 {
        m.div_ceil(self.rows.into()) * n.div_ceil(self.columns.into())
    }

    /// Bytes that a workgroup shares: two steps of both tiles, whose rows are a vector longer, and tables of places and words.
    fn shared(&self, size: u64) -> u64 {
        let vector = size.max(16);
        let tables = 2 * u64::from(DEPTHS) * (2 * 8 + 4);
        u64::from(2 * self.depth) * (u64::from(self.rows + self.columns) * size + 2 * vector) + tables
    }

    /// The tile for `batch` products of m×k and k×n matrices, and into how many parts k is split so that the device is
    /// filled.
    pub fn choose(
        caps: &Capabilities,
        element: Compute,
        accumulator: Compute,
        [batch, m, n, k]: [u64; 4],
    ) -> (Self, u64) {
        if caps.cpu {
            let rows = m.next_power_of_two().min(if accumulator.size() > 4 { 8 } else { 16 }) as u32;
            return (Tile { method: Method::Lanes, ..tile([rows, LANES, 1], [rows, 1]) }, 1);
        }
        let size = element.size();
        // Registers hold the sums of a thread.
        let sums = 512 / accumulator.size().max(element.size()).max(4);
        let fits = |tile: &&Tile| {
            tile.shared(size) <= caps.max_shared.into() && u64::from(tile.thread_rows * tile.thread_columns) <= sums
        };
        // Workgroups run at once, and what they compute beyond the edges is lost.
        let cost = |tile: &Tile| {
            let groups = batch * tile.groups(m, n);
            let splits = splits(groups, k);
            let turns = (groups * splits).div_ceil(caps.processors);
            // What one step costs: its products, and the loads for them.
            let area = u64::from(tile.rows * tile.columns);
            let step = area + 12 * u64::from(tile.rows + tile.columns);
            (turns * k.div_ceil(splits) * step, splits)
        };
        let best = TILES.iter().filter(fits).min_by_key(|tile| cost(tile).0).unwrap_or(&TILES[5]);
        (*best, cost(best).1)
    }
}

/// Into how many parts k is split where there are `groups` workgroups for each: parts shorter than 128 are not worth the
/// sum over them.
fn splits(groups: u64, k: u64) -> u64 {
    if groups >= FULL / 2 { 1 } else { (2 * FULL / groups).min(k / 128).max(1) }
}
