//! LU factorisations with partial pivoting.

use super::triangular::System;
use super::*;

/// L, U and the order of the rows of a batch of square matrices: row i of L·U is row permutation\[i\] of A.
pub struct Factors {
    /// L below the diagonal, which holds ones that are not stored, and U on and above it. Each matrix is transposed:
    /// in column-major order, which is what lets neighbouring threads work on neighbouring rows.
    pub packed: Buffer,
    /// The type of the elements of `packed`.
    pub ty: Type,
    /// u32, {batch, n}.
    pub permutation: Buffer,
}

/// Factors A, of which type `ty` was asked for; `packed` is of that type, or f32 where that has 16 bits or fewer.
///
/// The pivot is the first of the largest magnitude in its column, the last NaN where there is one; a column of zeros is
/// left as it is. So pivots, and all roundings up to [`width`] rows, are those of Nx's own `Nx.LinAlg.LU`. Blocked and
/// right-looking, as LAPACK's getrf: G. H. Golub and C. F. Van Loan, "Matrix Computations", 4th edition, 3.4.
pub fn run(cx: &Context, ty: Type, a: &Matrices) -> Attempt<Factors> {
    let n = a.order()?;
    let ty = working(ty)?;
    ty.check(cx.caps())?;
    let elements = a.elements();
    let bytes = (elements * ty.size(), a.batch * n * 4);
    if elements == 0 {
        return Ok(Factors { packed: cx.zeroed(0)?, ty, permutation: cx.zeroed(0)? });
    }
    let threads = panel_threads(cx, n).filter(|_| n > width(ty) && !processor(cx));
    let block = if threads.is_some() { REGISTERS } else { width(ty) };
    cx.blocking.require_for(n.div_ceil(block) * (3 + Update::commands(cx)))?;
    let packed = Pack::Transposed.copy(cx, a, ty)?;
    let permutation = cx.allocate(bytes.1)?;
    let pivots = cx.allocate(bytes.1)?;
    let view = View::dense(&packed, n, n).transposed();
    for start in (0..n).step_by(block as usize) {
        let size = block.min(n - start);
        let rest = start + size;
        let panel = Panel { cx, ty, batch: a.batch, n, start, size, a: &packed, pivots: &pivots };
        match threads {
            _ if processor(cx) => panel.factor_by_lanes(&permutation)?,
            Some(threads) => {
                panel.factor_in_registers(threads)?;
                panel.exchange(&permutation)?;
            }
            None => {
                panel.factor()?;
                panel.exchange(&permutation)?;
            }
        }
        let right = view.at(start, rest);
        System {
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
        Update {
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
    Ok(Factors { packed: Buffer::new(bytes.0, packed), ty, permutation: Buffer::new(bytes.1, permutation) })
}

/// The columns `start` to `start + size` from row `start` on.
struct Panel<'a> {
    cx: &'a Context<'a>,
    ty: Type,
    batch: u64,
    n: u64,
    start: u64,
    size: u64,
    a: &'a Allocation,
    /// With which row each row was exchanged, u32.
    pivots: &'a Allocation,
}

impl Panel<'_> {
    fn record(
        &self,
        file: &str,
        threads: u32,
        defines: &[(&str, u32)],
        groups: u64,
        permutation: Option<&Allocation>,
    ) -> Attempt<()> {
        let &Self { cx, ty, .. } = self;
        let scheme = Scheme::plain(ty, wide(ty, &[self.a]), threads);
        let mut writes: SmallVec<[Operand; 3]> = SmallVec::new();
        writes.push(("a", Holds::Cells, self.a));
        writes.push(("pivots", Holds::Indices, self.pivots));
        writes.extend(permutation.map(|block| Holds::Indices.of("permutation", block)));
        Step {
            coherent: processor(cx),
            defines,
            writes: &writes,
            extents: &[("n", self.n), ("start", self.start), ("size", self.size), ("batch", self.batch)],
            groups,
            ..Step::new(&["exact", file], Run { cx, scheme })
        }
        .record()
    }

    /// Factors the panel alone, in one workgroup a matrix.
    fn factor(&self) -> Attempt<()> {
        let threads = if self.n - self.start <= 32 { 32 } else { 256 };
        self.record("lu_panel", threads, &[("WIDTH", width(self.ty) as u32)], self.batch, None)
    }

    /// As [`Panel::factor`], with the rows in the registers of so many threads.
    fn factor_in_registers(&self, threads: u64) -> Attempt<()> {
        let subgroup = u64::from(self.cx.caps().subgroup);
        let rows = self.n - self.start;
        // Few sizes, each of which is a kernel to build.
        let threads = rows.next_power_of_two().max(subgroup).min(threads);
        let defines = [("WIDTH", REGISTERS as u32), ("EACH", rows.div_ceil(threads) as u32)];
        self.record("lu_columns", threads as u32, &defines, self.batch, None)
    }

    /// As [`Panel::factor`] and [`Panel::exchange`] by subgroups.
    fn factor_by_lanes(&self, permutation: &Allocation) -> Attempt<()> {
        let lanes = self.cx.caps().subgroup;
        self.record("lu_lanes", lanes, &[], self.batch, Some(permutation))?;
        let groups = self.batch * (self.n - self.size).div_ceil(lanes.into());
        if groups == 0 { Ok(()) } else { self.record("lu_exchange_lanes", lanes, &[], groups, None) }
    }

    /// Exchanges the rows of all other columns, and of the permutation, as those of the panel were.
    fn exchange(&self, permutation: &Allocation) -> Attempt<()> {
        let width = width(self.ty);
        let threads = 256;
        // The permutation is one column more.
        let columns = self.n - self.size + 1;
        let groups = self.batch * columns.div_ceil(threads / (2 * width));
        self.record("lu_exchange", threads as u32, &[("WIDTH", width as u32)], groups, Some(permutation))
    }
}
