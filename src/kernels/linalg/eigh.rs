//! Eigenvalues and eigenvectors of Hermitian matrices.
//!
//! Small matrices: two-sided Jacobi rotations in a workgroup, in the order and with the rounding of
//! `Nx.LinAlg.BlockEigh` (R. P. Brent and F. T. Luk, 1985), but on until rounding is all that is left. Larger real ones: the
//! same by blocks. Larger complex ones: one-sided rotations, which touch two columns and nothing else, of the matrix shifted
//! so that it is positive definite and well conditioned, whose singular vectors are the eigenvectors (K. Veselić and V.
//! Hari, 1989). The eigenvalues of larger ones are Rayleigh quotients.

use super::*;

/// Largest matrix for the two-sided rotations; the kernel keeps a round's angles in shared memory.
const SMALL: u64 = EXACT;
/// Up to this size single precision rounds as BinaryBackend's does after every step; double is more accurate.
const NX_ROUNDING: u64 = 16;
/// Sweeps of a small matrix at most; six or seven are usual.
const SWEEPS: u64 = 40;

/// Eigenvalues in the order of their magnitude, the largest first, and eigenvectors. Elements that are at most `eps` and
/// rounding errors become zero.
pub fn run(gpu: &Gpu, ty: Type, a: &Matrices, eps: f32, patience: Patience) -> Result<(Buffer, Buffer)> {
    check(gpu, a, ty)?;
    let n = a.order()?;
    let fine = gpu.caps.float64 && n > NX_ROUNDING && n <= EXACT;
    let work = match ty {
        Type::F64 | Type::C64 | Type::C128 => ty,
        _ if fine => Type::F64,
        _ => Type::F32,
    };
    let scheme = Scheme::new(gpu, work, n, n);
    let Work { cells, scales } = load_matrices(gpu, scheme, a, false, patience)?;
    let values = scheme.cells(gpu, a.batch * n, patience)?;
    let matrices = Hermitian { gpu, scheme, cells: &cells, values: &values, batch: a.batch, n, patience };
    let rotated;
    let vectors = if n <= SMALL {
        rotated = matrices.rotated()?;
        &rotated
    } else {
        matrices.squares()?;
        let vectors = if blocks::applies(scheme, n) {
            rotated = matrices.rotated_by_blocks()?;
            &rotated
        } else {
            matrices.shifted()?;
            &cells
        };
        jacobi::normalise(gpu, scheme, vectors, &values, [a.batch, n, n], patience)?;
        matrices.rayleigh(a, &scales, vectors)?;
        vectors
    };
    let order = jacobi::order(gpu, scheme, &values, a.batch, n, patience)?;
    let stored = Stored {
        ty,
        batch: a.batch,
        rows: n,
        columns: n,
        width: n,
        height: n,
        cells: vectors,
        zero: eps,
        scales: None,
        order: Some(&order),
        upper: false,
        transposed: false,
    };
    let row = Stored { rows: 1, height: 1, cells: &values, scales: Some(&scales), ..stored };
    Ok((row.record(gpu, scheme, patience)?, stored.record(gpu, scheme, patience)?))
}

/// Hermitian matrices of `n` rows whose columns are contiguous in `cells`, and a place for as many values as columns.
pub(super) struct Hermitian<'a> {
    pub gpu: &'a Gpu,
    pub scheme: Scheme,
    pub cells: &'a Lease,
    pub values: &'a Lease,
    pub batch: u64,
    pub n: u64,
    pub patience: Patience,
}

impl Hermitian<'_> {
    /// The eigenvectors of matrices of at most [`EXACT`] rows, by two-sided rotations, which bring the eigenvalues to
    /// `values`. Uses `cells` up.
    pub(super) fn rotated(&self) -> Result<Lease> {
        let &Self { gpu, scheme, cells, values, batch, n, patience } = self;
        let vectors = identity(gpu, scheme, [batch, n, n], patience)?;
        Step {
            coherent: true,
            defines: &[("MAX_PAIRS", SMALL as u32 / 2)],
            writes: &[
                ("work", Holds::Cells, cells),
                ("vectors", Holds::Cells, &vectors),
                ("values", Holds::Cells, values),
            ],
            extents: &[("rows", n), ("rounds", SWEEPS * n)],
            groups: batch,
            ..Step::new(&["scalar", "pairs", "eigh"], scheme.whole(gpu))
        }
        .record(gpu, patience)?;
        Ok(vectors)
    }

    /// The sum of the squares of each column, to `values`.
    fn squares(&self) -> Result<()> {
        let &Self { gpu, scheme, cells, values, batch, n, patience } = self;
        Step {
            reads: &[("work", Holds::Cells, cells)],
            writes: &[("values", Holds::Cells, values)],
            extents: &[("count", batch * n), ("rows", n)],
            groups: (batch * n).div_ceil(scheme.segments.into()),
            ..Step::new(&["scalar", "squares"], scheme)
        }
        .record(gpu, patience)
    }

    /// The eigenvectors of real matrices, by two-sided rotations of blocks, once `values` has the columns' squares. Uses
    /// `cells` up.
    fn rotated_by_blocks(&self) -> Result<Lease> {
        let &Self { gpu, scheme, cells, values, batch, n, patience } = self;
        let least = scheme.numbers(gpu, batch, patience)?;
        Step {
            reads: &[("values", Holds::Cells, values)],
            writes: &[("least", Holds::Numbers, &least)],
            extents: &[("rows", n)],
            groups: batch,
            ..Step::new(&["scalar", "negligible_pivot"], scheme.whole(gpu))
        }
        .record(gpu, patience)?;
        let vectors = identity(gpu, scheme, [batch, n, n], patience)?;
        let rotated =
            blocks::Rotated { cells, vectors: Some(&vectors), least: Some(&least), batch, rows: n, columns: n };
        blocks::rotate(gpu, scheme, &rotated, patience)?;
        Ok(vectors)
    }

    /// Makes `cells` multiples of the eigenvectors, once `values` has the columns' squares.
    fn shifted(&self) -> Result<()> {
        let &Self { gpu, scheme, cells, values, batch, n, patience } = self;
        Step {
            reads: &[("values", Holds::Cells, values)],
            writes: &[("work", Holds::Cells, cells)],
            extents: &[("rows", n)],
            groups: batch,
            ..Step::new(&["scalar", "shift"], scheme.whole(gpu))
        }
        .record(gpu, patience)?;
        jacobi::orthogonalise(gpu, scheme, cells, None, [batch, n, n], patience)
    }

    /// The eigenvalues of `a`, of which the matrices are a copy with these scales, that belong to the vectors of length 1,
    /// to `values`.
    fn rayleigh(&self, a: &Matrices, scales: &Lease, vectors: &Lease) -> Result<()> {
        let &Self { gpu, scheme, values, batch, n, patience, .. } = self;
        let lease = a.lease()?;
        Step {
            tensor: Some(a.ty),
            reads: &[
                ("tensor", Holds::Tensor(a.ty), &lease),
                ("work", Holds::Cells, vectors),
                ("scales", Holds::Numbers, scales),
            ],
            writes: &[("values", Holds::Cells, values)],
            extents: &[("rows", n)],
            groups: batch * n.div_ceil(4),
            ..Step::new(&["scalar", "rayleigh"], scheme.whole(gpu))
        }
        .record(gpu, patience)
    }
}
