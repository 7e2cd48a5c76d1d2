//! How attention is spread over workgroups. This module owns the tiles of `shaders/lib/attention.glsl` and `attention_matrix.glsl` and the
//! split along the keys; it knows neither buffers nor what is done with a score.

use super::contraction::MAX_DOUBLE_MULTIPLICATIONS;
use super::{MATRIX_LANES, cpu_group_threads, has_matrices};
use crate::device::Capabilities;
use crate::program::Type;
use crate::program::types::Compute;

/// The most multiplications of a GPU's multiprocessor that one kernel takes. As profiled on an H200 before tiles of 64 keys, 12
/// heads of 64 with 128 queries and keys took 14 µs in one kernel and 18 in three; with 256 they took 36 and 28, in larger tiles or
/// cooperative matrices.
const MAX_MULTIPROCESSOR_MULTIPLICATIONS: u64 = 1 << 18;
/// How many multiplications of f32 take as long as one of doubles on GPUs with few units for doubles.
const SLOW_DOUBLE_COST: u64 = 32;
/// The most queries that read keys and values from memory without staging them in shared memory: each is read by one thread alone.
const MAX_UNSTAGED_QUERIES: u64 = 4;
/// Threads of a GPU's workgroup of few queries.
const FEW_QUERIES_THREADS: u64 = 256;
/// Threads that share a key of few queries: they load four neighbours in memory each, of the same sector.
const FEW_QUERIES_KEY_THREADS: u64 = 4;
/// Vectors of keys and values that a thread of few queries loads at once, at most: those that its registers hold.
const MAX_PREFETCHED_VECTORS: u32 = 32;
/// Keys that a workgroup goes through before it pays to split them, which takes a second kernel that combines the parts.
const MIN_SPLIT_KEYS: u64 = 512;
/// The fewest keys of a part.
const MIN_PART_KEYS: u64 = 256;
/// Steps through the keys of few queries that a workgroup takes alone; more are split, one or more a part.
const MAX_UNSPLIT_STEPS: u64 = 2;
/// Workgroups for each multiprocessor that a split aims at.
const WORKGROUPS_PER_MULTIPROCESSOR: u64 = 2;
/// Keys of a tile on a CPU device.
const CPU_TILE_KEYS: u32 = 16;

/// Queries × keys of a GPU's tiles, rows of a thread and the threads along the keys, from the one with the most reuse on.
const GPU_TILES: [[u32; 4]; 6] =
    [[64, 32, 4, 8], [32, 32, 4, 16], [32, 16, 4, 16], [16, 64, 2, 32], [16, 32, 2, 16], [8, 16, 1, 16]];

/// Queries and keys of tiles of cooperative matrices and queries of a subgroup, for attention that fills the device and for others, with small
/// heads and with large ones, of which registers hold fewer queries. In bf16 on an H200, 16 heads of 64 with 4,096 queries and keys take
/// 365 µs by the first tile and 429 by the second; 12 and 96 heads with 128 take 7.3 and 9.1 by the second, 8.2 and 10.0 with 32 keys,
/// and 8.1 to 8.5 and 9.5 to 10.8 with fewer queries. 16 heads of 128 take 606 and 678 µs, by other tiles 662 to 2,107.
const SMALL_HEAD_TILES: [[u32; 3]; 2] = [[128, 32, 32], [64, 64, 16]];
const LARGE_HEAD_TILES: [[u32; 3]; 2] = [[128, 64, 16], [64, 64, 16]];
/// The most elements of a small head.
const MAX_SMALL_HEAD: u64 = 64;
/// Rows and columns of a cooperative matrix.
const MATRIX_SIZE: u64 = 16;
/// The most elements of a head for cooperative matrices.
const MAX_MATRIX_HEAD: u64 = 128;

/// How keys and values are loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyLoads {
    /// Through shared memory.
    Staged,
    /// Each by one thread alone, where it is needed.
    Direct,
    /// The same, all of a step at once.
    Prefetched,
    /// Through shared memory, to cooperative matrices.
    Matrices,
}

/// What a workgroup takes at once. All numbers are powers of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AttentionTile {
    /// Queries of a workgroup.
    pub queries: u32,
    /// Keys of a step.
    pub keys: u32,
    /// Queries of a thread.
    pub rows: u32,
    /// Threads that share a query.
    pub column_threads: u32,
    /// Threads that share a key.
    pub key_threads: u32,
    /// Threads of a query that have different columns of the values; the others have other keys of a step.
    pub value_threads: u32,
    /// How keys and values are loaded.
    pub loads: KeyLoads,
    /// Threads that share a query and exchange numbers within a subgroup.
    pub lanes: u32,
}

