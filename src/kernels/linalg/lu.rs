//! LU factorisations with partial pivoting. This module owns panels and the exchanges of rows; what follows a panel is brought
//! up to date by [`TriangularSystem`] and [`MatrixUpdate`].

use super::triangular::TriangularSystem;
use super::*;
use crate::tuning::linalg::LuPanels;

/// The type of the packed factors, of which type `ty` was asked for: f32 where that has 16 bits or fewer.
pub fn packed_type(ty: Type) -> Result<Type> {
    working_type(ty)
}

/// L and U of a batch of square matrices in the type `ty`, which is a [`packed_type`], and the order of their rows.
///
/// L is below the diagonal, which holds ones that are not stored, U on and above it. Each matrix is transposed: in
/// column-major order, so that neighbouring threads work on neighbouring rows. The order is u32, {batch, n}: row i of
/// L·U is row permutation\[i\] of A.
///
/// The pivot is the first of the largest magnitude in its column, the last NaN where there is one; a column of zeros is
/// left as it is. So pivots, and all roundings up to [`block_width`] rows, are those of Nx's own `Nx.LinAlg.LU`. Blocked and
/// right-looking, as LAPACK's getrf: G. H. Golub and C. F. Van Loan, "Matrix Computations", 4th edition, 3.4.
pub fn run(cx: &Context, ty: Type, a: &Matrices) -> Attempt<[Buffer; 2]> {
    let n = a.order()?;
    ty.check(cx.caps())?;
    let elements = a.elements();
    let bytes = (elements * ty.size(), a.batch * n * 4);
    if elements == 0 {
        return Ok([cx.zeroed(0)?, cx.zeroed(0)?]);
    }
    let panels = LuPanels::choose(cx.caps(), ty, n);
    let block = panels.columns(ty);
    cx.blocking.require_for(n.div_ceil(block) * (3 + MatrixUpdate::commands(cx.caps())))?;
    let packed = DenseCopy::Transposed.of(cx, a, ty)?;
    let permutation = cx.allocate(bytes.1)?;
    let pivots = cx.allocate(bytes.1)?;
    let view = MatrixView::dense(&packed, n, n).transposed();
    for start in (0..n).step_by(block as usize) {
        let size = block.min(n - start);
        let rest = start + size;
        let panel = LuPanel { cx, ty, batch: a.batch, n, start, size, a: &packed, pivots: &pivots };
        match panels {
            LuPanels::Subgroup => panel.factor_by_subgroup(&permutation)?,
            LuPanels::Registers { threads } => {
                panel.factor_in_registers(threads)?;
                panel.exchange(&permutation)?;
            }
            LuPanels::Workgroup => {
                panel.factor()?;
                panel.exchange(&permutation)?;
            }
        }
        let right = view.at(start, rest);
        TriangularSystem {
            ty,
            batch: a.batch,
            n: size,
            columns: n - rest,
            l: view.at(start, start),
            x: right,
            conjugate: false,
            unit: true,
        }
        .substitute(cx, 0, size)?;
        MatrixUpdate {
            ty,
            batch: a.batch,
            rows: n - rest,
            columns: n - rest,
            depth: size,
            conjugate: [false, false],
            a: view.at(rest, start),
            b: right,
            c: view.at(rest, rest),
        }
        .record(cx)?;
    }
    Ok([Buffer::new(bytes.0, packed), Buffer::new(bytes.1, permutation)])
}

/// The columns `start` to `start + size` from row `start` on.
struct LuPanel<'a> {
    cx: &'a Context<'a>,
    ty: Type,
    batch: u64,
    n: u64,
    start: u64,
    size: u64,
    a: &'a Allocation,
    /// For each row the row that it was exchanged with, u32.
    pivots: &'a Allocation,
}

impl LuPanel<'_> {
    fn launch(
        &self,
        file: &'static str,
        threads: u32,
        defines: &[(&'static str, u32)],
        groups: u64,
        operands: &[MatrixOperand],
    ) -> Attempt<()> {
        let &Self { cx, ty, .. } = self;
        let arithmetic = Arithmetic::plain(ty, needs_index64(ty, &[self.a]));
        let files = ["exact", file];
        let kernel = MatrixKernel {
            coherent: cpu_vectors(cx.caps()),
            defines,
            ..MatrixKernel::new(&files, arithmetic, WorkgroupShape::flat(threads))
        };
        let extents = [("n", self.n), ("start", self.start), ("size", self.size), ("batch", self.batch)];
        kernel.launch(cx, operands, &extents, groups)
    }

    /// The matrices and the pivots that a panel gets.
    fn factored(&self) -> [MatrixOperand<'_>; 2] {
        [Content::Elements.update("a", self.a), Content::Indices.write("pivots", self.pivots)]
    }

    /// The matrices and the pivots by which rows are exchanged.
    fn exchanged(&self) -> [MatrixOperand<'_>; 2] {
        [Content::Elements.update("a", self.a), Content::Indices.read("pivots", self.pivots)]
    }

    /// The permutation, which the first panel begins with the identity.
    fn permuted<'a>(&self, permutation: &'a Allocation) -> MatrixOperand<'a> {
        match self.start {
            0 => Content::Indices.write("permutation", permutation),
            _ => Content::Indices.update("permutation", permutation),
        }
    }

    /// Factors the panel alone, in one workgroup a matrix.
    fn factor(&self) -> Attempt<()> {
        let threads = if self.n - self.start <= 32 { 32 } else { 256 };
        let defines = [("WIDTH", block_width(self.ty) as u32)];
        self.launch("lu_panel", threads, &defines, self.batch, &self.factored())
    }

    /// As [`LuPanel::factor`], with the rows in the registers of so many threads.
    fn factor_in_registers(&self, threads: u64) -> Attempt<()> {
        let subgroup = u64::from(self.cx.caps().subgroup);
        let rows = self.n - self.start;
        // Few sizes, each of which is a kernel to build.
        let threads = rows.next_power_of_two().max(subgroup).min(threads);
        let defines = [("WIDTH", REGISTER_COLUMNS as u32), ("EACH", rows.div_ceil(threads) as u32)];
        self.launch("lu_columns", threads as u32, &defines, self.batch, &self.factored())
    }

    /// As [`LuPanel::factor`] and [`LuPanel::exchange`] by subgroups.
    fn factor_by_subgroup(&self, permutation: &Allocation) -> Attempt<()> {
        let threads = self.cx.caps().subgroup;
        let [a, pivots] = self.factored();
        self.launch("lu_subgroup", threads, &[], self.batch, &[a, pivots, self.permuted(permutation)])?;
        let groups = self.batch * (self.n - self.size).div_ceil(threads.into());
        if groups == 0 {
            return Ok(());
        }
        self.launch("lu_exchange_vectors", threads, &[], groups, &self.exchanged())
    }

    /// Exchanges the rows of all other columns, and of the permutation, as those of the panel were.
    fn exchange(&self, permutation: &Allocation) -> Attempt<()> {
        let width = block_width(self.ty);
        let threads = 256;
        // The permutation is one column more.
        let columns = self.n - self.size + 1;
        let groups = self.batch * columns.div_ceil(threads / (2 * width));
        let [a, pivots] = self.exchanged();
        let operands = [a, pivots, self.permuted(permutation)];
        self.launch("lu_exchange", threads as u32, &[("WIDTH", width as u32)], groups, &operands)
    }
}
