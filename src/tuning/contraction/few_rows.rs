//! Products of a few rows with a matrix on CPU devices: the tile of their kernel, and for which contractions it pays. Choices alone; the
//! kernel is `kernels::contraction`'s.

use super::axes::AxisGroups;
use super::shape::ContractionShape;
use super::tile::MIN_PART_DEPTH;
use super::tiling::is_aligned;
use crate::device::Capabilities;
use crate::program::emit::vec4_bytes;
use crate::program::types::Compute;

/// Multiplications below which a reduction takes no longer.
const MIN_MULTIPLICATIONS: u64 = 1 << 15;
/// Elements along k below which sums are shorter than the blocks that the kernel loads at once.
const MIN_DEPTH: u64 = 64;
/// The most rows for a matrix whose neighbours lie along the columns. Multiplications take as long as by packed panels then.
const MAX_ROWS: u64 = 16;
/// The most rows for a matrix whose neighbours lie along k: there lanes load the rows again for each of their columns.
const MAX_ROWS_ALONG_K: u64 = 8;
/// Columns that share what is loaded of the rows where neighbours lie along k. A lane stores the sum of one.
const COLUMNS_ALONG_K: u64 = 8;
/// Elements that are loaded at once.
const VECTOR: u64 = 4;
/// Workgroups that share a product evenly among a CPU's cores.
const BALANCED_WORKGROUPS: u64 = 16;

/// What a subgroup computes. Rows and columns are those of the result, or of its transpose where the second operand has few.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FewRowsTile {
    /// Invocations of a subgroup.
    pub lanes: u64,
    /// The operand of the few rows, 'a' or 'b'. The other one is the matrix.
    pub operand: char,
    /// The number of rows, rounded up.
    pub rows: u64,
    /// Vectors of four that a lane loads at once: along the columns, or along k.
    pub vectors: u64,
    /// Columns of the tile where neighbours in the matrix lie along k; 0 where they lie along the columns, which lanes share then.
    pub columns_along_k: u64,
}

/// How a product of a few rows is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FewRows {
    pub tile: FewRowsTile,
    pub accumulator: Compute,
    /// Parts of k.
    pub splits: u64,
    /// Elements of a part along k.
    pub chunk: u64,
}

impl FewRowsTile {
    /// The tile for a number of rows whose vectors are contiguous in the matrix, and along k in the rows where they are in both.
    fn choose(shape: &ContractionShape, groups: &AxisGroups, lanes: u64) -> Option<Self> {
        let [_, m, n, _] = groups.sizes();
        let (operand, few) = if m <= n { ('a', m) } else { ('b', n) };
        let rows = if few == 1 { 1 } else { few.next_multiple_of(2) };
        let tile = Self { lanes, operand, rows, vectors: 0, columns_along_k: 0 };
        let (matrix, columns) = tile.matrix();
        let has_vectors =
            |tensor, group| groups.has_runs(tensor, group, VECTOR) && is_aligned(shape, groups, tensor, VECTOR);
        if few <= MAX_ROWS_ALONG_K && has_vectors(matrix, "k") && has_vectors(operand, "k") {
            // A lane has 32 bytes of a column in a block, as far as its vectors are not of single bytes.
            let bytes = vec4_bytes(shape.operand(matrix).ty.storage()).max(8);
            return Some(Self { vectors: 32 / bytes, columns_along_k: COLUMNS_ALONG_K.min(lanes), ..tile });
        }
        // Sums of more than a row take the registers of further vectors, and LLVM takes seconds for a kernel of 16 rows and two vectors.
        let vectors = match few {
            1 => 4,
            2..=8 => 2,
            _ => 1,
        };
        (few <= MAX_ROWS && has_vectors(matrix, columns)).then_some(Self { vectors, ..tile })
    }

    /// The operand that is the matrix, and the group of its columns.
    pub fn matrix(&self) -> (char, &'static str) {
        if self.operand == 'a' { ('b', "n") } else { ('a', "m") }
    }

