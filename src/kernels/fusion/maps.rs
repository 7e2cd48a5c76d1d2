//! Runs map groups: checks one against the device and its operands, and launches its kernel.

use super::check_building;
use super::kernel::ProgramArgs;
use crate::device::Capabilities;
use crate::error::{Attempt, Error, Result};
use crate::graph::{Context, Name, Operand, Params};
use crate::kernels::{KernelSpec, launch};
use crate::memory::{AllocationHandle, Buffer};
use crate::program::emit::{MAP_PARAMETERS, MapSchedule, emit_maps};
use crate::program::layout::Layout;
use crate::program::maps::{MapGroup, MapPart};
use crate::tuning::maps::{PartChunks, map_schedule};

/// Runs a map group; `operands` are those of each part's inputs. The results are new dense buffers: what no part writes of them is undefined.
/// Fails where the group is not sound, the device cannot run it, or operands are too small for it.
pub fn run_maps(cx: &Context, group: &MapGroup, operands: &[&[Operand]]) -> Attempt<Vec<Buffer>> {
    let layouts = group.check()?;
    check_building(cx, group.parts.iter().map(|part| &part.program))?;
    for ((part, layout), operands) in group.parts.iter().zip(&layouts).zip(operands) {
        check_part(cx, part, layout, operands)?;
    }
    let sizes = group.results.iter().map(|&(ty, elements)| elements.checked_mul(ty.size()).ok_or(Error::SizeMismatch));
    let sizes = sizes.collect::<Result<Vec<u64>>>()?;
    let allocations = sizes.iter().map(|&bytes| cx.allocate(bytes)).collect::<Attempt<Vec<_>>>()?;
    let (schedule, chunks) = map_schedule(group, &layouts, cx.caps());
    let index64 = layouts.iter().any(|layout| layout.index64);
    let kernel = MapGroupKernel {
        parts: group.parts.iter().map(MapPart::without_parameters).collect(),
        layouts: layouts.iter().map(|layout| Layout { index64, ..layout.without_parameters(false) }).collect(),
        schedule,
        index64,
    };
    let args = MapGroupArgs { group, layouts: &layouts, operands, results: &allocations, chunks: &chunks };
    launch(cx, &kernel, &args)?;
    Ok(allocations.into_iter().zip(sizes).map(|(allocation, bytes)| Buffer::new(bytes, allocation)).collect())
}

fn check_part(cx: &Context, part: &MapPart, layout: &Layout, operands: &[Operand]) -> Result<()> {
    let program = &part.program;
    for value in 0..program.inputs.len() + program.nodes.len() {
        program.type_of(value).check_program(cx.caps())?;
    }
    if program.elements() == 0 {
        return Err(Error::Unsupported("a part without elements".into()));
    }
    let sizes = program.inputs.iter().zip(operands).zip(&layout.required_lengths);
    let mut fits = sizes.map(|((input, operand), length)| {
        length.checked_mul(input.ty.size()).is_some_and(|needed| needed <= operand.bytes().unwrap_or(0))
    });
    if operands.len() != program.inputs.len() || !fits.all(|fits| fits) {
        return Err(Error::SizeMismatch);
    }
    Ok(())
}

/// A map group's kernel, without what are parameters.
#[derive(Hash)]
struct MapGroupKernel {
    parts: Vec<MapPart>,
    layouts: Vec<Layout>,
    schedule: MapSchedule,
    index64: bool,
}

/// One launch of a [`MapGroupKernel`].
struct MapGroupArgs<'a> {
    group: &'a MapGroup,
    layouts: &'a [Layout],
    operands: &'a [&'a [Operand<'a>]],
    results: &'a [AllocationHandle],
    chunks: &'a [PartChunks],
}

impl<'a> MapGroupArgs<'a> {
    /// The parts' programs with what they read.
    fn programs(&self, index64: bool) -> impl Iterator<Item = ProgramArgs<'a>> {
        let parts = self.group.parts.iter().zip(self.layouts).zip(self.operands).zip(MAP_PARAMETERS);
        parts.map(move |(((part, layout), &operands), prefix)| {
            let program = &part.program;
            ProgramArgs { program, layout, operands, prefix, given: None, index64 }
        })
    }
}

impl KernelSpec for MapGroupKernel {
    type Args<'a> = MapGroupArgs<'a>;

    fn name(&self) -> String {
        let parts: Vec<String> = self.parts.iter().map(|part| part.program.summary()).collect();
        format!("maps {}", parts.join("; "))
    }

    fn source(&self, caps: &Capabilities, parameters: &str) -> String {
        emit_maps(&self.parts, &self.layouts, &self.schedule, self.index64, parameters, caps)
    }

    fn params<'a>(&self, args: &MapGroupArgs<'a>, params: &mut Params<'a>) {
        let index64 = self.index64;
        let programs = || args.programs(index64).zip(args.chunks);
        // In the order of their alignment: addresses, immediates, then indices.
        for (position, part) in args.group.parts.iter().enumerate() {
            for (k, (store, view)) in part.stored(&args.layouts[position]).enumerate() {
                let ty = part.program.type_of(store.value);
                let offset = view.address_offset() as u64 * ty.size();
                let name = Name::from(("result", k)).after(MAP_PARAMETERS[position]);
                params.write_at(&args.results[store.result], offset, ty.storage(), name);
            }
        }
        for ((program, _), part) in programs().zip(&args.group.parts) {
            params.operations(part.program.arithmetic_nodes() * program.layout.outputs());
            program.inputs(params);
            for (store, _) in part.stored(program.layout).filter(|(_, view)| view.is_at_index()) {
                program.in_place(&args.results[store.result], part.program.type_of(store.value), params);
            }
        }
        for (program, chunks) in programs() {
            let extents = [("groups", chunks.groups), ("count", program.layout.outputs()), ("chunk", chunks.chunk)];
            for (name, extent) in extents {
                params.extent(extent, index64, Name::from(name).after(program.prefix));
            }
            program.steps(params);
        }
    }

    fn groups(&self, args: &MapGroupArgs) -> u64 {
        args.chunks.iter().map(|chunks| chunks.groups).sum()
    }
}
