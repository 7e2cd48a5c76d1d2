//! The product that brings what follows a block of rows or columns up to date. Where contraction's panels are faster they do
//! it; this module owns no other way to multiply than one kernel around `lib/matmul.glsl`.

use super::*;
use crate::kernels::contraction::{Axis, MatmulOperand, PanelResult, Panels};
use crate::tuning::contraction::{AxisGroups, Tile, shared_width};
use crate::tuning::linalg::updates_by_panels;

/// `c -= a · b`, where c has `rows` rows and `columns` columns and the product sums over `depth`.
pub(super) struct MatrixUpdate<'a> {
    pub ty: Type,
    pub batch: u64,
    pub rows: u64,
    pub columns: u64,
    pub depth: u64,
    /// Whether a and b are taken conjugated.
    pub conjugate: [bool; 2],
    pub a: MatrixView<'a>,
    pub b: MatrixView<'a>,
    pub c: MatrixView<'a>,
}

impl MatrixUpdate<'_> {
    /// How many commands it records at most.
    pub(super) fn commands(caps: &Capabilities) -> u64 {
        if cpu_vectors(caps) { 3 } else { 1 }
    }

    pub(super) fn record(&self, cx: &Context) -> Attempt<()> {
        let &MatrixUpdate { batch, rows, columns, depth, a, b, c, .. } = self;
        if batch == 0 || rows == 0 || columns == 0 || depth == 0 {
            return Ok(());
        }
        // Neighbouring threads write neighbouring columns: where rows lie closer together, the transposed product is taken.
        if c.row.abs() < c.column.abs() {
            let conjugate = [self.conjugate[1], self.conjugate[0]];
            let (a, b, c) = (b.transposed(), a.transposed(), c.transposed());
            return MatrixUpdate { rows: columns, columns: rows, conjugate, a, b, c, ..*self }.record(cx);
        }
        if self.by_panels(cx)? { Ok(()) } else { self.by_tiles(cx) }
    }

    /// By the panels of `contraction` where the device's invocations are vectors of a CPU and the product is large enough.
    fn by_panels(&self, cx: &Context) -> Attempt<bool> {
        let &MatrixUpdate { ty, batch, rows, columns, depth, c, .. } = self;
        let conjugates = ty.is_complex() && self.conjugate != [false; 2];
        let is_worth_it = updates_by_panels(cx.caps(), batch * rows * columns * depth);
        if !is_worth_it || conjugates || needs_index64(ty, &[c.allocation]) {
            return Ok(false);
        }
        let [a, b, c] = self.ascending();
        if [a, b, c].iter().any(|view| view.row < 0 || view.column < 0) {
            return Ok(false);
        }
        let axis = |dim, a, b, c| vec![Axis { dim, a, b, c, padded: None }];
        let groups = AxisGroups {
            batch: axis(batch, a.batch, b.batch, c.batch),
            m: axis(rows, a.row, 0, c.row),
            n: axis(columns, 0, b.column, c.column),
            k: axis(depth, a.column, b.row, 0),
            padding: None,
        };
        let [a, b, c] = [a, b, c].map(|view| MatmulOperand { allocation: view.allocation, ty, offset: view.offset });
        match Panels::of(cx.caps(), &groups, [a, b], ty, ty.compute()) {
            Some(panels) => panels.run(cx, PanelResult::Subtracted(c)).map(|()| true),
            None => Ok(false),
        }
    }

    /// The views with their axes reversed where both of an axis descend: panels begin at the lowest address.
    fn ascending(&self) -> [MatrixView<'_>; 3] {
        let &MatrixUpdate { rows, columns, depth, mut a, mut b, mut c, .. } = self;
        if a.row < 0 && c.row < 0 {
            (a, c) = (a.rows_reversed(rows), c.rows_reversed(rows));
        }
        if b.column < 0 && c.column < 0 {
            (b, c) = (b.columns_reversed(columns), c.columns_reversed(columns));
        }
        if a.column < 0 && b.row < 0 {
            (a, b) = (a.columns_reversed(depth), b.rows_reversed(depth));
        }
        [a, b, c]
    }

    /// By tiles of c, a workgroup a tile.
    fn by_tiles(&self, cx: &Context) -> Attempt<()> {
        let &MatrixUpdate { ty, batch, rows, columns, depth, a, b, c, .. } = self;
        let (tile, _) = Tile::choose(cx.caps(), [ty.compute(); 2], false, [batch, rows, columns, depth.min(32)]);
        let width = shared_width(ty.compute());
        let arithmetic = Arithmetic::plain(ty, needs_index64(ty, &[a.allocation, b.allocation, c.allocation]));
        let mut extents: SmallVec<[Extent; 15]> = SmallVec::new();
        extents.extend(c.extents(["c_offset", "c_batch", "c_row", "c_column"]));
        extents.extend(a.extents(["a_offset", "a_batch", "a_row", "a_column"]));
        extents.extend(b.extents(["b_offset", "b_batch", "b_row", "b_column"]));
        extents.extend([("m", rows), ("n", columns), ("k", depth)]);
        let operands = [
            Content::Elements.read("a", a.allocation),
            Content::Elements.read("b", b.allocation),
            Content::Elements.update("c", c.allocation),
        ];
        MatrixKernel {
            defines: &[
                ("BM", tile.rows),
                ("BN", tile.columns),
                ("BK", tile.depth),
                ("TM", tile.thread_rows),
                ("TN", tile.thread_columns),
                ("SLICES", tile.slices),
                ("WIDTH", width),
                ("BY_COLUMNS", tile.is_by_lanes().into()),
                ("A_ALONG_K", (a.column.abs() <= a.row.abs()).into()),
                ("B_ALONG_N", (b.column.abs() <= b.row.abs()).into()),
                ("CONJUGATE_A", (self.conjugate[0] && ty.is_complex()).into()),
                ("CONJUGATE_B", (self.conjugate[1] && ty.is_complex()).into()),
            ],
            ..MatrixKernel::new(&["exact", "update"], arithmetic, WorkgroupShape::flat(tile.threads()))
        }
        .launch(
            cx,
            &operands,
            &extents,
            batch * rows.div_ceil(tile.rows.into()) * columns.div_ceil(tile.columns.into()),
        )
    }
}
