//! Writes the GLSL of a program's kernel: what one element needs, and the macros that a loop of `shaders/lib/loops` is made with. It decides
//! nothing: the loop is the schedule's, and only what the device cannot do is asked of its capabilities.

use std::collections::BTreeSet;
use std::fmt::Write as _;

mod accumulator;
mod chain;
mod epilogue;
mod expression;
mod fold;
mod indices;
mod map;
mod maps;
mod prelude;
mod reduce;
mod rows;
mod schedule;
mod tile;
mod values;
mod vectors;
mod window;
mod workgroup;

pub use accumulator::{Accumulator, MAX_PARTS, sum_parts, widened};
pub use chain::{
    ChainEvaluation, ChainMemory, DENSE_MATRICES, InverseMass, LeapfrogCost, LeapfrogModule, SamplerAlgorithm,
    SamplerKind, SamplerShape, SamplerState, evaluation, leapfrog_module, leapfrog_source, sampler_source,
};
pub use epilogue::{EPILOGUE_PARAMETERS, EmittedEpilogue, EmittedReduction, StoredElements};
pub use maps::{MAP_PARAMETERS, MapSchedule, emit_maps};
pub use prelude::{head, vec4_bytes, vec4_of};
pub use rows::{
    EmittedPrologue, KeptBytes, KeptValues, PROLOGUE_PARAMETERS, RowPrologue, RowSchedule, SHARED_ROW, emit_rows,
    kept_bytes, kept_in_memory, shared_element,
};
pub use schedule::{
    LoopNest, MapTraversal, ReduceSchedule, SCALARS_PER_THREAD, Schedule, Staging, TransposeTile, VECTORS_PER_THREAD,
    VectorInputs, WindowSchedule,
};
pub use values::{assign, convert, element, load, of_compute, store, stored};
pub use workgroup::{WorkgroupSchedule, check_number, emit_program, shared_bytes};

use prelude::coherent_head;
use window::loaded_inputs;

use super::epilogue::EpilogueProgram;
use super::layout::{Layout, Pattern, View};
use super::op::Typing;
use super::types::{Compute, Type};
use super::{Node, Program};
use crate::device::Capabilities;

struct Emitter<'a> {
    program: &'a Program,
    layout: &'a Layout,
    caps: &'a Capabilities,
    /// Inputs whose stored elements the loop gives the program, as `x{input}`: those that it reads in vectors or through a tile.
    vectors: VectorInputs,
    /// The axis along which the elements of a vector are neighbours; `None` in a tile.
    vector_axis: Option<usize>,
    /// Whether the reduced axes are a window, see [`WindowSchedule`].
    window: bool,
    /// The input whose elements are in shared memory, see [`EmittedPrologue`].
    shared_input: Option<usize>,
}

/// Writes the kernel's source from the GLSL of its parameters' block. Reductions may have a prologue, which computes an input, and an epilogue.
pub fn emit(
    program: &Program,
    layout: &Layout,
    schedule: Schedule,
    prologue: Option<(usize, EmittedPrologue)>,
    epilogue: Option<&EpilogueProgram>,
    parameters: &str,
    caps: &Capabilities,
) -> String {
    let (vectors, end) = match schedule.nest {
        LoopNest::Tile { tile, .. } => (VectorInputs { vec4: tile.inputs, broadcast: 0 }, 0),
        LoopNest::Reduce(ReduceSchedule { vectors, output_vectors: 1.., .. }) => (vectors, layout.kept),
        LoopNest::Reduce(ReduceSchedule { vectors, .. }) => (vectors, layout.dims.len()),
        LoopNest::Map { vectors, .. } => (vectors.unwrap_or_default(), layout.dims.len()),
        LoopNest::Window(_) => (loaded_inputs(program, layout), 0),
        LoopNest::Fold { .. } => (VectorInputs::default(), 0),
    };
    let window = matches!(schedule.nest, LoopNest::Window(_));
    let (shared_input, prologue) = prologue.unzip();
    let emitter = Emitter { program, layout, caps, vectors, vector_axis: end.checked_sub(1), window, shared_input };
    let accumulator = Accumulator::of(program, layout, caps);
    let epilogue = epilogue.map(|epilogue| EmittedEpilogue::new(epilogue, "result", StoredElements::default(), caps));
    let mut text = emitter.head(accumulator.as_ref(), prologue.as_ref(), epilogue.as_ref(), parameters);
    let group = if schedule.reversible {
        "p.reversed != 0 ? p.reversed - 1 - workgroup() : workgroup()"
    } else {
        "workgroup()"
    };
    let _ = writeln!(text, "IDX traversed_group() {{ return {group}; }}");
    let mut files = emitter.files();
    files.extend(prologue.iter().flat_map(|prologue| &prologue.files));
    let mut seen = BTreeSet::new();
    files.retain(|&file| seen.insert(file));
    for file in &files {
        let _ = writeln!(text, "#include \"lib/{file}\"");
    }
    if let Some(epilogue) = &epilogue {
        text += &epilogue.includes(&files);
        text += &epilogue.functions;
    }
    match (schedule.nest, accumulator) {
        (LoopNest::Map { threads, traversal, vectors }, _) => {
            emitter.map(&mut text, threads, traversal, vectors.is_some());
        }
        (LoopNest::Tile { threads, tile }, _) => emitter.tile(&mut text, threads, tile),
        (LoopNest::Fold { threads }, _) => emitter.fold(&mut text, threads),
        (LoopNest::Reduce(schedule), Some(accumulator)) => {
            emitter.reduce(&mut text, schedule, &accumulator, prologue.as_ref(), epilogue.as_ref());
        }
        (LoopNest::Window(schedule), Some(accumulator)) => {
            emitter.window(&mut text, schedule, &accumulator, epilogue.as_ref());
        }
        (LoopNest::Reduce(_) | LoopNest::Window(_), None) => {
            unreachable!("a reducing schedule belongs to a program with a reduction")
        }
    }
    text
}

