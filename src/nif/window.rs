//! Windows.

use rustler::{Atom, Term};

use super::graphs::KeyTerms;
use super::*;
use crate::graph::{Context, Operand};
use crate::kernels::window::{self, WindowAxis, WindowScatter};
use crate::memory::Blocking;

mod names {
    rustler::atoms! { window_scatter }
}

pair!(
    window_scatter,
    window_scatter_dirty,
    (op, out_type, tensor, source, init, window, strides, padding),
    reply,
    scatter
);

/// `Nx.window_scatter_max/5` and `Nx.window_scatter_min/5`, which `op` names.
#[allow(clippy::too_many_arguments, reason = "the arguments of the NIF, in its order")]
fn scatter<'a>(
    op: Term<'a>,
    out_type: Term<'a>,
    tensor: Term<'a>,
    source: Term<'a>,
    init: Term<'a>,
    window: Term<'a>,
    strides: Term<'a>,
    padding: Term<'a>,
    blocking: Blocking,
) -> Attempt<BufferRef> {
    let env = out_type.get_env();
    let [tensor, source, init] =
        [tensor_terms(tensor, "tensor")?, tensor_terms(source, "source")?, tensor_terms(init, "init")?];
    let buffers = [buffer_arg(tensor.0, "tensor")?, buffer_arg(source.0, "source")?, buffer_arg(init.0, "init")?];
    let allocations = [buffers[0].allocation()?, buffers[1].allocation()?, buffers[2].allocation()?];
    let operands = [0, 1, 2].map(|i| Operand::Buffer(&allocations[i], buffers[i].len()));
    let call = |cx: &Context| {
        let max = is_max(op)?;
        let ty = type_arg(out_type, "out_type")?;
        let tensor = TensorArg::of(buffers[0], tensor.1, tensor.2, "tensor")?;
        let source = TensorArg::of(buffers[1], source.1, source.2, "source")?;
        let init = TensorArg::of(buffers[2], init.1, init.2, "init")?;
        let axes = axes_arg(&tensor.shape, window, strides, padding)?;
        let [tensor, source, init] = [&tensor, &source, &init].map(TensorArg::tensor);
        Ok([window::scatter(cx, &WindowScatter { max, ty, tensor, source, init, axes })?])
    };
    let mut key = KeyTerms::from_slice(&[names::window_scatter().to_term(env), op, out_type, window, strides, padding]);
    [tensor, source, init].iter().for_each(|(_, ty, shape)| key.extend([*ty, *shape]));
    graphs::run(env, key, &operands, blocking, call).map(|[buffer]| buffer.into())
}

fn is_max(op: Term) -> Result<bool> {
    let op: Atom = op.decode().map_err(|_| wrong("op", "an atom"))?;
    let max = op == atoms::window_scatter_max();
    if !max && op != atoms::window_scatter_min() {
        return Err(wrong("op", ":window_scatter_max or :window_scatter_min"));
    }
    Ok(max)
}

/// The windows along each axis of a shape.
fn axes_arg(shape: &[u64], window: Term, strides: Term, padding: Term) -> Result<Vec<WindowAxis>> {
    let window = shape_arg(window, "window")?;
    let strides =
        list_arg(strides, "strides")?.map(|stride| size_arg(stride, "strides")).collect::<Result<Vec<_>>>()?;
    let padding = list_arg(padding, "padding")?
        .map(|edges| match tuple_arg(edges, "padding")?[..] {
            [low, high] => Ok((step_arg(low, "padding")?, step_arg(high, "padding")?)),
            _ => Err(wrong("padding", "a list of {low, high}")),
        })
        .collect::<Result<Vec<_>>>()?;
    if [window.len(), strides.len(), padding.len()] != [shape.len(); 3] {
        return Err(wrong("window", "one extent, stride and padding for each axis"));
    }
    let axis = |a: usize| {
        let (low, high) = padding[a];
        WindowAxis::new(shape[a], window[a], strides[a], low, high).ok_or(Error::SizeMismatch)
    };
    (0..shape.len()).map(axis).collect()
}
