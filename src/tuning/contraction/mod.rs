//! How a contraction is computed: [`choose`] maps its shape, types and the device to a [`Strategy`]. This module owns the
//! geometry of contractions, too; it neither allocates nor launches.

mod axes;
mod copies;
mod epilogue;
mod few_rows;
mod padding;
mod panels;
mod shape;
mod tile;
mod tiling;

use smallvec::SmallVec;

use crate::device::Capabilities;
use crate::error::Result;
use crate::program::Type;
use crate::program::emit::vec4_bytes;
use crate::program::types::Compute;
use crate::tuning::MAX_UNROLLED_WINDOW;
pub use axes::{Axis, AxisGroups};
pub use copies::OperandCopy;
pub use epilogue::{EpilogueUse, epilogue_use};
pub use few_rows::{FewRows, FewRowsTile};
pub use padding::{CoordinateRange, PaddedAxis, Padding};
pub use panels::{MIN_BUSY_WORKGROUPS, PANEL_STEPS, PanelTile};
pub use shape::{ContractionShape, OperandShape};
#[cfg(test)]
pub use tile::TILES;
pub use tile::{TABLE_ENTRIES, Tile, TileMethod};
pub use tiling::{OperandLoad, Tiling};

/// Contractions of at most this many multiplications accumulate in double where the device has it, as BinaryBackend does;
/// larger ones in the type itself.
pub const MAX_DOUBLE_MULTIPLICATIONS: u64 = 1 << 22;

/// Elements that cooperative matrices load at once.
const MATRIX_RUN: u64 = 8;

/// What is done for a contraction: operands are copied, one after the other, and then it is computed.
#[derive(Debug)]
pub struct Strategy {
    pub copies: SmallVec<[OperandCopy; 2]>,
    /// Whether copies and kernels are submitted in one batch. Small contractions would wait for what is recorded, 4 to 10 % on an
    /// H200.
    pub one_batch: bool,
    /// The contraction of what the copies make of the operands.
    pub shape: ContractionShape,
    pub method: Method,
}

/// How a contraction is computed, its operands as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// The result or the depth is empty.
    Zeros,
    /// As a product in this type and a sum over all of the iteration space, which splits long sums over the device.
    Reduction(Type),
    /// By one load of each element of a matrix whose products with a few rows are formed, on CPU devices.
    FewRows(FewRows),
    /// By operands in packed panels, on CPU devices.
    Panels(PanelTile, Compute),
    /// By tiles of the result, in shared memory or cooperative matrices, and by a sum where k is split.
    Tiles(Tiling),
}

pub fn choose(shape: ContractionShape, caps: &Capabilities) -> Result<Strategy> {
    Chooser::new(caps, None).choose(shape, [false; 2])
}

/// A strategy with this tile and number of parts of k.
#[cfg(test)]
pub fn choose_with_tile(shape: ContractionShape, caps: &Capabilities, tile: (Tile, u64)) -> Result<Strategy> {
    Chooser::new(caps, Some(tile)).choose(shape, [false; 2])
}

/// A strategy with this tile and with copies of the operands for which `has_runs` is false, see [`Chooser::aligned`].
#[cfg(test)]
pub fn choose_aligned(
    shape: ContractionShape,
    caps: &Capabilities,
    tile: (Tile, u64),
    along_k: [bool; 2],
    runs: ([bool; 2], u64),
) -> Result<Strategy> {
    let groups = shape.groups();
    Chooser::new(caps, Some(tile)).aligned(&shape, &groups, along_k, runs)
}

/// The strategy for what copies with whole channels make of a convolution, as for a device with cooperative matrices, if that pays.
#[cfg(test)]
pub fn choose_with_whole_channels(shape: &ContractionShape, caps: &Capabilities) -> Result<Option<Strategy>> {
    let matrices = crate::tuning::devices::h200();
    let mut chooser = Chooser::new(&matrices, None);
    let filled = chooser.with_whole_channels(shape)?;
    filled.map(|filled| Chooser { caps, ..chooser }.choose(filled, [false; 2])).transpose()
}

/// A choice and the copies that it has come to.
struct Chooser<'a> {
    caps: &'a Capabilities,
    /// The tile and the number of parts of k, if they are given.
    tile: Option<(Tile, u64)>,
    copies: SmallVec<[OperandCopy; 2]>,
    one_batch: bool,
}

impl<'a> Chooser<'a> {
    fn new(caps: &'a Capabilities, tile: Option<(Tile, u64)>) -> Self {
        Self { caps, tile, copies: SmallVec::new(), one_batch: false }
    }

    fn with(self, shape: ContractionShape, method: Method) -> Strategy {
        Strategy { copies: self.copies, one_batch: self.one_batch, shape, method }
    }

