//! Tensors that are assembled by programs that each write a view of the result: padding, concatenation, slices that are put
//! into others. How the programs run is `kernels::fusion`'s.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::error::{Attempt, Error};
use crate::graph::Context;
use crate::graph::Operand;
use crate::kernels::{Tensor, fusion};
use crate::memory::{AllocationHandle, Buffer};
use crate::program::{Attribute, Axes, Input, Node, Program, Source, Type, dense_strides, elements, op};

/// A program with an output view, and what its inputs read.
pub struct AssembledPart<'a> {
    /// The elements to write, and the view of the result that they go to.
    pub program: &'a Program,
    /// What the program's inputs read, one operand for each input.
    pub operands: &'a [Operand<'a>],
}

/// The node whose results are the first input's elements as the type `ty`.
pub fn copied(ty: Type) -> Node {
    Node { op: op::AS_TYPE, ty, args: SmallVec::from_slice(&[0]), attribute: Attribute::None }
}

/// A tensor's elements as the type `ty`. A graph leaves the copy out where nothing reads the tensor later and nothing is converted.
pub fn copy(cx: &Context, tensor: &Tensor, ty: Type) -> Attempt<Buffer> {
    let &Tensor { buffer, ty: from, shape } = tensor;
    let input = Input { ty: from, source: Source::View { offset: 0, strides: dense_strides(shape) } };
    let (inputs, nodes) = (SmallVec::from_iter([input]), SmallVec::from_iter([copied(ty)]));
    let program = Program { inputs, nodes, shape: Axes::from_slice(shape), output: None };
    let allocation = buffer.allocation()?;
    fusion::run(cx, &program, &[Operand::Buffer(&allocation, buffer.len())])
}

/// A copy of an allocation's contents. Kernels that copy run beside each other, where transfers wait for each other.
pub fn copy_of(cx: &Context, allocation: &Arc<AllocationHandle>) -> Attempt<Arc<AllocationHandle>> {
    let (size, ty) = (allocation.size, Type::U32);
    let buffer = Buffer::of(size, allocation.clone());
    let copied = copy(cx, &Tensor { buffer: &buffer, ty, shape: &[size / ty.size()] }, ty)?;
    Ok(copied.take().ok_or(Error::Deallocated)?)
}

/// A dense tensor into which the parts are written in order. What none of them covers is undefined.
pub fn run(cx: &Context, ty: Type, shape: &[u64], parts: &[AssembledPart]) -> Attempt<Buffer> {
    let bytes = elements(shape)?.checked_mul(ty.size()).ok_or(Error::SizeMismatch)?;
    let out = cx.allocate(bytes)?;
    for part in parts {
        fusion::run_into(cx, part.program, part.operands, (&out, bytes))?;
    }
    Ok(Buffer::new(bytes, out))
}
