//! The part of a matrix product that a workgroup computes, and the number of parts of k.

use std::iter;

use super::epilogue::MAX_MATRIX_ELEMENTS;
use crate::device::Capabilities;
use crate::program::types::Compute;
use crate::tuning::MATRIX_LANES;

/// How a tile is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TileMethod {
    /// Through shared memory.
    Shared,
    /// By invocations that are the lanes of a CPU's vectors, without shared memory.
    Lanes,
    /// By cooperative matrices.
    Matrix,
}

/// What a workgroup computes of a product, in steps of `depth`, and a thread of it or, with cooperative matrices, a subgroup.
/// Each of `slices` of a step has threads of its own, whose sums are added in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tile {
    pub method: TileMethod,
    pub rows: u32,
    pub columns: u32,
    pub depth: u32,
    pub thread_rows: u32,
    pub thread_columns: u32,
    pub slices: u32,
}

const fn tile([rows, columns, depth]: [u32; 3], [thread_rows, thread_columns]: [u32; 2]) -> Tile {
    Tile { method: TileMethod::Shared, rows, columns, depth, thread_rows, thread_columns, slices: 1 }
}

const fn sliced(slices: u32, tile: Tile) -> Tile {
    Tile { slices, ..tile }
}

/// From the least work for each element that is loaded to the most workgroups.
pub const TILES: [Tile; 14] = [
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
    sliced(8, tile([16, 32, 64], [4, 4])),
    sliced(8, tile([16, 16, 64], [4, 4])),
];

const fn matrix(shape: [u32; 3], subgroup: [u32; 2]) -> Tile {
    Tile { method: TileMethod::Matrix, ..tile(shape, subgroup) }
}

/// Tiles of cooperative matrices, in the same order, with subgroups of [`LANES`].
const MATRIX_TILES: [Tile; 6] = [
    matrix([128, 256, 32], [64, 64]),
    matrix([128, 128, 32], [64, 64]),
    matrix([64, 128, 32], [32, 64]),
    matrix([128, 64, 32], [64, 32]),
    matrix([64, 64, 64], [32, 32]),
    matrix([32, 64, 128], [16, 32]),
];

/// The same, for products of few rows or columns, which are bound by the loads of the other operand: 8 × 4,096 × 4,096 in bf16 takes an H200 12 µs
/// and the sum over the parts of k, in place of 22.
const FEW_ROWS_MATRIX_TILES: [Tile; 3] =
    [matrix([16, 64, 128], [16, 16]), matrix([64, 16, 128], [16, 16]), matrix([64, 32, 128], [32, 16])];

/// The same, for products whose workgroups take more than half of the multiprocessors and run all at once, as the 128 of 1,024 × 768 and of
/// 1,024 × 3,072 do on an H200: 1,024 × 768 × 768 takes 11.2 µs in bf16 and not 13.2, with bias, 128 × 768 × 768 with bias 7.1 by steps of 256, 8.5 by
/// steps of 128 and 9.0 by 32 × 64.
/// 1,024 × 768 × 30,522 takes 349 and not 302.
/// Not for padded operands, whose loads need registers: ResNet-50's forward pass takes 4.5 ms with them, and not 4.2.
const ONE_ROUND_TILES: [Tile; 4] = [
    matrix([128, 192, 64], [64, 48]),
    matrix([64, 96, 128], [32, 48]),
    matrix([32, 32, 128], [16, 16]),
    matrix([32, 32, 256], [16, 16]),
];

/// The fewest elements along k of cooperative matrices.
const MIN_MATRIX_DEPTH: u64 = 64;
/// The same of products of few rows, whose tiles have deep steps.
const MIN_FEW_ROWS_DEPTH: u64 = 256;
/// Rows, or columns, that are not few.
const MIN_MANY_ROWS: u64 = 64;

/// Invocations of a subgroup with cooperative matrices, and of a workgroup whose invocations are lanes.
const LANES: u32 = MATRIX_LANES;

/// Elements along k whose offsets are found at once, where that takes divisions: a larger multiple of any tile's `depth` without cooperative matrices.
pub const TABLE_ENTRIES: u32 = 128;

/// Steps along k from this one on are for long k alone.
const MIN_DEEP_STEP: u32 = 64;

