//! Orthogonal decompositions.

use rustler::Term;

use super::*;
use crate::kernels::decompositions::{eigh, qr, svd};
use crate::kernels::matrices::Matrices;
use crate::memory::Patience;

pair!(qr, qr_dirty, (out_type, a, complete, eps), reply, factor);
pair!(eigh, eigh_dirty, (out_type, a, eps), reply, eigen);
pair!(svd, svd_dirty, (out_type, a, full), reply, singular);

fn factor(out_type: Term, a: Term, complete: Term, eps: Term, patience: Patience) -> Result<(BufferRef, BufferRef)> {
    let ty = type_arg(out_type, "out_type")?;
    let (buffer, a_type, shape) = tensor_arg(a, "a")?;
    let complete = bool_arg(complete, "complete")?;
    let a = Matrices::new(&buffer, a_type, &shape)?;
    let (q, r) = qr::run(gpu(patience)?, ty, &a, complete, eps_arg(eps)?, patience)?;
    Ok((q.into(), r.into()))
}

fn eigen(out_type: Term, a: Term, eps: Term, patience: Patience) -> Result<(BufferRef, BufferRef)> {
    let ty = type_arg(out_type, "out_type")?;
    let (buffer, a_type, shape) = tensor_arg(a, "a")?;
    let a = Matrices::new(&buffer, a_type, &shape)?;
    let (values, vectors) = eigh::run(gpu(patience)?, ty, &a, eps_arg(eps)?, patience)?;
    Ok((values.into(), vectors.into()))
}

fn singular(out_type: Term, a: Term, full: Term, patience: Patience) -> Result<(BufferRef, BufferRef, BufferRef)> {
    let ty = type_arg(out_type, "out_type")?;
    let (buffer, a_type, shape) = tensor_arg(a, "a")?;
    let full = bool_arg(full, "full")?;
    let a = Matrices::new(&buffer, a_type, &shape)?;
    let (u, s, vt) = svd::run(gpu(patience)?, ty, &a, full, patience)?;
    Ok((u.into(), s.into(), vt.into()))
}

/// A magnitude below which results become zero.
fn eps_arg(term: Term) -> Result<f32> {
    let eps = float_arg(term, "eps")?;
    if eps >= 0.0 { Ok(eps as f32) } else { Err(wrong("eps", "a float of at least zero")) }
}
