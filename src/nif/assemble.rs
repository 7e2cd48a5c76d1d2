//! Tensors put together from parts.

use rustler::Term;
use smallvec::SmallVec;

use super::graphs::KeyTerms;
use super::program::{Given, HeldInputs, add_inputs, held_inputs, input_parts, inputs_given, operands};
use super::*;
use crate::graph::Context;
use crate::kernels::assemble::{self, Part};
use crate::memory::Blocking;
use crate::program::{Place, Program, Start, Type};

pair!(assemble, assemble_dirty, (out_type, shape, parts), reply, together);

/// Each of `parts` is `{inputs, shape, offset, strides, starts}`: the first of `inputs` over `shape` goes to that view
/// of the result, moved by `starts`, later parts over earlier ones. Together they must cover it.
fn together<'a>(out_type: Term<'a>, shape: Term<'a>, parts: Term<'a>, blocking: Blocking) -> Attempt<BufferRef> {
    let env = out_type.get_env();
    let mut key = KeyTerms::from_slice(&[atoms::assemble().to_term(env), out_type, shape]);
    let mut given: Vec<PartTerms> = vec![];
    let mut count = 0;
    for part in list_arg(parts, "parts")? {
        blocking.require_for(given.len() as u64)?;
        let [inputs, shape, offset, strides, starts] = tuple_arg(part, "parts")?[..] else {
            return Err(wrong("parts", "{inputs, shape, offset, strides, starts}").into());
        };
        let inputs = inputs_given(inputs)?;
        let held = held_inputs(&inputs)?;
        key.extend([shape, offset, strides, starts]);
        input_parts(&mut key, &inputs, shape);
        given.push(PartTerms { inputs, shape, offset, strides, starts, held, first: count });
        count += given[given.len() - 1].held.len();
    }
    let operands: Vec<_> = given.iter().map(|part| operands(&part.held, part.first)).collect();
    let call = |cx: &Context| {
        let (ty, shape) = (type_arg(out_type, "out_type")?, shape_arg(shape, "shape")?);
        let programs = given.iter().map(|part| part.program(ty)).collect::<Result<Vec<_>>>()?;
        let part = |(program, operands)| Part { program, operands };
        let parts: Vec<Part> = programs.iter().zip(operands.iter().map(|operands| &operands[..])).map(part).collect();
        Ok([assemble::run(cx, ty, &shape, &parts)?])
    };
    graphs::run(env, key, &operands.concat(), blocking, call).map(|[buffer]| buffer.into())
}

/// What a part is, in terms, and its operands, which are the call's from `first` on.
struct PartTerms<'a> {
    inputs: SmallVec<[Given<'a>; 4]>,
    shape: Term<'a>,
    offset: Term<'a>,
    strides: Term<'a>,
    starts: Term<'a>,
    held: HeldInputs,
    first: usize,
}

impl PartTerms<'_> {
    fn program(&self, ty: Type) -> Result<Program> {
        let mut program = Program::over(shape_arg(self.shape, "parts")?);
        add_inputs(&self.inputs, self.shape, &mut program)?;
        program.nodes.push(assemble::copied(ty));
        let starts = list_arg(self.starts, "parts")?.map(start_arg).collect::<Result<_>>()?;
        let (offset, strides) = (step_arg(self.offset, "parts")?, steps_arg(self.strides, "parts")?);
        program.output = Some(Place { offset, strides, starts });
        Ok(program)
    }
}

/// `{input, extent, step}`, see [`Start`].
fn start_arg(term: Term) -> Result<Start> {
    match tuple_arg(term, "parts")?[..] {
        [value, extent, step] => Ok(Start {
            value: size_arg(value, "parts")? as usize,
            extent: size_arg(extent, "parts")?,
            step: step_arg(step, "parts")?,
        }),
        _ => Err(wrong("parts", "starts {input, extent, step}")),
    }
}
