//! What a thread gets for four neighbouring elements at once.

use std::fmt::Write as _;

use super::Emitter;
use super::params::quad_of;

impl Emitter<'_> {
    /// `four` loads the held inputs for four neighbours, `one` for a single place. Both take the index over the kept axes
    /// and that over the reduced ones.
    pub(super) fn loaders(&self, text: &mut String) {
        let held = self.held();
        if held.is_empty() {
            return;
        }
        let views: Vec<usize> = held.iter().map(|&(v, ..)| v).collect();
        for name in ["four", "one"] {
            let out = |&(_, input, storage): &(usize, usize, &'static str)| {
                format!(", out {} q{input}", if name == "four" { self.taken(input, storage) } else { storage })
            };
            let _ = writeln!(text, "void {name}(IDX o, IDX r{}) {{", held.iter().map(out).collect::<String>());
            for v in &views {
                let _ = writeln!(text, "  IDX place{v} = p.offset{v};");
            }
            self.places(text, "o", 0..self.layout.kept, &views);
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

    /// Declares what the held inputs give the `k`-th time, and calls the loader `name` for it.
    pub(super) fn load_held(&self, name: &str, k: u32, place: &str) -> String {
        let held = self.held();
        if held.is_empty() {
            return String::new();
        }
        let declare = |&(_, input, storage): &(usize, usize, &'static str)| {
            format!("{} q{k}_{input};", if name == "four" { self.taken(input, storage) } else { storage })
        };
        let names = held.iter().map(declare).collect::<Vec<_>>().join(" ");
        let passed = held.iter().map(|(_, input, _)| format!(", q{k}_{input}")).collect::<String>();
        format!("{names} {name}({place}{passed});")
    }

    /// The stored element of a held input for the `c`-th of the four neighbours that it was loaded for.
    pub(super) fn of_four(&self, input: usize, k: u32, c: u32) -> String {
        if self.is_one(input) { format!("q{k}_{input}") } else { format!("q{k}_{input}[{c}]") }
    }

    fn taken(&self, input: usize, storage: &'static str) -> &'static str {
        if self.is_one(input) { storage } else { quad_of(storage) }
    }

    fn is_one(&self, input: usize) -> bool {
        self.ones >> input & 1 == 1
    }
}
