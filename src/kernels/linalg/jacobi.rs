//! One-sided Jacobi rotations, and what comes after them.

use super::*;

/// Sweeps at most. Ten are usual; clusters of values take fifteen, rows that differ by many orders of magnitude twenty.
/// Dispatches of sweeps that are not needed return at once.
pub(super) const SWEEPS: u64 = 30;

/// Rotates the columns of each matrix until they are orthogonal to each other, and those of `vectors` with them.
pub(super) fn orthogonalise(run: Run, cells: &Cells, vectors: Option<&Cells>) -> Attempt<()> {
    if blocks::applies(run, cells) {
        return blocks::rotate(run, &blocks::Rotated { cells, vectors, least: None });
    }
    let &Cells { batch, rows, columns, .. } = cells;
    let half = columns.div_ceil(2);
    let rounds = SWEEPS * (2 * half - 1);
    run.cx.blocking.require_for(rounds)?;
    if columns == 1 {
        return Ok(());
    }
    let rotations = run.cx.zeroed(batch * SWEEPS * 4)?.allocation()?;
    let mut writes: SmallVec<[Operand; 3]> = SmallVec::new();
    writes.push(cells.operand("work"));
    writes.push(("rotations", Holds::Indices, &rotations));
    writes.extend(vectors.map(|vectors| vectors.operand("vectors")));
    for round in 0..rounds {
        Step {
            defines: &[("VECTORS", vectors.is_some().into())],
            writes: &writes,
            extents: &[("rows", rows), ("columns", columns), ("sweeps", SWEEPS), ("round", round)],
            groups: batch * half,
            ..Step::new(&["scalar", "pairs", "rotate"], run.by(run.scheme.lanes, 1))
        }
        .record()?;
    }
    Ok(())
}

/// Brings the columns to length 1 and writes their lengths to `values`, of one row.
pub(super) fn normalise(run: Run, cells: &Cells, values: &Cells) -> Attempt<()> {
    Step {
        writes: &[cells.operand("work"), values.operand("values")],
        extents: &[("count", values.count()), ("rows", cells.rows)],
        groups: values.count().div_ceil(run.scheme.segments.into()),
        ..Step::new(&["scalar", "normalise"], run)
    }
    .record()
}

/// The order of the values by magnitude, the largest first: indices, as many a matrix as there are values.
pub(super) fn order(run: Run, values: &Cells) -> Attempt<AllocationHandle> {
    let count = values.count();
    let order = run.cx.allocate(count * 4)?;
    Step {
        reads: &[values.operand("values")],
        writes: &[("order", Holds::Indices, &order)],
        extents: &[("count", count), ("columns", values.columns)],
        ..Step::each(&["scalar", "order"], run, count)
    }
    .record()?;
    Ok(order)
}