    /// The group of the few rows.
    pub fn row_group(&self) -> &'static str {
        if self.operand == 'a' { "m" } else { "n" }
    }

    /// The numbers of rows and columns of a product.
    pub fn extents(&self, groups: &AxisGroups) -> [u64; 2] {
        let [_, m, n, _] = groups.sizes();
        if self.operand == 'a' { [m, n] } else { [n, m] }
    }

    /// Columns of the tile.
    fn columns(&self) -> u64 {
        if self.columns_along_k > 0 { self.columns_along_k } else { VECTOR * self.lanes * self.vectors }
    }

    /// Workgroups of a product whose k is not split.
    pub fn workgroups(&self, groups: &AxisGroups) -> u64 {
        let [batch, ..] = groups.sizes();
        batch * self.extents(groups)[1].div_ceil(self.columns())
    }
}

impl FewRows {
    /// Whether its kernel stores a row, whose elements' indices are their columns'.
    pub fn is_one_row(&self, groups: &AxisGroups) -> bool {
        let [batch, ..] = groups.sizes();
        self.splits == 1 && batch == 1 && self.tile.extents(groups)[0] == 1
    }

    /// Where the device is a CPU, one operand has few rows, vectors of the other are contiguous, all indices fit 32 bits, and sums are
    /// formed in integers or doubles that hold the elements as they are.
    pub fn choose(caps: &Capabilities, shape: &ContractionShape, groups: &AxisGroups) -> Option<Self> {
        let [batch, m, n, k] = groups.sizes();
        let lanes = u64::from(caps.subgroup);
        let accumulator = shape.exact(caps).compute();
        let device = caps.cpu && caps.int64 && !caps.exponential_loops;
        if !device || !(4..=16).contains(&lanes) || !lanes.is_power_of_two() || !holds_elements(shape, accumulator) {
            return None;
        }
        let elements = shape.operands.map(|operand| operand.elements);
        let single = [&groups.m, &groups.n, &groups.k].iter().all(|axes| axes.len() <= 1) && groups.is_affine();
        let large = batch * m * n * k >= MIN_MULTIPLICATIONS && k >= MIN_DEPTH;
        if !single || !large || elements[0].max(elements[1]) >= 1 << 31 {
            return None;
        }
        let tile = FewRowsTile::choose(shape, groups, lanes)?;
        let parts = BALANCED_WORKGROUPS.div_ceil(tile.workgroups(groups)).min(k / MIN_PART_DEPTH).max(1);
        let chunk = k.div_ceil(parts).next_multiple_of(VECTOR * lanes);
        let splits = k.div_ceil(chunk);
        let [_, columns] = tile.extents(groups);
        let fits = columns >= tile.columns() && splits * groups.elements() < 1 << 31;
        fits.then_some(Self { tile, accumulator, splits, chunk })
    }
}

