//! Jacobi rotations of blocks of columns: the rotations of two blocks are found by two-sided rotations in shared memory, and
//! applied as matrix products. One-sided, for singular values, they are found from the blocks' Gram matrix (C. Bischof,
//! "Computing the singular value decomposition on a distributed system of vector processors", 1989; V. Hari, S. Singer and
//! S. Singer, "Block-oriented J-Jacobi methods for Hermitian matrices", 2010), two-sided from the matrix itself (G. H. Golub
//! and C. F. Van Loan, "Matrix Computations", 4th edition, 8.5.6). This module owns the order of the kernels and when they
//! end; it does not choose between this method and others.

use super::jacobi::MAX_SWEEPS;
use super::*;
use crate::tuning::linalg::{BlockRotations, block_rotations};

/// Sweeps after which the host starts to ask whether there is anything left to rotate.
const UNCHECKED_SWEEPS: u64 = 6;
/// Parts of the rows that Gram matrices are summed from, at most.
const MAX_GRAM_PARTS: u64 = 8;

/// What is rotated: the columns of `matrices` until they are orthogonal to each other. Or, where `least` says which magnitude of
/// an element is but rounding (one number a matrix), symmetric matrices from both sides until they are diagonal. The columns
/// of `vectors` are rotated with them.
pub(super) struct BlockRotation<'a> {
    pub matrices: &'a ColumnMatrices,
    pub vectors: Option<&'a ColumnMatrices>,
    pub least: Option<&'a AllocationHandle>,
}

/// Sizes of a rotation by blocks.
struct BlockSizes {
    chosen: BlockRotations,
    /// Columns of a pair of blocks.
    both: u64,
    /// Pairs of blocks of a matrix.
    pairs: u64,
    /// Rows that one part of a Gram matrix is summed from, and the number of parts.
    depth: u64,
    parts: u64,
    /// Workgroups that apply the rotations of one pair.
    slabs: u64,
}

/// Memory of a rotation by blocks.
struct BlockBuffers {
    /// Gram matrices of the pairs, part by part; `None` where rotations are found from the matrix itself.
    grams: Option<AllocationHandle>,
    /// For each pair the product of its rotations.
    orthogonal: AllocationHandle,
    /// For each pair whether it has no rotations.
    idle: AllocationHandle,
    /// For each matrix and sweep whether there were rotations.
    rotations: Buffer,
}

/// Rotates matrices of real numbers.
pub(super) fn rotate(space: Workspace, rotation: &BlockRotation) -> Attempt<()> {
    space.cx.blocking.require()?;
    let sizes = rotation.sizes(space)?;
    let buffers = rotation.buffers(space, &sizes)?;
    let batch = rotation.matrices.batch;
    for sweep in 0..MAX_SWEEPS {
        for round in 0..2 * sizes.pairs - 1 {
            rotation.record(space, &sizes, &buffers, [sweep, round])?;
        }
        if sweep >= UNCHECKED_SWEEPS {
            let rotated = space.cx.uncaptured().read(&buffers.rotations, 0, batch * MAX_SWEEPS * 4)?;
            let mut counters = rotated.bytes().chunks_exact(4).skip(sweep as usize).step_by(MAX_SWEEPS as usize);
            if counters.all(|counter| counter == [0; 4]) {
                return Ok(());
            }
        }
    }
    Ok(())
}

