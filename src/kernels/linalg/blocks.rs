//! Jacobi rotations of blocks of columns: what two blocks have to turn is found by two-sided rotations in shared memory, and
//! applied as matrix products. One-sided, for singular values, it is found from the blocks' Gram matrix (C. Bischof,
//! "Computing the singular value decomposition on a distributed system of vector processors", 1989; V. Hari, S. Singer and
//! S. Singer, "Allocation-oriented J-Jacobi methods for Hermitian matrices", 2010), two-sided from the matrix itself (G. H. Golub
//! and C. F. Van Loan, "Matrix Computations", 4th edition, 8.5.6).

use super::jacobi::SWEEPS;
use super::*;

/// Sweeps after which the host starts to ask whether there is anything left to do.
const UNASKED: u64 = 6;
/// Parts of the rows that Gram matrices are summed from, at most.
const PARTS: u64 = 8;

/// Whether this way is worth it: there are enough columns, and they are of real numbers.
pub(super) fn applies(run: Run, cells: &Cells) -> bool {
    cells.columns > EXACT && !run.scheme.work.is_complex()
}

/// Columns of a block: as many as shared memory takes.
fn width(run: Run) -> u64 {
    let bytes = |width: u64| 2 * (2 * width) * (2 * width + 1) * run.scheme.work.size() + 1024;
    if bytes(32) <= run.cx.caps().max_shared.into() { 32 } else { 16 }
}

/// What is rotated: the columns of `cells` until they are orthogonal to each other. Or, where `least` says which magnitude of
/// an element is but rounding (one number a matrix), symmetric matrices from both sides until they are diagonal. And the
/// columns of `vectors` with them.
pub(super) struct Rotated<'a> {
    pub cells: &'a Cells,
    pub vectors: Option<&'a Cells>,
    pub least: Option<&'a AllocationHandle>,
}

/// Rotates matrices to which this [`applies`].
pub(super) fn rotate(run: Run, rotated: &Rotated) -> Attempt<()> {
    let &Rotated { cells, vectors, least } = rotated;
    let &Cells { batch, rows, columns, .. } = cells;
    let Run { cx, .. } = run;
    cx.blocking.require()?;
    let width = width(run);
    let both = 2 * width;
    let pairs = columns.div_ceil(both);
    let depth = rows.div_ceil(PARTS).next_multiple_of(both);
    let parts = rows.div_ceil(depth);
    within_reach((batch * pairs).saturating_mul(parts * both * both))?;
    let rotations = cx.zeroed(batch * SWEEPS * 4)?;
    let counters = rotations.allocation()?;
    let idle = cx.allocate(batch * pairs * 4)?;
    let grams = match least {
        None => Some(run.elements(batch * pairs * parts * both * both)?),
        Some(_) => None,
    };
    let turns = run.elements(batch * pairs * both * both)?;
    let mut matrices: SmallVec<[Operand; 2]> = SmallVec::new();
    matrices.push(cells.operand("work"));
    matrices.extend(vectors.map(|vectors| vectors.operand("vectors")));
    let slabs = rows.div_ceil(both) + vectors.map_or(0, |_| columns.div_ceil(both));
    // On a processor an invocation has a row.
    let product = run.by(if processor(cx) { both as u32 } else { 256 }, 1);
    let defines =
        [("WIDTH", width as u32), ("VECTORS", vectors.is_some().into()), ("TWO_SIDED", least.is_some().into())];
    // A multiple of the width, and no more than there is work for.
    let lanes = if cx.caps().cpu { width } else { (16 * width).min(u64::from(cx.caps().max_threads) / width * width) };
    let mut turned: SmallVec<[Operand; 2]> = SmallVec::new();
    turned.push(grams.as_ref().map_or(cells.operand("work"), |grams| ("grams", Holds::Cells, grams)));
    turned.extend(least.map(|least| Holds::Numbers.of("least", least)));
    for sweep in 0..SWEEPS {
        for round in 0..2 * pairs - 1 {
            let extents = [
                ("rows", rows),
                ("columns", columns),
                ("slabs", slabs),
                ("pairs", pairs),
                ("parts", parts),
                ("depth", depth),
                ("sweeps", SWEEPS),
                ("sweep", sweep),
                ("round", round),
            ];
            let turn = Step {
                defines: &defines,
                reads: &turned,
                writes: &[
                    ("turns", Holds::Cells, &turns),
                    ("idle", Holds::Indices, &idle),
                    ("rotations", Holds::Indices, &counters),
                ],
                extents: &extents,
                groups: batch * pairs,
                ..Step::new(&["scalar", "pairs", "blocks", "block_turn"], run.by(lanes as u32, 1))
            };
            if let Some(grams) = &grams {
                Step {
                    files: &["scalar", "pairs", "blocks", "block_gram"],
                    run: product,
                    reads: &[cells.operand("work"), ("rotations", Holds::Indices, &counters)],
                    writes: &[("grams", Holds::Cells, grams)],
                    groups: batch * pairs * parts,
                    ..turn
                }
                .record()?;
            }
            turn.record()?;
            Step {
                files: &["scalar", "pairs", "blocks", "block_apply"],
                run: product,
                reads: &[
                    ("turns", Holds::Cells, &turns),
                    ("idle", Holds::Indices, &idle),
                    ("rotations", Holds::Indices, &counters),
                ],
                writes: &matrices,
                groups: batch * pairs * slabs,
                ..turn
            }
            .record()?;
        }
        if sweep >= UNASKED {
            let rotated = cx.uncaptured().read(&rotations, 0, batch * SWEEPS * 4)?;
            let mut counters = rotated.bytes().chunks_exact(4).skip(sweep as usize).step_by(SWEEPS as usize);
            if counters.all(|counter| counter == [0; 4]) {
                return Ok(());
            }
        }
    }
    Ok(())
}
