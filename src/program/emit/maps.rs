//! Kernels of map groups: for each part a function of an element and one of four neighbours, and a `main` in which each workgroup goes through
//! the elements of one part. The loops are macros of `shaders/lib/loops/maps.glsl`.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::prelude::vec4_of;
use super::values::store;
use super::workgroup::replaced;
use super::{Emitter, VectorInputs, define, head};
use crate::device::Capabilities;
use crate::program::Type;
use crate::program::layout::{Layout, Pattern};
use crate::program::maps::{MAX_MAP_PARTS, MapPart};

/// What the names of each part's parameters begin with.
pub const MAP_PARAMETERS: [&str; MAX_MAP_PARTS] =
    ["a_", "b_", "c_", "d_", "e_", "f_", "g_", "h_", "i_", "j_", "k_", "l_", "m_", "n_", "o_", "q_"];

/// How a map group goes through its parts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MapSchedule {
    /// Threads of a workgroup.
    pub threads: u32,
    /// Whether a thread makes one element, without a loop, for compilers that are slow with those.
    pub single: bool,
    /// For each part whether its threads make vectors of four neighbours.
    pub vectors: Vec<bool>,
}

/// A part as it is emitted.
struct EmittedPart<'a> {
    part: &'a MapPart,
    layout: &'a Layout,
    emitter: Emitter<'a>,
    number: usize,
    vectors: bool,
}

/// Writes the kernel's source from the GLSL of its parameters' block.
pub fn emit_maps(
    parts: &[MapPart],
    layouts: &[Layout],
    schedule: &MapSchedule,
    index64: bool,
    parameters: &str,
    caps: &Capabilities,
) -> String {
    let emitted = parts.iter().zip(layouts).zip(&schedule.vectors).enumerate();
    let parts: Vec<EmittedPart> = emitted
        .map(|(number, ((part, layout), &vectors))| {
            let inputs = VectorInputs::default();
            let program = &part.program;
            let emitter = Emitter {
                program,
                layout,
                caps,
                vectors: inputs,
                vector_axis: None,
                window: false,
                shared_input: None,
            };
            EmittedPart { part, layout, emitter, number, vectors }
        })
        .collect();
    let (mut storages, mut computes, mut files) = (vec![], vec![], BTreeSet::new());
    for part in &parts {
        let (own_storages, own_computes) = part.emitter.types(None);
        storages.extend(own_storages);
        storages.extend(part.results().map(|(_, ty, _)| ty.storage()));
        computes.extend(own_computes);
        files.extend(part.emitter.files());
    }
    let mut text = head(caps, index64, &storages, &computes, parameters);
    for file in files {
        let _ = writeln!(text, "#include \"lib/{file}\"");
    }
    define(&mut text, "THREADS", schedule.threads);
    if schedule.single {
        define(&mut text, "SINGLE", "");
    }
    text.push_str("#include \"lib/loops/maps.glsl\"\n");
    for part in &parts {
        let mut own = String::new();
        part.functions(&mut own);
        text.push_str(&replaced(&own, |name| Some(format!("p.{}{name}", MAP_PARAMETERS[part.number]))));
    }
    text.push_str("void main() {\n  IDX group = workgroup();\n");
    for EmittedPart { number, vectors, .. } in &parts {
        let (prefix, kind) = (MAP_PARAMETERS[*number], if *vectors { "VECTORS" } else { "SCALARS" });
        let _ = writeln!(
            text,
            "  if (group < p.{prefix}groups) {{\n    \
             {kind}(group, p.{prefix}count, p.{prefix}chunk, scalar{number}, vector{number})\n    return;\n  }}\n\
             \x20 group -= p.{prefix}groups;"
        );
    }
    text.push_str("}\n");
    text
}

impl EmittedPart<'_> {
    /// The position, type and index of each result.
    fn results(&self) -> impl Iterator<Item = (usize, Type, String)> + '_ {
        let first = self.layout.views.len() - self.part.stores.len();
        self.part.stored(self.layout).enumerate().map(move |(k, (store, view))| {
            let index = if view.pattern == Pattern::Strided { format!("index{}", first + k) } else { "i".into() };
            (k, self.part.program.type_of(store.value), index)
        })
    }

    fn functions(&self, text: &mut String) {
        let (number, emitter) = (self.number, &self.emitter);
        let list = |f: &dyn Fn(usize, &str) -> String| {
            emitter.linear().map(|(input, storage)| f(input, storage)).collect::<String>()
        };
        let of_results =
            |f: &dyn Fn(usize, &str) -> String| self.results().map(|(k, ty, _)| f(k, ty.storage())).collect::<String>();
        // Where a result is not at the linear index, the function of an element stores it itself.
        let stored = list(&|input, storage| format!(", {storage} x{input}"));
        let out = of_results(&|k, storage| format!(", out {storage} r{k}"));
        let _ = writeln!(text, "void element{number}(IDX i{stored}{out}) {{");
        emitter.declare_indices(text);
        emitter.add_axes(text, "i", 0..self.layout.dims.len(), &emitter.strided());
        emitter.nodes(text, self.part.program.nodes.len());
        for ((k, ty, index), own) in self.results().zip(&self.part.stores) {
            let value = store(ty, &format!("v{}", own.value));
            let _ = writeln!(text, "  r{k} = {value};");
            if index != "i" {
                let _ = writeln!(text, "  AT({}, p.result{k}, {index}) = r{k};", ty.storage());
            }
        }
        let loads = list(&|input, storage| format!(", AT({storage}, p.input{input}, i)"));
        let declared = of_results(&|k, storage| format!("  {storage} r{k};\n"));
        let given = of_results(&|k, _| format!(", r{k}"));
        let _ = writeln!(text, "}}\nvoid scalar{number}(IDX i) {{\n{declared}  element{number}(i{loads}{given});");
        for (k, ty, _) in self.results().filter(|(_, _, index)| index == "i") {
            let _ = writeln!(text, "  AT({}, p.result{k}, i) = r{k};", ty.storage());
        }
        text.push_str("}\n");
        if self.vectors {
            self.vector_function(text);
        }
    }

    /// Four neighbours, whose results are all at the linear index.
    fn vector_function(&self, text: &mut String) {
        let (number, emitter) = (self.number, &self.emitter);
        let _ = writeln!(text, "void vector{number}(IDX v) {{");
        for (input, storage) in emitter.linear() {
            let vector = vec4_of(storage);
            let _ = writeln!(text, "  {vector} q{input} = LOAD_VEC4({storage}, p.input{input}, v);");
        }
        for c in 0..4 {
            let loads: String = emitter.linear().map(|(input, _)| format!(", q{input}[{c}]")).collect();
            let given: String = self.results().map(|(k, ..)| format!(", r{k}_{c}")).collect();
            for (k, ty, _) in self.results() {
                let _ = writeln!(text, "  {} r{k}_{c};", ty.storage());
            }
            let _ = writeln!(text, "  element{number}(v * 4 + {c}{loads}{given});");
        }
        for (k, ty, _) in self.results() {
            let (storage, vector) = (ty.storage(), vec4_of(ty.storage()));
            let _ = writeln!(text, "  SET_VEC4({storage}, p.result{k}, v, {vector}(r{k}_0, r{k}_1, r{k}_2, r{k}_3));");
        }
        text.push_str("}\n");
    }
}
