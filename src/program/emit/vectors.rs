//! Inputs that a loop reads for its program: in vectors of four neighbours, or through a tile.

use std::fmt::Write as _;

use super::rows::{SHARED_ROW, shared_element};
use super::{Emitter, View, define, vec4_of};

/// An input that a loop reads: its view, its number, and its storage type.
#[derive(Clone, Copy)]
pub(super) struct GivenInput {
    pub view: usize,
    pub input: usize,
    pub storage: &'static str,
}

impl Emitter<'_> {
    /// Whether the loop gives the program the input's elements.
    pub(super) fn is_given(&self, input: usize) -> bool {
        input < 32 && (self.vectors.vec4 | self.vectors.broadcast) >> input & 1 == 1
    }

    /// Whether four neighbours have one element of the input.
    pub(super) fn is_broadcast(&self, input: usize) -> bool {
        self.vectors.broadcast >> input & 1 == 1
    }

    pub(super) fn given(&self) -> Vec<GivenInput> {
        let given = |(v, view): (usize, &View)| Some((v, view.input.filter(|&input| self.is_given(input))?));
        let views = self.layout.views.iter().enumerate().filter_map(given);
        views
            .map(|(view, input)| GivenInput { view, input, storage: self.program.inputs[input].ty.storage() })
            .collect()
    }

    /// Functions that read the given inputs, and the macros of them that loops use:
    ///
    /// - `BASES(w, o)` declares the `w`-th bases: where the inputs are read for an index over the kept axes, once for all that is
    ///   reduced.
    /// - `LOAD_VECTOR(k, w, r)` declares what they have for four neighbours at these bases and an index over the reduced axes, as the
    ///   `k`-th vector; `LOAD_SCALAR(k, w, r)` what they have there.
    /// - `VECTOR_STORED(k, w, c)` and `SCALAR_STORED(k, w)` are the arguments of `element` for that.
    pub(super) fn vector_macros(&self, text: &mut String) {
        let given = self.given();
        if given.is_empty() {
            for name in ["BASES(w, o)", "LOAD_VECTOR(k, w, r)", "LOAD_SCALAR(k, w, r)"] {
                define(text, name, "");
            }
            define(text, "VECTOR_STORED(k, w, c)", "");
            return define(text, "SCALAR_STORED(k, w)", "");
        }
        let list = |separator: &str, f: &dyn Fn(&GivenInput) -> String| {
            given.iter().map(f).collect::<Vec<_>>().join(separator)
        };
        self.base_function(text, &self.with_coordinates(given.iter().map(|g| g.view)));
        let views = self.with_coordinates(given.iter().map(|g| g.view));
        let bases = views.iter().map(|v| format!("base{v}_##w")).collect::<Vec<_>>().join(", ");
        define(text, "BASES(w, o)", format_args!("IDX {bases}; bases(o, {bases});"));
        for (name, function, is_vector) in [("LOAD_VECTOR", "load_vector", true), ("LOAD_SCALAR", "load_scalar", false)]
        {
            let ty = |g: &GivenInput| {
                if is_vector && !self.is_broadcast(g.input) { vec4_of(g.storage) } else { g.storage }
            };
            let indices: String = views.iter().map(|v| format!(", IDX index{v}")).collect();
            let parameters = list("", &|g| format!(", out {} q{}", ty(g), g.input));
            let _ = writeln!(text, "void {function}(IDX r{indices}{parameters}) {{");
            self.add_axes(text, "r", self.layout.kept..self.layout.dims.len(), &views);
            for g in &given {
                let _ = writeln!(text, "  q{} = {};", g.input, self.given_element(g, is_vector));
            }
            text.push_str("}\n");
            let declared = list(" ", &|g| format!("{} q{}_##k##_##w;", ty(g), g.input));
            let passed = list("", &|g| format!(", q{}_##k##_##w", g.input));
            define(text, &format!("{name}(k, w, r)"), format_args!("{declared} {function}(r, {bases}{passed});"));
        }
        let lane = |g: &GivenInput| if self.is_broadcast(g.input) { "" } else { "[c]" };
        let vector = list("", &|g| format!(", q{}_##k##_##w{}", g.input, lane(g)));
        define(text, "VECTOR_STORED(k, w, c)", vector);
        define(text, "SCALAR_STORED(k, w)", list("", &|g| format!(", q{}_##k##_##w", g.input)));
    }

    /// The stored element of an input at an index of its memory.
    pub(super) fn stored_element(&self, input: usize, index: &str) -> String {
        match self.shared_input == Some(input) {
            true => shared_element(index),
            false => format!("AT({}, p.input{input}, {index})", self.program.inputs[input].ty.storage()),
        }
    }

    /// The load of a given input's stored element, or of four, at the index of its view.
    pub(super) fn given_element(&self, given: &GivenInput, is_vector: bool) -> String {
        let &GivenInput { view, input, storage } = given;
        let is_vector = is_vector && !self.is_broadcast(input);
        let load = match is_vector {
            true if self.shared_input == Some(input) => format!("{SHARED_ROW}[index{view} / 4]"),
            true => format!("LOAD_VEC4({storage}, p.input{input}, index{view} / 4)"),
            false => self.stored_element(input, &format!("index{view}")),
        };
        self.or_padding(view, &self.exists(view), load, is_vector)
    }

    fn base_function(&self, text: &mut String, views: &[usize]) {
        let out: String = views.iter().map(|v| format!(", out IDX index{v}")).collect();
        let _ = writeln!(text, "void bases(IDX o{out}) {{");
        for v in views {
            let _ = writeln!(text, "  index{v} = p.offset{v};");
        }
        self.add_axes(text, "o", 0..self.layout.kept, views);
        text.push_str("}\n");
    }
}
