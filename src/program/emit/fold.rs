//! Folds: reductions by any function, one element after the other.

use std::fmt::Write as _;

use super::Emitter;
use super::values::{convert, immediate, load, store};
use crate::program::Source;
use crate::program::layout::Pattern;

impl Emitter<'_> {
    pub(super) fn fold(&self, text: &mut String, threads: u32) {
        let inputs = self.program.inputs.len();
        let last = &self.program.nodes[self.program.nodes.len() - 1];
        let (ty, compute, storage) = (last.ty, last.ty.compute().glsl(), last.ty.storage());
        let _ = writeln!(text, "{compute} next(IDX o, IDX r, {compute} accumulator) {{");
        self.reduced(text);
        let next = (format!("v{}", last.args[1]), self.program.type_of(last.args[1]));
        let first = self.program.nodes[last.args[0] - inputs].args[0];
        let first_type = self.program.inputs[first].ty;
        let stored = match self.program.inputs[first].source {
            Source::Scalar => immediate(first_type, &format!("p.scalar{first}")),
            // One place, which is folded into the address.
            Source::View { .. } => format!("AT({}, p.input{first}, IDX(0))", first_type.storage()),
        };
        debug_assert!(self.layout.views.iter().all(|v| v.input != Some(first) || v.pattern == Pattern::Single));
        let _ = writeln!(
            text,
            "  return {next};\n}}\n\
             layout(local_size_x = {threads}) in;\n\
             void main() {{\n\
             \x20 IDX o = workgroup() * {threads} + INVOCATION;\n\
             \x20 if (o >= p.outputs) return;\n\
             \x20 {compute} accumulator = {start};\n\
             \x20 for (IDX r = 0; r < p.reduced; r++) accumulator = next(o, r, accumulator);\n\
             \x20 AT({storage}, p.result, o) = {stored};\n\
             }}",
            next = convert(next, ty),
            start = convert((load(first_type, &stored), first_type), ty),
            stored = store(ty, "accumulator"),
        );
    }
}
