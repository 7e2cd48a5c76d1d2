//! One-sided Jacobi rotations of blocks of columns: what two blocks have to turn is found from their Gram matrix by
//! two-sided rotations in shared memory, and applied as a matrix product (C. Bischof, "Computing the singular value
//! decomposition on a distributed system of vector processors", 1989; V. Hari, S. Singer and S. Singer, "Block-oriented
//! J-Jacobi methods for Hermitian matrices", 2010).

use super::*;

/// Sweeps at most; see `jacobi::SWEEPS`.
const SWEEPS: u64 = 30;
/// Sweeps after which the host starts to ask whether there is anything left to do.
const UNASKED: u64 = 6;
/// Parts of the rows that Gram matrices are summed from, at most; each is a multiple of [`SLAB`] rows.
const PARTS: u64 = 8;
const SLAB: u64 = 64;
/// Rows of a workgroup that applies rotations.
const APPLIED: u64 = 32;

/// Whether this way is worth it: there are enough columns, and they are of real numbers.
pub(super) fn applies(scheme: Scheme, columns: u64) -> bool {
    columns > EXACT && !scheme.work.is_complex()
}

/// Columns of a block: as many as shared memory takes.
fn width(gpu: &Gpu, scheme: Scheme) -> u64 {
    let bytes = |width: u64| 2 * (2 * width) * (2 * width + 1) * scheme.work.size() + 1024;
    if bytes(32) <= gpu.caps.max_shared.into() { 32 } else { 16 }
}

/// As [`jacobi::orthogonalise`], for a matrix to which this [`applies`].
pub(super) fn orthogonalise(
    gpu: &Gpu,
    scheme: Scheme,
    cells: &Lease,
    vectors: Option<&Lease>,
    [batch, rows, columns]: [u64; 3],
    patience: Patience,
) -> Result<()> {
    patience.may_wait()?;
    let width = width(gpu, scheme);
    let both = 2 * width;
    let pairs = columns.div_ceil(both);
    let depth = rows.div_ceil(PARTS).next_multiple_of(SLAB);
    let parts = rows.div_ceil(depth);
    within_reach((batch * pairs).saturating_mul(parts * both * both))?;
    let rotations = gpu.allocate(Kind::Device, batch * SWEEPS * 4, patience)?;
    gpu.stream.zero(&rotations, batch * SWEEPS * 4)?;
    let rotations = Buffer::new(batch * SWEEPS * 4, rotations);
    let counters = rotations.lease()?;
    let idle = gpu.allocate(Kind::Device, batch * pairs * 4, patience)?;
    let grams = scheme.cells(gpu, batch * pairs * parts * both * both, patience)?;
    let turns = scheme.cells(gpu, batch * pairs * both * both, patience)?;
    let mut matrices: SmallVec<[_; 2]> = SmallVec::new();
    matrices.push(("work", Holds::Cells, cells));
    matrices.extend(vectors.map(|vectors| ("vectors", Holds::Cells, vectors)));
    let slabs = rows.div_ceil(APPLIED) + vectors.map_or(0, |_| columns.div_ceil(APPLIED));
    let product = Scheme { lanes: 256, segments: 1, ..scheme };
    // A multiple of the width, and no more than there is work for.
    let lanes = if gpu.caps.cpu { width } else { (16 * width).min(u64::from(gpu.caps.max_threads) / width * width) };
    for sweep in 0..SWEEPS {
        for round in 0..2 * pairs - 1 {
            let extents = [
                ("rows", rows),
                ("columns", columns),
                ("batch", batch),
                ("pairs", pairs),
                ("parts", parts),
                ("depth", depth),
                ("sweeps", SWEEPS),
                ("sweep", sweep),
                ("round", round),
            ];
            let gram = Step {
                files: &["pairs", "blocks", "block_gram"],
                scheme: product,
                coherent: false,
                defines: &[("WIDTH", width as u32)],
                tensor: None,
                reads: &[("work", Holds::Cells, cells), ("rotations", Holds::Indices, &counters)],
                writes: &[("grams", Holds::Cells, &grams)],
                extents: &extents,
                groups: batch * pairs * parts,
            };
            gram.record(gpu, patience)?;
            Step {
                files: &["pairs", "blocks", "block_turn"],
                scheme: Scheme { lanes: lanes as u32, ..product },
                reads: &[("grams", Holds::Cells, &grams)],
                writes: &[
                    ("turns", Holds::Cells, &turns),
                    ("idle", Holds::Indices, &idle),
                    ("rotations", Holds::Indices, &counters),
                ],
                groups: batch * pairs,
                ..gram
            }
            .record(gpu, patience)?;
            Step {
                files: &["pairs", "blocks", "block_apply"],
                defines: &[("WIDTH", width as u32), ("VECTORS", vectors.is_some().into())],
                reads: &[
                    ("turns", Holds::Cells, &turns),
                    ("idle", Holds::Indices, &idle),
                    ("rotations", Holds::Indices, &counters),
                ],
                writes: &matrices,
                groups: batch * pairs * slabs,
                ..gram
            }
            .record(gpu, patience)?;
        }
        if sweep >= UNASKED {
            let rotated = gpu.read(&rotations, 0, batch * SWEEPS * 4)?;
            let mut counters = rotated.bytes().chunks_exact(4).skip(sweep as usize).step_by(SWEEPS as usize);
            if counters.all(|counter| counter == [0; 4]) {
                return Ok(());
            }
        }
    }
    Ok(())
}
