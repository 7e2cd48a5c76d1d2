//! What a thread gets for four neighbouring elements at once.

use std::fmt::Write as _;

use super::Emitter;
use super::params::quad_of;

impl Emitter<'_> {
    /// `bases` finds where the held inputs are read for an index over the kept axes, once for all that is reduced. From
    /// there and an index over the reduced axes, `four` loads them for four neighbours and `one` for a single place.
    pub(super) fn loaders(&self, text: &mut String) {
        let held = self.held();
        if held.is_empty() {
            return;
        }
        let views: Vec<usize> = held.iter().map(|&(v, ..)| v).collect();
        let out: String = views.iter().map(|v| format!(", out IDX place{v}")).collect();
        let _ = writeln!(text, "void bases(IDX o{out}) {{");
        for v in &views {
            let _ = writeln!(text, "  place{v} = p.offset{v};");
        }
        self.places(text, "o", 0..self.layout.kept, &views);
        text.push_str("}\n");
        for name in ["four", "one"] {
            let argument = |&(v, input, storage): &(usize, usize, &'static str)| {
                format!(", IDX place{v}, out {} q{input}", self.taken(name, input, storage))
            };
            let _ = writeln!(text, "void {name}(IDX r{}) {{", held.iter().map(argument).collect::<String>());
            self.places(text, "r", self.layout.kept..self.layout.dims.len(), &views);
            for &(v, input, storage) in &held {
                let load = match name {
                    "four" if !self.is_one(input) => format!("LOAD_QUAD({storage}, p.input{input}, place{v} / 4)"),
                    _ => format!("AT({storage}, p.input{input}, place{v})"),
                };
                let _ = writeln!(text, "  q{input} = {load};");
            }
            text.push_str("}\n");
        }
    }

    /// Declares the `b`-th bases, for the index `o` over the kept axes.
    pub(super) fn bases(&self, b: u32, o: &str) -> String {
        let held = self.held();
        if held.is_empty() {
            return String::new();
        }
        let names = held.iter().map(|(v, ..)| format!("base{b}_{v}")).collect::<Vec<_>>().join(", ");
        format!("IDX {names}; bases({o}, {names});")
    }

    /// Declares what the held inputs give the `k`-th time, and calls the loader `name` with the `b`-th bases.
    pub(super) fn load_held(&self, name: &str, k: u32, b: u32, r: &str) -> String {
        let held = self.held();
        if held.is_empty() {
            return String::new();
        }
        let declare = |&(_, input, storage): &(usize, usize, &'static str)| {
            format!("{} q{k}_{input};", self.taken(name, input, storage))
        };
        let names = held.iter().map(declare).collect::<Vec<_>>().join(" ");
        let passed = held.iter().map(|(v, input, _)| format!(", base{b}_{v}, q{k}_{input}")).collect::<String>();
        format!("{names} {name}({r}{passed});")
    }

    /// The stored element of a held input for the `c`-th of the four neighbours that it was loaded for.
    pub(super) fn of_four(&self, input: usize, k: u32, c: u32) -> String {
        if self.is_one(input) { format!("q{k}_{input}") } else { format!("q{k}_{input}[{c}]") }
    }

    /// The type of what a loader gets of an input.
    fn taken(&self, name: &str, input: usize, storage: &'static str) -> &'static str {
        if name == "one" || self.is_one(input) { storage } else { quad_of(storage) }
    }

    pub(super) fn is_one(&self, input: usize) -> bool {
        self.ones >> input & 1 == 1
    }
}
