//! Elementwise kernels.

use std::fmt::Write as _;

use super::params::quad_of;
use super::values::store;
use super::{Emitter, MapTraversal, SCALARS_PER_THREAD as ELEMENTS, VECTORS_PER_THREAD as QUADS};
use crate::program::layout::Pattern;

impl Emitter<'_> {
    /// `element` computes one result from the stored elements of linear views and held inputs, which the caller loads.
    pub(super) fn map(&self, text: &mut String, threads: u32, traversal: MapTraversal, quads: bool) {
        let result = self.program.result().storage();
        let linear: Vec<(usize, &str)> = self.linear().collect();
        let held: Vec<(usize, &str)> = self.held().iter().map(|&(_, input, storage)| (input, storage)).collect();
        let given = |inputs: &[(usize, &str)], f: &dyn Fn(usize, &str) -> String| {
            inputs.iter().map(|&(input, storage)| format!(", {}", f(input, storage))).collect::<String>()
        };
        let all = |of_linear: &dyn Fn(usize, &str) -> String, of_held: &dyn Fn(usize, &str) -> String| {
            given(&linear, of_linear) + &given(&held, of_held)
        };
        let scattered = self.scattered();
        let _ = writeln!(
            text,
            "{result} element(IDX i{}{}) {{",
            all(&|input, storage| format!("{storage} x{input}"), &|input, storage| format!("{storage} x{input}")),
            if scattered.is_some() { ", out IDX target" } else { "" },
        );
        self.offsets(text);
        self.places(text, "i", 0..self.layout.dims.len(), &self.strided());
        if let Some(v) = scattered {
            let _ = writeln!(text, "  target = place{v};");
        }
        let value = self.nodes(text, self.program.nodes.len());
        let _ = writeln!(text, "  return {};\n}}", store(self.program.result(), &value));
        self.loaders(text);
        let loads =
            all(&|input, storage| format!("AT({storage}, p.input{input}, i)"), &|input, _| format!("q0_{input}"));
        let held_one = format!("{} {}", self.bases(0, "i"), self.load_held("one", 0, 0, "0"));
        let one = match scattered {
            Some(_) => {
                format!("IDX at; {result} value = element(i{loads}, at); AT({result}, p.result, at) = value;")
            }
            None => format!("AT({result}, p.result, i) = element(i{loads});"),
        };
        let tile = threads * ELEMENTS;
        let _ = writeln!(
            text,
            "layout(local_size_x = {threads}) in;\n\
             void single(IDX i) {{ {held_one} {one} }}\n\
             void main() {{\n\
             \x20 IDX tile = turned();"
        );
        let load = |k: u32, quad: &str| {
            let one = |&(input, storage): &(usize, &str)| {
                format!("{} q{k}_{input} = LOAD_QUAD({storage}, p.input{input}, {quad});", quad_of(storage))
            };
            let loads = linear.iter().map(one).collect::<Vec<_>>().join(" ");
            format!("{loads} {} {}", self.bases(k, &format!("{quad} * 4")), self.load_held("four", k, k, "0"))
        };
        let compute = |k: u32, quad: &str| {
            let element = |c| {
                let stored = all(&|input, _| format!("q{k}_{input}[{c}]"), &|input, _| self.of_four(input, k, c));
                format!("element({quad} * 4 + {c}{stored})")
            };
            let elements = (0..4).map(element).collect::<Vec<_>>().join(", ");
            format!("SET_QUAD({result}, p.result, {quad}, {}({elements}));", quad_of(result))
        };
        if traversal == MapTraversal::Chunk {
            let (count, body) = match quads {
                true => ("p.count / 4", format!("{} {}", load(0, "i"), compute(0, "i"))),
                false => ("p.count", "single(i);".into()),
            };
            let _ = writeln!(
                text,
                "  IDX count = {count}, end = min((tile + 1) * p.chunk, count);\n\
                 \x20 for (IDX i = tile * p.chunk + INVOCATION; i < end; i += {threads}) {{ {body} }}"
            );
            if quads {
                let _ = writeln!(
                    text,
                    "  if (tile * p.chunk <= count && end == count) {{\n\
                     \x20   for (IDX i = 4 * count + INVOCATION; i < p.count; i += {threads}) single(i);\n  }}"
                );
            }
            text.push_str("}\n");
        } else if traversal == MapTraversal::Rolled {
            let _ = writeln!(
                text,
                "  for (IDX k = 0, i = tile * {tile} + INVOCATION; k < {ELEMENTS} && i < p.count; k++, i += {threads}) single(i);\n}}"
            );
        } else if quads {
            let _ = writeln!(
                text,
                "  IDX quad = tile * {} + INVOCATION, whole = p.count / 4;\n\
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
                 \x20   if (quad == whole) for (IDX i = whole * 4; i < p.count; i++) single(i);\n\
                 \x20 }}\n}}",
                load(0, "quad"),
                compute(0, "quad"),
            );
        } else {
            let _ = writeln!(
                text,
                "  IDX first = tile * {tile} + INVOCATION;\n\
                 \x20 if ((tile + 1) * {tile} <= p.count) {{"
            );
            for k in 0..ELEMENTS {
                let _ = writeln!(text, "    single(first + {});", k * threads);
            }
            let _ = writeln!(
                text,
                "  }} else {{\n\
                 \x20   for (IDX i = first; i < p.count && tile * {tile} < p.count; i += {threads}) single(i);\n\
                 \x20 }}\n}}"
            );
        }
    }

    /// The inputs that are read at the linear index, with their storage types.
    pub(super) fn linear(&self) -> impl Iterator<Item = (usize, &'static str)> + '_ {
        let linear = self.layout.views.iter().filter(|view| view.pattern == Pattern::Linear);
        linear.filter_map(|view| view.input).map(|input| (input, self.program.inputs[input].ty.storage()))
    }
}
