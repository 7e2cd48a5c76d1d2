//! Folds: reductions by a function, one element after the other. An element, and the macros of `shaders/lib/loops/fold.glsl`.

use std::fmt::Write as _;

use super::values::{convert, load, store};
use super::{Emitter, define};
use crate::program::Source;
use crate::program::layout::Pattern;

impl Emitter<'_> {
    pub(super) fn fold(&self, text: &mut String, threads: u32) {
        let last = &self.program.nodes[self.program.nodes.len() - 1];
        let (ty, compute, storage) = (last.ty, last.ty.compute().glsl(), last.ty.storage());
        let _ = writeln!(text, "{compute} next(IDX o, IDX r, {compute} accumulator) {{");
        self.reduced_element(text);
        let next = (format!("v{}", last.args[1]), self.program.type_of(last.args[1]));
        let _ = writeln!(text, "  return {};\n}}", convert(next, ty));
        let first = self.program.nodes[last.args[0] - self.program.inputs.len()].args[0];
        let first_type = self.program.inputs[first].ty;
        let stored = match self.program.inputs[first].source {
            Source::Scalar | Source::Constant(_) => self.one_value(first),
            // One element, whose offset is in the address.
            Source::View { .. } | Source::Padded(_) => format!("AT({}, p.input{first}, IDX(0))", first_type.storage()),
        };
        debug_assert!(self.layout.views.iter().all(|v| v.input != Some(first) || v.pattern == Pattern::Single));
        define(text, "THREADS", threads);
        define(text, "ACCUMULATOR", compute);
        define(text, "START", convert((load(first_type, &stored), first_type), ty));
        let output = format!("AT({storage}, p.result, index) = {};", store(ty, "accumulator"));
        define(text, "STORE_OUTPUT(accumulator, index)", output);
        text.push_str("#include \"lib/loops/fold.glsl\"\n");
    }
}