/// The most elements of a key and of a value: workgroups hold whole ones.
const MAX_HEAD_ELEMENTS: u64 = 256;

/// The sizes of an attention, which its strategy is chosen by.
#[derive(Clone, Copy, Debug)]
pub struct AttentionProblem {
    /// Batches, each with keys and values of its own.
    pub batches: u64,
    /// Queries of a batch.
    pub queries: u64,
    pub keys: u64,
    /// Elements of a query and of a key.
    pub depth: u64,
    /// Elements of a value.
    pub values: u64,
    /// The type of queries, keys, values and the result, where it is one and runs of eight elements are aligned in all operands.
    pub matrix_type: Option<Type>,
}

impl AttentionProblem {
    /// Whether there are keys, and heads whose elements kernels take.
    pub fn is_sound(&self) -> bool {
        self.keys != 0 && (1..=MAX_HEAD_ELEMENTS).contains(&self.depth) && self.values <= MAX_HEAD_ELEMENTS
    }
}

/// How attention is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionStrategy {
    pub tile: AttentionTile,
    /// Parts of the keys. The results of several are combined by a second kernel.
    pub splits: u64,
    /// Keys of a part: whole steps.
    pub chunk: u64,
    /// What products are added in.
    pub accumulator: Compute,
}

impl AttentionTile {
    pub fn threads(&self) -> u32 {
        self.queries / self.rows * self.column_threads
    }

    /// Bytes of shared memory, with sums of `sum` bytes.
    fn shared_bytes(&self, problem: &AttentionProblem, sum: u64) -> u64 {
        let [queries, keys, threads] = [self.queries, self.keys, self.threads()].map(u64::from);
        if self.loads == KeyLoads::Matrices {
            // Eight elements of 16 bits are 16 bytes, as are four results, of which a line has 16.
            let lines = [problem.depth, problem.values].map(|elements| elements / 8 + 1);
            let rows = threads / u64::from(self.lanes) * MATRIX_SIZE * lines[0].max(6);
            return 16 * rows.max(keys * (lines[0] + lines[1]));
        }
        let [depth, values] = [problem.depth, problem.values].map(|elements| elements.div_ceil(4));
        let staged = if self.loads == KeyLoads::Staged { keys * (depth + 1 + values) * 16 } else { 0 };
        let slice_lanes = self.lanes.max(self.value_threads);
        let slices = match self.column_threads > slice_lanes {
            true => threads / u64::from(slice_lanes) * u64::from(self.value_threads) * 4 * sum,
            false => 0,
        };
        let exchanged = queries * u64::from(self.column_threads / self.lanes) * (4 + sum);
        let tile = if self.loads == KeyLoads::Prefetched { 0 } else { queries * (depth + 1) * 16 };
        tile + staged + queries * (keys + 1) * 4 + slices + exchanged
    }

    fn fits(&self, problem: &AttentionProblem, sum: u64, caps: &Capabilities) -> bool {
        self.threads() <= caps.max_threads && self.shared_bytes(problem, sum) <= caps.max_shared.into()
    }

    /// With the threads that share a query: those for the columns of values, and those of a subgroup.
    fn new([queries, keys, rows, column_threads]: [u32; 4], loads: KeyLoads, values: u64, caps: &Capabilities) -> Self {
        let columns = values.div_ceil(4).next_power_of_two() as u32;
        let threads = queries / rows * column_threads;
        let whole = caps.subgroup.is_power_of_two() && threads.is_multiple_of(caps.subgroup);
        let lanes = if whole { column_threads.min(caps.subgroup) } else { 1 };
        let value_threads = columns.min(column_threads);
        Self { queries, keys, rows, column_threads, key_threads: 1, value_threads, loads, lanes }
    }