impl BlockRotation<'_> {
    fn sizes(&self, space: Workspace) -> Result<BlockSizes> {
        let &ColumnMatrices { batch, rows, columns, .. } = self.matrices;
        let chosen = block_rotations(space.cx.caps(), space.arithmetic.work);
        let both = 2 * chosen.width;
        let pairs = columns.div_ceil(both);
        let depth = rows.div_ceil(MAX_GRAM_PARTS).next_multiple_of(both);
        let parts = rows.div_ceil(depth);
        check_index32((batch * pairs).saturating_mul(parts * both * both))?;
        let slabs = rows.div_ceil(both) + self.vectors.map_or(0, |_| columns.div_ceil(both));
        Ok(BlockSizes { chosen, both, pairs, depth, parts, slabs })
    }

    fn buffers(&self, space: Workspace, sizes: &BlockSizes) -> Attempt<BlockBuffers> {
        let &BlockSizes { both, pairs, parts, .. } = sizes;
        let batch = self.matrices.batch;
        let rotations = space.cx.zeroed(batch * MAX_SWEEPS * 4)?;
        let idle = space.cx.allocate(batch * pairs * 4)?;
        let grams = match self.least {
            None => Some(space.elements(batch * pairs * parts * both * both)?),
            Some(_) => None,
        };
        let orthogonal = space.elements(batch * pairs * both * both)?;
        Ok(BlockBuffers { grams, orthogonal, idle, rotations })
    }

    /// One round, in which each block meets another one: Gram matrices, the rotations that they need, and their application.
    fn record(
        &self,
        space: Workspace,
        sizes: &BlockSizes,
        buffers: &BlockBuffers,
        [sweep, round]: [u64; 2],
    ) -> Attempt<()> {
        let &Self { matrices, vectors, least } = self;
        let &ColumnMatrices { batch, rows, columns, .. } = matrices;
        let &BlockSizes { ref chosen, pairs, depth, parts, slabs, .. } = sizes;
        let BlockBuffers { grams, orthogonal, idle, rotations } = buffers;
        let Workspace { cx, arithmetic, .. } = space;
        let counters = &*rotations.allocation()?;
        let extents = [
            ("rows", rows),
            ("columns", columns),
            ("slabs", slabs),
            ("pairs", pairs),
            ("parts", parts),
            ("depth", depth),
            ("sweeps", MAX_SWEEPS),
            ("sweep", sweep),
            ("round", round),
        ];
        let defines = [
            ("WIDTH", chosen.width as u32),
            ("VECTORS", vectors.is_some().into()),
            ("TWO_SIDED", least.is_some().into()),
        ];
        let kernel = |files, threads| MatrixKernel {
            defines: &defines,
            ..MatrixKernel::new(files, arithmetic, WorkgroupShape::flat(threads))
        };
        if let Some(grams) = grams {
            let operands = [
                matrices.read("work"),
                Content::Indices.read("rotations", counters),
                Content::Elements.write("grams", grams),
            ];
            kernel(&["scalar", "pairs", "blocks", "block_gram"], chosen.product_threads).launch(
                cx,
                &operands,
                &extents,
                batch * pairs * parts,
            )?;
        }
        let mut operands: SmallVec<[MatrixOperand; 5]> = SmallVec::new();
        operands.push(grams.as_ref().map_or(matrices.read("work"), |grams| Content::Elements.read("grams", grams)));
        operands.extend(least.map(|least| Content::Reals.read("least", least)));
        operands.push(Content::Elements.write("orthogonal", orthogonal));
        operands.push(Content::Indices.write("idle", idle));
        operands.push(Content::Indices.update("rotations", counters));
        kernel(&["scalar", "pairs", "blocks", "block_rotations"], chosen.rotation_threads).launch(
            cx,
            &operands,
            &extents,
            batch * pairs,
        )?;
        let mut operands: SmallVec<[MatrixOperand; 5]> = SmallVec::new();
        operands.push(Content::Elements.read("orthogonal", orthogonal));
        operands.push(Content::Indices.read("idle", idle));
        operands.push(Content::Indices.read("rotations", counters));
        operands.push(matrices.update("work"));
        operands.extend(vectors.map(|vectors| vectors.update("vectors")));
        kernel(&["scalar", "pairs", "blocks", "block_apply"], chosen.product_threads).launch(
            cx,
            &operands,
            &extents,
            batch * pairs * slabs,
        )
    }
}
