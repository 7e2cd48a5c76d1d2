//! Tensors that are assembled from programs that each write a view of them.

use rustler::Term;
use smallvec::SmallVec;

use super::graphs::KeyTerms;
use super::program::{InputOperands, InputTerms, input_key, input_operands, input_terms, operands, program_arg};
use super::*;
use crate::graph::Context;
use crate::kernels::assemble::{self, AssembledPart};
use crate::memory::Blocking;
use crate::program::{DynamicOffset, OutputView, Program};

pair!(assemble, assemble_dirty, (out_type, shape, parts, device), reply, assemble_parts);

/// Each of `parts` is `{nodes, inputs, shape, offset, strides, starts}`: what the program of the first three computes goes to
/// that view of the result, moved by the dynamic offsets `starts`, later parts over earlier ones. All of them must cover it.
/// `device` is the one that parts without buffers are assembled on.
fn assemble_parts<'a>(
    out_type: Term<'a>,
    shape: Term<'a>,
    parts: Term<'a>,
    device: Term<'a>,
    blocking: Blocking,
) -> Attempt<BufferRef> {
    let env = out_type.get_env();
    let mut key = KeyTerms::from_slice(&[atoms::assemble().to_term(env), out_type, shape]);
    let mut given: Vec<PartTerms> = vec![];
    let mut count = 0;
    for part in list_arg(parts, "parts")? {
        blocking.require_for(given.len() as u64)?;
        let [nodes, inputs, shape, offset, strides, starts] = tuple_arg(part, "parts")?[..] else {
            return Err(wrong("parts", "{nodes, inputs, shape, offset, strides, starts}").into());
        };
        let inputs = input_terms(inputs)?;
        let input_operands = input_operands(&inputs)?;
        key.extend([nodes, shape, offset, strides, starts]);
        input_key(&mut key, &inputs, shape);
        given.push(PartTerms { nodes, inputs, shape, offset, strides, starts, input_operands, first: count });
        count += given[given.len() - 1].input_operands.len();
    }
    let operands: Vec<_> = given.iter().map(|part| operands(&part.input_operands, part.first)).collect();
    let call = |cx: &Context| {
        let (ty, shape) = (type_arg(out_type, "out_type")?, shape_arg(shape, "shape")?);
        let programs = given.iter().map(PartTerms::program).collect::<Result<Vec<_>>>()?;
        let part = |(program, operands)| AssembledPart { program, operands };
        let parts: Vec<AssembledPart> =
            programs.iter().zip(operands.iter().map(|operands| &operands[..])).map(part).collect();
        Ok([assemble::run(cx, ty, &shape, &parts)?])
    };
    graphs::run_at(env, device_arg(device)?, key, &operands.concat(), blocking, call).map(|[buffer]| buffer.into())
}

/// A part's terms, and its operands, which are those of the call from `first` on.
struct PartTerms<'a> {
    nodes: Term<'a>,
    inputs: SmallVec<[InputTerms<'a>; 4]>,
    shape: Term<'a>,
    offset: Term<'a>,
    strides: Term<'a>,
    starts: Term<'a>,
    input_operands: InputOperands,
    first: usize,
}

impl PartTerms<'_> {
    fn program(&self) -> Result<Program> {
        let mut program = program_arg(self.nodes, &self.inputs, self.shape)?;
        let dynamic_offsets = list_arg(self.starts, "parts")?.map(dynamic_offset_arg).collect::<Result<_>>()?;
        let (offset, strides) = (step_arg(self.offset, "parts")?, steps_arg(self.strides, "parts")?);
        program.output = Some(OutputView { offset, strides, dynamic_offsets });
        Ok(program)
    }
}

/// `{input, extent, step}`, see [`DynamicOffset`].
pub(super) fn dynamic_offset_arg(term: Term) -> Result<DynamicOffset> {
    match tuple_arg(term, "parts")?[..] {
        [value, extent, step] => Ok(DynamicOffset {
            value: size_arg(value, "parts")? as usize,
            extent: size_arg(extent, "parts")?,
            step: step_arg(step, "parts")?,
        }),
        _ => Err(wrong("parts", "starts {input, extent, step}")),
    }
}
