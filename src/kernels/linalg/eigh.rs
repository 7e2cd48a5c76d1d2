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
pub fn run(cx: &Context, ty: Type, a: &Matrices, eps: f32) -> Attempt<(Buffer, Buffer)> {
    check(cx, a, ty)?;
    let n = a.order()?;
    let fine = cx.caps().float64 && n > NX_ROUNDING && n <= EXACT;
    let work = match ty {
        Type::F64 | Type::C64 | Type::C128 => ty,
        _ if fine => Type::F64,
        _ => Type::F32,
    };
    let run = Run::new(cx, work, n, n);
    let Work { cells, scales } = load_matrices(run, a, false)?;
    let values = Cells::new(run, [a.batch, 1, n])?;
    let matrices = Hermitian { run, cells: &cells, values: &values };
    let rotated;
    let vectors = if n <= SMALL {
        rotated = matrices.rotated()?;
        &rotated
    } else {
        matrices.squares()?;
        let vectors = if blocks::applies(run, &cells) {
            rotated = matrices.rotated_by_blocks()?;
            &rotated
        } else {
            matrices.shifted()?;
            &cells
        };
        jacobi::normalise(run, vectors, &values)?;
        matrices.rayleigh(a, &scales, vectors)?;
        vectors
    };
    let order = jacobi::order(run, &values)?;
    let stored = Stored {
        ty,
        rows: n,
        columns: n,
        cells: vectors,
        zero: eps,
        scales: None,
        order: Some(&order),
        upper: false,
        transposed: false,
    };
    let row = Stored { rows: 1, cells: &values, scales: Some(&scales), ..stored };
    Ok((row.record(run)?, stored.record(run)?))
}

/// Hermitian matrices, and a row of as many values as they have columns.
pub(super) struct Hermitian<'a> {
    pub run: Run<'a>,
    pub cells: &'a Cells,
    pub values: &'a Cells,
}

impl Hermitian<'_> {
    /// The eigenvectors of matrices of at most [`EXACT`] rows, by two-sided rotations, which bring the eigenvalues to
    /// `values`. Uses `cells` up.
    pub(super) fn rotated(&self) -> Attempt<Cells> {
        let &Self { run, cells, values } = self;
        let &Cells { batch, rows: n, .. } = cells;
        let vectors = Cells::identity(run, [batch, n, n])?;
        Step {
            coherent: true,
            defines: &[("MAX_PAIRS", SMALL as u32 / 2)],
            writes: &[cells.operand("work"), vectors.operand("vectors"), values.operand("values")],
            extents: &[("rows", n), ("rounds", SWEEPS * n)],
            groups: batch,
            ..Step::new(&["scalar", "pairs", "eigh"], run.whole())
        }
        .record()?;
        Ok(vectors)
    }

    /// The sum of the squares of each column, to `values`.
    fn squares(&self) -> Attempt<()> {
        let &Self { run, cells, values } = self;
        Step {
            reads: &[cells.operand("work")],
            writes: &[values.operand("values")],
            extents: &[("count", values.count()), ("rows", cells.rows)],
            groups: values.count().div_ceil(run.scheme.segments.into()),
            ..Step::new(&["scalar", "squares"], run)
        }
        .record()
    }

    /// The eigenvectors of real matrices, by two-sided rotations of blocks, once `values` has the columns' squares. Uses
    /// `cells` up.
    fn rotated_by_blocks(&self) -> Attempt<Cells> {
        let &Self { run, cells, values } = self;
        let &Cells { batch, rows: n, .. } = cells;
        let least = run.numbers(batch)?;
        Step {
            reads: &[values.operand("values")],
            writes: &[("least", Holds::Numbers, &least)],
            extents: &[("rows", n)],
            groups: batch,
            ..Step::new(&["scalar", "negligible_pivot"], run.whole())
        }
        .record()?;
        let vectors = Cells::identity(run, [batch, n, n])?;
        blocks::rotate(run, &blocks::Rotated { cells, vectors: Some(&vectors), least: Some(&least) })?;
        Ok(vectors)
    }

    /// Makes `cells` multiples of the eigenvectors, once `values` has the columns' squares.
    fn shifted(&self) -> Attempt<()> {
        let &Self { run, cells, values } = self;
        Step {
            reads: &[values.operand("values")],
            writes: &[cells.operand("work")],
            extents: &[("rows", cells.rows)],
            groups: cells.batch,
            ..Step::new(&["scalar", "shift"], run.whole())
        }
        .record()?;
        jacobi::orthogonalise(run, cells, None)
    }

    /// The eigenvalues of `a`, of which the matrices are a copy with these scales, that belong to the vectors of length 1,
    /// to `values`.
    fn rayleigh(&self, a: &Matrices, scales: &AllocationHandle, vectors: &Cells) -> Attempt<()> {
        let &Self { run, values, .. } = self;
        let &Cells { batch, rows: n, .. } = vectors;
        let allocation = a.allocation()?;
        Step {
            tensor: Some(a.ty),
            reads: &[
                ("tensor", Holds::Tensor(a.ty), &allocation),
                vectors.operand("work"),
                ("scales", Holds::Numbers, scales),
            ],
            writes: &[values.operand("values")],
            extents: &[("rows", n)],
            groups: batch * n.div_ceil(4),
            ..Step::new(&["scalar", "rayleigh"], run.whole())
        }
        .record()
    }
}
