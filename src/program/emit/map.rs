//! Element-wise kernels: an element, and the macros of `shaders/lib/loops/map.glsl`.

use std::fmt::Write as _;

use super::prelude::vec4_of;
use super::values::store;
use super::{Emitter, MapTraversal, SCALARS_PER_THREAD, VECTORS_PER_THREAD, define};
use crate::program::layout::Pattern;

impl Emitter<'_> {
    pub(super) fn map(&self, text: &mut String, threads: u32, traversal: MapTraversal, vectors: bool) {
        self.map_element(text);
        self.vector_macros(text);
        self.linear_macros(text);
        self.result_macros(text);
        define(text, "THREADS", threads);
        define(text, "SCALARS_PER_THREAD", SCALARS_PER_THREAD);
        define(text, "VECTORS_PER_THREAD", VECTORS_PER_THREAD);
        let traversal = match traversal {
            MapTraversal::Chunk => "CHUNKED",
            MapTraversal::Single => "SINGLE",
            MapTraversal::Unrolled => "UNROLLED",
            MapTraversal::Rolled => "ROLLED",
        };
        define(text, traversal, "");
        if vectors {
            define(text, "VECTORS", "");
        }
        if self.strided_output().is_some() {
            define(text, "OUTPUT_STRIDED", "");
        }
        text.push_str("#include \"lib/loops/map.glsl\"\n");
    }

    /// `element` computes one result from the stored elements of linear views and given inputs.
    fn map_element(&self, text: &mut String) {
        let given = self.given().into_iter().map(|g| (g.input, g.storage));
        let stored: String =
            self.linear().chain(given).map(|(input, storage)| format!(", {storage} x{input}")).collect();
        let output = self.strided_output();
        let target = if output.is_some() { ", out IDX target" } else { "" };
        let result = self.program.result();
        let _ = writeln!(text, "{} element(IDX i{stored}{target}) {{", result.storage());
        self.declare_indices(text);
        self.add_axes(text, "i", 0..self.layout.dims.len(), &self.strided());
        if let Some(v) = output {
            let _ = writeln!(text, "  target = index{v};");
        }
        let value = self.nodes(text, self.program.nodes.len());
        let _ = writeln!(text, "  return {};\n}}", store(result, &value));
    }

    /// What the loop reads of linear views: the `w`-th vector of a thread, its element `c`, or the element `i`.
    fn linear_macros(&self, text: &mut String) {
        let list = |f: &dyn Fn(usize, &str) -> String| {
            self.linear().map(|(input, storage)| f(input, storage)).collect::<String>()
        };
        let load = list(&|input, storage| {
            format!("{} l{input}_##w = LOAD_VEC4({storage}, p.input{input}, v); ", vec4_of(storage))
        });
        define(text, "LOAD_LINEAR(w, v)", load);
        define(text, "LINEAR_VECTORS(w, c)", list(&|input, _| format!(", l{input}_##w[c]")));
        define(text, "LINEAR_SCALARS(i)", list(&|input, storage| format!(", AT({storage}, p.input{input}, i)")));
    }

    /// The inputs that are read at the linear index, with their storage types.
    pub(super) fn linear(&self) -> impl Iterator<Item = (usize, &'static str)> + '_ {
        let linear = self.layout.views.iter().filter(|view| view.pattern == Pattern::Linear);
        linear.filter_map(|view| view.input).map(|input| (input, self.program.inputs[input].ty.storage()))
    }
}
