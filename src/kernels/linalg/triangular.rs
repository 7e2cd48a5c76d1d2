//! Solving triangular systems by blocked substitution. All kinds of systems become one kind here, by strides alone.

use super::*;
use crate::tuning::linalg::{Substitution, substitution, system_type};

/// Which system: op(A)·X = B, or X·op(A) = B.
#[derive(Clone, Copy, Debug, Default)]
pub struct TriangularOptions {
    /// Whether A is its upper triangle, else its lower one; the other is not read.
    pub upper: bool,
    /// Whether X is to the left of A, as in X·op(A) = B; else A is to the left of X.
    pub right: bool,
    /// op transposes A.
    pub transpose: bool,
    /// op conjugates A.
    pub conjugate: bool,
    /// Whether A has ones on its diagonal, which is not read then.
    pub unit: bool,
}

/// X in type `ty`, of B's shape. With a permutation (u32, one for each row of B), B's row i is its row permutation\[i\].
///
/// Blocked substitution: N. J. Higham, "Accuracy and Stability of Numerical Algorithms", 2nd edition, chapter 8.
pub fn run(
    cx: &Context,
    ty: Type,
    a: &Matrices,
    b: &Matrices,
    permutation: Option<&Buffer>,
    options: TriangularOptions,
) -> Attempt<Buffer> {
    let n = a.order()?;
    let solved = if options.right { b.columns } else { b.rows };
    if a.batch != b.batch || solved != n {
        return Err(Error::SizeMismatch.into());
    }
    let elements = b.elements();
    let columns = if options.right { b.rows } else { b.columns };
    let inner = system_type(cx.caps(), working_type(ty)?, elements.checked_mul(n));
    ty.check(cx.caps())?;
    a.ty.check_program(cx.caps())?;
    if elements == 0 {
        return cx.zeroed(0);
    }
    cx.blocking.require_for(n.div_ceil(block_width(inner)) * (1 + MatrixUpdate::commands(cx.caps())))?;
    let permutation = permutation.map(|buffer| permutation_of(buffer, b)).transpose()?;
    let copy = permutation.as_ref().map_or(DenseCopy::All, |rows| DenseCopy::Rows(rows));
    let x = copy.of(cx, b, inner)?;
    let source = a.allocation()?;
    let converted = if a.ty == inner { None } else { Some(DenseCopy::All.of(cx, a, inner)?) };
    let matrix: &Allocation = converted.as_ref().unwrap_or(&source);

    // All cases are L·X = B with a lower triangle L, seen through strides: transposing both sides brings A to the left,
    // and an upper triangle in reversed order is a lower one.
    let mut l = MatrixView::dense(matrix, n, n);
    let mut view = MatrixView::dense(&x, b.rows, b.columns);
    let mut upper = options.upper;
    if options.transpose != options.right {
        l = l.transposed();
        upper = !upper;
    }
    if options.right {
        view = view.transposed();
    }
    if upper {
        l = l.rows_reversed(n).columns_reversed(n);
        view = view.rows_reversed(n);
    }
    let system = TriangularSystem {
        ty: inner,
        batch: b.batch,
        n,
        columns,
        l,
        x: view,
        conjugate: options.conjugate,
        unit: options.unit,
    };
    system.solve(cx)?;
    tensor_of(cx, x, inner, elements, ty)
}

fn permutation_of(buffer: &Buffer, b: &Matrices) -> Result<std::sync::Arc<AllocationHandle>> {
    let rows = b.batch.checked_mul(b.rows).and_then(|rows| rows.checked_mul(4)).ok_or(Error::SizeMismatch)?;
    if buffer.len() < rows { Err(Error::SizeMismatch) } else { buffer.allocation() }
}

/// L·X = B for a batch of lower triangles L; `x` holds B and then X, of `n` rows.
pub(super) struct TriangularSystem<'a> {
    pub ty: Type,
    pub batch: u64,
    pub n: u64,
    pub columns: u64,
    pub l: MatrixView<'a>,
    pub x: MatrixView<'a>,
    /// Whether L is taken conjugated.
    pub conjugate: bool,
    /// Whether L has ones on its diagonal.
    pub unit: bool,
}

impl TriangularSystem<'_> {
    /// Records the blocked substitution.
    pub fn solve(&self, cx: &Context) -> Attempt<()> {
        let block = block_width(self.ty);
        for start in (0..self.n).step_by(block as usize) {
            let size = block.min(self.n - start);
            let rest = start + size;
            self.substitute(cx, start, size)?;
            MatrixUpdate {
                ty: self.ty,
                batch: self.batch,
                rows: self.n - rest,
                columns: self.columns,
                depth: size,
                conjugate: [self.conjugate, false],
                a: self.l.at(rest, start),
                b: self.x.at(start, 0),
                c: self.x.at(rest, 0),
            }
            .record(cx)?;
        }
        Ok(())
    }

    /// Solves with the diagonal block of at most [`block_width`] rows that begins at row `start`.
    pub fn substitute(&self, cx: &Context, start: u64, size: u64) -> Attempt<()> {
        let &TriangularSystem { ty, batch, columns, .. } = self;
        if batch == 0 || columns == 0 {
            return Ok(());
        }
        let (l, x) = (self.l.at(start, start), self.x.at(start, 0));
        let width = block_width(ty);
        let Substitution { broadcasts, threads, column_threads } = substitution(cx.caps(), ty);
        let file = if broadcasts { "substitute_subgroup" } else { "substitute" };
        let tiles = columns.div_ceil(u64::from(threads) / column_threads);
        let mut extents: SmallVec<[Extent; 11]> = SmallVec::new();
        extents.extend(l.extents(["l_offset", "l_batch", "l_row", "l_column"]));
        extents.extend(x.extents(["x_offset", "x_batch", "x_row", "x_column"]));
        extents.extend([("size", size), ("columns", columns), ("tiles", tiles)]);
        let arithmetic = Arithmetic::plain(ty, needs_index64(ty, &[l.allocation, x.allocation]));
        MatrixKernel {
            defines: &[
                ("WIDTH", width as u32),
                ("CONTIGUOUS_COLUMNS", (x.column.abs() <= x.row.abs()).into()),
                ("CONJUGATED", (self.conjugate && ty.is_complex()).into()),
                ("UNIT_DIAGONAL", self.unit.into()),
            ],
            ..MatrixKernel::new(&["exact", file], arithmetic, WorkgroupShape::flat(threads))
        }
        .launch(
            cx,
            &[Content::Elements.read("l", l.allocation), Content::Elements.update("x", x.allocation)],
            &extents,
            batch * tiles,
        )
    }
}
