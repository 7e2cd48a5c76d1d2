//! One-sided Jacobi rotations of columns, and what comes after them: lengths, and their order. Columns are those of
//! [`ColumnMatrices`]; tensors are not touched here.

use super::*;
use crate::tuning::linalg::rotates_by_blocks;

/// Sweeps at most. Ten are usual; clusters of values take fifteen, rows that differ by many orders of magnitude twenty.
/// Dispatches of sweeps that are not needed return at once.
pub(super) const MAX_SWEEPS: u64 = 30;

/// Rotates the columns of each matrix until they are orthogonal to each other, and those of `vectors` with them.
pub(super) fn orthogonalise(
    space: Workspace,
    matrices: &ColumnMatrices,
    vectors: Option<&ColumnMatrices>,
) -> Attempt<()> {
    if rotates_by_blocks(space.arithmetic.work, matrices.columns) {
        return blocks::rotate(space, &blocks::BlockRotation { matrices, vectors, least: None });
    }
    let &ColumnMatrices { batch, rows, columns, .. } = matrices;
    let half = columns.div_ceil(2);
    let rounds = MAX_SWEEPS * (2 * half - 1);
    space.cx.blocking.require_for(rounds)?;
    if columns == 1 {
        return Ok(());
    }
    let rotations = space.cx.zeroed(batch * MAX_SWEEPS * 4)?.allocation()?;
    let mut operands: SmallVec<[MatrixOperand; 3]> = SmallVec::new();
    operands.push(matrices.update("work"));
    operands.push(Content::Indices.update("rotations", &rotations));
    operands.extend(vectors.map(|vectors| vectors.update("vectors")));
    let defines = [("VECTORS", vectors.is_some().into())];
    let kernel = MatrixKernel {
        defines: &defines,
        workgroup: WorkgroupShape::flat(space.workgroup.column_threads),
        ..space.kernel(&["scalar", "pairs", "rotate"])
    };
    for round in 0..rounds {
        let extents = [("rows", rows), ("columns", columns), ("sweeps", MAX_SWEEPS), ("round", round)];
        kernel.launch(space.cx, &operands, &extents, batch * half)?;
    }
    Ok(())
}

/// Brings the columns to length 1 and writes their lengths to `values`, of one row.
pub(super) fn normalise(space: Workspace, matrices: &ColumnMatrices, values: &ColumnMatrices) -> Attempt<()> {
    space.kernel(&["scalar", "normalise"]).launch(
        space.cx,
        &[matrices.update("work"), values.write("values")],
        &[("count", values.count()), ("rows", matrices.rows)],
        values.count().div_ceil(space.workgroup.columns.into()),
    )
}

/// The order of the values by magnitude, the largest first: their indices within each matrix.
pub(super) fn order(space: Workspace, values: &ColumnMatrices) -> Attempt<AllocationHandle> {
    let count = values.count();
    let order = space.cx.allocate(count * 4)?;
    let operands = [values.read("values"), Content::Indices.write("order", &order)];
    space.each(&["scalar", "order"]).launch_each(space.cx, &operands, count, &[("columns", values.columns)])?;
    Ok(order)
}
