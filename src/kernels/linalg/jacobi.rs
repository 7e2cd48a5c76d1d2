//! One-sided Jacobi rotations, and what comes after them.

use super::*;

/// Sweeps at most. Ten are usual; clusters of values take fifteen, rows that differ by many orders of magnitude twenty.
/// Dispatches of sweeps that are not needed return at once.
pub(super) const SWEEPS: u64 = 30;

/// Rotates the columns of each matrix until they are orthogonal to each other, and those of `vectors` with them.
pub(super) fn orthogonalise(
    gpu: &Gpu,
    scheme: Scheme,
    cells: &Lease,
    vectors: Option<&Lease>,
    [batch, rows, columns]: [u64; 3],
    patience: Patience,
) -> Result<()> {
    if blocks::applies(scheme, columns) {
        let rotated = blocks::Rotated { cells, vectors, least: None, batch, rows, columns };
        return blocks::rotate(gpu, scheme, &rotated, patience);
    }
    let half = columns.div_ceil(2);
    let rounds = SWEEPS * (2 * half - 1);
    patience.may_record(rounds)?;
    if columns == 1 {
        return Ok(());
    }
    let rotations = gpu.zeroed(batch * SWEEPS * 4, patience)?.lease()?;
    let mut writes: SmallVec<[Operand; 3]> = SmallVec::new();
    writes.push(("work", Holds::Cells, cells));
    writes.push(("rotations", Holds::Indices, &rotations));
    writes.extend(vectors.map(|vectors| Holds::Cells.of("vectors", vectors)));
    for round in 0..rounds {
        Step {
            defines: &[("VECTORS", vectors.is_some().into())],
            writes: &writes,
            extents: &[("rows", rows), ("columns", columns), ("sweeps", SWEEPS), ("round", round)],
            groups: batch * half,
            ..Step::new(&["scalar", "pairs", "rotate"], Scheme { segments: 1, ..scheme })
        }
        .record(gpu, patience)?;
    }
    Ok(())
}

/// Brings the columns to length 1 and writes their lengths to `values`.
pub(super) fn normalise(
    gpu: &Gpu,
    scheme: Scheme,
    cells: &Lease,
    values: &Lease,
    [batch, rows, columns]: [u64; 3],
    patience: Patience,
) -> Result<()> {
    Step {
        writes: &[("work", Holds::Cells, cells), ("values", Holds::Cells, values)],
        extents: &[("count", batch * columns), ("rows", rows)],
        groups: (batch * columns).div_ceil(scheme.segments.into()),
        ..Step::new(&["scalar", "normalise"], scheme)
    }
    .record(gpu, patience)
}

/// The order of the values by magnitude, the largest first: indices, `columns` a matrix.
pub(super) fn order(
    gpu: &Gpu,
    scheme: Scheme,
    values: &Lease,
    batch: u64,
    columns: u64,
    patience: Patience,
) -> Result<Lease> {
    let count = batch * columns;
    let order = gpu.allocate(Kind::Device, count * 4, patience)?;
    Step {
        reads: &[("values", Holds::Cells, values)],
        writes: &[("order", Holds::Indices, &order)],
        extents: &[("count", count), ("columns", columns)],
        ..Step::each(gpu, &["scalar", "order"], scheme, count)
    }
    .record(gpu, patience)?;
    Ok(order)
}
