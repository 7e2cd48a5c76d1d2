//! Map groups: several results of element-wise programs in one kernel.

use rustler::Term;
use smallvec::SmallVec;

use super::graphs::KeyTerms;
use super::program::{InputOperands, InputTerms, input_key, input_operands, input_terms, operands, program_arg};
use super::*;
use crate::graph::Context;
use crate::kernels::fusion;
use crate::memory::Blocking;
use crate::program::OutputView;
use crate::program::maps::{MapGroup, MapPart, MapStore};

mod names {
    rustler::atoms! { maps }
}

pair!(run_maps, run_maps_dirty, (results, parts, device), reply, run);

/// `results` are `{type, elements}` each, and each of `parts` is `{nodes, inputs, shape, stores}`: a program with the values that it stores,
/// each `{value, result, offset, strides}`. The answer is a tuple of references. `device` is the one that a
/// group without buffers runs on.
fn run<'a>(results: Term<'a>, parts: Term<'a>, device: Term<'a>, blocking: Blocking) -> Attempt<BufferRefs> {
    let env = results.get_env();
    let mut key = KeyTerms::from_slice(&[names::maps().to_term(env), results]);
    let mut given: Vec<MapPartTerms> = vec![];
    let mut first = 0;
    for part in list_arg(parts, "parts")? {
        let [nodes, inputs, shape, stores] = tuple_arg(part, "parts")?[..] else {
            return Err(wrong("parts", "{nodes, inputs, shape, stores}").into());
        };
        let inputs = input_terms(inputs)?;
        let input_operands = input_operands(&inputs)?;
        key.extend([nodes, shape, stores]);
        input_key(&mut key, &inputs, shape);
        given.push(MapPartTerms { nodes, inputs, shape, stores, first, input_operands });
        first += given[given.len() - 1].input_operands.len();
    }
    let operands: Vec<_> = given.iter().map(|part| operands(&part.input_operands, part.first)).collect();
    let count = list_arg(results, "results")?.count();
    let call = |cx: &Context| {
        let result = |term: Term| match tuple_arg(term, "results")?[..] {
            [ty, elements] => Ok((type_arg(ty, "results")?, size_arg(elements, "results")?)),
            _ => Err(wrong("results", "{type, elements}")),
        };
        let results = list_arg(results, "results")?.map(result).collect::<Result<_>>()?;
        let parts = given.iter().map(MapPartTerms::part).collect::<Result<_>>()?;
        let slices: Vec<_> = operands.iter().map(|operands| &operands[..]).collect();
        fusion::run_maps(cx, &MapGroup { parts, results }, &slices)
    };
    let buffers = graphs::run_list(env, device_arg(device)?, key, &operands.concat(), blocking, count, call)?;
    Ok(buffers.into())
}

/// A part's terms, and its operands, which are those of the call from `first` on.
struct MapPartTerms<'a> {
    nodes: Term<'a>,
    inputs: SmallVec<[InputTerms<'a>; 4]>,
    shape: Term<'a>,
    stores: Term<'a>,
    first: usize,
    input_operands: InputOperands,
}

impl MapPartTerms<'_> {
    fn part(&self) -> Result<MapPart> {
        let program = program_arg(self.nodes, &self.inputs, self.shape)?;
        let store = |term: Term| match tuple_arg(term, "stores")?[..] {
            [value, result, offset, strides] => {
                let (offset, strides) = (step_arg(offset, "stores")?, steps_arg(strides, "stores")?);
                Ok(MapStore {
                    value: size_arg(value, "stores")? as usize,
                    result: size_arg(result, "stores")? as usize,
                    view: OutputView { offset, strides, dynamic_offsets: SmallVec::new() },
                })
            }
            _ => Err(wrong("stores", "{value, result, offset, strides}")),
        };
        let stores = list_arg(self.stores, "stores")?.map(store).collect::<Result<_>>()?;
        Ok(MapPart { program, stores })
    }
}
