//! When element-wise kernels go through tiles, and how large these are.

use super::FusionProblem;
use crate::program::Source;
use crate::program::emit::{Staging, TransposeTile};
use crate::program::layout::{Pattern, View};

/// Elements nearer than this number of bytes share a sector of memory.
pub(super) const SECTOR_BYTES: u64 = 32;
/// Shorter axes have most of their sectors read by one workgroup anyway.
const MIN_TILED_EXTENT: u64 = 8;
/// Bytes of shared memory for a tile: several workgroups fit a multiprocessor.
const TILE_BYTES: u64 = 16 << 10;
/// The fewest elements of a tile whose rows are a sector long.
const MIN_TILE_ELEMENTS: u64 = 256;
/// The most elements of a tile where there are few tiles.
const SMALL_TILE_ELEMENTS: u64 = 1024;
/// Tiles that keep a large device busy; with fewer they are made smaller.
const MANY_TILES: u64 = 512;

impl FusionProblem<'_> {
    /// The tile for a program without a reduction, where one pays.
    pub(super) fn tile(&self) -> Option<TransposeTile> {
        let (program, layout) = (self.program, self.layout);
        let dims = &layout.dims;
        if dims.len() < 2 {
            return None;
        }
        let nearest = |view: &View| {
            let moves = |&axis: &usize| view.strides[axis] != 0;
            (0..dims.len()).filter(moves).min_by_key(|&axis| view.strides[axis].unsigned_abs())
        };
        let output = layout.views.last().filter(|view| program.output.is_some() && view.pattern == Pattern::Strided);
        let output_axis = output.map_or(dims.len().checked_sub(1), nearest)?;
        // An input that pays to transpose, its contiguous axis, and bytes of an element.
        let candidate = |view: &View| {
            let is_dense = |input: usize| matches!(program.inputs[input].source, Source::View { .. });
            let chosen_from = |input: usize| program.steps(input).next().is_some();
            let input = view.input.filter(|&input| input < 32 && is_dense(input) && !chosen_from(input))?;
            let size = program.inputs[input].ty.size();
            let axis = nearest(view).filter(|_| view.pattern == Pattern::Strided)?;
            let near = view.strides[axis].unsigned_abs() * size < SECTOR_BYTES;
            let far = view.strides[output_axis].unsigned_abs() * size >= SECTOR_BYTES;
            let pays = axis != output_axis && near && far && dims[axis].min(dims[output_axis]) >= MIN_TILED_EXTENT;
            pays.then_some((input, axis, size))
        };
        let candidates = || layout.views.iter().filter_map(candidate);
        let (_, input_axis, _) = candidates().next()?;
        let (mut inputs, mut bytes) = (0, 0);
        for (input, _, size) in candidates().filter(|candidate| candidate.1 == input_axis) {
            if (bytes + size) * MIN_TILE_ELEMENTS <= TILE_BYTES {
                inputs |= 1 << input;
                bytes += size;
            }
        }
        let most = TILE_BYTES / bytes;
        let few = layout.outputs() / most < MANY_TILES;
        let area: u64 = 1 << if few { most.min(SMALL_TILE_ELEMENTS) } else { most }.ilog2();
        let side = |dim: u64, most: u64| dim.next_power_of_two().min(most);
        let width = side(dims[output_axis], 1 << area.ilog2().div_ceil(2));
        let height = side(dims[input_axis], area / width);
        let width = side(dims[output_axis], area / height);
        let (output_axis, input_axis) = (output_axis as u8, input_axis as u8);
        let (width, height) = (width as u32, height as u32);
        Some(TransposeTile { output_axis, input_axis, width, height, inputs, staging: Staging::SharedScalars })
    }

    /// Workgroups for the whole iteration space.
    pub(super) fn tiles(&self, tile: &TransposeTile) -> u64 {
        let (output_axis, input_axis) = (usize::from(tile.output_axis), usize::from(tile.input_axis));
        let tiles = |(axis, &dim): (usize, &u64)| match axis {
            _ if axis == output_axis => dim.div_ceil(tile.width.into()),
            _ if axis == input_axis => dim.div_ceil(tile.height.into()),
            _ => dim,
        };
        self.layout.dims.iter().enumerate().map(tiles).product()
    }
}
