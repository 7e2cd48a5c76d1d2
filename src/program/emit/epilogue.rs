//! Epilogues: the functions that a kernel stores or reduces the elements of its result with.

use std::fmt::Write as _;

use super::prelude::vec4_of;
use super::values::{load, store};
use super::vectors::GivenInput;
use super::workgroup::replaced;
use super::{Accumulator, Emitter, VectorInputs, define};
use crate::device::Capabilities;
use crate::program::Attribute;
use crate::program::epilogue::{EpilogueProgram, EpilogueReduction};
use crate::program::types::Compute;

/// What the names of an epilogue's parameters begin with, as its kernel may have inputs of the same names.
pub const EPILOGUE_PARAMETERS: &str = "epilogue_";

/// What a kernel knows of the elements that it stores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct StoredElements {
    /// What it reads at once for four neighbours that it stores at once: neighbours along the program's last axis.
    pub vectors: VectorInputs,
    /// Whether it has the row and the column of an element: the column is the index along the program's last axis.
    pub columns: bool,
}

/// The text of an epilogue, and what the head of its kernel has to know of it.
pub struct EmittedEpilogue {
    /// Types of the elements of the buffers that it reads and writes.
    pub storages: Vec<&'static str>,
    /// Types that it computes in.
    pub computes: Vec<Compute>,
    /// Files of `shaders/lib`, each of which the kernel includes once.
    pub files: Vec<&'static str>,
    /// `store_element(i, x)` stores what the epilogue makes of the element `i`, as it is stored itself, and
    /// `store_elements(i, x0, x1, x2, x3)` of four from a multiple of four on. With columns, the row and the column follow `i`.
    pub functions: String,
    /// What all results are reduced to, if they are: a kernel includes [`EmittedReduction::functions`] then.
    pub reduction: Option<EmittedReduction>,
}

/// The text of an epilogue's reduction: each workgroup reduces the results of its elements to a partial result.
pub struct EmittedReduction {
    /// Whether the last of equal elements wins: the value of `LAST_WINS` where the kernel includes `lib/reduce.glsl`.
    pub last_wins: bool,
    /// The part of `reduce_result(r, x)`, which the epilogue's functions call, that gives the contribution of `x`.
    contribution: String,
    storage: &'static str,
    accumulator: Accumulator,
}

impl EmittedEpilogue {
    /// `element` is the parameter of the kernel where the elements go themselves, if they are kept.
    pub fn new(epilogue: &EpilogueProgram, element: &str, elements: StoredElements, caps: &Capabilities) -> Self {
        let EpilogueProgram { program, layout, .. } = epilogue;
        let StoredElements { vectors, columns } = elements;
        let vector_axis = layout.dims.len().checked_sub(1);
        let emitter = Emitter { program, layout, caps, vectors, vector_axis, window: false, shared_input: None };
        let (mut storages, mut computes) = emitter.types(None);
        let functions = emitter.epilogue(epilogue, element, columns);
        let mut reduction = None;
        if let Some(EpilogueReduction { program, layout }) = &epilogue.reduction {
            let emitter = Emitter { program, layout, vectors: VectorInputs::default(), vector_axis: None, ..emitter };
            reduction = emitter.epilogue_reduction();
            let (more, wider) = emitter.types(reduction.as_ref().map(|reduction| &reduction.accumulator));
            storages.extend(more);
            computes.extend(wider);
        }
        Self { storages, computes, files: emitter.files(), functions, reduction }
    }

    /// As a function which stores nothing: `name(i, row, column, x)` is the value of the element x at the index i, that of a column of a
    /// row. `prefix` is what the names of its parameters begin with; `columns` says whether its last axis is that of the columns.
    pub fn function(epilogue: &EpilogueProgram, name: &str, prefix: &str, columns: bool, caps: &Capabilities) -> Self {
        let EpilogueProgram { program, layout, .. } = epilogue;
        let vectors = VectorInputs::default();
        let emitter = Emitter { program, layout, caps, vectors, vector_axis: None, window: false, shared_input: None };
        let (storages, computes) = emitter.types(None);
        let functions = emitter.function(epilogue, name, prefix, columns);
        Self { storages, computes, files: emitter.files(), functions, reduction: None }
    }

    /// The includes of the files that are not among those that the kernel includes already.
    pub fn includes(&self, included: &[&str]) -> String {
        let files = self.files.iter().filter(|file| !included.contains(file));
        files.map(|file| format!("#include \"lib/{file}\"\n")).collect()
    }
}

