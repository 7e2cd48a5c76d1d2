//! Discrete Fourier transforms.

use rustler::{Atom, Term};

use super::*;
use crate::kernels::fourier::{self, Transform};
use crate::memory::Blocking;

pair!(fft, fft_dirty, (kind, out_type, tensor, axis, length, eps), reply, transform);

fn transform(
    kind: Term,
    out_type: Term,
    tensor: Term,
    axis: Term,
    length: Term,
    eps: Term,
    blocking: Blocking,
) -> Attempt<BufferRef> {
    let kind = kind_arg(kind)?;
    let out = type_arg(out_type, "out_type")?;
    let tensor = tensor_arg(tensor, "tensor")?;
    let rows = tensor.along(axis)?;
    let length = size_arg(length, "length")?;
    let eps = float_arg(eps, "eps")?;
    fourier::run(&context(blocking)?, kind, out, &rows, length, eps).map(BufferRef::from)
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
