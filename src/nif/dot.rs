//! Products of tensors.

use rustler::Term;

use super::epilogue::{ContractionRefs, run_contraction};
use super::*;
use crate::graph::Operand;
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
) -> Attempt<ContractionRefs> {
    let env = out_type.get_env();
    let [(buffer_a, ty_a, shape_a), (buffer_b, ty_b, shape_b)] = [tensor_terms(a, "a")?, tensor_terms(b, "b")?];
    let [buffer_a, buffer_b] = [buffer_arg(buffer_a, "a")?, buffer_arg(buffer_b, "b")?];
    let key = [atoms::dot().to_term(env), ty_a, shape_a, contract_a, batch_a, ty_b, shape_b, contract_b, batch_b];
    let allocations = [buffer_a.allocation()?, buffer_b.allocation()?];
    let operands = [Operand::Buffer(&allocations[0], buffer_a.len()), Operand::Buffer(&allocations[1], buffer_b.len())];
    run_contraction(out_type, &key, &operands, None, blocking, |cx, ty, epilogue| {
        let a = TensorArg::of(buffer_a, ty_a, shape_a, "a")?;
        let b = TensorArg::of(buffer_b, ty_b, shape_b, "b")?;
        let a_axes = (indices_arg(contract_a, "contract_a")?, indices_arg(batch_a, "batch_a")?);
        let b_axes = (indices_arg(contract_b, "contract_b")?, indices_arg(batch_b, "batch_b")?);
        let a = Factor { tensor: a.tensor(), contract: a_axes.0, batch: a_axes.1 };
        let b = Factor { tensor: b.tensor(), contract: b_axes.0, batch: b_axes.1 };
        dot::contraction(ty, &a, &b)?.run(cx, epilogue)
    })
}
