//! Products of tensors.

use rustler::Term;
use smallvec::SmallVec;

use super::program::{shape_arg, type_arg};
use super::*;
use crate::kernels::dot::{self, Operand};
use crate::memory::Patience;

pair!(dot, dot_dirty, (out_type, a, contract_a, batch_a, b, contract_b, batch_b), reply, product);

#[allow(clippy::too_many_arguments, reason = "the arguments of the NIF, in its order")]
fn product(
    out_type: Term,
    a: Term,
    contract_a: Term,
    batch_a: Term,
    b: Term,
    contract_b: Term,
    batch_b: Term,
    patience: Patience,
) -> Result<BufferRef> {
    let ty = type_arg(out_type, "out_type")?;
    let (a, b) = (tensor_arg(a, "a")?, tensor_arg(b, "b")?);
    let a_axes = (axes_arg(contract_a, "contract_a")?, axes_arg(batch_a, "batch_a")?);
    let b_axes = (axes_arg(contract_b, "contract_b")?, axes_arg(batch_b, "batch_b")?);
    let a = Operand { buffer: &a.0, ty: a.1, shape: a.2, contract: a_axes.0, batch: a_axes.1 };
    let b = Operand { buffer: &b.0, ty: b.1, shape: b.2, contract: b_axes.0, batch: b_axes.1 };
    dot::run(gpu(patience)?, ty, &a, &b, patience).map(BufferRef::from)
}

/// `{ref, type, shape}`.
fn tensor_arg(term: Term, name: &str) -> Result<(BufferRef, crate::program::Type, crate::program::Axes<u64>)> {
    match tuple_arg(term, name)?[..] {
        [buffer, ty, shape] => Ok((buffer_arg(buffer, name)?, type_arg(ty, name)?, shape_arg(shape, name)?)),
        _ => Err(wrong(name, "{ref, type, shape}")),
    }
}

fn axes_arg(term: Term, name: &str) -> Result<SmallVec<[usize; 4]>> {
    list_arg(term, name)?.map(|axis| size_arg(axis, name).map(|axis| axis as usize)).collect()
}