/// Steps along k from this one on are for workgroups that have a multiprocessor to themselves: 128 × 768 × 2,304 in bf16 by 288 workgroups of
/// 32 × 32 × 256 takes an H200 14 µs, and by 144 of 32 × 64 × 128 11.
const MIN_LONE_STEP: u32 = 256;

/// Elements of a part of k: shorter ones are not worth the sum over the parts.
pub(super) const MIN_PART_DEPTH: u64 = 128;

/// The least cost of the sum over the parts of k, as multiplications in f32 by one multiprocessor: 3 µs of an H200.
const PARTS_SUM_COST: u64 = 1 << 20;

/// Registers of 32 bits of a GPU's multiprocessor, and those that a thread takes beside its sums.
const MULTIPROCESSOR_REGISTERS: u64 = 64 << 10;
const THREAD_REGISTERS: u64 = 64;
/// What workgroups that run at once wait for their first loads and last stores, in the same unit.
const BATCH_COST: u64 = 1 << 18;

/// What the loads of a step are waited for with cooperative matrices, in the same unit: 0.3 µs of an H200.
const STEP_COST: u64 = 100 << 10;
/// What a workgroup of cooperative matrices takes to store a sum of each thread with an epilogue, 0.1 µs, and without one.
const STORE_COSTS: [u64; 2] = [35 << 10, 8 << 10];

impl Tile {
    pub fn threads(&self) -> u32 {
        let threads = self.rows / self.thread_rows * (self.columns / self.thread_columns) * self.slices;
        if self.method == TileMethod::Matrix { threads * LANES } else { threads }
    }

    pub fn is_by_lanes(&self) -> bool {
        self.method == TileMethod::Lanes
    }

    /// For cooperative matrices: whether a workgroup has a multiprocessor to itself, by its registers. As bare bf16 kernels on an
    /// H200, 4096² matrices then take 405 instead of 415 µs and 2048² 51 instead of 55; with tiles of 64×128, 1024² matrices
    /// 18 instead of 20.
    pub fn loads_late(&self) -> bool {
        self.threads() >= 256
    }

    /// Whether k is long enough for deep steps: of a short one most of a step would be zeros.
    fn has_deep_steps(&self, k: u64) -> bool {
        k >= 2 * u64::from(self.depth)
    }

    pub fn workgroups(&self, m: u64, n: u64) -> u64 {
        m.div_ceil(self.rows.into()) * n.div_ceil(self.columns.into())
    }

    /// Whether the threads of all slices store, and not those of the first alone. With 64 sums a thread, 128 × 768 × 2,304 in f32
    /// takes an H200 26 µs then, in place of 19.
    pub fn shares_stores(&self) -> bool {
        self.slices > 1 && self.thread_rows == 4 && self.thread_columns == 4
    }

    /// Rows of four sums of each thread that are in shared memory at once where all threads store: few enough that deep tiles fit beside them.
    pub fn slice_rows(&self, element: u64, accumulator: u64) -> u32 {
        let bytes = if element > 4 { 4 << 10 } else { 8 << 10 };
        (bytes / (self.threads() * 4 * accumulator as u32)).clamp(1, 4)
    }

    /// Sums that a thread stores.
    pub fn stored_sums(&self) -> u32 {
        if self.shares_stores() {
            self.rows * self.columns / self.threads()
        } else {
            self.thread_rows * self.thread_columns
        }
    }

    /// Bytes that a workgroup shares: two steps of both tiles, whose rows are a vector longer, tables of offsets and words, and
    /// sums of slices: some of each thread, or a column of all threads' but the first slice's.
    fn shared_bytes(&self, element: u64, accumulator: u64) -> u64 {
        let vector = element.max(16);
        let tables = 2 * u64::from(TABLE_ENTRIES) * (2 * 8 + 4);
        let sums = match self.shares_stores() {
            true => self.threads() * 4 * self.slice_rows(element, accumulator),
            false => self.threads() / self.slices * (self.slices - 1) * self.thread_rows,
        };
        let sums = u64::from(sums) * accumulator;
        u64::from(2 * self.depth) * (u64::from(self.rows + self.columns) * element + 2 * vector) + tables + sums
    }

