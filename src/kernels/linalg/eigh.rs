//! Eigenvalues and eigenvectors of Hermitian matrices. This module owns which method a matrix takes and what comes before and
//! after it; the rotations are those of [`jacobi`] and [`blocks`].
//!
//! Small matrices: two-sided Jacobi rotations in a workgroup, in the order and with the rounding of
//! `Nx.LinAlg.BlockEigh` (R. P. Brent and F. T. Luk, 1985), but on until rounding is all that is left. Larger real ones: the
//! same by blocks. Larger complex ones: one-sided rotations, which touch two columns and nothing else, of the matrix shifted
//! so that it is positive definite and well conditioned, whose singular vectors are the eigenvectors (K. Veselić and V.
//! Hari, 1989). The eigenvalues of larger ones are Rayleigh quotients.

use super::*;
use crate::tuning::linalg::{eigh_type, rotates_by_blocks};

/// Largest matrix for the two-sided rotations; the kernel keeps a round's angles in shared memory.
const MAX_TWO_SIDED: u64 = MAX_EXACT_ORDER;
/// Sweeps of a small matrix at most; six or seven are usual.
const MAX_SMALL_SWEEPS: u64 = 40;
/// Eigenvectors of a workgroup of `rayleigh.glsl`.
const QUOTIENTS: u64 = 4;

/// Eigenvalues in the order of their magnitude, the largest first, and eigenvectors. Elements that are at most `eps` and
/// rounding errors become zero.
pub fn run(cx: &Context, ty: Type, a: &Matrices, eps: f32) -> Attempt<[Buffer; 2]> {
    check(cx, a, ty)?;
    let n = a.order()?;
    let space = Workspace::new(cx, eigh_type(cx.caps(), ty, n), n, n);
    let ScaledMatrices { matrices, scales } = ScaledMatrices::of(space, a, false)?;
    let values = ColumnMatrices::new(space, [a.batch, 1, n])?;
    let hermitian = HermitianMatrices { space, matrices: &matrices, values: &values };
    let rotated;
    let vectors = if n <= MAX_TWO_SIDED {
        rotated = hermitian.rotated()?;
        &rotated
    } else {
        hermitian.squares()?;
        let vectors = if rotates_by_blocks(space.arithmetic.work, n) {
            rotated = hermitian.rotated_by_blocks()?;
            &rotated
        } else {
            hermitian.shifted()?;
            &matrices
        };
        jacobi::normalise(space, vectors, &values)?;
        hermitian.rayleigh(a, &scales, vectors)?;
        vectors
    };
    let order = jacobi::order(space, &values)?;
    let columns = MatrixResult {
        ty,
        rows: n,
        columns: n,
        matrices: vectors,
        zero: eps,
        scales: None,
        order: Some(&order),
        upper: false,
        transposed: false,
    };
    let row = MatrixResult { rows: 1, matrices: &values, scales: Some(&scales), ..columns };
    Ok([row.record(space)?, columns.record(space)?])
}

/// Hermitian matrices, and for each a row of values, one a column.
pub(super) struct HermitianMatrices<'a> {
    pub space: Workspace<'a>,
    pub matrices: &'a ColumnMatrices,
    pub values: &'a ColumnMatrices,
}

impl HermitianMatrices<'_> {
    /// The eigenvectors of matrices of at most [`MAX_EXACT_ORDER`] rows, by two-sided rotations, which bring the eigenvalues to
    /// `values`. Uses `matrices` up.
    pub(super) fn rotated(&self) -> Attempt<ColumnMatrices> {
        let &Self { space, matrices, values } = self;
        let &ColumnMatrices { batch, rows: n, .. } = matrices;
        let vectors = ColumnMatrices::identity(space, [batch, n, n])?;
        MatrixKernel {
            coherent: true,
            defines: &[("MAX_PAIRS", MAX_TWO_SIDED as u32 / 2)],
            ..space.whole(&["scalar", "pairs", "eigh"])
        }
        .launch(
            space.cx,
            &[matrices.update("work"), vectors.update("vectors"), values.write("values")],
            &[("rows", n), ("rounds", MAX_SMALL_SWEEPS * n)],
            batch,
        )?;
        Ok(vectors)
    }

    /// The sum of the squares of each column, to `values`.
    fn squares(&self) -> Attempt<()> {
        let &Self { space, matrices, values } = self;
        space.kernel(&["scalar", "squares"]).launch(
            space.cx,
            &[matrices.read("work"), values.write("values")],
            &[("count", values.count()), ("rows", matrices.rows)],
            values.count().div_ceil(space.workgroup.columns.into()),
        )
    }

    /// The eigenvectors of real matrices, by two-sided rotations of blocks, once `values` has the columns' squares. Uses
    /// `matrices` up.
    fn rotated_by_blocks(&self) -> Attempt<ColumnMatrices> {
        let &Self { space, matrices, values } = self;
        let &ColumnMatrices { batch, rows: n, .. } = matrices;
        let least = space.reals(batch)?;
        let operands = [values.read("values"), Content::Reals.write("least", &least)];
        space.whole(&["scalar", "negligible_pivot"]).launch(space.cx, &operands, &[("rows", n)], batch)?;
        let vectors = ColumnMatrices::identity(space, [batch, n, n])?;
        let rotation = blocks::BlockRotation { matrices, vectors: Some(&vectors), least: Some(&least) };
        blocks::rotate(space, &rotation)?;
        Ok(vectors)
    }

    /// Makes `matrices` multiples of the eigenvectors, once `values` has the columns' squares.
    fn shifted(&self) -> Attempt<()> {
        let &Self { space, matrices, values } = self;
        space.whole(&["scalar", "shift"]).launch(
            space.cx,
            &[values.read("values"), matrices.update("work")],
            &[("rows", matrices.rows)],
            matrices.batch,
        )?;
        jacobi::orthogonalise(space, matrices, None)
    }

    /// The eigenvalues of `a` that belong to the vectors of length 1, to `values`. The matrices are a copy of `a` with these
    /// scales.
    fn rayleigh(&self, a: &Matrices, scales: &AllocationHandle, vectors: &ColumnMatrices) -> Attempt<()> {
        let &Self { space, values, .. } = self;
        let &ColumnMatrices { batch, rows: n, .. } = vectors;
        let allocation = a.allocation()?;
        let operands = [
            Content::Tensor(a.ty).read("tensor", &allocation),
            vectors.read("work"),
            Content::Reals.read("scales", scales),
            values.write("values"),
        ];
        MatrixKernel { tensor: Some(a.ty), ..space.whole(&["scalar", "rayleigh"]) }.launch(
            space.cx,
            &operands,
            &[("rows", n)],
            batch * n.div_ceil(QUOTIENTS),
        )
    }
}