impl EmittedReduction {
    /// The type of what a workgroup stores first.
    pub fn partial(&self) -> &'static str {
        self.accumulator.parts[0].glsl()
    }

    /// The functions for workgroups of so many invocations, of which at most so many have results. Each calls `start_results()` before it
    /// stores any, and `finish_results` of `lib/loops/results.glsl` at the end.
    pub fn functions(&self, [threads, slots]: [u32; 2], caps: &Capabilities) -> String {
        let Self { contribution, storage, accumulator, .. } = self;
        let each = |f: &dyn Fn(usize, Compute) -> String| accumulator.join(" ", f);
        let list = |name: &str| accumulator.join(", ", |i, _| format!("{name}{i}"));
        let combine = |x: &str| format!("{}({}, {});", accumulator.function(), list("own_"), list(x));
        let mut text = String::new();
        define(&mut text, "REDUCES_RESULTS", "");
        define(&mut text, "RESULT_GROUPS", format_args!("p.{EPILOGUE_PARAMETERS}groups"));
        if threads > 1 && threads == caps.subgroup {
            define(&mut text, "RESULTS_OF_SUBGROUP", "");
        }
        let _ = write!(
            text,
            "{own}\n{shared}\nvoid start_results() {{ {start} }}\n\
             void reduce_result(IDX r, {storage} x) {{\n  {declared}\n{contribution}  {reduce}\n}}\n\
             void put_results(uint slot) {{ {put} }}\n\
             void combine_results(uint slot, uint next, uint left) {{\n  \
             for (uint other = slot + next; other < left; other += next) {{ {get} {combine_other} }}\n  {put}\n}}\n\
             void store_partial(IDX group) {{ {store} }}\n#include \"lib/loops/results.glsl\"\n",
            // NVIDIA's driver 580.159.04 ends the process over variables of this kind that are `precise`.
            own = each(&|i, part| format!("{} own_{i};", part.glsl())),
            shared = each(&|i, part| format!("shared {} results_{i}[{slots}];", part.glsl())),
            start = each(&|i, _| format!("own_{i} = {};", accumulator.identity(i))),
            declared = each(&|i, part| format!("{} e{i};", part.glsl())),
            reduce = combine("e"),
            put = each(&|i, _| format!("results_{i}[slot] = own_{i};")),
            get = each(&|i, part| format!("{} x{i} = results_{i}[other];", part.glsl())),
            combine_other = combine("x"),
            store = each(&|i, part| {
                format!("AT({}, p.{EPILOGUE_PARAMETERS}partial_out{i}, group) = own_{i};", part.glsl())
            }),
        );
        text
    }
}

