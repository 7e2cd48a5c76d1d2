//! `A = Q·R` by Householder reflectors.
//!
//! Panels of columns are factored by a workgroup a matrix; the columns to their right, and the columns of Q, are
//! independent of each other, so a segment of a workgroup takes one through all reflectors of the panel. In small matrices
//! reflectors are applied one by one, in the order and with the rounding of `Nx.LinAlg.QR`; in larger ones a panel's at
//! once (R. Schreiber and C. Van Loan, 1989), and threads hold the panel in registers.

use super::*;

/// Columns that a workgroup factors before the others follow.
const PANEL: u64 = 32;
/// The reflectors of a batch of matrices, in the order in which they were applied.
pub(super) struct Reflectors {
    cells: Lease,
    factors: Lease,
    /// The products of each reflector with those before it in its panel, where it is to be applied with the panel.
    products: Option<Lease>,
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
pub fn run(
    gpu: &Gpu,
    ty: Type,
    a: &Matrices,
    complete: bool,
    eps: f32,
    patience: Patience,
) -> Result<(Buffer, Buffer)> {
    check(gpu, a, ty)?;
    let work = match ty {
        Type::F64 | Type::C64 | Type::C128 => ty,
        _ => Type::F32,
    };
    let scheme = Scheme::new(gpu, work, a.rows, a.columns);
    let (m, n) = (a.rows, a.columns);
    let kept = if complete { m } else { m.min(n) };
    within_reach(a.batch.saturating_mul(m).saturating_mul(kept))?;
    let Work { cells, scales } = load_matrices(gpu, scheme, a, false, patience)?;
    let reflectors = factor(gpu, scheme, &cells, [a.batch, m, n], patience)?;
    let q = identity(gpu, scheme, [a.batch, m, kept], patience)?;
    apply(gpu, scheme, &q, [a.batch, m, kept], &reflectors, (0, reflectors.count), 0, Onto::Identity, patience)?;
    let stored = Stored {
        ty,
        batch: a.batch,
        rows: m,
        columns: kept,
        width: kept,
        height: m,
        cells: &q,
        zero: eps,
        scales: None,
        order: None,
        upper: false,
        transposed: false,
    };
    let r = Stored { rows: kept, columns: n, width: n, cells: &cells, scales: Some(&scales), upper: true, ..stored };
    Ok((stored.record(gpu, scheme, patience)?, r.record(gpu, scheme, patience)?))
}

/// Replaces the matrices in `cells` by R (what lies below its diagonal is undefined) and returns the reflectors.
pub(super) fn factor(
    gpu: &Gpu,
    scheme: Scheme,
    cells: &Lease,
    [batch, m, n]: [u64; 3],
    patience: Patience,
) -> Result<Reflectors> {
    // A reflector of a single number changes its phase. Nx makes one for wide complex matrices, none for square ones.
    let count = if m == n { m - 1 } else { m.min(n) };
    patience.may_record(count.div_ceil(REGISTERS) * 4)?;
    let made = Reflectors {
        cells: scheme.cells(gpu, (batch * count * m).max(1), patience)?,
        factors: scheme.numbers(gpu, (batch * count).max(1), patience)?,
        products: match threads(gpu, scheme, m, n) {
            Some(_) => Some(scheme.numbers(gpu, (batch * count * REGISTERS).max(1), patience)?),
            None => None,
        },
        count,
    };
    if let Some(products) = &made.products {
        panels(gpu, scheme, cells, &made, products, [batch, m, n], patience)?;
        return Ok(made);
    }
    for first in (0..count).step_by(PANEL as usize) {
        let last = (first + PANEL).min(count);
        Step {
            coherent: true,
            writes: &[
                ("work", Holds::Cells, cells),
                ("reflector", Holds::Cells, &made.cells),
                ("factors", Holds::Numbers, &made.factors),
            ],
            extents: &[("rows", m), ("columns", n), ("reflectors", count), ("first", first), ("last", last)],
            groups: batch,
            ..Step::new(&["scalar", "reflector", "reflect"], scheme)
        }
        .record(gpu, patience)?;
        apply(gpu, scheme, cells, [batch, m, n], &made, (first, last), last, Onto::Following, patience)?;
    }
    Ok(made)
}

/// Threads of a workgroup that holds panels of `m` rows in registers, where that is a way for such matrices.
fn threads(gpu: &Gpu, scheme: Scheme, m: u64, n: u64) -> Option<u64> {
    panel_threads(gpu, m).filter(|_| !scheme.work.is_complex() && m.max(n) > EXACT)
}

/// [`factor`] with panels in registers.
fn panels(
    gpu: &Gpu,
    scheme: Scheme,
    cells: &Lease,
    made: &Reflectors,
    products: &Lease,
    [batch, m, n]: [u64; 3],
    patience: Patience,
) -> Result<()> {
    let Some(threads) = threads(gpu, scheme, m, n) else { return Ok(()) };
    for first in (0..made.count).step_by(REGISTERS as usize) {
        let last = (first + REGISTERS).min(made.count);
        Step {
            defines: &[("PANEL", REGISTERS as u32), ("EACH", m.div_ceil(threads) as u32)],
            writes: &[
                ("work", Holds::Cells, cells),
                ("reflector", Holds::Cells, &made.cells),
                ("factors", Holds::Numbers, &made.factors),
                ("products", Holds::Numbers, products),
            ],
            extents: &[("rows", m), ("columns", n), ("reflectors", made.count), ("first", first), ("last", last)],
            groups: batch,
            ..Step::new(&["scalar", "panel"], Scheme { lanes: threads as u32, segments: 1, ..scheme })
        }
        .record(gpu, patience)?;
        apply(gpu, scheme, cells, [batch, m, n], made, (first, last), last, Onto::Following, patience)?;
    }
    Ok(())
}

/// Applies the reflectors `first..last` to the columns of `cells` from `begin` on.
#[allow(clippy::too_many_arguments, reason = "what to apply, to what, and how")]
pub(super) fn apply(
    gpu: &Gpu,
    scheme: Scheme,
    cells: &Lease,
    [batch, m, n]: [u64; 3],
    reflectors: &Reflectors,
    (first, last): (u64, u64),
    begin: u64,
    onto: Onto,
    patience: Patience,
) -> Result<()> {
    if begin >= n || first >= last {
        return Ok(());
    }
    let mut reads: SmallVec<[Operand; 3]> = SmallVec::new();
    reads.push(("reflector", Holds::Cells, &reflectors.cells));
    reads.push(("factors", Holds::Numbers, &reflectors.factors));
    let backwards = ("BACKWARDS", u32::from(onto != Onto::Following));
    let extents = [
        ("rows", m),
        ("columns", n),
        ("reflectors", reflectors.count),
        ("first", first),
        ("last", last),
        ("begin", begin),
        ("end", n),
    ];
    let one_by_one = Step {
        defines: &[backwards],
        reads: &reads.clone(),
        writes: &[("work", Holds::Cells, cells)],
        extents: &extents,
        groups: batch * (n - begin).div_ceil(scheme.segments.into()),
        ..Step::new(&["scalar", "reflector", "apply"], scheme)
    };
    let Some(products) = &reflectors.products else { return one_by_one.record(gpu, patience) };
    reads.push(("products", Holds::Numbers, products));
    let subgroup = gpu.caps.subgroup;
    Step {
        files: &["scalar", "apply_panels"],
        scheme: Scheme { lanes: subgroup, ..scheme },
        defines: &[backwards, ("UNIT", u32::from(onto == Onto::Identity)), ("PANEL", REGISTERS as u32)],
        reads: &reads,
        ..one_by_one
    }
    .record(gpu, patience)
}