    /// The tile of cooperative matrices with the most reuse that leaves enough workgroups. None where there are no such matrices, for
    /// few queries, and for so few workgroups that the keys should be split.
    fn of_matrices(problem: &AttentionProblem, caps: &Capabilities) -> Option<Self> {
        let &AttentionProblem { depth, values, .. } = problem;
        let (head, lanes) = (depth.max(values), MATRIX_LANES);
        let has_type = problem.matrix_type.is_some_and(|ty| has_matrices(caps, ty));
        let has_type = has_type && caps.matrices.operations && caps.subgroup == lanes;
        let whole = [depth, values].iter().all(|size| size.is_multiple_of(MATRIX_SIZE));
        if !has_type || !whole || head > MAX_MATRIX_HEAD || problem.queries < MATRIX_SIZE {
            return None;
        }
        let tiles = if head <= MAX_SMALL_HEAD { SMALL_HEAD_TILES } else { LARGE_HEAD_TILES };
        let of_table = |[queries, keys, rows]: [u32; 3]| Self {
            lanes,
            ..Self::new([queries, keys, rows, lanes], KeyLoads::Matrices, values, caps)
        };
        let fitting = || tiles.into_iter().map(of_table).filter(|tile| tile.fits(problem, 4, caps));
        let fills = |tile: &Self| workgroups(problem, tile) >= caps.multiprocessors;
        let splits =
            |tile: &Self| problem.keys > MIN_SPLIT_KEYS && 4 * workgroups(problem, tile) < caps.multiprocessors;
        fitting().find(fills).or_else(|| fitting().next_back().filter(|tile| !splits(tile)))
    }

    /// The tile of few queries on a GPU, with this many threads.
    fn of_few_queries(problem: &AttentionProblem, threads: u32, caps: &Capabilities) -> Self {
        let queries = problem.queries.next_power_of_two() as u32;
        let one_key = Self::new([queries, threads, queries, threads], KeyLoads::Direct, problem.values, caps);
        let vectors = problem.depth.div_ceil(4);
        let key_threads = FEW_QUERIES_KEY_THREADS.min(vectors.next_power_of_two()).min(one_key.lanes.into()) as u32;
        // A step has a key for each slice of the values.
        let value_threads = one_key.value_threads.max(key_threads);
        let of_values = problem.values.div_ceil(4).div_ceil(value_threads.into()) as u32 * value_threads / key_threads;
        let prefetched = vectors.div_ceil(key_threads.into()) as u32 + of_values <= MAX_PREFETCHED_VECTORS;
        let loads = if prefetched { KeyLoads::Prefetched } else { KeyLoads::Direct };
        Self { keys: threads / key_threads, key_threads, value_threads, loads, ..one_key }
    }
}

/// Whether one kernel should take the place of two products and a softmax. On a CPU device, products of many queries by panels are faster;
/// on a GPU, large products are where they alone have cooperative matrices. Without loops there is no kernel.
pub fn pays(problem: &AttentionProblem, caps: &Capabilities) -> bool {
    if !problem.is_sound() {
        return false;
    }
    let fast = if caps.cpu {
        problem.queries <= MAX_UNSTAGED_QUERIES
    } else {
        AttentionTile::of_matrices(problem, caps).is_some()
            || multiprocessor_multiplications(problem, caps) <= MAX_MULTIPROCESSOR_MULTIPLICATIONS
    };
    !caps.exponential_loops && fast
}

/// The multiplications of f32 that take as long as what falls to one multiprocessor.
fn multiprocessor_multiplications(problem: &AttentionProblem, caps: &Capabilities) -> u64 {
    let AttentionStrategy { tile, splits, chunk, accumulator } = choose(*problem, caps);
    let groups = workgroups(problem, &tile).saturating_mul(splits);
    let group = AttentionProblem { batches: 1, queries: tile.queries.into(), keys: chunk, ..*problem };
    let cost = if accumulator == Compute::Double && !caps.fast_float64 { SLOW_DOUBLE_COST } else { 1 };
    groups.div_ceil(caps.multiprocessors).saturating_mul(multiplications(&group)).saturating_mul(cost)
}

fn multiplications(problem: &AttentionProblem) -> u64 {
    let &AttentionProblem { batches, queries, keys, depth, values, .. } = problem;
    [batches, queries, keys, depth.saturating_add(values)].iter().fold(1, |product: u64, &n| product.saturating_mul(n))
}

/// The strategy for a problem.
pub fn choose(problem: AttentionProblem, caps: &Capabilities) -> AttentionStrategy {
    let keys = problem.keys;
    if let Some(tile) = AttentionTile::of_matrices(&problem, caps) {
        let chunk = keys.next_multiple_of(tile.keys.into());
        return AttentionStrategy { tile, splits: 1, chunk, accumulator: Compute::Float };
    }
    let accumulator = match caps.float64 && multiplications(&problem) <= MAX_DOUBLE_MULTIPLICATIONS {
        true => Compute::Double,
        false => Compute::Float,
    };
    let tile = tile(&problem, accumulator.size(), caps);
    let wanted = (WORKGROUPS_PER_MULTIPROCESSOR * caps.multiprocessors).div_ceil(workgroups(&problem, &tile).max(1));
    let [split, part] = match tile.loads {
        KeyLoads::Staged | KeyLoads::Matrices => [MIN_SPLIT_KEYS, MIN_PART_KEYS],
        KeyLoads::Direct | KeyLoads::Prefetched => [MAX_UNSPLIT_STEPS * u64::from(tile.keys), tile.keys.into()],
    };
    let parts = if caps.cpu || keys <= split { 1 } else { wanted.min(keys.div_ceil(part)).max(1) };
    let chunk = keys.div_ceil(parts).next_multiple_of(tile.keys.into());
    AttentionStrategy { tile, splits: keys.div_ceil(chunk).max(1), chunk, accumulator }
}