    /// The tile of cooperative matrices for `[batch, m, n, k]`, where elements may be missing beyond padded operands, and the number of parts
    /// of k, if any fits the device.
    pub fn choose_matrix(caps: &Capabilities, padded: bool, sizes: [u64; 4]) -> Option<(Self, u64)> {
        let [batch, m, n, k] = sizes;
        let few = m.min(n) < MIN_MANY_ROWS;
        let least_depth = if few { MIN_FEW_ROWS_DEPTH } else { MIN_MATRIX_DEPTH };
        if caps.subgroup != LANES || m.max(n) < MIN_MANY_ROWS || k < least_depth || few && padded {
            return None;
        }
        let fits = |tile: &&Tile| {
            2 * (tile.rows + tile.columns) * (tile.depth + tile.depth / 8) <= caps.max_shared
                && (tile.depth <= MIN_DEEP_STEP || tile.has_deep_steps(k))
        };
        // What follows a large product is a kernel of its own.
        let large = batch * m * n > MAX_MATRIX_ELEMENTS;
        // The time that a multiprocessor takes for a step goes with what it loads, and with how often it waits for the loads, and in
        // the end with what a thread stores: workgroups with the sums of the largest tile in all run at once and wait at the same
        // time. Fitted to 19 tiles of seven products with a bias in bf16 on an H200, of 128 and 1,024 rows with matrices from the
        // memory, whose times it gives within 10 % on average, and those of 4,096² and 8,192² matrices within 15 %. The store of products without an
        // epilogue is for long thin ones, 8,192 × 256 × 1,024 and 65,536 × 128 × 128, that kept the tile they had.
        let kernel = |tile: &Tile, rounds: u64, depth: u64| {
            if rounds > 1 && tile.depth >= MIN_LONE_STEP {
                return u64::MAX;
            }
            let waits = (rounds * u64::from(tile.rows * tile.columns)).div_ceil(128 * 256);
            let loads = (16 * rounds * u64::from(tile.rows + tile.columns)).saturating_mul(depth);
            let stores = STORE_COSTS[usize::from(large)] * u64::from(tile.rows * tile.columns / tile.threads());
            let wait = (STEP_COST * depth.div_ceil(tile.depth.into())).saturating_add(stores);
            loads.saturating_add(waits.saturating_mul(wait))
        };
        let runs_at_once = |tile: &&Tile| {
            let workgroups = batch * tile.workgroups(m, n);
            !padded && (caps.multiprocessors / 2 + 1..=caps.multiprocessors).contains(&workgroups)
        };
        let tiles = MATRIX_TILES.iter().chain(ONE_ROUND_TILES.iter().filter(runs_at_once));
        let tiles = tiles.chain(FEW_ROWS_MATRIX_TILES.iter().filter(|_| few));
        cheapest(tiles.filter(fits), caps, sizes, kernel)
    }

    /// The tile for `[batch, m, n, k]`, where elements may be missing beyond padded operands, and the number of parts of k.
    pub fn choose(
        caps: &Capabilities,
        [element, accumulator]: [Compute; 2],
        padded: bool,
        sizes: [u64; 4],
    ) -> (Self, u64) {
        if caps.cpu {
            let rows = sizes[1].next_power_of_two().min(if accumulator.size() > 4 { 8 } else { 16 }) as u32;
            return (Tile { method: TileMethod::Lanes, ..tile([rows, LANES, 1], [rows, 1]) }, 1);
        }
        // Registers hold the sums of a thread. LLVM fails to compile some deep tiles with padding for lavapipe.
        let max_sums = 512 / accumulator.size().max(element.size()).max(4);
        let fits = |tile: &&Tile| {
            tile.shared_bytes(element.size(), accumulator.size()) <= caps.max_shared.into()
                && u64::from(tile.thread_rows * tile.thread_columns) <= max_sums
                && !(padded && tile.slices > 1)
                && (tile.depth < MIN_DEEP_STEP || tile.has_deep_steps(sizes[3]))
        };
        // What an element along k takes a multiprocessor, as multiplications: those of the tile, beyond the edges included, and the
        // loads for them from memory and from shared memory. Workgroups whose registers it has at once wait for both together, the
        // longer the fewer threads they have. Fitted to 12 tiles in up to 11 parts of 23 products in f32 on an H200, of 64 to 25,088 rows, four
        // with a bias and a residual: the chosen ones take 2 % longer than the fastest measured on average, 21 % at worst.
        let kernel = |tile: &Tile, rounds: u64, depth: u64| {
            let &Tile { rows, columns, thread_rows, thread_columns, slices, .. } = tile;
            let multiplications = rows * columns;
            let shared_loads = multiplications / thread_rows + multiplications / thread_columns;
            let work = u64::from(multiplications + 18 * (rows + columns) + shared_loads / 2 + 32 * slices);
            let threads = u64::from(tile.threads());
            let sums = u64::from(thread_rows * thread_columns) * accumulator.size() / 4;
            let resident = MULTIPROCESSOR_REGISTERS / (sums + THREAD_REGISTERS) / threads;
            let batches = rounds.div_ceil(resident.max(1));
            let step = work * rounds + 140 * work * batches / threads;
            step.saturating_mul(depth).saturating_add(BATCH_COST * batches)
        };
        cheapest(TILES.iter().filter(fits), caps, sizes, kernel).unwrap_or((TILES[8], 1))
    }
}

