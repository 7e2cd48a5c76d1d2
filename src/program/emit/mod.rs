//! Writes the GLSL of a program: an elementwise kernel, or a reduction in one or two passes.

use std::fmt::Write as _;

mod params;
mod reduce;
mod values;

pub use params::{Params, prelude, quad_bytes};
pub use reduce::Accumulator;
pub use values::{convert, load, store};

use super::layout::{Layout, Pattern};
use super::op::Typing;
use super::types::{Compute, Type};
use super::{Node, Program, Source};
use crate::device::Capabilities;
use params::quad_of;
use values::{bitcast, immediate, narrow};

/// What the kernel is for besides the program and its layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Variant {
    pub stage: Stage,
    /// Whether the parameters are too many for push constants and stand in a buffer.
    pub buffered: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Elementwise: threads of a workgroup, and whether a thread takes four neighbouring elements in one load, which
    /// needs linear views and aligned addresses, or [`ELEMENTS`] elements one by one.
    Map { threads: u32, quads: bool },
    /// A reduction: threads across outputs and along the reduced axes; whether it reads partial results, and whether
    /// it writes them.
    Reduce { across: u32, along: u32, from_partial: bool, to_partial: bool },
}

/// Elements of a thread in an elementwise kernel that takes them one by one.
pub const ELEMENTS: u32 = 4;
/// Fours of a thread in one that takes them so: enough loads in flight to fill the memory bus.
pub const QUADS: u32 = 2;

struct Emitter<'a> {
    program: &'a Program,
    layout: &'a Layout,
    caps: &'a Capabilities,
}

/// Writes the kernel's source. `params` holds its parameters' declarations.
pub fn emit(program: &Program, layout: &Layout, variant: Variant, params: Params, caps: &Capabilities) -> String {
    let emitter = Emitter { program, layout, caps };
    let mut storages: Vec<&str> = program.inputs.iter().map(|input| input.ty.storage()).collect();
    storages.push(emitter.result_type().storage());
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
    let mut text = prelude(caps, layout.wide, &storages, &computes);
    let mut files = vec!["convert.glsl"];
    for node in &program.nodes {
        if !node.op.file.is_empty() && !files.contains(&node.op.file) {
            files.push(node.op.file);
        }
    }
    for file in files {
        let _ = writeln!(text, "#include \"lib/{file}\"");
    }
    let declarations = params.declarations();
    if variant.buffered {
        let _ = writeln!(
            text,
            "layout(buffer_reference, scalar) readonly buffer Params {{\n{declarations}}};\n\
             layout(push_constant, scalar) uniform Push {{ Params p; }};"
        );
    } else {
        let _ = writeln!(text, "layout(push_constant, scalar) uniform Params {{\n{declarations}}} p;");
    }
    match (variant.stage, accumulator) {
        (Stage::Map { threads, quads }, _) => emitter.map(&mut text, threads, quads),
        (Stage::Reduce { .. }, Some(accumulator)) => emitter.reduce(&mut text, variant.stage, &accumulator),
        (Stage::Reduce { .. }, None) => unreachable!("a reducing stage belongs to a program with a reduction"),
    }
    text
}

