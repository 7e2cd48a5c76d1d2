//! Copies of matrices that the orthogonal decompositions work on: columns contiguous, scaled by a power of two, in the type
//! of the result or a wider one. This module makes them from tensors and rounds them to results; what becomes of them in
//! between is not its business.

use super::*;

/// Fails unless the matrices can be worked on, and the result be of type `ty`.
pub(super) fn check(cx: &Context, a: &Matrices, ty: Type) -> Result<()> {
    a.ty.check(cx.caps())?;
    ty.check(cx.caps())?;
    if ty.is_complex() != a.ty.is_complex() || !(ty.is_float() || ty.is_complex()) {
        return Err(Error::Argument("out_type: expected a float or complex type as the matrices have".into()));
    }
    if a.elements() == 0 { Err(Error::SizeMismatch) } else { check_index32(a.elements()) }
}

/// Fails where that many elements are more than a 32-bit index counts.
pub(super) fn check_index32(elements: u64) -> Result<()> {
    if elements < 1 << 31 {
        return Ok(());
    }
    Err(Error::Unsupported("the matrices have more than 2^31 elements in all".into()))
}

/// A batch of matrices with contiguous columns, or a batch of rows of values.
pub(super) struct ColumnMatrices {
    pub allocation: AllocationHandle,
    pub batch: u64,
    pub rows: u64,
    pub columns: u64,
}

impl ColumnMatrices {
    /// Undefined ones, by their batch, rows and columns.
    pub(super) fn new(space: Workspace, [batch, rows, columns]: [u64; 3]) -> Attempt<Self> {
        Ok(Self { allocation: space.elements(batch * rows * columns)?, batch, rows, columns })
    }

    /// Identity matrices.
    pub(super) fn identity(space: Workspace, sizes: [u64; 3]) -> Attempt<Self> {
        let made = Self::new(space, sizes)?;
        let extents = [("rows", made.rows), ("columns", made.columns)];
        space.each(&["scalar", "identity"]).launch_each(space.cx, &[made.write("work")], made.count(), &extents)?;
        Ok(made)
    }

    /// Elements of all matrices.
    pub(super) fn count(&self) -> u64 {
        self.batch * self.rows * self.columns
    }

    pub(super) fn read(&self, name: &'static str) -> MatrixOperand<'_> {
        Content::Elements.read(name, &self.allocation)
    }

    pub(super) fn update(&self, name: &'static str) -> MatrixOperand<'_> {
        Content::Elements.update(name, &self.allocation)
    }

    pub(super) fn write(&self, name: &'static str) -> MatrixOperand<'_> {
        Content::Elements.write(name, &self.allocation)
    }
}

/// Copies of matrices, scaled; and the scales, one a matrix.
pub(super) struct ScaledMatrices {
    pub matrices: ColumnMatrices,
    pub scales: AllocationHandle,
}

/// Elements that a workgroup copies at least, where there is more than one workgroup a matrix.
const MIN_GROUP_ELEMENTS: u64 = 4096;

impl ScaledMatrices {
    /// Copies the matrices, transposed where `transposed`.
    pub(super) fn of(space: Workspace, a: &Matrices, transposed: bool) -> Attempt<Self> {
        let (rows, columns) = if transposed { (a.columns, a.rows) } else { (a.rows, a.columns) };
        let matrices = ColumnMatrices::new(space, [a.batch, rows, columns])?;
        let scales = space.reals(a.batch)?;
        let allocation = a.allocation()?;
        let parts = (a.rows * a.columns / MIN_GROUP_ELEMENTS).clamp(1, 64);
        let maxima = space.reals(a.batch * parts)?;
        let extents = [("rows", a.rows), ("columns", a.columns), ("parts", parts)];
        let tensor = Content::Tensor(a.ty).read("tensor", &allocation);
        let largest = MatrixKernel { tensor: Some(a.ty), ..space.whole(&["scalar", "largest"]) };
        largest.launch(space.cx, &[tensor, Content::Reals.write("maxima", &maxima)], &extents, a.batch * parts)?;
        let operands = [
            tensor,
            Content::Reals.read("maxima", &maxima),
            matrices.write("work"),
            Content::Reals.write("scales", &scales),
        ];
        MatrixKernel { files: &["scalar", "load"], defines: &[("TRANSPOSED", transposed.into())], ..largest }.launch(
            space.cx,
            &operands,
            &extents,
            a.batch * parts,
        )?;
        Ok(Self { matrices, scales })
    }
}

/// A result of `rows` × `columns` a matrix.
pub(super) struct MatrixResult<'a> {
    pub ty: Type,
    pub rows: u64,
    pub columns: u64,
    pub matrices: &'a ColumnMatrices,
    /// Elements of at most this magnitude, and of at most rounding errors, become zero.
    pub zero: f32,
    /// The scales of the matrices, which are undone.
    pub scales: Option<&'a AllocationHandle>,
    /// For each column of the result the index of its column in `matrices`.
    pub order: Option<&'a AllocationHandle>,
    pub upper: bool,
    pub transposed: bool,
}

impl MatrixResult<'_> {
    pub(super) fn record(&self, space: Workspace) -> Attempt<Buffer> {
        let count = self.matrices.batch * self.rows * self.columns;
        let allocation = space.cx.allocate(count * self.ty.size())?;
        let mut operands: SmallVec<[MatrixOperand; 4]> = SmallVec::new();
        operands.push(self.matrices.read("work"));
        operands.extend(self.scales.map(|scales| Content::Reals.read("scales", scales)));
        operands.extend(self.order.map(|order| Content::Indices.read("order", order)));
        operands.push(Content::Tensor(self.ty).write("tensor", &allocation));
        let extents = [
            ("rows", self.rows),
            ("columns", self.columns),
            ("width", self.matrices.columns),
            ("height", self.matrices.rows),
            ("zero", self.zero.to_bits().into()),
        ];
        MatrixKernel {
            defines: &[
                ("TRANSPOSED", self.transposed.into()),
                ("ORDERED", self.order.is_some().into()),
                ("SCALED", self.scales.is_some().into()),
                ("UPPER", self.upper.into()),
            ],
            tensor: Some(self.ty),
            ..space.each(&["scalar", "store"])
        }
        .launch_each(space.cx, &operands, count, &extents)?;
        drop(operands);
        Ok(Buffer::new(count * self.ty.size(), allocation))
    }
}