impl Emitter<'_> {
    /// Of a program that is an epilogue's reduction.
    fn epilogue_reduction(&self) -> Option<EmittedReduction> {
        let Self { program, layout, caps, .. } = *self;
        let (reduction, element) = program.reduced_type()?;
        let accumulator = Accumulator::of(program, layout, caps)?;
        let ty = program.inputs[0].ty;
        let mut contribution = format!("  {} v0 = {};\n", ty.compute().glsl(), load(ty, "x"));
        self.contribution(&mut contribution, reduction, element, &accumulator);
        let last_wins = matches!(program.nodes[0].attribute, Attribute::Arg { last: true, .. });
        Some(EmittedReduction { last_wins, contribution, storage: ty.storage(), accumulator })
    }

    /// `name` of the index and of the elements of linear and given inputs. With `columns`, it has the row and the column of the index, too;
    /// where that is `Some(true)`, the last axis is the columns', and they take the place of a division.
    fn of_elements(&self, name: &str, columns: Option<bool>) -> String {
        let result = self.program.result();
        let stored: String = self.stored().map(|(input, storage)| format!(", {storage} x{input}")).collect();
        let parts = if columns.is_some() { ", IDX row, IDX column" } else { "" };
        let mut text = format!("{} {name}(IDX i{parts}{stored}) {{\n", result.storage());
        self.declare_indices(&mut text);
        self.add_element_axes(&mut text, columns == Some(true), &self.strided());
        let value = self.nodes(&mut text, self.program.nodes.len());
        let _ = writeln!(text, "  return {};\n}}", store(result, &value));
        text
    }

    /// The inputs whose stored elements a program gets: the linear ones, then the given ones.
    fn stored(&self) -> impl Iterator<Item = (usize, &'static str)> + '_ {
        self.linear().chain(self.given().into_iter().map(|given| (given.input, given.storage)))
    }

    /// Adds to the indices of views what the element `i` contributes, with `columns` that of a row and a column.
    fn add_element_axes(&self, text: &mut String, columns: bool, views: &[usize]) {
        let axes = self.layout.dims.len();
        if axes > 1 && columns {
            let _ = writeln!(text, "  IDX at{} = column;", axes - 1);
            self.add_axis(text, axes - 1, views);
            self.add_axes(text, "row", 0..axes - 1, views);
        } else {
            self.add_axes(text, "i", 0..axes, views);
        }
    }

    fn function(&self, epilogue: &EpilogueProgram, name: &str, prefix: &str, columns: bool) -> String {
        let of_elements = format!("{name}_of_elements");
        let element = |(input, storage)| {
            if input == epilogue.element { ", x".into() } else { format!(", AT({storage}, p.input{input}, i)") }
        };
        let elements: String = self.linear().map(element).collect();
        let text = format!(
            "{}{} {name}(IDX i, IDX row, IDX column, {} x) {{ return {of_elements}(i, row, column{elements}); }}\n",
            self.of_elements(&of_elements, Some(columns)),
            self.program.result().storage(),
            epilogue.element_type().storage(),
        );
        replaced(&text, |name| Some(format!("p.{prefix}{name}")))
    }

    fn epilogue(&self, epilogue: &EpilogueProgram, element: &str, columns: bool) -> String {
        let storage = epilogue.element_type().storage();
        let result = self.program.result();
        let mut text = self.of_elements("epilogue", columns.then_some(true));
        let given = self.given();
        let (parts, place, next) = match columns {
            true => (", IDX row, IDX column", ", row, column", ", row, column + "),
            false => ("", "", ""),
        };
        let bases = self.bases(&mut text, &given, parts, place, columns);
        // The loads of one element or of a vector, and what of them belongs to an element.
        let load = |input: usize, storage: &str, vector: bool| {
            let ty = if vector && !self.is_broadcast(input) { vec4_of(storage) } else { storage };
            let element = match given.iter().find(|given| given.input == input) {
                Some(given) => self.given_element(given, vector),
                None if vector => format!("LOAD_VEC4({storage}, p.input{input}, i / 4)"),
                None => format!("AT({storage}, p.input{input}, i)"),
            };
            format!("{ty} q{input} = {element}")
        };
        let loads = |vector: bool| -> String {
            let others = self.stored().filter(|(input, _)| *input != epilogue.element);
            others.map(|(input, storage)| format!("  {};\n", load(input, storage, vector))).collect()
        };
        let call = |index: &str, own: &str, lane: &str| {
            let of = |(input, _)| match input == epilogue.element {
                true => own.to_string(),
                false if self.is_broadcast(input) => format!("q{input}"),
                false => format!("q{input}{lane}"),
            };
            let inputs: String = self.stored().map(|input| format!(", {}", of(input))).collect();
            format!("epilogue({index}{inputs})")
        };
        let index = |c: usize| if columns { format!("i + {c}{next}{c}") } else { format!("i + {c}") };
        let four = [0, 1, 2, 3].map(|c| call(&index(c), &format!("x{c}"), &format!("[{c}]")));
        let one = call(&format!("i{place}"), "x", "");
        let (store, store_four) = match epilogue.reduction {
            None => (
                format!("AT({}, p.result, i) = {one};", result.storage()),
                format!(
                    "SET_VEC4({}, p.result, i / 4, {}({}));",
                    result.storage(),
                    vec4_of(result.storage()),
                    four.join(",\n    ")
                ),
            ),
            Some(_) => {
                let _ = writeln!(text, "void reduce_result(IDX i, {} x);", result.storage());
                let four = four.iter().enumerate().map(|(c, value)| format!("reduce_result(i + {c}, {value});"));
                (format!("reduce_result(i, {one});"), four.collect::<Vec<_>>().join("\n  "))
            }
        };
        let _ = writeln!(
            text,
            "void store_result(IDX i{parts}, {storage} x) {{\n{bases}{}  {store}\n}}\n\
             void store_results(IDX i{parts}, {storage} x0, {storage} x1, {storage} x2, {storage} x3) {{\n\
             {bases}{}  {store_four}\n}}",
            loads(false),
            loads(true),
        );
        let mut text = replaced(&text, |name| Some(format!("p.{EPILOGUE_PARAMETERS}{name}")));
        let (keep, keep_four) = if epilogue.keeps_element {
            let vector = vec4_of(storage);
            (
                format!("  AT({storage}, p.{element}, i) = x;\n"),
                format!("  SET_VEC4({storage}, p.{element}, i / 4, {vector}(x0, x1, x2, x3));\n"),
            )
        } else {
            Default::default()
        };
        let _ = write!(
            text,
            "void store_element(IDX i{parts}, {storage} x) {{\n{keep}  store_result(i{place}, x);\n}}\n\
             void store_elements(IDX i{parts}, {storage} x0, {storage} x1, {storage} x2, {storage} x3) {{\n\
             {keep_four}  store_results(i{place}, x0, x1, x2, x3);\n}}\n",
        );
        text
    }

    /// Writes the function that finds where the given inputs are read for an element. Returns the statements that call it.
    fn bases(&self, text: &mut String, given: &[GivenInput], parts: &str, place: &str, columns: bool) -> String {
        if given.is_empty() {
            return String::new();
        }
        let views = self.with_coordinates(given.iter().map(|given| given.view));
        let list = |prefix: &str| views.iter().map(|v| format!(", {prefix}index{v}")).collect::<String>();
        let _ = writeln!(text, "void bases(IDX i{parts}{}) {{", list("out IDX "));
        for v in &views {
            let _ = writeln!(text, "  index{v} = p.offset{v};");
        }
        self.add_element_axes(text, columns, &views);
        text.push_str("}\n");
        let declared = views.iter().map(|v| format!("  IDX index{v};\n")).collect::<String>();
        format!("{declared}  bases(i{place}{});\n", list(""))
    }
}
