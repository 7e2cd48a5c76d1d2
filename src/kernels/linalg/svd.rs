//! `A = U·Σ·Vᵀ` by one-sided Jacobi rotations (M. R. Hestenes, 1958), which find small singular values to high relative
//! accuracy (J. Demmel and K. Veselić, 1992).
//!
//! The rotations work on the transposed triangle of the QR decomposition, on which they converge faster than on the
//! matrix (Z. Drmač and K. Veselić, 2008); a wide matrix is transposed.

use super::*;

/// Up to this size the vectors' signs are those that Nx's algorithm would give; beyond it they are as they come.
const ORIENTED: u64 = 16;

/// U, the singular values, the largest first, and Vᵀ; `full` or reduced. For real matrices.
pub fn run(cx: &Context, ty: Type, a: &Matrices, full: bool) -> Attempt<(Buffer, Buffer, Buffer)> {
    check(cx, a, ty)?;
    if ty.is_complex() {
        return Err(Error::Unsupported("svd is defined for real matrices".into()).into());
    }
    let wide = a.rows < a.columns;
    let (batch, m, n) = (a.batch, a.rows.max(a.columns), a.rows.min(a.columns));
    let fine = cx.caps().float64 && m <= EXACT;
    let work = if ty == Type::F64 || fine { Type::F64 } else { Type::F32 };
    let run = Run::new(cx, work, m, n);
    let kept = if full { m } else { n };
    within_reach(batch.saturating_mul(m).saturating_mul(kept))?;
    let Work { cells, scales } = load_matrices(run, a, wide)?;
    let reflectors = qr::factor(run, &cells)?;
    // Rᵀ·J = V·Σ, so that A = Q·J·Σ·Vᵀ.
    let right = triangle(run, &cells)?;
    let left = Cells::identity(run, [batch, n, n])?;
    jacobi::orthogonalise(run, &right, Some(&left))?;
    let values = Cells::new(run, [batch, 1, n])?;
    jacobi::normalise(run, &right, &values)?;
    let singular = Singular { order: jacobi::order(run, &values)?, values };
    if n <= ORIENTED {
        singular.orient(run, [&left, &right], full)?;
    }
    let right = singular.place(run, &right, [n, n])?;
    singular.complete(run, &right)?;
    let left = singular.place(run, &left, [m, kept])?;
    reflectors.apply(run, &left, 0..reflectors.count, qr::Onto::All)?;
    if !full {
        singular.negligible(run, ty)?;
    }
    let tall_side = Stored {
        ty,
        rows: if wide { kept } else { m },
        columns: if wide { m } else { kept },
        cells: &left,
        zero: 0.0,
        scales: None,
        order: None,
        upper: false,
        transposed: wide,
    };
    let short_side = Stored { rows: n, columns: n, cells: &right, transposed: !wide, ..tall_side };
    let row = Stored {
        rows: 1,
        cells: &singular.values,
        scales: Some(&scales),
        order: Some(&singular.order),
        transposed: false,
        ..short_side
    };
    let (values, tall_side, short_side) = (row.record(run)?, tall_side.record(run)?, short_side.record(run)?);
    Ok(if wide { (short_side, values, tall_side) } else { (tall_side, values, short_side) })
}

/// Rᵀ of the QR decompositions in `cells`.
fn triangle(run: Run, cells: &Cells) -> Attempt<Cells> {
    let &Cells { batch, rows, columns, .. } = cells;
    let square = Cells::new(run, [batch, columns, columns])?;
    Step {
        reads: &[cells.operand("from")],
        writes: &[square.operand("work")],
        extents: &[("count", square.count()), ("rows", rows), ("columns", columns)],
        ..Step::each(&["scalar", "triangle"], run, square.count())
    }
    .record()?;
    Ok(square)
}

/// Singular values, a row a matrix, and their order: indices, the largest first.
struct Singular {
    values: Cells,
    order: AllocationHandle,
}

impl Singular {
    /// `columns` columns of `rows` elements: those of `cells` in the values' order, then unit vectors.
    fn place(&self, run: Run, cells: &Cells, [rows, columns]: [u64; 2]) -> Attempt<Cells> {
        let placed = Cells::new(run, [cells.batch, rows, columns])?;
        Step {
            reads: &[cells.operand("from"), ("order", Holds::Indices, &self.order)],
            writes: &[placed.operand("work")],
            extents: &[
                ("count", placed.count()),
                ("rows", rows),
                ("columns", columns),
                ("width", cells.columns),
                ("height", cells.rows),
            ],
            ..Step::each(&["scalar", "place"], run, placed.count())
        }
        .record()?;
        Ok(placed)
    }

    /// Makes orthonormal bases of the columns in `right`, those of zero singular values included.
    fn complete(&self, run: Run, right: &Cells) -> Attempt<()> {
        let n = right.columns;
        Step {
            coherent: true,
            reads: &[self.values.operand("values"), ("order", Holds::Indices, &self.order)],
            writes: &[right.operand("work")],
            extents: &[("rows", n), ("columns", n), ("width", n)],
            groups: right.batch,
            ..Step::new(&["scalar", "complete"], run.whole())
        }
        .record()
    }

    /// Gives singular vectors Nx's signs: those of the eigenvectors that its rotations find of V·Σ·Vᵀ, or of V·Σ²·Vᵀ where
    /// the decomposition is reduced.
    fn orient(&self, run: Run, [left, right]: [&Cells; 2], full: bool) -> Attempt<()> {
        let &Cells { batch, columns: n, .. } = right;
        let gram = Cells::new(run, [batch, n, n])?;
        Step {
            defines: &[("SQUARED", (!full).into())],
            reads: &[right.operand("from"), self.values.operand("values")],
            writes: &[gram.operand("work")],
            extents: &[("count", gram.count()), ("columns", n)],
            ..Step::each(&["scalar", "gram"], run, gram.count())
        }
        .record()?;
        let lengths = Cells::new(run, [batch, 1, n])?;
        let reference = eigh::Hermitian { run, cells: &gram, values: &lengths }.rotated()?;
        let reference_order = jacobi::order(run, &lengths)?;
        Step {
            reads: &[
                reference.operand("reference"),
                ("reference_order", Holds::Indices, &reference_order),
                ("order", Holds::Indices, &self.order),
            ],
            writes: &[left.operand("left"), right.operand("right")],
            extents: &[("count", lengths.count()), ("columns", n)],
            ..Step::each(&["scalar", "orient"], run, lengths.count())
        }
        .record()
    }

    /// Sets singular values to zero that are no more than rounding of the largest one: the reduced decomposition is what
    /// `pinv` and `matrix_rank` take, which know no tolerance relative to it.
    fn negligible(&self, run: Run, ty: Type) -> Attempt<()> {
        let (count, n) = (self.values.count(), self.values.columns);
        let eps = if ty == Type::F64 { f64::EPSILON } else { f32::EPSILON.into() };
        Step {
            reads: &[("order", Holds::Indices, &self.order)],
            writes: &[self.values.operand("values")],
            extents: &[("count", count), ("columns", n), ("zero", ((n as f64 * eps) as f32).to_bits().into())],
            ..Step::each(&["scalar", "negligible"], run, count)
        }
        .record()
    }
}
