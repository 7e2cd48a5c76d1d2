//! Reductions: how they accumulate, and their kernel.

use std::fmt::Write as _;

use smallvec::SmallVec;

use super::values::{convert, of_compute, store};
use super::{Emitter, Stage};
use crate::device::Capabilities;
use crate::program::layout::Layout;
use crate::program::op::Reduction;
use crate::program::types::Compute;
use crate::program::{Attribute, Program};

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

impl Emitter<'_> {
    pub(super) fn reduce(&self, text: &mut String, stage: Stage, accumulator: &Accumulator) {
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
