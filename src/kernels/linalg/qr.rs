//! `A = Q·R` by Householder reflectors. This module owns reflectors and their application, for singular values, too.
//!
//! Panels of columns are factored by a workgroup a matrix; the columns to their right, and the columns of Q, are
//! independent of each other, so the threads of one column take it through all reflectors of the panel. In small matrices
//! reflectors are applied one by one, in the order and with the rounding of `Nx.LinAlg.QR`; in larger ones a panel's at
//! once (R. Schreiber and C. Van Loan, 1989), and threads hold the panel in registers.

use std::ops::Range;

use super::*;

/// Columns that a workgroup factors in memory before the others follow.
const PANEL_COLUMNS: u64 = 32;

/// The reflectors of a batch of matrices, in the order in which they were applied.
pub(super) struct Reflectors {
    vectors: AllocationHandle,
    factors: AllocationHandle,
    /// The products of each reflector with those before it in its panel, where it is to be applied with the panel.
    products: Option<AllocationHandle>,
    pub(super) count: u64,
}

/// The columns that reflectors are applied to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ReflectedColumns {
    /// Those that come after the panel: the first reflector first.
    Following,
    /// Any, the last reflector first.
    All,
    /// Those of an identity matrix, the last reflector first.
    Identity,
}

/// Q and R of each matrix, `complete` or reduced. Elements that are at most `eps` and rounding errors become zero.
pub fn run(cx: &Context, ty: Type, a: &Matrices, complete: bool, eps: f32) -> Attempt<[Buffer; 2]> {
    check(cx, a, ty)?;
    let work = match ty {
        Type::F64 | Type::C64 | Type::C128 => ty,
        _ => Type::F32,
    };
    let space = Workspace::new(cx, work, a.rows, a.columns);
    let (m, n) = (a.rows, a.columns);
    let kept = if complete { m } else { m.min(n) };
    check_index32(a.batch.saturating_mul(m).saturating_mul(kept))?;
    let ScaledMatrices { matrices, scales } = ScaledMatrices::of(space, a, false)?;
    let reflectors = factor(space, &matrices)?;
    let q = ColumnMatrices::identity(space, [a.batch, m, kept])?;
    reflectors.apply(space, &q, 0..reflectors.count, ReflectedColumns::Identity)?;
    let q = MatrixResult {
        ty,
        rows: m,
        columns: kept,
        matrices: &q,
        zero: eps,
        scales: None,
        order: None,
        upper: false,
        transposed: false,
    };
    let r = MatrixResult { rows: kept, columns: n, matrices: &matrices, scales: Some(&scales), upper: true, ..q };
    Ok([q.record(space)?, r.record(space)?])
}

/// Replaces the matrices by R (what lies below its diagonal is undefined) and returns the reflectors.
pub(super) fn factor(space: Workspace, matrices: &ColumnMatrices) -> Attempt<Reflectors> {
    let &ColumnMatrices { batch, rows: m, columns: n, .. } = matrices;
    // A reflector of a single number changes its phase. Nx makes one for wide complex matrices, none for square ones.
    let count = if m == n { m - 1 } else { m.min(n) };
    space.cx.blocking.require_for(count.div_ceil(REGISTER_COLUMNS) * 4)?;
    // Of a workgroup that holds a panel in registers.
    let is_large = m.max(n) > MAX_EXACT_ORDER && !space.arithmetic.work.is_complex();
    let threads = panel_threads(space.cx.caps(), m).filter(|_| is_large);
    let made = Reflectors {
        vectors: space.elements((batch * count * m).max(1))?,
        factors: space.reals((batch * count).max(1))?,
        products: match threads {
            Some(_) => Some(space.reals((batch * count * REGISTER_COLUMNS).max(1))?),
            None => None,
        },
        count,
    };
    made.find(space, matrices, threads)?;
    Ok(made)
}

impl Reflectors {
    /// The operands that they are, each read or written.
    fn operands<'a>(
        &'a self,
        access: fn(Content, &'static str, &'a Allocation) -> MatrixOperand<'a>,
    ) -> SmallVec<[MatrixOperand<'a>; 4]> {
        let mut operands = SmallVec::new();
        operands.push(access(Content::Elements, "reflector", &self.vectors));
        operands.push(access(Content::Reals, "factors", &self.factors));
        operands.extend(self.products.as_ref().map(|products| access(Content::Reals, "products", products)));
        operands
    }

    /// Finds them, panel after panel, each in the registers of so many threads, or in memory.
    fn find(&self, space: Workspace, matrices: &ColumnMatrices, threads: Option<u64>) -> Attempt<()> {
        let &ColumnMatrices { batch, rows, columns, .. } = matrices;
        let mut operands = self.operands(Content::write);
        operands.insert(0, matrices.update("work"));
        let each = threads.map_or(1, |threads| rows.div_ceil(threads));
        let defines = [("PANEL", REGISTER_COLUMNS as u32), ("EACH", each as u32)];
        let (width, kernel) = match threads {
            Some(threads) => (
                REGISTER_COLUMNS,
                MatrixKernel {
                    defines: &defines,
                    workgroup: WorkgroupShape::flat(threads as u32),
                    ..space.kernel(&["scalar", "panel"])
                },
            ),
            None => {
                (PANEL_COLUMNS, MatrixKernel { coherent: true, ..space.kernel(&["scalar", "reflector", "reflect"]) })
            }
        };
        for first in (0..self.count).step_by(width as usize) {
            let last = (first + width).min(self.count);
            let extents =
                [("rows", rows), ("columns", columns), ("reflectors", self.count), ("first", first), ("last", last)];
            kernel.launch(space.cx, &operands, &extents, batch)?;
            self.apply(space, matrices, first..last, ReflectedColumns::Following)?;
        }
        Ok(())
    }

    /// Applies some of the reflectors to the columns that `onto` says, in its order.
    pub(super) fn apply(
        &self,
        space: Workspace,
        matrices: &ColumnMatrices,
        some: Range<u64>,
        onto: ReflectedColumns,
    ) -> Attempt<()> {
        let &ColumnMatrices { batch, rows, columns, .. } = matrices;
        let begin = if onto == ReflectedColumns::Following { some.end } else { 0 };
        if begin >= columns || some.is_empty() {
            return Ok(());
        }
        let mut operands = self.operands(Content::read);
        operands.push(matrices.update("work"));
        let extents = [
            ("rows", rows),
            ("columns", columns),
            ("reflectors", self.count),
            ("first", some.start),
            ("last", some.end),
            ("begin", begin),
            ("end", columns),
        ];
        let groups = batch * (columns - begin).div_ceil(space.workgroup.columns.into());
        let reversed = ("REVERSED", u32::from(onto != ReflectedColumns::Following));
        if self.products.is_none() {
            let one_by_one = MatrixKernel { defines: &[reversed], ..space.kernel(&["scalar", "reflector", "apply"]) };
            return one_by_one.launch(space.cx, &operands, &extents, groups);
        }
        let is_identity = u32::from(onto == ReflectedColumns::Identity);
        MatrixKernel {
            defines: &[reversed, ("IDENTITY", is_identity), ("PANEL", REGISTER_COLUMNS as u32)],
            workgroup: WorkgroupShape { column_threads: space.cx.caps().subgroup, ..space.workgroup },
            ..space.kernel(&["scalar", "apply_panels"])
        }
        .launch(space.cx, &operands, &extents, groups)
    }
}
