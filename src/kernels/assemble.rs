//! Tensors put together from parts, each written to a strided view of the result: padding, concatenation, slices that
//! are put into others.

use smallvec::SmallVec;

use crate::error::{Attempt, Error};
use crate::graph::Context;
use crate::graph::Operand;
use crate::kernels::fusion;
use crate::memory::Buffer;
use crate::program::{Attribute, Node, Program, Type, elements, op};

/// A program with an output place, and what its inputs read.
pub struct Part<'a> {
    pub program: &'a Program,
    pub operands: &'a [Operand<'a>],
}

/// The node whose results are the first input's elements as the type `ty`.
pub fn copied(ty: Type) -> Node {
    Node { op: op::AS_TYPE, ty, args: SmallVec::from_slice(&[0]), attribute: Attribute::None }
}

/// A dense tensor into which the parts are written in turn. What none of them covers is undefined.
pub fn run(cx: &Context, ty: Type, shape: &[u64], parts: &[Part]) -> Attempt<Buffer> {
    let bytes = elements(shape)?.checked_mul(ty.size()).ok_or(Error::SizeMismatch)?;
    let out = cx.allocate(bytes)?;
    for part in parts {
        fusion::run_into(cx, part.program, part.operands, (&out, bytes))?;
    }
    Ok(Buffer::new(bytes, out))
}
