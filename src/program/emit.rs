//! Writes the GLSL of a program: an elementwise kernel, or a reduction in one or two passes.

use std::fmt::Write as _;

use smallvec::SmallVec;

use super::layout::{Layout, Pattern};
use super::op::{Reduction, Typing};
use super::types::{Compute, Type};
use super::{Attribute, Node, Program, Source};
use crate::device::Capabilities;

/// The kernel's parameters: their bytes for each call and, where the source is wanted, their declarations.
/// Both come from one place so that they cannot differ.
#[derive(Default)]
pub struct Params {
    pub bytes: SmallVec<[u8; 256]>,
    declarations: Option<String>,
}

impl Params {
    pub fn with_declarations() -> Self {
        Self { declarations: Some(String::new()), ..Self::default() }
    }

    fn push(&mut self, bytes: &[u8], ty: &str, name: std::fmt::Arguments) {
        self.bytes.extend_from_slice(bytes);
        if let Some(text) = &mut self.declarations {
            let _ = writeln!(text, "  {ty} {name};");
        }
    }

    /// A buffer of elements of a storage type, by address.
    pub fn address(&mut self, value: u64, storage: &str, name: std::fmt::Arguments) {
        self.push(&value.to_le_bytes(), &format!("Buffer_{storage}"), name);
    }

    /// An index, extent or stride; strides wrap, so that negative ones work out.
    pub fn index(&mut self, value: i64, wide: bool, name: std::fmt::Arguments) {
        if wide {
            self.push(&value.to_le_bytes(), "IDX", name);
        } else {
            self.push(&(value as u32).to_le_bytes(), "IDX", name);
        }
    }

    /// An extent or count.
    pub fn extent(&mut self, value: u64, wide: bool, name: std::fmt::Arguments) {
        self.index(value as i64, wide, name);
    }

    /// The bits of an immediate value.
    pub fn bits(&mut self, value: [u8; 8], name: std::fmt::Arguments) {
        self.push(&value, "uvec2", name);
    }

    pub fn declarations(self) -> String {
        self.declarations.unwrap_or_default()
    }
}

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

/// The start of every kernel of ours: extensions, float modes, buffer types, index type. `computes` names all types that
/// the kernel computes in: the library's 64-bit halves are compiled only where they are used.
pub fn prelude(caps: &Capabilities, wide: bool, storages: &[&str], computes: &[Compute]) -> String {
    let uses = |types: &[Compute]| computes.iter().any(|compute| types.contains(compute));
    let float64 = uses(&[Compute::Double]);
    let int64 = caps.int64 && (wide || float64 || uses(&[Compute::Uint64, Compute::Int64]));
    let mut text = String::from(
        "#version 460\n\
         #extension GL_GOOGLE_include_directive : require\n\
         #include \"lib/extensions.glsl\"\n",
    );
    // Subnormals, infinities and NaN are kept and rounding is to even wherever the device can promise it.
    let mut mode = |has: bool, capability: u32, mode: u32, width: u32| {
        if has {
            let extension = "extensions = [\"SPV_KHR_float_controls\"]";
            let _ =
                writeln!(text, "spirv_execution_mode({extension}, capabilities = [{capability}], {mode}, {width});");
        }
    };
    mode(caps.denorm_preserve, 4464, 4459, 32);
    mode(caps.signed_zero_inf_nan, 4466, 4461, 32);
    mode(caps.round_to_even, 4467, 4462, 32);
    mode(float64 && caps.denorm_preserve64, 4464, 4459, 64);
    for (has, name) in [(float64, "HAS_FLOAT64"), (int64, "HAS_INT64"), (caps.fma, "HAS_FMA")] {
        if has {
            let _ = writeln!(text, "#define {name}");
        }
    }
    let _ = writeln!(text, "#define IDX {}", if wide { "uint64_t" } else { "uint" });
    let mut seen: Vec<&str> = vec![];
    for &storage in storages {
        if !seen.contains(&storage) {
            seen.push(storage);
            let _ = writeln!(text, "layout(buffer_reference, scalar) buffer Buffer_{storage} {{ {storage} v[]; }};");
            let quad = quad_of(storage);
            let align = quad_bytes(storage);
            let _ = writeln!(
                text,
                "layout(buffer_reference, scalar, buffer_reference_align = {align}) buffer Quads_{storage} {{ {quad} v[]; }};\n\
                 #define SIZE_{storage} {}ul",
                align / 4
            );
        }
    }
    // Arrays take 32-bit indices; beyond that the address itself is moved.
    text.push_str(if wide {
        "#define AT(T, b, i) Buffer_##T(uint64_t(b) + uint64_t(i) * SIZE_##T).v[0]\n\
         #define QUAD(T, b, i) Quads_##T(uint64_t(b) + uint64_t(i) * 4ul * SIZE_##T).v[0]\n"
    } else {
        "#define AT(T, b, i) b.v[i]\n\
         #define QUAD(T, b, i) Quads_##T(b).v[i]\n"
    });
    text
}

