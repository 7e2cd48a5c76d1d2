//! Sorting along an axis.

use rustler::Term;

use super::*;
use crate::kernels::sort::{self, Sort};
use crate::memory::Blocking;

pair!(sort, sort_dirty, (tensor, axis, descending, keep, values, places), reply, sorted);

/// `{values | nil, places | nil}` of a tensor `{ref, type, shape}`, the first `keep` along the axis: `values` is a boolean,
/// `places` a type or nil.
fn sorted(
    tensor: Term,
    axis: Term,
    descending: Term,
    keep: Term,
    values: Term,
    places: Term,
    blocking: Blocking,
) -> Attempt<(Option<BufferRef>, Option<BufferRef>)> {
    let tensor = tensor_arg(tensor, "tensor")?;
    let places = if is_nil(places) { None } else { Some(type_arg(places, "places")?) };
    let sort = Sort {
        rows: tensor.along(axis)?,
        bits: tensor.ty.bits(),
        descending: bool_arg(descending, "descending")?,
        keep: size_arg(keep, "keep")?,
        values: bool_arg(values, "values")?,
        places,
    };
    let sorted = sort::run(&context(blocking)?, &sort)?;
    Ok((sorted.values.map(BufferRef::from), sorted.places.map(BufferRef::from)))
}
