//! Dense row-major copies of matrices in the type that they are worked on, and tensors of other types from them. Linear
//! systems and triangular factors work on such copies in place.

use super::*;

/// Threads of a workgroup that copies.
const COPY_THREADS: u32 = 256;

/// Which elements a dense copy has.
#[derive(Clone, Copy)]
pub(super) enum DenseCopy<'a> {
    All,
    /// Zeros above the diagonal.
    Lower,
    /// Each matrix transposed.
    Transposed,
    /// Row i is row permutation\[i\] of the operand.
    Rows(&'a Allocation),
}

impl DenseCopy<'_> {
    /// The copy of `from` in the working type `to`.
    pub(super) fn of(self, cx: &Context, from: &Matrices, to: Type) -> Attempt<AllocationHandle> {
        to.check_program(cx.caps())?;
        from.ty.check_program(cx.caps())?;
        let source = from.allocation()?;
        let elements = from.elements();
        let allocation = cx.allocate(elements * to.size())?;
        let (mode, permutation) = match self {
            DenseCopy::All => (0, None),
            DenseCopy::Lower => (1, None),
            DenseCopy::Transposed => (2, None),
            DenseCopy::Rows(permutation) => (3, Some(permutation)),
        };
        let narrowest = if from.ty.size() < to.size() { from.ty } else { to };
        let arithmetic = Arithmetic::plain(to, needs_index64(narrowest, &[&source, &allocation]));
        let mut operands: SmallVec<[MatrixOperand; 3]> = SmallVec::new();
        operands.push(Content::Tensor(from.ty).read("tensor", &source));
        operands.extend(permutation.map(|permutation| Content::Indices.read("permutation", permutation)));
        operands.push(Content::Elements.write("to", &allocation));
        MatrixKernel {
            defines: &[("MODE", mode)],
            tensor: Some(from.ty),
            ..MatrixKernel::new(&["exact", "pack"], arithmetic, WorkgroupShape::flat(COPY_THREADS))
        }
        .launch_each(cx, &operands, elements, &[("rows", from.rows), ("columns", from.columns)])?;
        drop(operands);
        Ok(allocation)
    }
}

/// The result of type `to` from so many elements of the working type.
pub(super) fn tensor_of(
    cx: &Context,
    allocation: AllocationHandle,
    from: Type,
    elements: u64,
    to: Type,
) -> Attempt<Buffer> {
    if from == to {
        return Ok(Buffer::new(elements * from.size(), allocation));
    }
    to.check_program(cx.caps())?;
    let result = cx.allocate(elements * to.size())?;
    let narrowest = if from.size() < to.size() { from } else { to };
    let arithmetic = Arithmetic::plain(from, needs_index64(narrowest, &[&allocation, &result]));
    let operands = [Content::Elements.read("from", &allocation), Content::Tensor(to).write("tensor", &result)];
    MatrixKernel {
        tensor: Some(to),
        ..MatrixKernel::new(&["exact", "unpack"], arithmetic, WorkgroupShape::flat(COPY_THREADS))
    }
    .launch_each(cx, &operands, elements, &[])?;
    Ok(Buffer::new(elements * to.size(), result))
}
