//! `A = U·Σ·Vᵀ` by one-sided Jacobi rotations (M. R. Hestenes, 1958), which find small singular values to high relative
//! accuracy (J. Demmel and K. Veselić, 1992).
//!
//! The rotations work on the transposed triangle of the QR decomposition, on which they converge faster than on the
//! matrix (Z. Drmač and K. Veselić, 2008); a wide matrix is transposed.

use super::*;

/// Up to this size the vectors' signs are those that Nx's algorithm would give; beyond it they are as they come.
const ORIENTED: u64 = 16;

/// U, the singular values, the largest first, and Vᵀ; `full` or reduced. For real matrices.
pub fn run(gpu: &Gpu, ty: Type, a: &Matrices, full: bool, patience: Patience) -> Result<(Buffer, Buffer, Buffer)> {
    check(gpu, a, ty)?;
    if ty.is_complex() {
        return Err(Error::Unsupported("svd is defined for real matrices".into()));
    }
    let wide = a.rows < a.columns;
    let (batch, m, n) = (a.batch, a.rows.max(a.columns), a.rows.min(a.columns));
    let fine = gpu.caps.float64 && m <= EXACT;
    let work = if ty == Type::F64 || fine { Type::F64 } else { Type::F32 };
    let scheme = Scheme::new(gpu, work, m, n);
    let kept = if full { m } else { n };
    within_reach(batch.saturating_mul(m).saturating_mul(kept))?;
    let Work { cells, scales } = load_matrices(gpu, scheme, a, wide, patience)?;
    let reflectors = qr::factor(gpu, scheme, &cells, [batch, m, n], patience)?;
    // Rᵀ·J = V·Σ, so that A = Q·J·Σ·Vᵀ.
    let right = triangle(gpu, scheme, &cells, [batch, m, n], patience)?;
    let left = identity(gpu, scheme, [batch, n, n], patience)?;
    jacobi::orthogonalise(gpu, scheme, &right, Some(&left), [batch, n, n], patience)?;
    let values = scheme.cells(gpu, batch * n, patience)?;
    jacobi::normalise(gpu, scheme, &right, &values, [batch, n, n], patience)?;
    let order = jacobi::order(gpu, scheme, &values, batch, n, patience)?;
    if n <= ORIENTED {
        orient(gpu, scheme, [&left, &right], &values, &order, [batch, n], full, patience)?;
    }
    let right = place(gpu, scheme, &right, &order, [batch, n, n], n, patience)?;
    complete(gpu, scheme, &right, &values, &order, [batch, n], patience)?;
    let left = place(gpu, scheme, &left, &order, [batch, m, n], kept, patience)?;
    qr::apply(gpu, scheme, &left, [batch, m, kept], &reflectors, (0, reflectors.count), 0, qr::Onto::All, patience)?;
    if !full {
        negligible(gpu, scheme, &values, &order, [batch, n], ty, patience)?;
    }
    let tall_side = Stored {
        ty,
        batch,
        rows: if wide { kept } else { m },
        columns: if wide { m } else { kept },
        width: kept,
        height: m,
        cells: &left,
        zero: 0.0,
        scales: None,
        order: None,
        upper: false,
        transposed: wide,
    };
    let short_side = Stored { rows: n, columns: n, width: n, height: n, cells: &right, transposed: !wide, ..tall_side };
    let singular = Stored {
        rows: 1,
        height: 1,
        cells: &values,
        scales: Some(&scales),
        order: Some(&order),
        transposed: false,
        ..short_side
    };
    let singular = singular.record(gpu, scheme, patience)?;
    let (tall_side, short_side) = (tall_side.record(gpu, scheme, patience)?, short_side.record(gpu, scheme, patience)?);
    Ok(if wide { (short_side, singular, tall_side) } else { (tall_side, singular, short_side) })
}

/// Rᵀ of the QR decompositions in `cells`.
fn triangle(gpu: &Gpu, scheme: Scheme, cells: &Lease, [batch, m, n]: [u64; 3], patience: Patience) -> Result<Lease> {
    let count = batch * n * n;
    let square = scheme.cells(gpu, count, patience)?;
    Step {
        reads: &[("from", Holds::Cells, cells)],
        writes: &[("work", Holds::Cells, &square)],
        extents: &[("count", count), ("rows", m), ("columns", n)],
        ..Step::each(gpu, &["scalar", "triangle"], scheme, count)
    }
    .record(gpu, patience)?;
    Ok(square)
}

