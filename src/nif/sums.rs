//! Several sums of the same axes in one kernel.

use rustler::Term;

use super::graphs::KeyTerms;
use super::program::{input_key, input_operands, input_terms, operands, program_arg};
use super::*;
use crate::graph::Context;
use crate::kernels::fusion;
use crate::memory::Blocking;

mod names {
    rustler::atoms! { sums }
}

pair!(run_sums, run_sums_dirty, (nodes, inputs, shape, device), reply, run);

/// `nodes` is `{nodes, count}`: the nodes of a program, the last `count` of which are the sums. The answer is a tuple of references to the
/// sums. `device` is the one that a program without buffers runs on.
fn run<'a>(
    nodes: Term<'a>,
    inputs: Term<'a>,
    shape: Term<'a>,
    device: Term<'a>,
    blocking: Blocking,
) -> Attempt<BufferRefs> {
    let (list, count): (Term, Term) = nodes.decode().map_err(|_| wrong("nodes", "{nodes, count}"))?;
    let count = size_arg(count, "count")? as usize;
    let given = input_terms(inputs)?;
    let input_operands = input_operands(&given)?;
    let operands = operands(&input_operands, 0);
    let call = |cx: &Context| fusion::run_sums(cx, &program_arg(list, &given, shape)?, count, &operands);
    let env = nodes.get_env();
    let mut key = KeyTerms::from_slice(&[names::sums().to_term(env), nodes, shape]);
    input_key(&mut key, &given, shape);
    let buffers = graphs::run_list(env, device_arg(device)?, key, &operands, blocking, count, call)?;
    Ok(buffers.into())
}
