//! Discrete Fourier transforms.

use rustler::{Atom, Term};

use super::graphs::KeyTerms;
use super::*;
use crate::graph::{Context, Operand};
use crate::kernels::fourier::{self, Transform};
use crate::memory::Blocking;

mod names {
    rustler::atoms! { fourier }
}

pair!(fft, fft_dirty, (kind, out_type, tensor, axis, length, eps), reply, transform);

fn transform<'a>(
    kind: Term<'a>,
    out_type: Term<'a>,
    tensor: Term<'a>,
    axis: Term<'a>,
    length: Term<'a>,
    eps: Term<'a>,
    blocking: Blocking,
) -> Attempt<BufferRef> {
    let env = kind.get_env();
    let (buffer, ty, shape) = tensor_terms(tensor, "tensor")?;
    let buffer = buffer_arg(buffer, "tensor")?;
    let allocation = buffer.allocation()?;
    let call = |cx: &Context| {
        let tensor = TensorArg::of(buffer, ty, shape, "tensor")?;
        let (kind, out) = (kind_arg(kind)?, type_arg(out_type, "out_type")?);
        let (length, eps) = (size_arg(length, "length")?, float_arg(eps, "eps")?);
        Ok([fourier::run(cx, kind, out, &tensor.along(axis)?, length, eps)?])
    };
    let key = [names::fourier().to_term(env), kind, out_type, ty, shape, axis, length, eps];
    let operands = [Operand::Buffer(&allocation, buffer.len())];
    graphs::run(env, KeyTerms::from_slice(&key), &operands, blocking, call).map(|[buffer]| buffer.into())
}

fn kind_arg(term: Term) -> Result<Transform> {
    let kind: Atom = term.decode().map_err(|_| wrong("kind", "an atom"))?;
    match kind {
        kind if kind == atoms::fft() => Ok(Transform::Fft),
        kind if kind == atoms::ifft() => Ok(Transform::Ifft),
        kind if kind == atoms::rfft() => Ok(Transform::Rfft),
        kind if kind == atoms::irfft() => Ok(Transform::Irfft),
        _ => Err(wrong("kind", ":fft, :ifft, :rfft or :irfft")),
    }
}
