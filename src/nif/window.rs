//! Windows.

use rustler::{Atom, Term};

use super::*;
use crate::kernels::window::{self, Axis, Scatter};
use crate::memory::Blocking;

pair!(
    window_scatter,
    window_scatter_dirty,
    (op, out_type, tensor, source, init, window, strides, padding),
    reply,
    scatter
);

/// `Nx.window_scatter_max/5` and `Nx.window_scatter_min/5`, which `op` names.
#[allow(clippy::too_many_arguments, reason = "the arguments of the NIF, in its order")]
fn scatter(
    op: Term,
    out_type: Term,
    tensor: Term,
    source: Term,
    init: Term,
    window: Term,
    strides: Term,
    padding: Term,
    blocking: Blocking,
) -> Attempt<BufferRef> {
    let op: Atom = op.decode().map_err(|_| wrong("op", "an atom"))?;
    let max = op == atoms::window_scatter_max();
    if !max && op != atoms::window_scatter_min() {
        return Err(wrong("op", ":window_scatter_max or :window_scatter_min").into());
    }
    let ty = type_arg(out_type, "out_type")?;
    let (tensor, source, init) =
        (tensor_arg(tensor, "tensor")?, tensor_arg(source, "source")?, tensor_arg(init, "init")?);
    let window = shape_arg(window, "window")?;
    let strides =
        list_arg(strides, "strides")?.map(|stride| size_arg(stride, "strides")).collect::<Result<Vec<_>>>()?;
    let padding = list_arg(padding, "padding")?
        .map(|edges| match tuple_arg(edges, "padding")?[..] {
            [low, high] => Ok((step_arg(low, "padding")?, step_arg(high, "padding")?)),
            _ => Err(wrong("padding", "a list of {low, high}")),
        })
        .collect::<Result<Vec<_>>>()?;
    let rank = tensor.shape.len();
    if [window.len(), strides.len(), padding.len()] != [rank; 3] {
        return Err(wrong("window", "one extent, stride and padding for each axis").into());
    }
    let axes = (0..rank).map(|a| {
        let (low, high) = padding[a];
        Axis::new(tensor.shape[a], window[a], strides[a], low, high).ok_or(Error::SizeMismatch)
    });
    let scatter = Scatter {
        max,
        ty,
        tensor: tensor.tensor(),
        source: source.tensor(),
        init: init.tensor(),
        axes: axes.collect::<Result<_>>()?,
    };
    window::scatter(&context(blocking)?, &scatter).map(BufferRef::from)
}