/// Writes a macro.
fn define(text: &mut String, name: &str, value: impl std::fmt::Display) {
    let _ = writeln!(text, "#define {name} {value}");
}

impl Emitter<'_> {
    fn head(
        &self,
        accumulator: Option<&Accumulator>,
        prologue: Option<&EmittedPrologue>,
        epilogue: Option<&EmittedEpilogue>,
        parameters: &str,
    ) -> String {
        let (mut storages, mut computes) = self.types(accumulator);
        if let Some(prologue) = prologue {
            storages.extend_from_slice(&prologue.storages);
            computes.extend_from_slice(&prologue.computes);
        }
        if let Some(epilogue) = epilogue {
            storages.extend_from_slice(&epilogue.storages);
            computes.extend_from_slice(&epilogue.computes);
        }
        head(self.caps, self.layout.index64, &storages, &computes, parameters)
    }

    /// The types of the buffers' elements, and all types that the kernel computes in.
    fn types(&self, accumulator: Option<&Accumulator>) -> (Vec<&'static str>, Vec<Compute>) {
        let program = self.program;
        let mut storages: Vec<&'static str> = program.inputs.iter().map(|input| input.ty.storage()).collect();
        storages.push(program.result().storage());
        let types = program.inputs.iter().map(|input| input.ty).chain(program.nodes.iter().map(|node| node.ty));
        let mut computes: Vec<Compute> = types.map(Type::compute).collect();
        if program.nodes.iter().any(|node| self.divides_in_double(node)) {
            computes.push(Compute::Double);
        }
        // Operands of a comparison are converted to a type that may be none of theirs: u32 and s32 meet in s64.
        for node in program.nodes.iter().filter(|node| node.op.typing == Typing::Merged) {
            computes.push(program.type_of(node.args[0]).merge(program.type_of(node.args[1])).compute());
        }
        if let Some(accumulator) = accumulator {
            storages.extend(accumulator.parts.iter().map(|part| part.glsl()));
            computes.extend_from_slice(&accumulator.parts);
        }
        (storages, computes)
    }

    /// The files with what the program's nodes and dynamic offsets call.
    fn files(&self) -> Vec<&'static str> {
        let mut files = if self.program.dynamic_offsets().is_empty() { vec![] } else { vec!["indices.glsl"] };
        for node in &self.program.nodes {
            let formula = if self.program.is_complex(node) { node.op.complex } else { node.op.real };
            files.extend(formula.map(|formula| formula.file).filter(|file| !files.contains(file)));
        }
        if self.program.checks_indices() {
            files.push("bounds.glsl");
        }
        files
    }

    /// Whether a division of integers, which may be too large for the result's type, is rounded once from double.
    fn divides_in_double(&self, node: &Node) -> bool {
        let float = |arg: &usize| self.program.type_of(*arg).is_float();
        node.op.typing == Typing::Divide && self.caps.float64 && !node.args.iter().any(float)
    }

    /// The macros of the result: its storage type, an element of it, and storing a vector of it.
    fn result_macros(&self, text: &mut String) {
        let storage = self.program.result().storage();
        define(text, "RESULT", storage);
        define(text, "RESULT_AT(i)", format_args!("AT({storage}, p.result, i)"));
        let vector = vec4_of(storage);
        define(
            text,
            "STORE_RESULTS(v, a, b, c, d)",
            format_args!("SET_VEC4({storage}, p.result, v, {vector}(a, b, c, d))"),
        );
    }
}