/// Whether the accumulator holds any element of both operands as it is.
fn holds_elements(shape: &ContractionShape, accumulator: Compute) -> bool {
    let operands = shape.operands.map(|operand| operand.ty.compute());
    match accumulator {
        Compute::Double => {
            operands.iter().all(|compute| matches!(compute, Compute::Float | Compute::Int | Compute::Uint))
        }
        Compute::Int | Compute::Uint => operands.iter().all(|compute| matches!(compute, Compute::Int | Compute::Uint)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::Type;
    use crate::tuning::contraction::{Axis, OperandShape};
    use crate::tuning::devices::{h200, lavapipe};

    /// Matrices from an offset on, `[m, n, k]`. The strides are those of m and k in the first operand, and of k and n in the second.
    fn product(ty: Type, [m, n, k]: [u64; 3], strides: [[u64; 2]; 2], offset: i64) -> ContractionShape {
        let axis =
            |dim, a: u64, b: u64, c: u64| vec![Axis { dim, a: a as i64, b: b as i64, c: c as i64, padded: None }];
        let [[m_a, k_a], [k_b, n_b]] = strides;
        let operand = OperandShape { ty, offset, elements: 1 << 20 };
        ContractionShape {
            ty,
            operands: [operand; 2],
            batch: vec![],
            rows: axis(m, m_a, 0, n),
            columns: axis(n, 0, n_b, 1),
            depth: axis(k, k_a, k_b, 0),
            padded_axes: vec![],
        }
    }

    fn chosen(caps: &Capabilities, shape: &ContractionShape) -> Option<FewRows> {
        FewRows::choose(caps, shape, &shape.groups())
    }

    #[test]
    fn few_rows_of_either_operand_are_taken_in_either_order_of_the_matrix() {
        for few in 1..=20 {
            for ty in [Type::F32, Type::BF16, Type::F16, Type::S32] {
                let (n, k) = (300, 200);
                let by_columns = chosen(&lavapipe(), &product(ty, [few, n, k], [[k, 1], [n, 1]], 0));
                let along_k = chosen(&lavapipe(), &product(ty, [few, n, k], [[k, 1], [1, k]], 0));
                let second = chosen(&lavapipe(), &product(ty, [n, few, k], [[1, n], [few, 1]], 0));
                assert_eq!(by_columns.is_some(), few <= MAX_ROWS, "{few} {ty:?}");
                assert_eq!(along_k.is_some(), few <= MAX_ROWS_ALONG_K, "{few} {ty:?}");
                assert_eq!(second.is_some(), few <= MAX_ROWS, "{few} {ty:?}");
                let tiles = [by_columns, second].into_iter().flatten().map(|few_rows| few_rows.tile);
                let operands: String = tiles.map(|tile| tile.operand).collect();
                assert!(["", "ab"].contains(&&*operands), "{few} {ty:?} {operands}");
            }
        }
    }

    #[test]
    fn parts_of_k_keep_a_cpu_busy_and_cover_k() {
        for (n, k) in [(260, 128), (128, 3000), (260, 777), (2304, 768), (4096, 1 << 16)] {
            let shape = product(Type::F32, [1, n, k], [[k, 1], [n, 1]], 0);
            let FewRows { tile, splits, chunk, .. } = chosen(&lavapipe(), &shape).unwrap();
            assert!(splits * chunk >= k && (splits - 1) * chunk < k, "{n} {k}");
            let workgroups = tile.workgroups(&shape.groups()) * splits;
            assert!(workgroups >= BALANCED_WORKGROUPS / 2 || chunk < 2 * MIN_PART_DEPTH, "{n} {k} {workgroups}");
        }
    }

    #[test]
    fn what_the_kernel_cannot_load_or_what_does_not_pay_is_left_to_others() {
        let sizes = [1, 300, 200];
        let strides = [[200, 1], [300, 1]];
        let refused = |caps: &Capabilities, ty, sizes, strides, offset| {
            chosen(caps, &product(ty, sizes, strides, offset)).is_none()
        };
        assert!(!refused(&lavapipe(), Type::F32, sizes, strides, 4));
        assert!(refused(&h200(), Type::F32, sizes, strides, 0), "a GPU");
        assert!(refused(&lavapipe(), Type::F32, sizes, strides, 2), "vectors that are not aligned");
        assert!(refused(&lavapipe(), Type::F32, [1, 301, 200], [[200, 1], [301, 1]], 0), "columns that are no vectors");
        assert!(refused(&lavapipe(), Type::F32, sizes, [[200, 1], [600, 2]], 0), "columns that are no neighbours");
        assert!(refused(&lavapipe(), Type::F32, [1, 1000, 60], [[60, 1], [1000, 1]], 0), "short sums");
        assert!(refused(&lavapipe(), Type::F32, [1, 64, 1000], [[1000, 1], [64, 1]], 0), "fewer columns than a tile's");
        assert!(refused(&lavapipe(), Type::F64, sizes, strides, 0), "elements of 64 bits");
        assert!(refused(&lavapipe(), Type::C64, sizes, strides, 0), "complex numbers");
        let without = |change: fn(&mut Capabilities)| {
            let mut caps = lavapipe();
            change(&mut caps);
            refused(&caps, Type::F32, sizes, strides, 0)
        };
        assert!(without(|caps| caps.float64 = false), "no doubles");
        assert!(without(|caps| caps.int64 = false), "no addresses to compute with");
        assert!(without(|caps| caps.exponential_loops = true), "loops that take minutes to build");
    }
}
