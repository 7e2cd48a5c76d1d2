//! The raw calls of `Nx.Vulkan.NativeV`, which run any SPIR-V of the project's binding layout.

use rustler::{Encoder, Env, NifResult, Term};

use super::*;
use crate::kernels::user_spirv::Call;
use crate::memory::Blocking;

pair!(apply_binary, apply_binary_dirty, (out, a, b, n, op_code, spv_path), reply_ok, binary_op);
pair!(apply_unary, apply_unary_dirty, (out, a, n, op_code, spv_path), reply_ok, unary_op);
pair!(reduce_axis, reduce_axis_dirty, (out, a, outer, reduce_size, inner, op_code, spv_path), reply_ok, reduce);
pair!(matmul, matmul_dirty, (out, a, b, m, n, k, spv_path), reply_ok, multiply);
pair!(transpose_2d, transpose_2d_dirty, (out, a, m, n, spv_path), reply_ok, transpose);
pair!(
    leapfrog_chain_normal,
    leapfrog_chain_normal_dirty,
    (q, p, inv_mass, k, eps, mu, sigma, spv_path),
    reply,
    normal_chain
);

/// Op codes go from 0 to these.
const LAST_BINARY: i64 = 6;
const LAST_UNARY: i64 = 14;
const LAST_REDUCTION: i64 = 2;

fn binary_op(out: Term, a: Term, b: Term, n: Term, op: Term, path: Term, blocking: Blocking) -> Attempt<()> {
    let (out, a, b) = (buffer_arg(out, "out")?, buffer_arg(a, "a")?, buffer_arg(b, "b")?);
    let (n, op, path) = (size_arg(n, "n")?, op_code_arg(op, LAST_BINARY)?, text_arg(path, "spv_path")?);
    Call::new(gpu_of_buffers(&[out, a, b], blocking)?, path, blocking).elementwise(out, &[a, b], n, op)
}

fn unary_op(out: Term, a: Term, n: Term, op: Term, path: Term, blocking: Blocking) -> Attempt<()> {
    let (out, a) = (buffer_arg(out, "out")?, buffer_arg(a, "a")?);
    let (n, op, path) = (size_arg(n, "n")?, op_code_arg(op, LAST_UNARY)?, text_arg(path, "spv_path")?);
    Call::new(gpu_of_buffers(&[out, a], blocking)?, path, blocking).elementwise(out, &[a], n, op)
}

#[allow(clippy::too_many_arguments, reason = "the arguments of the NIF, in its order")]
fn reduce(
    out: Term,
    a: Term,
    outer: Term,
    reduce_size: Term,
    inner: Term,
    op: Term,
    path: Term,
    blocking: Blocking,
) -> Attempt<()> {
    let (out, a) = (buffer_arg(out, "out")?, buffer_arg(a, "a")?);
    let (outer, reduce) = (size_arg(outer, "outer")?, size_arg(reduce_size, "reduce_size")?);
    let (inner, op) = (size_arg(inner, "inner")?, op_code_arg(op, LAST_REDUCTION)?);
    let gpu = gpu_of_buffers(&[out, a], blocking)?;
    Call::new(gpu, text_arg(path, "spv_path")?, blocking).reduce(out, a, outer, reduce, inner, op)
}

#[allow(clippy::too_many_arguments, reason = "the arguments of the NIF, in its order")]
fn multiply(out: Term, a: Term, b: Term, m: Term, n: Term, k: Term, path: Term, blocking: Blocking) -> Attempt<()> {
    let (out, a, b) = (buffer_arg(out, "out")?, buffer_arg(a, "a")?, buffer_arg(b, "b")?);
    let (m, n, k) = (size_arg(m, "m")?, size_arg(n, "n")?, size_arg(k, "k")?);
    let gpu = gpu_of_buffers(&[out, a, b], blocking)?;
    Call::new(gpu, text_arg(path, "spv_path")?, blocking).matmul(out, a, b, m, n, k)
}

fn transpose(out: Term, a: Term, m: Term, n: Term, path: Term, blocking: Blocking) -> Attempt<()> {
    let (out, a) = (buffer_arg(out, "out")?, buffer_arg(a, "a")?);
    let (m, n, path) = (size_arg(m, "m")?, size_arg(n, "n")?, text_arg(path, "spv_path")?);
    Call::new(gpu_of_buffers(&[out, a], blocking)?, path, blocking).transpose(out, a, m, n)
}

/// `doubles`: whether the file's elements are f64 whatever its name. `batch`: whether push says how many chains there are.
#[allow(clippy::too_many_arguments, reason = "a NIF takes what its caller gives")]
#[rustler::nif(schedule = "DirtyCpu")]
fn leapfrog_chain_synth<'a>(
    env: Env<'a>,
    q_init: Term<'a>,
    p_init: Term<'a>,
    extras: Term<'a>,
    push: Term<'a>,
    k: Term<'a>,
    spv_path: Term<'a>,
    doubles: Term<'a>,
    batch: Term<'a>,
) -> NifResult<Term<'a>> {
    let chain = || -> Attempt<Term> {
        let (q, p) = (bytes_arg(q_init, "q_init")?, bytes_arg(p_init, "p_init")?);
        let (extras, push) = (bytes_arg(extras, "extras")?, bytes_arg(push, "push")?);
        let (k, path) = (size_arg(k, "k")?, text_arg(spv_path, "spv_path")?);
        let (doubles, batch) = (bool_arg(doubles, "doubles")?, bool_arg(batch, "batch")?);
        let call = Call::new(gpu_at(None, Blocking::Allowed)?, path, Blocking::Allowed);
        let call = if doubles { call.of_doubles() } else { call };
        let [q, p, gradient, logp] = call.leapfrog([&q, &p, &extras], &push, k, batch)?;
        let binary = |readback| buffer::binary(env, readback);
        Ok((binary(q)?, binary(p)?, binary(gradient)?, binary(logp)?).encode(env))
    };
    reply(env, chain())
}

/// A chain of `shaders/leapfrog_normal.comp`, from buffers to buffers.
#[allow(clippy::too_many_arguments, reason = "the arguments of the NIF, in its order")]
fn normal_chain(
    q: Term,
    p: Term,
    inverse_mass: Term,
    k: Term,
    eps: Term,
    mu: Term,
    sigma: Term,
    path: Term,
    blocking: Blocking,
) -> Attempt<(BufferRef, BufferRef, BufferRef, BufferRef)> {
    let inputs = [buffer_arg(q, "q")?, buffer_arg(p, "p")?, buffer_arg(inverse_mass, "inv_mass")?];
    let (k, path) = (size_arg(k, "k")?, text_arg(path, "spv_path")?);
    let floats = [number_arg(eps, "eps")?, number_arg(mu, "mu")?, number_arg(sigma, "sigma")?];
    let call = Call::new(gpu_of_buffers(&inputs, blocking)?, path, blocking);
    let chain = call.normal_chain(inputs, k, floats)?;
    let [q, p, gradient, logp] = chain.map(BufferRef::from);
    Ok((q, p, gradient, logp))
}

/// An op code between 0 and `last`.
fn op_code_arg(term: Term, last: i64) -> Result<i32> {
    let value: i64 = term.decode().map_err(|_| wrong("op_code", "an integer"))?;
    if (0..=last).contains(&value) { Ok(value as i32) } else { Err(Error::BadOp) }
}