/// The GLSL type of four elements of a storage type.
fn quad_of(storage: &str) -> &'static str {
    match storage {
        "uint8_t" => "u8vec4",
        "int8_t" => "i8vec4",
        "uint16_t" => "u16vec4",
        "int16_t" => "i16vec4",
        "uint" => "uvec4",
        "int" => "ivec4",
        "uint64_t" => "u64vec4",
        "int64_t" => "i64vec4",
        "double" => "dvec4",
        _ => "vec4",
    }
}

/// Bytes of four elements of a storage type, to which addresses of quads are aligned.
pub fn quad_bytes(storage: &str) -> u64 {
    match storage {
        "uint8_t" | "int8_t" => 4,
        "uint16_t" | "int16_t" => 8,
        "uint64_t" | "int64_t" | "double" => 32,
        _ => 16,
    }
}

/// How a reduction accumulates.
pub struct Accumulator {
    /// Types of the accumulator's one or two parts.
    pub parts: SmallVec<[Compute; 2]>,
    name: &'static str,
}

impl Accumulator {
    /// The accumulator of the program's reduction, if it has one. Sums and products of narrow floats run in double, as
    /// BinaryBackend's do, or compensated where the device has no double; sums of doubles are compensated.
    pub fn of(program: &Program, layout: &Layout, caps: &Capabilities) -> Option<Self> {
        let (reduction, element) = program.reduced_type()?;
        let compute = match element.compute() {
            Compute::Float if caps.float64 => Compute::Double,
            other => other,
        };
        let index = if layout.wide { Compute::Uint64 } else { Compute::Uint };
        let (name, parts): (_, SmallVec<[Compute; 2]>) = match reduction {
            Reduction::Sum if element.is_float() && element.compute() == compute => {
                ("sum", SmallVec::from_slice(&[compute, compute]))
            }
            Reduction::Sum => ("sum", SmallVec::from_slice(&[compute])),
            Reduction::Product => ("product", SmallVec::from_slice(&[compute])),
            Reduction::Max => ("max", SmallVec::from_slice(&[element.compute()])),
            Reduction::Min => ("min", SmallVec::from_slice(&[element.compute()])),
            Reduction::All => ("all", SmallVec::from_slice(&[Compute::Uint])),
            Reduction::Any => ("any", SmallVec::from_slice(&[Compute::Uint])),
            Reduction::ArgMax => ("argmax", SmallVec::from_slice(&[element.compute(), index])),
            Reduction::ArgMin => ("argmin", SmallVec::from_slice(&[element.compute(), index])),
        };
        Some(Self { parts, name })
    }

    fn list(&self, f: impl Fn(usize, &str) -> String) -> String {
        self.parts.iter().enumerate().map(|(i, part)| f(i, part.glsl())).collect::<Vec<_>>().join(" ")
    }

    fn call(&self, function: &str, a: impl Fn(usize) -> String, b: impl Fn(usize) -> String) -> String {
        let count = self.parts.len();
        let arguments = (0..count).map(&a).chain((0..count).map(&b)).collect::<Vec<_>>().join(", ");
        format!("{function}_{}({arguments});", self.name)
    }

