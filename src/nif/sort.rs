//! Sorting along an axis.

use rustler::Term;

use super::graphs::KeyTerms;
use super::*;
use crate::graph::{Context, Operand};
use crate::kernels::sort::{self, Sort, Sorted};
use crate::memory::Blocking;

mod names {
    rustler::atoms! { sort }
}

pair!(sort, sort_dirty, (tensor, axis, descending, keep, values, indices), reply, sorted);

/// `{values | nil, indices | nil}` of a tensor `{ref, type, shape}`, the first `keep` along the axis: `values` is a boolean,
/// `indices` a type or nil.
fn sorted<'a>(
    tensor: Term<'a>,
    axis: Term<'a>,
    descending: Term<'a>,
    keep: Term<'a>,
    values: Term<'a>,
    indices: Term<'a>,
    blocking: Blocking,
) -> Attempt<(Option<BufferRef>, Option<BufferRef>)> {
    let env = tensor.get_env();
    let (buffer, ty, shape) = tensor_terms(tensor, "tensor")?;
    let buffer = buffer_arg(buffer, "tensor")?;
    let (with_values, with_indices) = (bool_arg(values, "values")?, !is_nil(indices));
    let allocation = buffer.allocation()?;
    let call = |cx: &Context| {
        let tensor = TensorArg::of(buffer, ty, shape, "tensor")?;
        let sort = Sort {
            rows: tensor.along(axis)?,
            bits: tensor.ty.bits(),
            descending: bool_arg(descending, "descending")?,
            keep: size_arg(keep, "keep")?,
            values: with_values,
            indices: if with_indices { Some(type_arg(indices, "indices")?) } else { None },
        };
        sort::run(cx, &sort)
    };
    let key = KeyTerms::from_slice(&[names::sort().to_term(env), ty, shape, axis, descending, keep, values, indices]);
    let operands = [Operand::Buffer(&allocation, buffer.len())];
    let one = |run: &dyn Fn(&Context) -> Attempt<Option<Buffer>>| {
        graphs::run(env, key.clone(), &operands, blocking, |cx| Ok([run(cx)?.ok_or(Error::SizeMismatch)?]))
    };
    match (with_values, with_indices) {
        (true, true) => {
            let both = |cx: &Context| match call(cx)? {
                Sorted { values: Some(values), indices: Some(indices) } => Ok([values, indices]),
                _ => Err(Error::SizeMismatch.into()),
            };
            let [values, indices] = graphs::run(env, key, &operands, blocking, both)?;
            Ok((Some(values.into()), Some(indices.into())))
        }
        (true, false) => one(&|cx| Ok(call(cx)?.values)).map(|[values]| (Some(values.into()), None)),
        (false, true) => one(&|cx| Ok(call(cx)?.indices)).map(|[indices]| (None, Some(indices.into()))),
        (false, false) => call(&Context::new(gpu_of_buffer(buffer, blocking)?, blocking)).map(|_| (None, None)),
    }
}
