//! Writes the GLSL of a program: an elementwise kernel, or a reduction in one or two passes.

use std::fmt::Write as _;

mod fold;
mod fours;
mod map;
mod params;
mod reduce;
mod schedule;
mod tile;
mod values;

pub use params::{head, quad_bytes, quad_of};
pub use reduce::{Accumulator, sum_parts, widened};
pub use schedule::{
    Exchange, LoopNest, MapTraversal, ReduceSchedule, SCALARS_PER_THREAD, Schedule, Staging, Tile, VECTORS_PER_THREAD,
    VectorInputs,
};
pub use values::{assign, convert, element, load, of_compute, store, stored};

use super::layout::{Layout, Pattern, View};
use super::op::Typing;
use super::types::{Compute, Type};
use super::{Node, Program, Source};
use crate::device::Capabilities;
use values::{bitcast, immediate, widen};

/// Threads of a workgroup whose device is a processor: the lanes of one subgroup, which run at once.
pub fn lanes(caps: &Capabilities) -> u32 {
    crate::tuning::cpu_group_threads(caps)
}

struct Emitter<'a> {
    program: &'a Program,
    layout: &'a Layout,
    caps: &'a Capabilities,
    /// A bit for each input whose stored elements the program gets from the kernel around it, as `x{input}`.
    held: u32,
    /// Of these, those with one element for four neighbours.
    ones: u32,
    /// The axis along which these are neighbours.
    fours_axis: Option<usize>,
    /// Whether the reduced axes are a window, see [`ReduceSchedule`].
    window: bool,
}

/// Writes the kernel's source from the GLSL of its parameters' block.
pub fn emit(program: &Program, layout: &Layout, schedule: Schedule, parameters: &str, caps: &Capabilities) -> String {
    let (vectors, end, window) = match schedule.nest {
        LoopNest::Tile { tile, .. } => (VectorInputs { vec4: tile.inputs, broadcast: 0 }, 0, false),
        LoopNest::Reduce(ReduceSchedule { vectors, output_vectors: 1.., window, .. }) => (vectors, layout.kept, window),
        LoopNest::Reduce(ReduceSchedule { vectors, window, .. }) => (vectors, layout.dims.len(), window),
        LoopNest::Map { vectors, .. } => (vectors.unwrap_or_default(), layout.dims.len(), false),
        LoopNest::Fold { .. } => (VectorInputs::default(), 0, false),
    };
    let (held, fours_axis) = (vectors.vec4 | vectors.broadcast, end.checked_sub(1));
    let emitter = Emitter { program, layout, caps, held, ones: vectors.broadcast, fours_axis, window };
    let mut storages: Vec<&str> = program.inputs.iter().map(|input| input.ty.storage()).collect();
    storages.push(program.result().storage());
    let accumulator = emitter.accumulator();
    if let Some(accumulator) = &accumulator {
        storages.extend(accumulator.parts.iter().map(|part| part.glsl()));
    }
    let types = program.inputs.iter().map(|input| input.ty).chain(program.nodes.iter().map(|node| node.ty));
    let mut computes: Vec<Compute> = types.map(Type::compute).collect();
    if program.nodes.iter().any(|node| emitter.divides_in_double(node)) {
        computes.push(Compute::Double);
    }
    // Operands of a comparison are converted to a type that may be none of theirs: u32 and s32 meet in s64.
    for node in program.nodes.iter().filter(|node| node.op.typing == Typing::Merged) {
        computes.push(program.type_of(node.args[0]).merge(program.type_of(node.args[1])).compute());
    }
    if let Some(accumulator) = &accumulator {
        computes.extend_from_slice(&accumulator.parts);
    }
    let mut text = head(caps, layout.wide, &storages, &computes, parameters);
    let turned = if schedule.reversible {
        "p.reversed != 0 ? IDX(gl_NumWorkGroups.y) * gl_NumWorkGroups.x - 1 - workgroup() : workgroup()"
    } else {
        "workgroup()"
    };
    let _ = writeln!(text, "IDX turned() {{ return {turned}; }}");
    for file in emitter.files() {
        let _ = writeln!(text, "#include \"lib/{file}\"");
    }
    match (schedule.nest, accumulator) {
        (LoopNest::Map { threads, traversal, vectors }, _) => {
            emitter.map(&mut text, threads, traversal, vectors.is_some());
        }
        (LoopNest::Tile { threads, tile }, _) => emitter.tiled(&mut text, threads, tile),
        (LoopNest::Fold { threads }, _) => emitter.fold(&mut text, threads),
        (LoopNest::Reduce(schedule), Some(accumulator)) => emitter.reduce(&mut text, schedule, &accumulator),
        (LoopNest::Reduce(_), None) => unreachable!("a reducing stage belongs to a program with a reduction"),
    }
    text
}