    /// The identity of a part.
    fn identity(&self, part: usize) -> String {
        let ty = self.parts[part];
        match (self.name, part) {
            ("product", _) | ("all", _) => format!("{}(1)", ty.glsl()),
            ("max" | "argmax", 0) => format!("lowest_{}()", ty.glsl()),
            ("min" | "argmin", 0) => format!("highest_{}()", ty.glsl()),
            // No element yet: any index beats it.
            ("argmax" | "argmin", _) => format!("~{}(0)", ty.glsl()),
            _ => format!("{}(0)", ty.glsl()),
        }
    }
}

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

    fn reduce(&self, text: &mut String, stage: Stage, accumulator: &Accumulator) {
        let (Stage::Reduce { across, along, from_partial, to_partial }, Some((reduction, element))) =
            (stage, self.program.reduced_type())
        else {
            return;
        };
        let last = &self.program.nodes[self.program.nodes.len() - 1];
        let parts = accumulator.parts.len();
        let threads = across * along;
        let arg = matches!(reduction, Reduction::ArgMax | Reduction::ArgMin);
        let ties_last = matches!(last.attribute, Attribute::Arg { last: true, .. });
        let _ = writeln!(
            text,
            "layout(local_size_x = {threads}) in;\n\
             #define LAST_WINS {ties_last}\n\
             #include \"lib/reduce.glsl\"",
        );
        // What one element contributes: `o` is the output's index, `r` the place along the reduced axes.
        let declared = accumulator.list(|i, ty| format!("out {ty} x{i}{}", if i + 1 < parts { "," } else { "" }));
        let _ = writeln!(text, "void element(IDX o, IDX r, {declared}) {{");
        if from_partial {
            for (i, part) in accumulator.parts.iter().enumerate() {
                let _ = writeln!(text, "  x{i} = AT({}, p.partial{i}, r * p.outputs + o);", part.glsl());
            }
        } else {
            self.offsets(text);
            self.places(text, "o", 0..self.layout.kept);
            self.places(text, "r", self.layout.kept..self.layout.dims.len());
            self.nodes(text, self.program.nodes.len() - 1);
            let argument = format!("v{}", last.args[0]);
            let value = convert((argument, self.program.type_of(last.args[0])), element);
            let lifted = match reduction {
                Reduction::All | Reduction::Any => format!("uint(!is_zero({value}))"),
                _ => format!("{}({value})", accumulator.parts[0].glsl()),
            };
            let _ = writeln!(text, "  x0 = {lifted};");
            if parts == 2 {
                let _ = writeln!(text, "  x1 = {};", if arg { "r".into() } else { accumulator.identity(1) });
            }
        }
        text.push_str("}\n");
        for (i, part) in accumulator.parts.iter().enumerate() {
            let _ = writeln!(text, "shared {} shared{i}[{threads}];", part.glsl());
        }
        let initial = accumulator.list(|i, ty| format!("precise {ty} a{i} = {};", accumulator.identity(i)));
        let _ = writeln!(
            text,
            "void main() {{\n\
             \x20 uint lane = gl_LocalInvocationID.x, x = lane % {across}, y = lane / {across};\n\
             \x20 IDX group = IDX(gl_WorkGroupID.y) * gl_NumWorkGroups.x + gl_WorkGroupID.x;\n\
             \x20 IDX chunk = group % p.chunks;\n\
             \x20 IDX o = (group / p.chunks) * {across} + x;\n\
             \x20 IDX end = min((chunk + 1) * p.chunk, p.reduced);\n\
             \x20 {initial}\n\
             \x20 if (o < p.outputs) {{\n\
             \x20   IDX r = chunk * p.chunk + y;"
        );
        // Four elements at a time, so that their loads overlap.
        let unrolled = 4;
        let _ = writeln!(text, "    for (; r + {} < end; r += {}) {{", along * (unrolled - 1), along * unrolled);
        for k in 0..unrolled {
            let names = accumulator.list(|i, ty| format!("{ty} x{k}_{i};"));
            let passed: Vec<_> = (0..parts).map(|i| format!("x{k}_{i}")).collect();
            let _ = writeln!(text, "      {names} element(o, r + {}, {});", along * k, passed.join(", "));
        }
        for k in 0..unrolled {
            let combine = accumulator.call("combine", |i| format!("a{i}"), |i| format!("x{k}_{i}"));
            let _ = writeln!(text, "      {combine}");
        }
        let names = accumulator.list(|i, ty| format!("{ty} x{i};"));
        let passed: Vec<_> = (0..parts).map(|i| format!("x{i}")).collect();
        let combine = accumulator.call("combine", |i| format!("a{i}"), |i| format!("x{i}"));
        let _ = writeln!(
            text,
            "    }}\n\
             \x20   for (; r < end; r += {along}) {{ {names} element(o, r, {}); {combine} }}\n\
             \x20 }}",
            passed.join(", ")
        );
        if along > 1 {
            let put = accumulator.list(|i, _| format!("shared{i}[lane] = a{i};"));
            let get = accumulator.call("combine", |i| format!("a{i}"), |i| format!("shared{i}[lane + s * {across}]"));
            let _ = writeln!(
                text,
                "  {put}\n\
                 \x20 for (uint s = {}; s > 0; s >>= 1) {{\n\
                 \x20   barrier();\n\
                 \x20   if (y < s) {{ {get} {put} }}\n\
                 \x20 }}",
                along / 2
            );
        }
        text.push_str("  if (y == 0 && o < p.outputs) {\n");
        if to_partial {
            for (i, part) in accumulator.parts.iter().enumerate() {
                let _ = writeln!(text, "    AT({}, p.partial_out{i}, chunk * p.outputs + o) = a{i};", part.glsl());
            }
        } else {
            let result = last.ty;
            let finished = match (accumulator.name, parts) {
                ("sum", 2) => (String::from("finish_sum(a0, a1)"), accumulator.parts[0]),
                ("argmax" | "argmin", _) => (String::from("a1"), accumulator.parts[1]),
                _ => (String::from("a0"), accumulator.parts[0]),
            };
            let value = convert((finished.0, of_compute(finished.1)), result);
            let _ = writeln!(text, "    AT({}, p.result, o) = {};", result.storage(), store(result, &value));
        }
        text.push_str("  }\n}\n");
    }
}

