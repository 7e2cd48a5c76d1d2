//! Row programs: several results of one kernel.

use rustler::Term;

use super::graphs::KeyTerms;
use super::program::{input_key, input_operands, input_terms, operands, program_arg};
use super::*;
use crate::graph::Context;
use crate::kernels::fusion;
use crate::memory::Blocking;
use crate::program::rows::RowProgram;

mod names {
    rustler::atoms! { rows }
}

pair!(run_rows, run_rows_dirty, (nodes, inputs, shape, device), reply, run);

/// `nodes` is `{nodes, row_axes, outputs}`: the nodes of a program, the number of its last axes that make a row, and the indices among inputs
/// and nodes of the values that are results. The answer is a tuple of references. `device` is the one that a program
/// without buffers runs on.
fn run<'a>(
    nodes: Term<'a>,
    inputs: Term<'a>,
    shape: Term<'a>,
    device: Term<'a>,
    blocking: Blocking,
) -> Attempt<BufferRefs> {
    let invalid = || wrong("nodes", "{nodes, row_axes, outputs}");
    let (list, row_axes, outputs): (Term, Term, Term) = nodes.decode().map_err(|_| invalid())?;
    let outputs: Vec<usize> = indices_arg(outputs, "outputs")?;
    let given = input_terms(inputs)?;
    let input_operands = input_operands(&given)?;
    let operands = operands(&input_operands, 0);
    let call = |cx: &Context| {
        let program = program_arg(list, &given, shape)?;
        let row_axes = size_arg(row_axes, "row_axes")? as usize;
        fusion::run_rows(cx, &RowProgram { program, row_axes, outputs: outputs.clone() }, &operands)
    };
    let env = nodes.get_env();
    let mut key = KeyTerms::from_slice(&[names::rows().to_term(env), nodes, shape]);
    input_key(&mut key, &given, shape);
    let buffers = graphs::run_list(env, device_arg(device)?, key, &operands, blocking, outputs.len(), call)?;
    Ok(buffers.into())
}
