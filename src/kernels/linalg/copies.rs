//! Copies of matrices that the orthogonal decompositions work on: columns contiguous, scaled by a power of two, in the type
//! of the result or a wider one. They end by rounding them to the result.

use super::*;

/// Matrices with at most this many rows and columns are worked on with sums formed in double, where the device has it,
/// and quotients and roots right to the last bit: that is how BinaryBackend rounds.
pub(super) const EXACT: u64 = 64;

/// Fails unless the matrices can be worked on, and the result be of type `ty`.
pub(super) fn check(cx: &Context, a: &Matrices, ty: Type) -> Result<()> {
    a.ty.check(cx.caps())?;
    ty.check(cx.caps())?;
    if ty.is_complex() != a.ty.is_complex() || !(ty.is_float() || ty.is_complex()) {
        return Err(Error::Argument("out_type: expected a float or complex type as the matrices have".into()));
    }
    if a.elements() == 0 { Err(Error::SizeMismatch) } else { within_reach(a.elements()) }
}

/// Fails where that many elements are more than a 32-bit index reaches.
pub(super) fn within_reach(elements: u64) -> Result<()> {
    if elements < 1 << 31 {
        return Ok(());
    }
    Err(Error::Unsupported("the matrices have more than 2^31 elements in all".into()))
}

/// A batch of matrices that are worked on, columns contiguous, or of one row of values each.
pub(super) struct Cells {
    pub allocation: AllocationHandle,
    pub batch: u64,
    pub rows: u64,
    pub columns: u64,
}

impl Cells {
    /// Undefined ones, by their batch, rows and columns.
    pub(super) fn new(run: Run, [batch, rows, columns]: [u64; 3]) -> Attempt<Self> {
        Ok(Self { allocation: run.elements(batch * rows * columns)?, batch, rows, columns })
    }

    /// Identity matrices.
    pub(super) fn identity(run: Run, sizes: [u64; 3]) -> Attempt<Self> {
        let cells = Self::new(run, sizes)?;
        Step {
            writes: &[cells.operand("work")],
            extents: &[("count", cells.count()), ("rows", cells.rows), ("columns", cells.columns)],
            ..Step::each(&["scalar", "identity"], run, cells.count())
        }
        .record()?;
        Ok(cells)
    }

    /// Elements of all matrices.
    pub(super) fn count(&self) -> u64 {
        self.batch * self.rows * self.columns
    }

    pub(super) fn operand<'a>(&'a self, name: &'static str) -> Operand<'a> {
        (name, Holds::Cells, &self.allocation)
    }
}

/// Copies of matrices, scaled; and the scales, one a matrix.
pub(super) struct Work {
    pub cells: Cells,
    pub scales: AllocationHandle,
}

/// Elements that a workgroup copies, where there are so many.
pub(super) const PIECE: u64 = 4096;

/// Copies the matrices, transposed where `transposed`.
pub(super) fn load_matrices(run: Run, a: &Matrices, transposed: bool) -> Attempt<Work> {
    let (rows, columns) = if transposed { (a.columns, a.rows) } else { (a.rows, a.columns) };
    let cells = Cells::new(run, [a.batch, rows, columns])?;
    let scales = run.numbers(a.batch)?;
    let allocation = a.allocation()?;
    let parts = (a.rows * a.columns / PIECE).clamp(1, 64);
    let maxima = run.numbers(a.batch * parts)?;
    let extents = [("rows", a.rows), ("columns", a.columns), ("parts", parts)];
    let largest = Step {
        tensor: Some(a.ty),
        reads: &[("tensor", Holds::Tensor(a.ty), &allocation)],
        writes: &[("maxima", Holds::Numbers, &maxima)],
        extents: &extents,
        groups: a.batch * parts,
        ..Step::new(&["scalar", "largest"], run.whole())
    };
    largest.record()?;
    Step {
        files: &["scalar", "load"],
        defines: &[("TRANSPOSED", transposed.into())],
        reads: &[("tensor", Holds::Tensor(a.ty), &allocation), ("maxima", Holds::Numbers, &maxima)],
        writes: &[cells.operand("work"), ("scales", Holds::Numbers, &scales)],
        ..largest
    }
    .record()?;
    Ok(Work { cells, scales })
}

/// A result of `rows` × `columns` a matrix.
pub(super) struct Stored<'a> {
    pub ty: Type,
    pub rows: u64,
    pub columns: u64,
    pub cells: &'a Cells,
    /// Elements of at most this magnitude, and of at most rounding errors, become zero.
    pub zero: f32,
    /// To undo the scaling of the matrices.
    pub scales: Option<&'a AllocationHandle>,
    /// The column of `cells` that comes at each place.
    pub order: Option<&'a AllocationHandle>,
    pub upper: bool,
    pub transposed: bool,
}

impl Stored<'_> {
    pub(super) fn record(&self, run: Run) -> Attempt<Buffer> {
        let count = self.cells.batch * self.rows * self.columns;
        let allocation = run.cx.allocate(count * self.ty.size())?;
        let mut reads: SmallVec<[Operand; 3]> = SmallVec::new();
        reads.push(self.cells.operand("work"));
        reads.extend(self.scales.map(|scales| Holds::Numbers.of("scales", scales)));
        reads.extend(self.order.map(|order| Holds::Indices.of("order", order)));
        Step {
            defines: &[
                ("TRANSPOSED", self.transposed.into()),
                ("ORDERED", self.order.is_some().into()),
                ("SCALED", self.scales.is_some().into()),
                ("UPPER", self.upper.into()),
            ],
            tensor: Some(self.ty),
            reads: &reads,
            writes: &[("tensor", Holds::Tensor(self.ty), &allocation)],
            extents: &[
                ("count", count),
                ("rows", self.rows),
                ("columns", self.columns),
                ("width", self.cells.columns),
                ("height", self.cells.rows),
                ("zero", self.zero.to_bits().into()),
            ],
            ..Step::each(&["scalar", "store"], run, count)
        }
        .record()?;
        Ok(Buffer::new(count * self.ty.size(), allocation))
    }
}
