//! Cholesky factors.

use super::triangular::accumulator;
use super::{Kernel, Matrices, Pack, Update, View, unpack, wide, width, working};
use crate::device::Gpu;
use crate::error::Result;
use crate::memory::{Block, Buffer, Kind, Patience};
use crate::program::Type;
use crate::program::emit::Params;

/// The lower triangle L with L·Lᴴ = A in type `ty`, zeros above. Only A's lower triangle is read. Where A is not positive
/// definite, L is NaN from the first column on where that shows.
///
/// Blocked and right-looking, as LAPACK's potrf: G. H. Golub and C. F. Van Loan, "Matrix Computations", 4th edition,
/// 4.2.6. A pivot that is exactly zero divides as 1e-10, BinaryBackend's `eps`, so that zero columns stay zero.
pub fn run(gpu: &Gpu, ty: Type, a: &Matrices, patience: Patience) -> Result<Buffer> {
    let n = a.order()?;
    let inner = working(ty)?;
    ty.check(&gpu.caps)?;
    if a.elements() == 0 {
        return gpu.zeroed(0, patience);
    }
    let block = width(inner);
    patience.may_record(n.div_ceil(block) * 2)?;
    let l = Pack::Lower.copy(gpu, a, inner, patience)?;
    let view = View::dense(&l, n, n);
    if n <= block {
        factor(gpu, inner, a.batch, view, n, patience)?;
        return unpack(gpu, l, inner, [a.batch, n, n], ty, patience);
    }
    let diagonal = gpu.allocate(Kind::Device, a.batch * n.next_multiple_of(block) * block * inner.size(), patience)?;
    let blocked = Blocked { gpu, patience, ty: inner, batch: a.batch, n, diagonal: &diagonal };
    for start in (0..n).step_by(block as usize) {
        let size = block.min(n - start);
        let rest = start + size;
        blocked.panel(view, start, size)?;
        let below = view.at(rest, start);
        Update {
            ty: inner,
            batch: a.batch,
            rows: n - rest,
            columns: n - rest,
            depth: size,
            conjugate: [false, true],
            lower: true,
            a: below,
            b: below.transposed(),
            c: view.at(rest, rest),
        }
        .record(gpu, patience)?;
    }
    blocked.place(&l)?;
    unpack(gpu, l, inner, [a.batch, n, n], ty, patience)
}

/// Factors the matrices of at most [`width`] rows, with the rounding of BinaryBackend.
fn factor(gpu: &Gpu, ty: Type, batch: u64, a: View, n: u64, patience: Patience) -> Result<()> {
    let wide = wide(ty, &[a.block]);
    let kernel = Kernel {
        gpu,
        patience,
        file: "cholesky",
        ty,
        accumulator: accumulator(gpu, ty),
        wide,
        threads: 256,
        defines: &[("WIDTH", width(ty))],
    };
    let params = |params: &mut Params| {
        a.params(params, ty, wide, "a");
        params.extent(n, wide, format_args!("size"));
    };
    kernel.record(batch, &params, &[a.block], &[a.block])
}

/// Larger matrices, [`width`] columns after [`width`] columns.
struct Blocked<'a> {
    gpu: &'a Gpu,
    patience: Patience,
    ty: Type,
    batch: u64,
    n: u64,
    /// The factors of the diagonal blocks: [`width`] elements for each row.
    diagonal: &'a Block,
}

impl Blocked<'_> {
    /// Threads that have a row below the diagonal block each.
    const THREADS: u32 = 128;

    fn kernel(
        &self,
        file: &'static str,
        threads: u32,
        groups: u64,
        a: View,
        extents: &[(&'static str, u64)],
    ) -> Result<()> {
        let &Blocked { gpu, patience, ty, diagonal, .. } = self;
        let wide = wide(ty, &[a.block, diagonal]);
        let defines = &[("WIDTH", width(ty))];
        let kernel = Kernel { gpu, patience, file, ty, accumulator: ty.compute(), wide, threads, defines };
        let params = |params: &mut Params| {
            a.params(params, ty, wide, "a");
            params.address(diagonal.address, ty.storage(), format_args!("diagonal"));
            for &(name, value) in extents {
                params.extent(value, wide, format_args!("{name}"));
            }
        };
        kernel.record(groups, &params, &[a.block, diagonal], &[a.block, diagonal])
    }

    /// The columns from `start` to `start + size`; the factor of their diagonal block goes to `diagonal`.
    fn panel(&self, matrix: View, start: u64, size: u64) -> Result<()> {
        let below = self.n - start - size;
        let tiles = below.div_ceil(Self::THREADS.into()).max(1);
        let rows = self.n.next_multiple_of(width(self.ty));
        let extents = [("n", rows), ("start", start), ("size", size), ("below", below), ("tiles", tiles)];
        self.kernel("cholesky_panel", Self::THREADS, self.batch * tiles, matrix.at(start, start), &extents)
    }

    /// Puts the factors of the diagonal blocks at their places.
    fn place(&self, l: &Block) -> Result<()> {
        let rows = self.n.next_multiple_of(width(self.ty));
        let count = self.batch * rows * width(self.ty);
        let extents = [("n", self.n), ("rows", rows), ("count", count)];
        self.kernel("cholesky_diagonal", 256, count.div_ceil(256), View::dense(l, self.n, self.n), &extents)
    }
}
