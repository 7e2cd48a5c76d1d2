//! `A = U·Σ·Vᵀ` by one-sided Jacobi rotations (M. R. Hestenes, 1958), which find small singular values to high relative
//! accuracy (J. Demmel and K. Veselić, 1992). This module owns the steps of the decomposition; rotations and reflectors are
//! those of [`jacobi`] and [`qr`].
//!
//! The rotations work on the transposed triangle of the QR decomposition, on which they converge faster than on the
//! matrix (Z. Drmač and K. Veselić, 2008); a wide matrix is transposed.

use super::*;
use crate::tuning::linalg::svd_type;

/// Up to this size the vectors' signs are those that Nx's algorithm would give; beyond it they are as they come.
const MAX_ORIENTED: u64 = 16;

/// U, the singular values, the largest first, and Vᵀ; `full` or reduced. For real matrices.
pub fn run(cx: &Context, ty: Type, a: &Matrices, full: bool) -> Attempt<[Buffer; 3]> {
    check(cx, a, ty)?;
    if ty.is_complex() {
        return Err(Error::Unsupported("svd is defined for real matrices".into()).into());
    }
    let is_wide = a.rows < a.columns;
    let (batch, m, n) = (a.batch, a.rows.max(a.columns), a.rows.min(a.columns));
    let space = Workspace::new(cx, svd_type(cx.caps(), ty, m), m, n);
    let kept = if full { m } else { n };
    check_index32(batch.saturating_mul(m).saturating_mul(kept))?;
    let ScaledMatrices { matrices, scales } = ScaledMatrices::of(space, a, is_wide)?;
    let reflectors = qr::factor(space, &matrices)?;
    // Rᵀ·J = V·Σ, so that A = Q·J·Σ·Vᵀ.
    let right = transposed_triangle(space, &matrices)?;
    let left = ColumnMatrices::identity(space, [batch, n, n])?;
    jacobi::orthogonalise(space, &right, Some(&left))?;
    let values = ColumnMatrices::new(space, [batch, 1, n])?;
    jacobi::normalise(space, &right, &values)?;
    let singular = SingularValues { order: jacobi::order(space, &values)?, values };
    if n <= MAX_ORIENTED {
        singular.orient(space, [&left, &right], full)?;
    }
    let right = singular.ordered(space, &right, [n, n])?;
    singular.complete(space, &right)?;
    let left = singular.ordered(space, &left, [m, kept])?;
    reflectors.apply(space, &left, 0..reflectors.count, qr::ReflectedColumns::All)?;
    if !full {
        singular.zero_negligible(space, ty)?;
    }
    let tall_side = MatrixResult {
        ty,
        rows: if is_wide { kept } else { m },
        columns: if is_wide { m } else { kept },
        matrices: &left,
        zero: 0.0,
        scales: None,
        order: None,
        upper: false,
        transposed: is_wide,
    };
    let short_side = MatrixResult { rows: n, columns: n, matrices: &right, transposed: !is_wide, ..tall_side };
    let row = MatrixResult {
        rows: 1,
        matrices: &singular.values,
        scales: Some(&scales),
        order: Some(&singular.order),
        transposed: false,
        ..short_side
    };
    let (values, tall_side, short_side) = (row.record(space)?, tall_side.record(space)?, short_side.record(space)?);
    Ok(if is_wide { [short_side, values, tall_side] } else { [tall_side, values, short_side] })
}

/// Rᵀ of the QR decompositions in `matrices`.
fn transposed_triangle(space: Workspace, matrices: &ColumnMatrices) -> Attempt<ColumnMatrices> {
    let &ColumnMatrices { batch, rows, columns, .. } = matrices;
    let square = ColumnMatrices::new(space, [batch, columns, columns])?;
    space.each(&["scalar", "triangle"]).launch_each(
        space.cx,
        &[matrices.read("from"), square.write("work")],
        square.count(),
        &[("rows", rows), ("columns", columns)],
    )?;
    Ok(square)
}

/// Singular values, a row a matrix, and their order: indices, the largest value first.
struct SingularValues {
    values: ColumnMatrices,
    order: AllocationHandle,
}

impl SingularValues {
    fn order(&self) -> MatrixOperand<'_> {
        Content::Indices.read("order", &self.order)
    }

    /// `columns` columns of `rows` elements: those of `from` in the values' order, then unit vectors.
    fn ordered(&self, space: Workspace, from: &ColumnMatrices, [rows, columns]: [u64; 2]) -> Attempt<ColumnMatrices> {
        let ordered = ColumnMatrices::new(space, [from.batch, rows, columns])?;
        space.each(&["scalar", "ordered_columns"]).launch_each(
            space.cx,
            &[from.read("from"), self.order(), ordered.write("work")],
            ordered.count(),
            &[("rows", rows), ("columns", columns), ("width", from.columns), ("height", from.rows)],
        )?;
        Ok(ordered)
    }

    /// Makes orthonormal bases of the columns in `right`, those of zero singular values included.
    fn complete(&self, space: Workspace, right: &ColumnMatrices) -> Attempt<()> {
        let n = right.columns;
        MatrixKernel { coherent: true, ..space.whole(&["scalar", "complete"]) }.launch(
            space.cx,
            &[self.values.read("values"), self.order(), right.update("work")],
            &[("rows", n), ("columns", n), ("width", n)],
            right.batch,
        )
    }

    /// Gives singular vectors Nx's signs: those of the eigenvectors that its rotations find of V·Σ·Vᵀ, or of V·Σ²·Vᵀ where
    /// the decomposition is reduced.
    fn orient(&self, space: Workspace, [left, right]: [&ColumnMatrices; 2], full: bool) -> Attempt<()> {
        let &ColumnMatrices { batch, columns: n, .. } = right;
        let gram = ColumnMatrices::new(space, [batch, n, n])?;
        MatrixKernel { defines: &[("SQUARED", (!full).into())], ..space.each(&["scalar", "gram"]) }.launch_each(
            space.cx,
            &[right.read("from"), self.values.read("values"), gram.write("work")],
            gram.count(),
            &[("columns", n)],
        )?;
        let lengths = ColumnMatrices::new(space, [batch, 1, n])?;
        let reference = eigh::HermitianMatrices { space, matrices: &gram, values: &lengths }.rotated()?;
        let reference_order = jacobi::order(space, &lengths)?;
        let operands = [
            reference.read("reference"),
            Content::Indices.read("reference_order", &reference_order),
            self.order(),
            left.update("left"),
            right.update("right"),
        ];
        space.each(&["scalar", "orient"]).launch_each(space.cx, &operands, lengths.count(), &[("columns", n)])
    }

    /// Sets singular values to zero that are no more than rounding of the largest one: the reduced decomposition is what
    /// `pinv` and `matrix_rank` take, which know no tolerance relative to it.
    fn zero_negligible(&self, space: Workspace, ty: Type) -> Attempt<()> {
        let n = self.values.columns;
        let eps = if ty == Type::F64 { f64::EPSILON } else { f32::EPSILON.into() };
        space.each(&["scalar", "negligible"]).launch_each(
            space.cx,
            &[self.order(), self.values.update("values")],
            self.values.count(),
            &[("columns", n), ("zero", ((n as f64 * eps) as f32).to_bits().into())],
        )
    }
}
