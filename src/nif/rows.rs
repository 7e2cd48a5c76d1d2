//! Row programs: several results of one kernel.

use rustler::Term;

use super::graphs::KeyTerms;
use super::program::{InputOperands, InputTerms, input_key, input_operands, input_terms, operands, program_arg};
use super::*;
use crate::graph::Context;
use crate::kernels::fusion;
use crate::memory::Blocking;
use crate::program::rows::{RowOutput, RowProgram};

mod names {
    rustler::atoms! { rows }
}

pair!(run_rows, run_rows_dirty, (nodes, inputs, shape, device), reply, run);

/// The terms of a row program. `nodes` is `{nodes, row_axes, outputs}`: the nodes of a program, the number of its last axes that make a row, and
/// for each result `{index, of_element}`: its index among inputs and nodes, and whether it has a value for each element, else one for each row.
pub(super) struct RowTerms<'a> {
    nodes: Term<'a>,
    shape: Term<'a>,
    inputs: SmallVec<[InputTerms<'a>; 4]>,
    list: Term<'a>,
    row_axes: Term<'a>,
    outputs: Vec<RowOutput>,
}

impl<'a> RowTerms<'a> {
    pub fn new(nodes: Term<'a>, inputs: Term<'a>, shape: Term<'a>) -> Result<Self> {
        let invalid = || wrong("nodes", "{nodes, row_axes, outputs}");
        let (list, row_axes, outputs): (Term, Term, Term) = nodes.decode().map_err(|_| invalid())?;
        let outputs = list_arg(outputs, "outputs")?.map(output_arg).collect::<Result<_>>()?;
        Ok(Self { nodes, shape, inputs: input_terms(inputs)?, list, row_axes, outputs })
    }

    /// What the inputs read.
    pub fn operands(&self) -> Result<InputOperands> {
        input_operands(&self.inputs)
    }

    pub fn key(&self, key: &mut KeyTerms<'a>) {
        key.extend([names::rows().to_term(self.nodes.get_env()), self.nodes, self.shape]);
        input_key(key, &self.inputs, self.shape);
    }

    pub fn program(&self) -> Result<RowProgram> {
        let program = program_arg(self.list, &self.inputs, self.shape)?;
        let row_axes = size_arg(self.row_axes, "row_axes")? as usize;
        Ok(RowProgram { program, row_axes, outputs: self.outputs.clone(), summed: None })
    }
}

fn output_arg(term: Term) -> Result<RowOutput> {
    let (value, of_element): (Term, Term) = term.decode().map_err(|_| wrong("outputs", "{index, of_element}"))?;
    Ok(RowOutput { value: size_arg(value, "outputs")? as usize, of_element: bool_arg(of_element, "outputs")? })
}

/// The answer is a tuple of references; see [`RowTerms`] for the arguments. `device` is the one that a program without buffers runs on.
fn run<'a>(
    nodes: Term<'a>,
    inputs: Term<'a>,
    shape: Term<'a>,
    device: Term<'a>,
    blocking: Blocking,
) -> Attempt<BufferRefs> {
    let terms = RowTerms::new(nodes, inputs, shape)?;
    let input_operands = terms.operands()?;
    let operands = operands(&input_operands, 0);
    let call = |cx: &Context| fusion::run_rows(cx, &terms.program()?, &operands);
    let env = nodes.get_env();
    let mut key = KeyTerms::new();
    terms.key(&mut key);
    let buffers = graphs::run_list(env, device_arg(device)?, key, &operands, blocking, terms.outputs.len(), call)?;
    Ok(buffers.into())
}
