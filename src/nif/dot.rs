//! Products of tensors.

use rustler::Term;

use super::contract::run_on_pair;
use super::*;
use crate::graph::Context;
use crate::kernels::dot::{self, Factor};
use crate::memory::Blocking;

pair!(dot, dot_dirty, (out_type, a, contract_a, batch_a, b, contract_b, batch_b), reply, product);

#[allow(clippy::too_many_arguments, reason = "the arguments of the NIF, in its order")]
fn product<'a>(
    out_type: Term<'a>,
    a: Term<'a>,
    contract_a: Term<'a>,
    batch_a: Term<'a>,
    b: Term<'a>,
    contract_b: Term<'a>,
    batch_b: Term<'a>,
    blocking: Blocking,
) -> Attempt<BufferRef> {
    let env = out_type.get_env();
    let [(buffer_a, ty_a, shape_a), (buffer_b, ty_b, shape_b)] = [tensor_terms(a, "a")?, tensor_terms(b, "b")?];
    let [buffer_a, buffer_b] = [buffer_arg(buffer_a, "a")?, buffer_arg(buffer_b, "b")?];
    let call = |cx: &Context| {
        let ty = type_arg(out_type, "out_type")?;
        let a = TensorArg::of(buffer_a, ty_a, shape_a, "a")?;
        let b = TensorArg::of(buffer_b, ty_b, shape_b, "b")?;
        let a_axes = (indices_arg(contract_a, "contract_a")?, indices_arg(batch_a, "batch_a")?);
        let b_axes = (indices_arg(contract_b, "contract_b")?, indices_arg(batch_b, "batch_b")?);
        let a = Factor { tensor: a.tensor(), contract: a_axes.0, batch: a_axes.1 };
        let b = Factor { tensor: b.tensor(), contract: b_axes.0, batch: b_axes.1 };
        Ok([dot::run(cx, ty, &a, &b)?])
    };
    let dot = atoms::dot().to_term(env);
    let parts = [dot, out_type, ty_a, shape_a, contract_a, batch_a, ty_b, shape_b, contract_b, batch_b];
    run_on_pair(env, &parts, [buffer_a, buffer_b], blocking, call)
}
