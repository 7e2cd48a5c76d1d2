//! `A = Q·R` by Householder reflectors.
//!
//! Panels of columns are factored by a workgroup a matrix; the columns to their right, and the columns of Q, are
//! independent of each other, so a segment of a workgroup takes one through all reflectors of the panel. In small matrices
//! reflectors are applied one by one, in the order and with the rounding of `Nx.LinAlg.QR`; in larger ones a panel's at
//! once (R. Schreiber and C. Van Loan, 1989), and threads hold the panel in registers.

use std::ops::Range;

use super::*;

/// Columns that a workgroup factors before the others follow.
const PANEL: u64 = 32;

/// The reflectors of a batch of matrices, in the order in which they were applied.
pub(super) struct Reflectors {
    cells: AllocationHandle,
    factors: AllocationHandle,
    /// The products of each reflector with those before it in its panel, where it is to be applied with the panel.
    products: Option<AllocationHandle>,
    pub(super) count: u64,
}

/// To which columns reflectors are applied.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Onto {
    /// To those that come after the panel: the first reflector first.
    Following,
    /// To any, the last reflector first.
    All,
    /// To those of an identity matrix, the last reflector first.
    Identity,
}

/// Q and R of each matrix, `complete` or reduced. Elements that are at most `eps` and rounding errors become zero.
pub fn run(cx: &Context, ty: Type, a: &Matrices, complete: bool, eps: f32) -> Attempt<(Buffer, Buffer)> {
    check(cx, a, ty)?;
    let work = match ty {
        Type::F64 | Type::C64 | Type::C128 => ty,
        _ => Type::F32,
    };
    let run = Run::new(cx, work, a.rows, a.columns);
    let (m, n) = (a.rows, a.columns);
    let kept = if complete { m } else { m.min(n) };
    within_reach(a.batch.saturating_mul(m).saturating_mul(kept))?;
    let Work { cells, scales } = load_matrices(run, a, false)?;
    let reflectors = factor(run, &cells)?;
    let q = Cells::identity(run, [a.batch, m, kept])?;
    reflectors.apply(run, &q, 0..reflectors.count, Onto::Identity)?;
    let stored = Stored {
        ty,
        rows: m,
        columns: kept,
        cells: &q,
        zero: eps,
        scales: None,
        order: None,
        upper: false,
        transposed: false,
    };
    let r = Stored { rows: kept, columns: n, cells: &cells, scales: Some(&scales), upper: true, ..stored };
    Ok((stored.record(run)?, r.record(run)?))
}

/// Replaces the matrices in `cells` by R (what lies below its diagonal is undefined) and returns the reflectors.
pub(super) fn factor(run: Run, cells: &Cells) -> Attempt<Reflectors> {
    let &Cells { batch, rows: m, columns: n, .. } = cells;
    // A reflector of a single number changes its phase. Nx makes one for wide complex matrices, none for square ones.
    let count = if m == n { m - 1 } else { m.min(n) };
    run.cx.blocking.require_for(count.div_ceil(REGISTERS) * 4)?;
    // Of a workgroup that holds a panel in registers.
    let threads = panel_threads(run.cx, m).filter(|_| !run.scheme.work.is_complex() && m.max(n) > EXACT);
    let made = Reflectors {
        cells: run.elements((batch * count * m).max(1))?,
        factors: run.numbers((batch * count).max(1))?,
        products: match threads {
            Some(_) => Some(run.numbers((batch * count * REGISTERS).max(1))?),
            None => None,
        },
        count,
    };
    made.find(run, cells, threads)?;
    Ok(made)
}

impl Reflectors {
    fn operands(&self) -> SmallVec<[Operand<'_>; 4]> {
        let mut operands = SmallVec::new();
        operands.push(("reflector", Holds::Cells, &*self.cells));
        operands.push(("factors", Holds::Numbers, &*self.factors));
        operands.extend(self.products.as_ref().map(|products| Holds::Numbers.of("products", products)));
        operands
    }

    /// Finds them, panel after panel, each in the registers of so many threads, or in memory.
    fn find(&self, run: Run, cells: &Cells, threads: Option<u64>) -> Attempt<()> {
        let &Cells { batch, rows, columns, .. } = cells;
        let mut writes = self.operands();
        writes.insert(0, cells.operand("work"));
        let (width, step) = match threads {
            Some(threads) => (
                REGISTERS,
                Step {
                    defines: &[("PANEL", REGISTERS as u32), ("EACH", rows.div_ceil(threads) as u32)],
                    ..Step::new(&["scalar", "panel"], run.by(threads as u32, 1))
                },
            ),
            None => (PANEL, Step { coherent: true, ..Step::new(&["scalar", "reflector", "reflect"], run) }),
        };
        for first in (0..self.count).step_by(width as usize) {
            let last = (first + width).min(self.count);
            Step {
                writes: &writes,
                extents: &[
                    ("rows", rows),
                    ("columns", columns),
                    ("reflectors", self.count),
                    ("first", first),
                    ("last", last),
                ],
                groups: batch,
                ..step
            }
            .record()?;
            self.apply(run, cells, first..last, Onto::Following)?;
        }
        Ok(())
    }

    /// Applies some of the reflectors to the columns of `cells` that `onto` says, in its order.
    pub(super) fn apply(&self, run: Run, cells: &Cells, some: Range<u64>, onto: Onto) -> Attempt<()> {
        let &Cells { batch, rows, columns, .. } = cells;
        let begin = if onto == Onto::Following { some.end } else { 0 };
        if begin >= columns || some.is_empty() {
            return Ok(());
        }
        let reads = self.operands();
        let backwards = ("BACKWARDS", u32::from(onto != Onto::Following));
        let extents = [
            ("rows", rows),
            ("columns", columns),
            ("reflectors", self.count),
            ("first", some.start),
            ("last", some.end),
            ("begin", begin),
            ("end", columns),
        ];
        let one_by_one = Step {
            defines: &[backwards],
            reads: &reads,
            writes: &[cells.operand("work")],
            extents: &extents,
            groups: batch * (columns - begin).div_ceil(run.scheme.segments.into()),
            ..Step::new(&["scalar", "reflector", "apply"], run)
        };
        if self.products.is_none() {
            return one_by_one.record();
        }
        Step {
            files: &["scalar", "apply_panels"],
            run: run.by(run.cx.caps().subgroup, run.scheme.segments),
            defines: &[backwards, ("UNIT", u32::from(onto == Onto::Identity)), ("PANEL", REGISTERS as u32)],
            ..one_by_one
        }
        .record()
    }
}