impl Emitter<'_> {
    fn accumulator(&self) -> Option<Accumulator> {
        Accumulator::of(self.program, self.layout, self.caps)
    }

    /// The files with what the program's nodes and starts call.
    fn files(&self) -> Vec<&'static str> {
        let mut files = if self.program.starts().is_empty() { vec![] } else { vec!["indices.glsl"] };
        for node in &self.program.nodes {
            let formula = if self.program.is_complex(node) { node.op.complex } else { node.op.real };
            files.extend(formula.map(|formula| formula.file).filter(|file| !files.contains(file)));
        }
        files
    }

    /// Whether a division of integers, which may be too large for the result's type, is rounded once from double.
    fn divides_in_double(&self, node: &Node) -> bool {
        let float = |arg: &usize| self.program.type_of(*arg).is_float();
        node.op.typing == Typing::Divide && self.caps.float64 && !node.args.iter().any(float)
    }

    /// The output's view, where its places have to be computed.
    fn scattered(&self) -> Option<usize> {
        let v = self.layout.views.len().checked_sub(1).filter(|_| self.program.output.is_some())?;
        (self.layout.views[v].pattern == Pattern::Strided).then_some(v)
    }

    /// Declares the places of strided views, that of the output moved by its starts.
    fn offsets(&self, text: &mut String) {
        for v in self.strided() {
            let _ = writeln!(text, "  IDX place{v} = p.offset{v};");
        }
        for (s, start) in self.program.starts().iter().enumerate() {
            let v = self.layout.views.len() - 1;
            let (value, _) = element(self.program.inputs[start.value].ty, &format!("input{}", start.value), "IDX(0)");
            let _ = writeln!(text, "  place{v} += clamp_index({value}, p.extent{s}) * p.step{s};");
        }
    }

    /// Adds to the places of `views` what the collapsed axes contribute for the linear index `index`.
    fn places(&self, text: &mut String, index: &str, axes: std::ops::Range<usize>, views: &[usize]) {
        if views.is_empty() || axes.is_empty() {
            return;
        }
        let _ = writeln!(text, "  IDX rest_{index} = {index};");
        for axis in axes.clone().rev() {
            if axis > axes.start {
                let (dim, quotient) = if self.window && axis >= self.layout.kept {
                    let dim = format!("IDX({})", self.layout.dims[axis]);
                    (dim.clone(), format!("rest_{index} / {dim}"))
                } else {
                    (format!("p.dim{axis}"), format!("QUOTIENT(rest_{index}, p.dim{axis})"))
                };
                let _ = writeln!(
                    text,
                    "  IDX rest_{index}_{axis} = {quotient};\n\
                     \x20 IDX at{axis} = rest_{index} - rest_{index}_{axis} * {dim}; rest_{index} = rest_{index}_{axis};"
                );
            } else {
                let _ = writeln!(text, "  IDX at{axis} = rest_{index};");
            }
            self.step(text, axis, views);
        }
    }

    /// Writes what a reduction reduces, at the output `o` and the place `r` along the reduced axes: all nodes but the last.
    fn reduced(&self, text: &mut String) {
        self.offsets(text);
        let strided = self.strided();
        self.places(text, "o", 0..self.layout.kept, &strided);
        self.places(text, "r", self.layout.kept..self.layout.dims.len(), &strided);
        self.nodes(text, self.program.nodes.len() - 1);
    }

    /// Adds to the places of `views` what the axis contributes, whose index is `at{axis}`.
    fn step(&self, text: &mut String, axis: usize, views: &[usize]) {
        for &v in views {
            let held = self.layout.views[v].input.filter(|&input| self.is_held(input) && self.fours_axis == Some(axis));
            let _ = match held {
                // Neighbours are one element apart or the same one: a processor's vectors need not be multiplied.
                Some(input) if self.is_one(input) => Ok(()),
                Some(_) => writeln!(text, "  place{v} += at{axis};"),
                None => writeln!(text, "  place{v} += at{axis} * p.stride{v}_{axis};"),
            };
        }
    }

    /// The views whose places have to be computed.
    fn strided(&self) -> Vec<usize> {
        let strided = |view: &View| view.pattern == Pattern::Strided && !view.input.is_some_and(|i| self.is_held(i));
        (0..self.layout.views.len()).filter(|&v| strided(&self.layout.views[v])).collect()
    }

    fn is_held(&self, input: usize) -> bool {
        input < 32 && self.held >> input & 1 == 1
    }

    /// The views of the held inputs: `(view, input, storage type)`.
    fn held(&self) -> Vec<(usize, usize, &'static str)> {
        let held = |(v, view): (usize, &View)| Some((v, view.input.filter(|&input| self.is_held(input))?));
        let views = self.layout.views.iter().enumerate().filter_map(held);
        views.map(|(v, input)| (v, input, self.program.inputs[input].ty.storage())).collect()
    }

    /// Where view `v` is read, as GLSL.
    fn place(&self, v: usize) -> String {
        match self.layout.views[v].pattern {
            Pattern::Linear => "i".into(),
            Pattern::Single => "IDX(0)".into(),
            Pattern::Strided => format!("place{v}"),
        }
    }

    /// Writes the first `count` nodes as local values and returns the name of the last.
    fn nodes(&self, text: &mut String, count: usize) -> String {
        let mut views = 0..self.layout.views.len();
        let mut values: Vec<(String, Type)> = vec![];
        for (index, input) in self.program.inputs.iter().enumerate() {
            let ty = input.ty;
            let loaded = match input.source {
                Source::View { .. } => {
                    let v = views.next().unwrap_or_default();
                    match self.layout.views[v].pattern {
                        Pattern::Linear => load(ty, &format!("x{index}")),
                        _ if self.is_held(index) => load(ty, &format!("x{index}")),
                        _ => load(ty, &format!("AT({}, p.input{index}, {})", ty.storage(), self.place(v))),
                    }
                }
                Source::Scalar => load(ty, &immediate(ty, &format!("p.scalar{index}"))),
            };
            let _ = writeln!(text, "  precise {} v{index} = {loaded};", ty.compute().glsl());
            values.push((format!("v{index}"), ty));
        }
        for node in &self.program.nodes[..count] {
            let name = format!("v{}", values.len());
            let operand = |i: usize| values[node.args[i]].clone();
            let call = |args: Vec<String>| format!("nx_{}({})", node.op.name, args.join(", "));
            let expression = match node.op.typing {
                Typing::Part if self.program.is_complex(node) => {
                    let (value, ty) = operand(0);
                    let working = ty.working(self.caps);
                    convert((call(vec![convert((value, ty), working)]), working.part()), node.ty)
                }
                Typing::Own(_) | Typing::Divide if self.program.is_complex(node) => {
                    let ty = node.ty.working(self.caps);
                    convert((call((0..node.op.arity).map(|i| convert(operand(i), ty)).collect()), ty), node.ty)
                }
                Typing::Own(_) | Typing::Part => {
                    let args = (0..node.op.arity).map(|i| widen(operand(i), node.ty)).collect();
                    convert((call(args), of_compute(node.ty.compute())), node.ty)
                }
                Typing::Divide => {
                    let ty = if self.divides_in_double(node) { Type::F64 } else { node.ty };
                    let quotient = call(vec![widen(operand(0), ty), widen(operand(1), ty)]);
                    convert((quotient, of_compute(ty.compute())), node.ty)
                }
                Typing::Merged => {
                    let (a, b) = (operand(0), operand(1));
                    let merged = a.1.merge(b.1).working(self.caps);
                    // Against 64 unsigned bits a signed operand keeps its sign: no type holds both.
                    let own = |value: &(String, Type)| match value.1 {
                        Type::U64 if merged == Type::S64 => value.0.clone(),
                        _ => widen(value.clone(), merged),
                    };
                    convert((format!("uint({})", call(vec![own(&a), own(&b)])), Type::U8), node.ty)
                }
                Typing::Operand => {
                    let (value, ty) = operand(0);
                    let value = call(vec![convert((value, ty), ty.working(self.caps))]);
                    convert((format!("uint({value})"), Type::U8), node.ty)
                }
                Typing::Width => {
                    let (value, ty) = operand(0);
                    convert((call(vec![value, format!("{}u", ty.bits())]), Type::U32), node.ty)
                }
                Typing::Convert => convert(operand(0), node.ty),
                Typing::Bitcast => load(node.ty, &bitcast(operand(0), node.ty)),
                Typing::Select => {
                    let (a, b) = (widen(operand(1), node.ty), widen(operand(2), node.ty));
                    let chosen = format!("!is_zero({}) ? {a} : {b}", operand(0).0);
                    convert((chosen, of_compute(node.ty.compute())), node.ty)
                }
                Typing::Gather => {
                    let (input, ty) = (node.args[0], node.ty);
                    let view = self.layout.views.iter().position(|view| view.input == Some(input));
                    let mut place = self.place(view.unwrap_or_default());
                    for (k, &index) in node.args[1..].iter().enumerate() {
                        let at = format!("clamp_index({}, p.extent{name}_{k})", values[index].0);
                        let _ = write!(place, " + {at} * p.step{name}_{k}");
                    }
                    load(ty, &format!("AT({}, p.input{input}, {place})", ty.storage()))
                }
                Typing::Accumulator => "accumulator".into(),
                Typing::Iota => {
                    let place = self.place(views.next().unwrap_or_default());
                    convert((place, self.index_type()), node.ty)
                }
                Typing::Eye => {
                    let (row, column) = (views.next().unwrap_or_default(), views.next().unwrap_or_default());
                    let equal = format!("uint({} == {})", self.place(row), self.place(column));
                    convert((equal, Type::U8), node.ty)
                }
                Typing::Reduce(_) => unreachable!("a reduction is the last node and is not written as a value"),
            };
            let _ = writeln!(text, "  precise {} {name} = {expression};", node.ty.compute().glsl());
            values.push((name, node.ty));
        }
        values.pop().map(|(name, _)| name).unwrap_or_default()
    }

    fn index_type(&self) -> Type {
        if self.layout.wide { Type::U64 } else { Type::U32 }
    }
}
