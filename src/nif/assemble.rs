//! Tensors put together from parts.

use rustler::Term;

use super::program::{HeldInputs, add_inputs, inputs_given, operands};
use super::*;
use crate::kernels::assemble::{self, Part};
use crate::memory::Patience;
use crate::program::{Place, Program, Start};

pair!(assemble, assemble_dirty, (out_type, shape, parts), reply, together);

/// Each of `parts` is `{inputs, shape, offset, strides, starts}`: the first of `inputs` over `shape` goes to that view
/// of the result, moved by `starts`, later parts over earlier ones. Together they must cover it.
fn together(out_type: Term, shape: Term, parts: Term, patience: Patience) -> Result<BufferRef> {
    let (ty, shape) = (type_arg(out_type, "out_type")?, shape_arg(shape, "shape")?);
    let mut decoded: Vec<(Program, HeldInputs)> = vec![];
    for part in list_arg(parts, "parts")? {
        patience.may_record(decoded.len() as u64)?;
        let [inputs, part_shape, offset, strides, starts] = tuple_arg(part, "parts")?[..] else {
            return Err(wrong("parts", "{inputs, shape, offset, strides, starts}"));
        };
        let mut copy = Program::over(shape_arg(part_shape, "parts")?);
        let held = add_inputs(&inputs_given(inputs)?, part_shape, &mut copy)?;
        copy.nodes.push(assemble::copied(ty));
        let starts = list_arg(starts, "parts")?.map(start_arg).collect::<Result<_>>()?;
        let (offset, strides) = (step_arg(offset, "parts")?, steps_arg(strides, "parts")?);
        copy.output = Some(Place { offset, strides, starts });
        decoded.push((copy, held));
    }
    let operands: Vec<_> = decoded.iter().map(|(_, held)| operands(held)).collect();
    let parts: Vec<Part> =
        decoded.iter().zip(&operands).map(|((program, _), operands)| Part { program, operands }).collect();
    assemble::run(gpu(patience)?, ty, &shape, &parts, patience).map(BufferRef::from)
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
