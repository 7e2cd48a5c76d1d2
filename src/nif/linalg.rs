//! Linear algebra on batches of matrices, `{ref, type, shape}` each.

use rustler::Term;

use super::*;
use crate::kernels::linalg::{Matrices, cholesky, eigh, lu, qr, svd, triangular};
use crate::memory::Blocking;

pair!(triangular_solve, triangular_solve_dirty, (out_type, a, b, permutation, options), reply, solve);
pair!(cholesky, cholesky_dirty, (out_type, a), reply, cholesky_factor);
pair!(lu, lu_dirty, (out_type, a), reply, lu_factors);
pair!(qr, qr_dirty, (out_type, a, complete, eps), reply, qr_factors);
pair!(eigh, eigh_dirty, (out_type, a, eps), reply, eigen);
pair!(svd, svd_dirty, (out_type, a, full), reply, singular);

fn solve(out_type: Term, a: Term, b: Term, permutation: Term, options: Term, blocking: Blocking) -> Attempt<BufferRef> {
    let ty = type_arg(out_type, "out_type")?;
    let permutation = if is_nil(permutation) { None } else { Some(buffer_arg(permutation, "permutation")?) };
    let options = options_arg(options)?;
    matrices_arg(a, "a", |a| {
        matrices_arg(b, "b", |b| triangular::run(&context(blocking)?, ty, a, b, permutation, options))
    })
    .map(BufferRef::from)
}

fn cholesky_factor(out_type: Term, a: Term, blocking: Blocking) -> Attempt<BufferRef> {
    let ty = type_arg(out_type, "out_type")?;
    matrices_arg(a, "a", |a| cholesky::run(&context(blocking)?, ty, a)).map(BufferRef::from)
}

/// `{packed, type, permutation}`, with the type of what is packed.
fn lu_factors<'a>(out_type: Term<'a>, a: Term<'a>, blocking: Blocking) -> Attempt<(BufferRef, Term<'a>, BufferRef)> {
    let ty = type_arg(out_type, "out_type")?;
    let factors = matrices_arg(a, "a", |a| lu::run(&context(blocking)?, ty, a))?;
    Ok((factors.packed.into(), type_term(out_type.get_env(), factors.ty)?, factors.permutation.into()))
}

fn qr_factors(
    out_type: Term,
    a: Term,
    complete: Term,
    eps: Term,
    blocking: Blocking,
) -> Attempt<(BufferRef, BufferRef)> {
    let ty = type_arg(out_type, "out_type")?;
    let (complete, eps) = (bool_arg(complete, "complete")?, eps_arg(eps)?);
    let (q, r) = matrices_arg(a, "a", |a| qr::run(&context(blocking)?, ty, a, complete, eps))?;
    Ok((q.into(), r.into()))
}

fn eigen(out_type: Term, a: Term, eps: Term, blocking: Blocking) -> Attempt<(BufferRef, BufferRef)> {
    let (ty, eps) = (type_arg(out_type, "out_type")?, eps_arg(eps)?);
    let (values, vectors) = matrices_arg(a, "a", |a| eigh::run(&context(blocking)?, ty, a, eps))?;
    Ok((values.into(), vectors.into()))
}

fn singular(out_type: Term, a: Term, full: Term, blocking: Blocking) -> Attempt<(BufferRef, BufferRef, BufferRef)> {
    let (ty, full) = (type_arg(out_type, "out_type")?, bool_arg(full, "full")?);
    let (u, s, vt) = matrices_arg(a, "a", |a| svd::run(&context(blocking)?, ty, a, full))?;
    Ok((u.into(), s.into(), vt.into()))
}

/// What `run` makes of the matrices in a tensor `{ref, type, shape}`.
fn matrices_arg<T>(term: Term, name: &str, run: impl FnOnce(&Matrices) -> Attempt<T>) -> Attempt<T> {
    run(&Matrices::of(tensor_arg(term, name)?.tensor())?)
}

/// A magnitude below which results become zero.
fn eps_arg(term: Term) -> Result<f32> {
    let eps = float_arg(term, "eps")?;
    if eps >= 0.0 { Ok(eps as f32) } else { Err(wrong("eps", "a float of at least zero")) }
}

/// A list of `:upper`, `:right`, `:transpose`, `:conjugate` and `:unit`.
fn options_arg(term: Term) -> Result<triangular::TriangularOptions> {
    let mut options = triangular::TriangularOptions::default();
    for option in list_arg(term, "options")? {
        let name = option.atom_to_string().map_err(|_| wrong("options", "atoms"))?;
        let flag = match name.as_str() {
            "upper" => &mut options.upper,
            "right" => &mut options.right,
            "transpose" => &mut options.transpose,
            "conjugate" => &mut options.conjugate,
            "unit" => &mut options.unit,
            _ => return Err(wrong("options", ":upper, :right, :transpose, :conjugate or :unit")),
        };
        *flag = true;
    }
    Ok(options)
}