/// `kept` columns of m elements: the n columns of `cells` in their order, then unit vectors.
fn place(
    gpu: &Gpu,
    scheme: Scheme,
    cells: &Lease,
    order: &Lease,
    [batch, m, n]: [u64; 3],
    kept: u64,
    patience: Patience,
) -> Result<Lease> {
    let count = batch * kept * m;
    let left = scheme.cells(gpu, count, patience)?;
    Step {
        reads: &[("from", Holds::Cells, cells), ("order", Holds::Indices, order)],
        writes: &[("work", Holds::Cells, &left)],
        extents: &[("count", count), ("rows", m), ("columns", kept), ("width", n), ("height", n)],
        ..Step::each(gpu, &["scalar", "place"], scheme, count)
    }
    .record(gpu, patience)?;
    Ok(left)
}

/// Makes orthonormal bases of the columns in `right`, those of zero singular values included.
fn complete(
    gpu: &Gpu,
    scheme: Scheme,
    right: &Lease,
    values: &Lease,
    order: &Lease,
    [batch, n]: [u64; 2],
    patience: Patience,
) -> Result<()> {
    Step {
        coherent: true,
        reads: &[("values", Holds::Cells, values), ("order", Holds::Indices, order)],
        writes: &[("work", Holds::Cells, right)],
        extents: &[("rows", n), ("columns", n), ("width", n)],
        groups: batch,
        ..Step::new(&["scalar", "complete"], scheme.whole(gpu))
    }
    .record(gpu, patience)
}

/// Gives singular vectors Nx's signs: those of the eigenvectors that its rotations find of V·Σ·Vᵀ, or of V·Σ²·Vᵀ where the
/// decomposition is reduced.
#[allow(clippy::too_many_arguments, reason = "the results so far, and their sizes")]
fn orient(
    gpu: &Gpu,
    scheme: Scheme,
    [left, right]: [&Lease; 2],
    values: &Lease,
    order: &Lease,
    [batch, n]: [u64; 2],
    full: bool,
    patience: Patience,
) -> Result<()> {
    let (count, gram) = (batch * n * n, scheme.cells(gpu, batch * n * n, patience)?);
    Step {
        defines: &[("SQUARED", (!full).into())],
        reads: &[("from", Holds::Cells, right), ("values", Holds::Cells, values)],
        writes: &[("work", Holds::Cells, &gram)],
        extents: &[("count", count), ("columns", n)],
        ..Step::each(gpu, &["scalar", "gram"], scheme, count)
    }
    .record(gpu, patience)?;
    let lengths = scheme.cells(gpu, batch * n, patience)?;
    let reference = eigh::Hermitian { gpu, scheme, cells: &gram, values: &lengths, batch, n, patience }.rotated()?;
    let reference_order = jacobi::order(gpu, scheme, &lengths, batch, n, patience)?;
    Step {
        reads: &[
            ("reference", Holds::Cells, &reference),
            ("reference_order", Holds::Indices, &reference_order),
            ("order", Holds::Indices, order),
        ],
        writes: &[("left", Holds::Cells, left), ("right", Holds::Cells, right)],
        extents: &[("count", batch * n), ("columns", n)],
        ..Step::each(gpu, &["scalar", "orient"], scheme, batch * n)
    }
    .record(gpu, patience)
}

/// Sets singular values to zero that are no more than rounding of the largest one: the reduced decomposition is what
/// `pinv` and `matrix_rank` take, which know no tolerance relative to it.
fn negligible(
    gpu: &Gpu,
    scheme: Scheme,
    values: &Lease,
    order: &Lease,
    [batch, n]: [u64; 2],
    ty: Type,
    patience: Patience,
) -> Result<()> {
    let eps = if ty == Type::F64 { f64::EPSILON } else { f32::EPSILON.into() };
    Step {
        reads: &[("order", Holds::Indices, order)],
        writes: &[("values", Holds::Cells, values)],
        extents: &[("count", batch * n), ("columns", n), ("zero", ((n as f64 * eps) as f32).to_bits().into())],
        ..Step::each(gpu, &["scalar", "negligible"], scheme, batch * n)
    }
    .record(gpu, patience)
}
