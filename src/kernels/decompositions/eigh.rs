//! Eigenvalues and eigenvectors of Hermitian matrices.
//!
//! Small matrices: two-sided Jacobi rotations in a workgroup, in the order and with the rounding of
//! `Nx.LinAlg.BlockEigh` (R. P. Brent and F. T. Luk, 1985), but on until rounding is all that is left. Larger ones:
//! one-sided rotations, which touch two columns and nothing else, of the matrix shifted so that it is positive definite
//! and well conditioned, whose singular vectors are the eigenvectors (K. Veselić and V. Hari, 1989); the eigenvalues are
//! Rayleigh quotients.

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
    let shape = [a.batch, n, n];
    let Work { cells, scales } = load_matrices(gpu, scheme, a, false, patience)?;
    let values = scheme.cells(gpu, a.batch * n, patience)?;
    let vectors = if n <= SMALL {
        two_sided(gpu, scheme, &cells, &values, shape, patience)?
    } else {
        shifted(gpu, scheme, a, &cells, &scales, &values, patience)?;
        cells
    };
    let order = jacobi::order(gpu, scheme, &values, a.batch, n, patience)?;
    let stored = Stored {
        ty,
        batch: a.batch,
        rows: n,
        columns: n,
        width: n,
        height: n,
        cells: &vectors,
        zero: eps,
        scales: None,
        order: Some(&order),
        upper: false,
        transposed: false,
    };
    let row = Stored { rows: 1, height: 1, cells: &values, scales: Some(&scales), ..stored };
    Ok((row.record(gpu, scheme, patience)?, stored.record(gpu, scheme, patience)?))
}

/// Diagonalises the matrices in place; the eigenvectors.
pub(super) fn two_sided(
    gpu: &Gpu,
    scheme: Scheme,
    cells: &Lease,
    values: &Lease,
    [batch, n, _]: [u64; 3],
    patience: Patience,
) -> Result<Lease> {
    let vectors = identity(gpu, scheme, [batch, n, n], patience)?;
    let lanes = if gpu.caps.cpu { 8 } else { 256 };
    Step {
        files: &["pairs", "eigh"],
        scheme: Scheme { lanes, segments: 1, ..scheme },
        coherent: true,
        defines: &[("MAX_PAIRS", SMALL as u32 / 2)],
        tensor: None,
        reads: &[],
        writes: &[("work", Holds::Cells, cells), ("vectors", Holds::Cells, &vectors), ("values", Holds::Cells, values)],
        extents: &[("rows", n), ("rounds", SWEEPS * n)],
        groups: batch,
    }
    .record(gpu, patience)?;
    Ok(vectors)
}

/// Replaces the matrices in `cells` by their eigenvectors.
fn shifted(
    gpu: &Gpu,
    scheme: Scheme,
    a: &Matrices,
    cells: &Lease,
    scales: &Lease,
    values: &Lease,
    patience: Patience,
) -> Result<()> {
    let (batch, n) = (a.batch, a.rows);
    let lanes = if gpu.caps.cpu { 8 } else { 256 };
    let squares = Step {
        files: &["squares"],
        scheme,
        coherent: false,
        defines: &[],
        tensor: None,
        reads: &[("work", Holds::Cells, cells)],
        writes: &[("values", Holds::Cells, values)],
        extents: &[("count", batch * n), ("rows", n)],
        groups: (batch * n).div_ceil(scheme.segments.into()),
    };
    squares.record(gpu, patience)?;
    Step {
        files: &["shift"],
        scheme: Scheme { lanes, segments: 1, ..scheme },
        coherent: false,
        defines: &[],
        tensor: None,
        reads: &[("values", Holds::Cells, values)],
        writes: &[("work", Holds::Cells, cells)],
        extents: &[("rows", n)],
        groups: batch,
    }
    .record(gpu, patience)?;
    jacobi::orthogonalise(gpu, scheme, cells, None, [batch, n, n], patience)?;
    jacobi::normalise(gpu, scheme, cells, values, [batch, n, n], patience)?;
    let lease = a.lease()?;
    Step {
        files: &["rayleigh"],
        scheme: Scheme { lanes, segments: 1, ..scheme },
        coherent: false,
        defines: &[],
        tensor: Some(a.ty),
        reads: &[
            ("tensor", Holds::Tensor(a.ty), &lease),
            ("work", Holds::Cells, cells),
            ("scales", Holds::Numbers, scales),
        ],
        writes: &[("values", Holds::Cells, values)],
        extents: &[("rows", n)],
        groups: batch * n.div_ceil(4),
    }
    .record(gpu, patience)
}
