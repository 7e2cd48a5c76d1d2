//! How the kernel of a tile loads the operands, splits k and stores the result.

use super::axes::AxisGroups;
use super::shape::ContractionShape;
use super::tile::{Tile, TileMethod};
use super::{load_width, of_accumulator, shared_width};
use crate::device::Capabilities;
use crate::program::Type;
use crate::program::emit::vec4_bytes;
use crate::program::types::Compute;

/// How an operand is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OperandLoad {
    /// Whether neighbouring threads load neighbours along k.
    pub along_k: bool,
    /// Elements that are loaded at once.
    pub width: u64,
    /// Whether each of those elements has an address of its own; they are four then.
    pub scattered: bool,
}

/// A tile, the parts of k, and what the kernel does with operands and result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tiling {
    pub tile: Tile,
    pub accumulator: Compute,
    /// Parts of k.
    pub splits: u64,
    /// Elements of a part along k: whole steps.
    pub chunk: u64,
    /// The type of the result or, where k is split, of the parts' sums, which are added without being rounded first.
    pub ty: Type,
    pub index64: bool,
    pub loads: [OperandLoad; 2],
    /// Whether offsets in the operands are a thread's offset of 32 bits plus a uniform one.
    pub affine: bool,
    /// Whether neighbours in the result are stored at once.
    pub vector_stores: bool,
}

/// For each operand, whether runs of that many elements, in the direction in which they are loaded, are contiguous and aligned.
pub fn aligned_runs(
    shape: &ContractionShape,
    groups: &AxisGroups,
    aligned_rows: [bool; 2],
    run: [u64; 2],
) -> [bool; 2] {
    [('a', "m"), ('b', "n")].map(|(operand, lines)| {
        let i = usize::from(operand != 'a');
        let direction = if groups.loads_along_k(operand) { "k" } else { lines };
        aligned_rows[i] || groups.has_runs(operand, direction, run[i]) && is_aligned(shape, groups, operand, run[i])
    })
}

/// Whether runs of that many elements may begin at an operand's start.
pub(super) fn is_aligned(shape: &ContractionShape, groups: &AxisGroups, operand: char, run: u64) -> bool {
    let view = shape.operand(operand);
    let padding = groups.padding.as_ref().map_or(0, |padding| padding.start(operand));
    let bytes = view.offset.wrapping_add(padding).wrapping_mul(view.ty.size() as i64) as u64;
    bytes.is_multiple_of(vec4_bytes(view.ty.storage()) / 4 * run)
}

/// Whether the kernel of a tile finds what padded operands lack.
pub fn finds_padding(groups: &AxisGroups, tile: &Tile) -> bool {
    let finds = match tile.method {
        TileMethod::Shared => true,
        TileMethod::Matrix => groups.depth_in_steps(tile.depth),
        TileMethod::Lanes => false,
    };
    groups.padding.as_ref().is_none_or(|padding| finds && padding.fits_word(groups))
}

impl Tiling {
    /// By a tile with k in `splits` parts, or fewer: each takes whole steps.
    pub fn of(
        shape: &ContractionShape,
        groups: &AxisGroups,
        caps: &Capabilities,
        accumulator: Compute,
        (tile, splits): (Tile, u64),
        aligned_rows: [bool; 2],
    ) -> Self {
        let [.., k] = groups.sizes();
        let chunk = k.div_ceil(splits).next_multiple_of(tile.depth.into());
        let splits = k.div_ceil(chunk);
        let ty = if splits > 1 { of_accumulator(accumulator, shape.ty) } else { shape.ty };
        let index64 = needs_index64(shape, groups, &tile, splits);
        Self {
            tile,
            accumulator,
            splits,
            chunk,
            ty,
            index64,
            loads: loads(shape, groups, &tile, aligned_rows),
            affine: !index64 && is_affine(shape, groups, caps, &tile),
            vector_stores: vector_stores(shape, groups, &tile),
        }
    }
}

fn needs_index64(shape: &ContractionShape, groups: &AxisGroups, tile: &Tile, splits: u64) -> bool {
    let [.., k] = groups.sizes();
    let padded = (0..shape.padded_axes.len()).map(|padded| shape.coordinate_range(padded).elements).sum();
    let [a, b] = shape.operands.map(|operand| operand.elements);
    let counts = [a, b, splits * groups.elements(), k + 2 * u64::from(tile.depth), padded];
    counts.iter().any(|&count| count >= 1 << 31)
}

fn loads(shape: &ContractionShape, groups: &AxisGroups, tile: &Tile, aligned_rows: [bool; 2]) -> [OperandLoad; 2] {
    let widths = shape.operands.map(|operand| load_width(operand.ty.storage()));
    let in_runs = if tile.is_by_lanes() { [false; 2] } else { aligned_runs(shape, groups, aligned_rows, widths) };
    // Threads have four neighbours of the result where vectors are of four elements.
    let vectors = tile.method == TileMethod::Shared && shared_width(shape.inner().compute()) == 4;
    [0, 1].map(|i| {
        let along_k = groups.loads_along_k(['a', 'b'][i]);
        let scattered = vectors && !in_runs[i] && !along_k;
        let width = match (in_runs[i], scattered) {
            (true, _) => widths[i],
            (_, true) => 4,
            _ => 1,
        };
        OperandLoad { along_k, width, scattered }
    })
}

fn vector_stores(shape: &ContractionShape, groups: &AxisGroups, tile: &Tile) -> bool {
    let width = shared_width(shape.inner().compute()).into();
    let run = if tile.method == TileMethod::Matrix { 4 } else { width };
    let whole = groups.elements().is_multiple_of(run);
    whole && run > 1 && !tile.is_by_lanes() && groups.has_runs('c', "n", run)
}

fn is_affine(shape: &ContractionShape, groups: &AxisGroups, caps: &Capabilities, tile: &Tile) -> bool {
    let near = shape.operands.iter().all(|operand| operand.elements.saturating_mul(operand.ty.size()) < 1 << 32);
    tile.method == TileMethod::Shared && caps.int64 && groups.is_affine() && near
}