/// Workgroups of this tile that the queries take.
fn workgroups(problem: &AttentionProblem, tile: &AttentionTile) -> u64 {
    problem.batches.saturating_mul(problem.queries.div_ceil(tile.queries.into()))
}

/// The largest tile that fits and leaves enough workgroups, with sums of `sum` bytes.
fn tile(problem: &AttentionProblem, sum: u64, caps: &Capabilities) -> AttentionTile {
    let AttentionProblem { queries, keys, values, .. } = *problem;
    let few = queries <= MAX_UNSTAGED_QUERIES;
    let all = queries.next_power_of_two() as u32;
    if caps.cpu {
        let lanes = cpu_group_threads(caps);
        return match few {
            true => AttentionTile::new([all, 8 * lanes, all, lanes], KeyLoads::Direct, values, caps),
            false => AttentionTile::new([lanes, CPU_TILE_KEYS, 1, 1], KeyLoads::Direct, values, caps),
        };
    }
    let fits = |tile: &AttentionTile| tile.fits(problem, sum, caps);
    if few {
        let wanted = keys.next_power_of_two().saturating_mul(FEW_QUERIES_KEY_THREADS);
        let mut threads = wanted.clamp(64, FEW_QUERIES_THREADS) as u32;
        loop {
            let tile = AttentionTile::of_few_queries(problem, threads, caps);
            if fits(&tile) || threads == 32 {
                return tile;
            }
            threads /= 2;
        }
    }
    let of_table = |tile| AttentionTile::new(tile, KeyLoads::Staged, values, caps);
    let tiles = || GPU_TILES.into_iter().map(of_table).filter(|tile| fits(tile));
    let fills = |tile: &AttentionTile| workgroups(problem, tile) >= caps.multiprocessors / 2;
    let smallest = AttentionTile { loads: KeyLoads::Direct, ..of_table(GPU_TILES[GPU_TILES.len() - 1]) };
    tiles().find(fills).or_else(|| tiles().next_back()).unwrap_or(smallest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::MatrixTypes;
    use crate::tuning::devices::{h200, lavapipe};

    fn problem([batches, queries, keys, head]: [u64; 4]) -> AttentionProblem {
        AttentionProblem { batches, queries, keys, depth: head, values: head, matrix_type: None }
    }

    #[test]
    fn many_queries_get_large_tiles_and_few_get_a_thread_a_key() {
        let shape = |sizes, caps: &_| {
            let AttentionTile { queries, keys, loads, .. } = choose(problem(sizes), caps).tile;
            (queries, keys, loads == KeyLoads::Staged)
        };
        assert_eq!(shape([16, 4096, 4096, 64], &h200()), (64, 32, true));
        assert_eq!(shape([16, 4096, 4096, 128], &h200()), (32, 16, true));
        assert_eq!(shape([12, 128, 128, 64], &h200()), (16, 64, true));
        assert_eq!(shape([12, 1, 256, 64], &h200()), (1, 64, false));
        assert_eq!(shape([96, 4, 512, 64], &h200()), (4, 64, false));
        assert_eq!(shape([12, 128, 128, 64], &lavapipe()), (8, 16, false));
        assert_eq!(shape([12, 1, 128, 64], &lavapipe()), (1, 64, false));
    }

    #[test]
    fn heads_of_16_bits_get_cooperative_matrices() {
        let of = |ty, sizes| AttentionProblem { matrix_type: ty, ..problem(sizes) };
        let shape = |ty, sizes| {
            let AttentionTile { queries, keys, rows, loads, .. } = choose(of(ty, sizes), &h200()).tile;
            (loads == KeyLoads::Matrices).then_some([queries, keys, rows])
        };
        let bf16 = Some(Type::BF16);
        assert_eq!(shape(bf16, [16, 4096, 4096, 64]), Some([128, 32, 32]));
        assert_eq!(shape(bf16, [16, 4096, 4096, 128]), Some([128, 64, 16]));
        assert_eq!(shape(bf16, [96, 128, 128, 64]), Some([64, 64, 16]));
        assert_eq!(shape(bf16, [12, 128, 128, 64]), Some([64, 64, 16]));
        // Other types, odd heads, few queries, and few workgroups with many keys.
        assert_eq!(shape(Some(Type::F32), [16, 4096, 4096, 64]), None);
        for sizes in [[16, 4096, 4096, 72], [16, 4096, 4096, 256], [16, 8, 4096, 64], [1, 64, 4096, 64]] {
            assert_eq!(shape(bf16, sizes), None, "{sizes:?}");
        }
        assert!(pays(&of(bf16, [16, 4096, 4096, 64]), &h200()));
        let factors = MatrixTypes { operations: false, ..h200().matrices };
        let factors = Capabilities { matrices: factors, ..h200() };
        assert!(!pays(&of(bf16, [16, 4096, 4096, 64]), &factors));
    }

    #[test]
    fn keys_are_split_where_heads_do_not_fill_the_device() {
        let parts = |sizes, caps: &_| {
            let AttentionStrategy { splits, chunk, .. } = choose(problem(sizes), caps);
            (splits, chunk)
        };
        assert_eq!(parts([12, 1, 128, 64], &h200()), (1, 128));
        assert_eq!(parts([12, 1, 512, 64], &h200()), (8, 64));
        assert_eq!(parts([12, 1, 1024, 64], &h200()), (16, 64));
        assert_eq!(parts([16, 1, 2048, 128], &h200()), (16, 128));
        assert_eq!(parts([16, 1, 100_000, 128], &h200()), (17, 5888));
        assert_eq!(parts([16, 4096, 4096, 64], &h200()), (1, 4096));
        assert_eq!(parts([16, 1, 2048, 128], &lavapipe()), (1, 2048));
    }

    #[test]
    fn every_tile_fits_and_its_threads_go_evenly() {
        let mut small = h200();
        (small.max_shared, small.max_threads, small.subgroup) = (16 << 10, 128, 0);
        for caps in [h200(), lavapipe(), small] {
            for queries in [1, 3, 4, 5, 64, 1000] {
                for (head, matrix_type) in
                    [1, 3, 64, 80, 128, 256].into_iter().flat_map(|head| [(head, None), (head, Some(Type::F16))])
                {
                    let problem = AttentionProblem { matrix_type, ..problem([3, queries, 1000, head]) };
                    let AttentionStrategy { tile, accumulator, .. } = choose(problem, &caps);
                    assert!(tile.fits(&problem, accumulator.size(), &caps), "{problem:?} {tile:?}");
                    assert_eq!(tile.queries % tile.rows, 0);
                    assert_eq!(tile.keys % (tile.column_threads / tile.value_threads), 0);
                    assert_eq!(tile.keys * tile.key_threads % tile.column_threads, 0);
                    assert!(tile.key_threads <= tile.lanes.max(1));
                    assert_eq!(tile.threads() % tile.lanes, 0);
                }
            }
        }
    }

    #[test]
    fn one_kernel_pays_for_few_queries_on_cpus_and_for_small_products_on_gpus() {
        let pays = |sizes, caps: &_| pays(&problem(sizes), caps);
        assert!(pays([12, 1, 1 << 20, 64], &lavapipe()) && !pays([12, 128, 128, 64], &lavapipe()));
        for small in [[12, 1, 1024, 64], [16, 1, 2048, 128], [12, 128, 128, 64]] {
            assert!(pays(small, &h200()), "{small:?}");
        }
        // One of them has few workgroups, the other ones have much to do.
        for large in [[1, 8, 1024, 128], [12, 256, 256, 64], [12, 1, 1 << 20, 64]] {
            assert!(!pays(large, &h200()), "{large:?}");
        }
        assert!(!pays([1, 1, 128, 64], &Capabilities { exponential_loops: true, ..h200() }));
        let slow = Capabilities { fast_float64: false, ..h200() };
        assert!(pays([2, 16, 16, 8], &slow) && !pays([1, 8, 64, 64], &slow) && pays([1, 8, 64, 64], &h200()));
    }

    #[test]
    fn small_attentions_add_doubles() {
        let accumulator = |sizes| choose(problem(sizes), &h200()).accumulator;
        assert_eq!(accumulator([2, 16, 16, 8]), Compute::Double);
        assert_eq!(accumulator([16, 1024, 1024, 64]), Compute::Float);
    }
}
