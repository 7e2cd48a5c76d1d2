//! Cholesky factors.

use super::*;

/// The lower triangle L with L·Lᴴ = A in type `ty`, zeros above. Only A's lower triangle is read. Where A is not positive
/// definite, L is NaN from the first column on where that shows.
///
/// Blocked and right-looking, as LAPACK's potrf, one dispatch a block: G. H. Golub and C. F. Van Loan, "Matrix Computations", 4th edition,
/// 4.2.6. A pivot that is exactly zero divides as 1e-10, BinaryBackend's `eps`, so that zero columns stay zero.
pub fn run(cx: &Context, ty: Type, a: &Matrices) -> Attempt<Buffer> {
    let n = a.order()?;
    let inner = working(ty)?;
    ty.check(cx.caps())?;
    if a.elements() == 0 {
        return cx.zeroed(0);
    }
    if n <= width(inner) {
        let l = Pack::Lower.copy(cx, a, inner)?;
        factor(cx, inner, a.batch, View::dense(&l, n, n), n)?;
        return unpack(cx, l, inner, a.elements(), ty);
    }
    let steps = Steps::new(cx, inner);
    cx.blocking.require_for(n.div_ceil(steps.width) + 3)?;
    let rest = Pack::All.copy(cx, a, inner)?;
    let l = cx.allocate(a.elements() * inner.size())?;
    let mut start = 0;
    for end in (0..n).step_by(steps.width as usize) {
        steps.record(cx, [a.batch, n, start, end], [&rest, &l])?;
        start = end;
    }
    unpack(cx, l, inner, a.elements(), ty)
}

/// Columns that a thread of `cholesky_step.glsl` factors for itself.
const FEW: u64 = 4;

/// Factors the matrices of at most [`width`] rows, with the rounding of BinaryBackend.
fn factor(cx: &Context, ty: Type, batch: u64, a: View, n: u64) -> Attempt<()> {
    let mut extents: SmallVec<[(&'static str, u64); 5]> =
        a.extents(["a_offset", "a_batch", "a_row", "a_column"]).collect();
    extents.push(("size", n));
    let scheme = Scheme { fine: cx.caps().float64, ..Scheme::plain(ty, wide(ty, &[a.block]), 256) };
    Step {
        defines: &[("WIDTH", width(ty) as u32)],
        writes: &[("a", Holds::Cells, a.block)],
        extents: &extents,
        groups: batch,
        ..Step::new(&["exact", "cholesky"], Run { cx, scheme })
    }
    .record()
}

/// How larger matrices are factored: `width` columns after `width` columns, the elements behind them in tiles of `tile` rows
/// and columns.
struct Steps {
    ty: Type,
    width: u64,
    tile: u64,
}

impl Steps {
    fn new(cx: &Context, ty: Type) -> Self {
        let fits = |&[width, tile]: &[u64; 2]| {
            (width * (width + FEW + 1) + 2 * tile * (width + 1)) * ty.size() <= cx.caps().max_shared.into()
        };
        let sizes = [[32, 64], [16, 64], [8, 64], [16, 32], [8, 32]];
        let [width, tile] = sizes.into_iter().find(fits).unwrap_or([8, 32]);
        Self { ty, width, tile }
    }

    /// Takes the columns from `start` to `end` of the factor from what is behind them, and factors what follows on the diagonal.
    fn record(&self, cx: &Context, [batch, n, start, end]: [u64; 4], [rest, l]: [&Allocation; 2]) -> Attempt<()> {
        let &Self { ty, width, tile } = self;
        // Before the first step nothing but the diagonal block has a turn.
        let tiles = if end == 0 { 1 } else { (n - end).div_ceil(tile) };
        let scheme = Scheme::plain(ty, wide(ty, &[rest, l]), 2 * tile as u32);
        Step {
            defines: &[("WIDTH", width as u32), ("TILE", tile as u32)],
            writes: &[("a", Holds::Cells, rest), ("l", Holds::Cells, l)],
            extents: &[("n", n), ("start", start), ("rest", end), ("tiles", tiles)],
            groups: batch * tiles.div_ceil(2) * (tiles + 1),
            ..Step::new(&["exact", "cholesky_step"], Run { cx, scheme })
        }
        .record()
    }
}