/// The widest element type of a compute type.
fn of_compute(compute: Compute) -> Type {
    match compute {
        Compute::Uint => Type::U32,
        Compute::Int => Type::S32,
        Compute::Uint64 => Type::U64,
        Compute::Int64 => Type::S64,
        Compute::Float => Type::F32,
        Compute::Double => Type::F64,
    }
}

/// A stored element as a value.
pub fn load(ty: Type, stored: &str) -> String {
    match ty {
        Type::F16 => format!("f16_to_float(uint({stored}))"),
        Type::BF16 => format!("bf16_to_float(uint({stored}))"),
        _ => format!("{}({stored})", ty.compute().glsl()),
    }
}

/// A value as it is stored.
pub fn store(ty: Type, value: &str) -> String {
    match ty {
        Type::F16 => format!("uint16_t(float_to_f16({value}))"),
        Type::BF16 => format!("uint16_t(float_to_bf16({value}))"),
        _ => format!("{}({value})", ty.storage()),
    }
}

/// A value converted to another type, as `Nx.as_type/2` does.
pub fn convert((value, from): (String, Type), to: Type) -> String {
    if from == to { value } else { format!("to_{}({value})", to.suffix()) }
}

/// A value of the compute type brought back into the range of a narrow type after an op.
fn narrow(ty: Type, value: &str) -> String {
    match ty.bits() {
        8 | 16 => format!("to_{}({value})", ty.suffix()),
        _ => value.into(),
    }
}

/// The bits of a value as another type stores them, of the same width.
fn bitcast((value, from): (String, Type), to: Type) -> String {
    let bits = match from.compute() {
        _ if from.bits() == 16 => format!("uint({})", store(from, &value)),
        Compute::Float => format!("floatBitsToUint({value})"),
        Compute::Double => format!("unpackDouble2x32({value})"),
        Compute::Uint64 | Compute::Int64 => format!("unpackUint2x32(uint64_t({value}))"),
        Compute::Uint | Compute::Int => format!("uint({value})"),
    };
    match to.compute() {
        Compute::Double => format!("packDouble2x32({bits})"),
        Compute::Uint64 | Compute::Int64 => format!("packUint2x32({bits})"),
        Compute::Float if to.bits() == 32 => format!("uintBitsToFloat({bits})"),
        _ => format!("{}({bits})", to.storage()),
    }
}

/// An immediate's 64 bits as its type stores them.
fn immediate(ty: Type, bits: &str) -> String {
    match ty.compute() {
        Compute::Double => format!("packDouble2x32({bits})"),
        Compute::Uint64 | Compute::Int64 => format!("packUint2x32({bits})"),
        Compute::Float if ty.bits() == 32 => format!("uintBitsToFloat({bits}.x)"),
        _ => format!("{}({bits}.x)", ty.storage()),
    }
}
