//! Linear algebra on batches of matrices, `{ref, type, shape}` each.

use rustler::{Encoder, Term};
use smallvec::SmallVec;

use super::graphs::KeyTerms;
use super::*;
use crate::graph::{Context, Operand};
use crate::kernels::linalg::{Matrices, cholesky, eigh, lu, qr, svd, triangular};
use crate::memory::{Blocking, Buffer};

mod names {
    rustler::atoms! { triangular_solve, cholesky, lu, qr, eigh, svd }
}

pair!(triangular_solve, triangular_solve_dirty, (out_type, a, b, permutation, options), reply, solve);
pair!(cholesky, cholesky_dirty, (out_type, a), reply, cholesky_factor);
pair!(lu, lu_dirty, (out_type, a), reply, lu_factors);
pair!(qr, qr_dirty, (out_type, a, complete, eps), reply, qr_factors);
pair!(eigh, eigh_dirty, (out_type, a, eps), reply, eigen);
pair!(svd, svd_dirty, (out_type, a, full), reply, singular);

fn solve<'a>(
    out_type: Term<'a>,
    a: Term<'a>,
    b: Term<'a>,
    permutation: Term<'a>,
    options: Term<'a>,
    blocking: Blocking,
) -> Attempt<BufferRef> {
    let env = out_type.get_env();
    let [(buffer_a, ty_a, shape_a), (buffer_b, ty_b, shape_b)] = [tensor_terms(a, "a")?, tensor_terms(b, "b")?];
    let [buffer_a, buffer_b] = [buffer_arg(buffer_a, "a")?, buffer_arg(buffer_b, "b")?];
    let order = if is_nil(permutation) { None } else { Some(buffer_arg(permutation, "permutation")?) };
    let allocations = (buffer_a.allocation()?, buffer_b.allocation()?, order.map(Buffer::allocation).transpose()?);
    let mut operands: SmallVec<[Operand; 3]> = SmallVec::new();
    operands.push(Operand::Buffer(&allocations.0, buffer_a.len()));
    operands.push(Operand::Buffer(&allocations.1, buffer_b.len()));
    operands
        .extend(allocations.2.iter().zip(order).map(|(allocation, buffer)| Operand::Buffer(allocation, buffer.len())));
    let call = |cx: &Context| {
        let ty = type_arg(out_type, "out_type")?;
        let a = TensorArg::of(buffer_a, ty_a, shape_a, "a")?;
        let b = TensorArg::of(buffer_b, ty_b, shape_b, "b")?;
        let [a, b] = [Matrices::of(a.tensor())?, Matrices::of(b.tensor())?];
        Ok([triangular::run(cx, ty, &a, &b, order, options_arg(options)?)?])
    };
    let name = names::triangular_solve().to_term(env);
    let key = [name, out_type, ty_a, shape_a, ty_b, shape_b, order.is_some().encode(env), options];
    graphs::run(env, KeyTerms::from_slice(&key), &operands, blocking, call).map(|[buffer]| buffer.into())
}

fn cholesky_factor<'a>(out_type: Term<'a>, a: Term<'a>, blocking: Blocking) -> Attempt<BufferRef> {
    let key = [names::cholesky().to_term(out_type.get_env()), out_type];
    let call = |cx: &Context, a: &Matrices| Ok([cholesky::run(cx, type_arg(out_type, "out_type")?, a)?]);
    run(&key, a, blocking, call).map(|[factor]| factor.into())
}

/// `{packed, type, permutation}`, with the type of what is packed.
fn lu_factors<'a>(out_type: Term<'a>, a: Term<'a>, blocking: Blocking) -> Attempt<(BufferRef, Term<'a>, BufferRef)> {
    let env = out_type.get_env();
    let ty = lu::packed_type(type_arg(out_type, "out_type")?)?;
    let call = |cx: &Context, a: &Matrices| lu::run(cx, ty, a);
    let [packed, permutation] = run(&[names::lu().to_term(env), out_type], a, blocking, call)?;
    Ok((packed.into(), type_term(env, ty)?, permutation.into()))
}

fn qr_factors<'a>(
    out_type: Term<'a>,
    a: Term<'a>,
    complete: Term<'a>,
    eps: Term<'a>,
    blocking: Blocking,
) -> Attempt<(BufferRef, BufferRef)> {
    let key = [names::qr().to_term(out_type.get_env()), out_type, complete, eps];
    let call = |cx: &Context, a: &Matrices| {
        let ty = type_arg(out_type, "out_type")?;
        qr::run(cx, ty, a, bool_arg(complete, "complete")?, eps_arg(eps)?)
    };
    run(&key, a, blocking, call).map(|[q, r]| (q.into(), r.into()))
}

fn eigen<'a>(out_type: Term<'a>, a: Term<'a>, eps: Term<'a>, blocking: Blocking) -> Attempt<(BufferRef, BufferRef)> {
    let key = [names::eigh().to_term(out_type.get_env()), out_type, eps];
    let call = |cx: &Context, a: &Matrices| eigh::run(cx, type_arg(out_type, "out_type")?, a, eps_arg(eps)?);
    run(&key, a, blocking, call).map(|[values, vectors]| (values.into(), vectors.into()))
}

fn singular<'a>(
    out_type: Term<'a>,
    a: Term<'a>,
    full: Term<'a>,
    blocking: Blocking,
) -> Attempt<(BufferRef, BufferRef, BufferRef)> {
    let key = [names::svd().to_term(out_type.get_env()), out_type, full];
    let call = |cx: &Context, a: &Matrices| svd::run(cx, type_arg(out_type, "out_type")?, a, bool_arg(full, "full")?);
    run(&key, a, blocking, call).map(|[u, s, vt]| (u.into(), s.into(), vt.into()))
}

/// The results of a call on the matrices in a tensor `{ref, type, shape}`; `key` are its name and its other arguments.
fn run<'a, const N: usize>(
    key: &[Term<'a>],
    a: Term<'a>,
    blocking: Blocking,
    call: impl FnOnce(&Context, &Matrices) -> Attempt<[Buffer; N]>,
) -> Attempt<[Buffer; N]> {
    let (buffer, ty, shape) = tensor_terms(a, "a")?;
    let buffer = buffer_arg(buffer, "a")?;
    let allocation = buffer.allocation()?;
    let mut terms = KeyTerms::from_slice(key);
    terms.extend([ty, shape]);
    graphs::run(a.get_env(), terms, &[Operand::Buffer(&allocation, buffer.len())], blocking, |cx| {
        call(cx, &Matrices::of(TensorArg::of(buffer, ty, shape, "a")?.tensor())?)
    })
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
