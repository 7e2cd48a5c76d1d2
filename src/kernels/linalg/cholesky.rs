//! Cholesky factors. This module owns the steps of the factorisation; each is one kernel, which is all that it launches.

use super::*;
use crate::tuning::linalg::cholesky_blocks;

/// The lower triangle L with L·Lᴴ = A in type `ty`, zeros above. Only A's lower triangle is read. Where A is not positive
/// definite, L is NaN from the first column on where that shows.
///
/// Blocked and right-looking, as LAPACK's potrf, one dispatch a block: G. H. Golub and C. F. Van Loan, "Matrix Computations", 4th edition,
/// 4.2.6. A pivot that is exactly zero divides as 1e-10, BinaryBackend's `eps`, so that zero columns stay zero.
pub fn run(cx: &Context, ty: Type, a: &Matrices) -> Attempt<Buffer> {
    let n = a.order()?;
    let inner = working_type(ty)?;
    ty.check(cx.caps())?;
    if a.elements() == 0 {
        return cx.zeroed(0);
    }
    if n <= block_width(inner) {
        let l = DenseCopy::Lower.of(cx, a, inner)?;
        factor(cx, inner, a.batch, MatrixView::dense(&l, n, n), n)?;
        return tensor_of(cx, l, inner, a.elements(), ty);
    }
    let steps = CholeskySteps::new(cx.caps(), inner);
    cx.blocking.require_for(n.div_ceil(steps.width) + 3)?;
    let rest = DenseCopy::All.of(cx, a, inner)?;
    let l = cx.allocate(a.elements() * inner.size())?;
    let mut start = 0;
    for end in (0..n).step_by(steps.width as usize) {
        steps.record(cx, [a.batch, n, start, end], [&rest, &l])?;
        start = end;
    }
    tensor_of(cx, l, inner, a.elements(), ty)
}

/// Threads of a workgroup that factors a small matrix.
const SMALL_THREADS: u32 = 256;

/// Factors the matrices of at most [`block_width`] rows, with the rounding of BinaryBackend.
fn factor(cx: &Context, ty: Type, batch: u64, a: MatrixView, n: u64) -> Attempt<()> {
    let mut extents: SmallVec<[Extent; 5]> = a.extents(["a_offset", "a_batch", "a_row", "a_column"]).collect();
    extents.push(("size", n));
    let index64 = needs_index64(ty, &[a.allocation]);
    let arithmetic = Arithmetic { accumulate_f64: cx.caps().float64, ..Arithmetic::plain(ty, index64) };
    MatrixKernel {
        defines: &[("WIDTH", block_width(ty) as u32)],
        ..MatrixKernel::new(&["exact", "cholesky"], arithmetic, WorkgroupShape::flat(SMALL_THREADS))
    }
    .launch(cx, &[Content::Elements.update("a", a.allocation)], &extents, batch)
}

/// How larger matrices are factored: `width` columns after `width` columns, the elements behind them in tiles of `tile` rows
/// and columns.
struct CholeskySteps {
    ty: Type,
    width: u64,
    tile: u64,
}

impl CholeskySteps {
    fn new(caps: &Capabilities, ty: Type) -> Self {
        let [width, tile] = cholesky_blocks(caps, ty);
        Self { ty, width, tile }
    }

    /// Takes the columns from `start` to `end` of the factor from what is behind them, and factors what follows on the diagonal.
    fn record(&self, cx: &Context, [batch, n, start, end]: [u64; 4], [rest, l]: [&Allocation; 2]) -> Attempt<()> {
        let &Self { ty, width, tile } = self;
        // Before the first step nothing but the diagonal block is factored.
        let tiles = if end == 0 { 1 } else { (n - end).div_ceil(tile) };
        let arithmetic = Arithmetic::plain(ty, needs_index64(ty, &[rest, l]));
        let factor = if end == 0 { Content::Elements.write("l", l) } else { Content::Elements.update("l", l) };
        MatrixKernel {
            defines: &[("WIDTH", width as u32), ("TILE", tile as u32)],
            ..MatrixKernel::new(&["exact", "cholesky_step"], arithmetic, WorkgroupShape::flat(2 * tile as u32))
        }
        .launch(
            cx,
            &[Content::Elements.update("a", rest), factor],
            &[("n", n), ("start", start), ("rest", end), ("tiles", tiles)],
            batch * tiles.div_ceil(2) * (tiles + 1),
        )
    }
}