    /// `aligned_rows` says of each operand whether its rows go on to a multiple of what is loaded at once, with zeros along k.
    fn choose(mut self, shape: ContractionShape, aligned_rows: [bool; 2]) -> Result<Strategy> {
        let groups = shape.groups();
        let [_, m, n, k] = groups.sizes();
        if groups.elements() == 0 || k == 0 {
            return Ok(self.with(shape, Method::Zeros));
        }
        // The kernels of tiles use operators, also on what they load.
        let types = [shape.ty, shape.operands[0].ty, shape.operands[1].ty];
        let reduces = m == 1 || n == 1 || types.iter().any(|ty| ty.compute().is_emulated());
        if self.tile.is_none()
            && !reduces
            && !self.caps.cpu
            && let Some(copied) = match self.ordered(&shape)? {
                None => self.with_whole_channels(&shape)?,
                ordered => ordered,
            }
        {
            return self.choose(copied, [false; 2]);
        }
        let is_padded = !shape.padded_axes.is_empty();
        if is_padded && (0..shape.padded_axes.len()).all(|padded| shape.coordinate_range(padded).is_inside()) {
            return self.choose(shape.without_padding(), aligned_rows);
        }
        let is_small = groups.elements() * k <= MAX_DOUBLE_MULTIPLICATIONS;
        // Of a small window each element is compared with the ends of its axes: a copy takes longer.
        let finds_padding = reduces && k <= MAX_UNROLLED_WINDOW;
        if is_padded && !finds_padding && (reduces || self.caps.cpu && self.tile.is_none()) {
            return self.padded(&shape);
        }
        if self.tile.is_none()
            && !is_padded
            && let Some(few_rows) = FewRows::choose(self.caps, &shape, &groups)
        {
            return Ok(self.with(shape, Method::FewRows(few_rows)));
        }
        if reduces {
            let ty = shape.products(self.caps, is_small);
            return Ok(self.with(shape, Method::Reduction(ty)));
        }
        let accumulator = shape.accumulator(self.caps, is_small);
        let elements = shape.operands.map(|operand| operand.elements);
        if self.tile.is_none()
            && let Some(tile) = PanelTile::choose(self.caps, &groups, elements, shape.inner(), accumulator)
        {
            return Ok(self.with(shape, Method::Panels(tile, accumulator)));
        }
        self.tiles(shape, &groups, accumulator, aligned_rows)
    }

    /// By tiles in shared memory or, where the operands are or can be made such that runs of eight are aligned, of cooperative
    /// matrices.
    fn tiles(
        self,
        shape: ContractionShape,
        groups: &AxisGroups,
        accumulator: Compute,
        aligned_rows: [bool; 2],
    ) -> Result<Strategy> {
        let sizes = groups.sizes();
        let along_k = ['a', 'b'].map(|operand| groups.loads_along_k(operand));
        let matrix = if self.tile.is_none() && shape.has_matrices(self.caps) && accumulator == Compute::Float {
            Tile::choose_matrix(self.caps, !shape.padded_axes.is_empty(), sizes)
        } else {
            None
        };
        let runs = tiling::aligned_runs(&shape, groups, aligned_rows, [MATRIX_RUN; 2]);
        let matrix = match (matrix, runs) {
            (Some(tile), [true, true]) => Some(tile),
            (Some(_), runs) if copies::pays_to_align(groups) => {
                return self.aligned(&shape, groups, along_k, (runs, MATRIX_RUN));
            }
            _ => None,
        };
        let computes = [shape.inner().compute(), accumulator];
        let chosen = self.tile.or(matrix);
        let (tile, splits) =
            chosen.unwrap_or_else(|| Tile::choose(self.caps, computes, groups.padding.is_some(), sizes));
        if !tiling::finds_padding(groups, &tile) {
            return self.padded(&shape);
        }
        let tiling = Tiling::of(&shape, groups, self.caps, accumulator, (tile, splits), aligned_rows);
        Ok(self.with(shape, Method::Tiles(tiling)))
    }
}

/// The type of the accumulator's values: the result's own where that is no narrower.
pub fn of_accumulator(accumulator: Compute, ty: Type) -> Type {
    match accumulator {
        Compute::Double => Type::F64,
        Compute::ComplexDouble => Type::C128,
        Compute::Float if ty.bits() < 32 => Type::F32,
        Compute::Uint if ty.bits() < 32 => Type::U32,
        Compute::Int if ty.bits() < 32 => Type::S32,
        _ => ty,
    }
}

/// How many elements are read from shared memory at once.
pub fn shared_width(element: Compute) -> u32 {
    match element {
        Compute::Float | Compute::Uint | Compute::Int => 4,
        Compute::Double | Compute::Uint64 | Compute::Int64 => 2,
        Compute::Complex | Compute::ComplexDouble => 1,
    }
}

/// How many contiguous elements of a storage type are loaded at once: four, in 16 bytes at most.
pub fn load_width(storage: &str) -> u64 {
    (64 / vec4_bytes(storage)).min(4)
}

#[cfg(test)]
mod tests;