impl Emitter<'_> {
    fn result_type(&self) -> Type {
        self.program.nodes[self.program.nodes.len() - 1].ty
    }

    fn accumulator(&self) -> Option<Accumulator> {
        Accumulator::of(self.program, self.layout, self.caps)
    }

    /// Whether a division of integers, which may be too large for the result's type, is rounded once from double.
    fn divides_in_double(&self, node: &Node) -> bool {
        let float = |arg: &usize| self.program.type_of(*arg).is_float();
        node.op.typing == Typing::Divide && self.caps.float64 && !node.args.iter().any(float)
    }

    /// `element` computes one result from the stored elements of linear views, which the caller loads.
    fn map(&self, text: &mut String, threads: u32, quads: bool) {
        let result = self.result_type().storage();
        let linear: Vec<(usize, &str)> = self.linear().collect();
        let list = |f: &dyn Fn(usize, &str) -> String| {
            linear.iter().map(|&(input, storage)| format!(", {}", f(input, storage))).collect::<String>()
        };
        let _ = writeln!(text, "{result} element(IDX i{}) {{", list(&|input, storage| format!("{storage} x{input}")));
        self.offsets(text);
        self.places(text, "i", 0..self.layout.dims.len());
        let value = self.nodes(text, self.program.nodes.len());
        let _ = writeln!(text, "  return {};\n}}", store(self.result_type(), &value));
        let loads = list(&|input, storage| format!("AT({storage}, p.input{input}, i)"));
        let tile = threads * ELEMENTS;
        let _ = writeln!(
            text,
            "layout(local_size_x = {threads}) in;\n\
             void one(IDX i) {{ AT({result}, p.result, i) = element(i{loads}); }}\n\
             void main() {{\n\
             \x20 IDX tile = IDX(gl_WorkGroupID.y) * gl_NumWorkGroups.x + gl_WorkGroupID.x;"
        );
        if quads {
            let load = |k: u32, quad: &str| {
                let one = |&(input, storage): &(usize, &str)| {
                    format!("{} q{k}_{input} = QUAD({storage}, p.input{input}, {quad});", quad_of(storage))
                };
                linear.iter().map(one).collect::<Vec<_>>().join(" ")
            };
            let compute = |k: u32, quad: &str| {
                let element =
                    |c| format!("element({quad} * 4 + {c}{})", list(&|input, _| format!("q{k}_{input}[{c}]")));
                let elements = (0..4).map(element).collect::<Vec<_>>().join(", ");
                format!("QUAD({result}, p.result, {quad}) = {}({elements});", quad_of(result))
            };
            let _ = writeln!(
                text,
                "  IDX quad = tile * {} + gl_LocalInvocationID.x, whole = p.count / 4;\n\
                 \x20 if ((tile + 1) * {} <= whole) {{",
                threads * QUADS,
                threads * QUADS,
            );
            let place = |k: u32| format!("(quad + {})", k * threads);
            for k in 0..QUADS {
                let _ = writeln!(text, "    {}", load(k, &place(k)));
            }
            for k in 0..QUADS {
                let _ = writeln!(text, "    {}", compute(k, &place(k)));
            }
            let _ = writeln!(
                text,
                "    return;\n\
                 \x20 }}\n\
                 \x20 for (uint k = 0; k < {QUADS}; k++, quad += {threads}) {{\n\
                 \x20   if (quad < whole) {{ {} {} }}\n\
                 \x20   if (quad == whole) for (IDX i = whole * 4; i < p.count; i++) one(i);\n\
                 \x20 }}\n}}",
                load(0, "quad"),
                compute(0, "quad"),
            );
        } else {
            let _ = writeln!(
                text,
                "  IDX first = tile * {tile} + gl_LocalInvocationID.x;\n\
                 \x20 if ((tile + 1) * {tile} <= p.count) {{"
            );
            for k in 0..ELEMENTS {
                let _ = writeln!(text, "    one(first + {});", k * threads);
            }
            let _ = writeln!(
                text,
                "  }} else {{\n\
                 \x20   for (IDX i = first; i < p.count && tile * {tile} < p.count; i += {threads}) one(i);\n\
                 \x20 }}\n}}"
            );
        }
    }

    /// The inputs that are read at the linear index, with their storage types.
    fn linear(&self) -> impl Iterator<Item = (usize, &'static str)> + '_ {
        let linear = self.layout.views.iter().filter(|view| view.pattern == Pattern::Linear);
        linear.filter_map(|view| view.input).map(|input| (input, self.program.inputs[input].ty.storage()))
    }

    /// Declares the places of strided views.
    fn offsets(&self, text: &mut String) {
        for v in self.strided() {
            let _ = writeln!(text, "  IDX place{v} = p.offset{v};");
        }
    }

    /// Adds to the places of strided views what the collapsed axes contribute for the linear index `index`.
    fn places(&self, text: &mut String, index: &str, axes: std::ops::Range<usize>) {
        let strided: Vec<usize> = self.strided().collect();
        if strided.is_empty() || axes.is_empty() {
            return;
        }
        let _ = writeln!(text, "  IDX rest_{index} = {index};");
        for axis in axes.clone().rev() {
            if axis > axes.start {
                let _ = writeln!(text, "  IDX at{axis} = rest_{index} % p.dim{axis}; rest_{index} /= p.dim{axis};");
            } else {
                let _ = writeln!(text, "  IDX at{axis} = rest_{index};");
            }
            for &v in &strided {
                let _ = writeln!(text, "  place{v} += at{axis} * p.stride{v}_{axis};");
            }
        }
    }

    fn strided(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.layout.views.len()).filter(|&v| self.layout.views[v].pattern == Pattern::Strided)
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
                        _ => load(ty, &format!("AT({}, p.input{index}, {})", ty.storage(), self.place(v))),
                    }
                }
                Source::Scalar(_) => load(ty, &immediate(ty, &format!("p.scalar{index}"))),
            };
            let _ = writeln!(text, "  precise {} v{index} = {loaded};", ty.compute().glsl());
            values.push((format!("v{index}"), ty));
        }
        for node in &self.program.nodes[..count] {
            let name = format!("v{}", values.len());
            let operand = |i: usize| values[node.args[i]].clone();
            let call = |args: Vec<String>| format!("nx_{}({})", node.op.name, args.join(", "));
            let expression = match node.op.typing {
                Typing::Own => {
                    let args = (0..node.op.arity).map(|i| convert(operand(i), node.ty)).collect();
                    narrow(node.ty, &call(args))
                }
                Typing::Divide => {
                    let ty = if self.divides_in_double(node) { Type::F64 } else { node.ty };
                    convert((call(vec![convert(operand(0), ty), convert(operand(1), ty)]), ty), node.ty)
                }
                Typing::Merged => {
                    let (a, b) = (operand(0), operand(1));
                    let merged = a.1.merge(b.1);
                    // Against 64 unsigned bits a signed operand keeps its sign: no type holds both.
                    let own = |value: &(String, Type)| match value.1 {
                        Type::U64 if merged == Type::S64 => value.0.clone(),
                        _ => convert(value.clone(), merged),
                    };
                    convert((format!("uint({})", call(vec![own(&a), own(&b)])), Type::U8), node.ty)
                }
                Typing::Operand => convert((format!("uint({})", call(vec![operand(0).0])), Type::U8), node.ty),
                Typing::Width => {
                    let (value, ty) = operand(0);
                    convert((call(vec![value, format!("{}u", ty.bits())]), Type::U32), node.ty)
                }
                Typing::Convert => convert(operand(0), node.ty),
                Typing::Bitcast => load(node.ty, &bitcast(operand(0), node.ty)),
                Typing::Select => {
                    let (a, b) = (convert(operand(1), node.ty), convert(operand(2), node.ty));
                    format!("!is_zero({}) ? {a} : {b}", operand(0).0)
                }
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