/// The tile, and the number of parts of k, of least cost. `kernel` is what a multiprocessor takes for a tile, a number of workgroups and
/// the elements of each along k.
fn cheapest<'a>(
    tiles: impl Iterator<Item = &'a Tile>,
    caps: &Capabilities,
    [batch, m, n, k]: [u64; 4],
    kernel: impl Fn(&Tile, u64, u64) -> u64,
) -> Option<(Tile, u64)> {
    // Parts keep all multiprocessors busy once or a few times, and are not short.
    let parts = |workgroups: u64| {
        (1..=4).map(move |rounds| (rounds * caps.multiprocessors / workgroups).min(k / MIN_PART_DEPTH))
    };
    let candidates = tiles.flat_map(|tile| {
        let workgroups = batch * tile.workgroups(m, n);
        let splits = iter::once(1).chain(parts(workgroups).filter(|&splits| splits > 1));
        splits.map(move |splits| (tile, workgroups, splits))
    });
    let cost = |&(tile, workgroups, splits): &(&Tile, u64, u64)| {
        let rounds = (workgroups * splits).div_ceil(caps.multiprocessors);
        let sum = if splits > 1 { PARTS_SUM_COST + splits * batch * m * n } else { 0 };
        kernel(tile, rounds, k.div_ceil(splits)).saturating_add(sum)
    };
    candidates.min_by_key(cost).map(|(tile, _, splits)| (*tile, splits))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tuning::devices::h200;

    #[test]
    fn tiles_fill_the_multiprocessors_and_fit_the_device() {
        for multiprocessors in [8, 32, 132] {
            let caps = Capabilities { multiprocessors, ..h200() };
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
                    assert!(tile.shared_bytes(element.size(), accumulator.size()) <= 48 << 10, "{sizes:?} {tile:?}");
                    // A quarter of the multiprocessors work, unless the product is small.
                    let workgroups = batch * tile.workgroups(m, n) * splits;
                    assert!(4 * workgroups >= multiprocessors || m * n * k < 1 << 20, "{sizes:?} {tile:?} {splits}");
                }
            }
            let (tile, splits) = Tile::choose(&caps, [Compute::Float; 2], false, [1, 8192, 8192, 8192]);
            assert_eq!((tile, splits), (TILES[0], 1), "nothing is lost by the tile of the least work");
        }
    }

    #[test]
    fn products_whose_workgroups_run_at_once_have_tiles_of_their_own() {
        let choose = |padded, sizes| Tile::choose_matrix(&h200(), padded, sizes).unwrap();
        for (sizes, tile) in [([1, 1024, 768, 768], 1), ([1, 1024, 768, 3072], 1), ([1, 1024, 3072, 768], 0)] {
            assert_eq!(choose(false, sizes), (ONE_ROUND_TILES[tile], 1), "{sizes:?}");
            assert!(MATRIX_TILES.contains(&choose(true, sizes).0));
        }
        // 256 workgroups, 1,272, and 12.
        for sizes in [[1, 2048, 768, 768], [1, 1024, 30_522, 768], [1, 256, 256, 768]] {
            assert!(MATRIX_TILES.contains(&choose(false, sizes).0), "{sizes:?}");
        }
    }
}
