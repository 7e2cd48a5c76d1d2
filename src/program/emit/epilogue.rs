//! Epilogues: the functions that a kernel stores the elements of its result with.

use std::fmt::Write as _;

use super::prelude::vec4_of;
use super::values::store;
use super::workgroup::replaced;
use super::{Emitter, VectorInputs};
use crate::device::Capabilities;
use crate::program::epilogue::EpilogueProgram;
use crate::program::types::Compute;

/// What the names of an epilogue's parameters begin with, as its kernel may have inputs of the same names.
pub const EPILOGUE_PARAMETERS: &str = "epilogue_";

/// The text of an epilogue, and what the head of its kernel has to know of it.
pub struct EmittedEpilogue {
    /// Types of the elements of the buffers that it reads and writes.
    pub storages: Vec<&'static str>,
    /// Types that it computes in.
    pub computes: Vec<Compute>,
    /// Files of `shaders/lib`, each of which the kernel includes once.
    pub files: Vec<&'static str>,
    /// `store_element(i, x)` stores what the epilogue makes of the element `i`, as it is stored itself, and
    /// `store_elements(i, x0, x1, x2, x3)` of four from a multiple of four on.
    pub functions: String,
}

impl EmittedEpilogue {
    /// `element` is the parameter of the kernel where the elements go themselves, if they are kept.
    pub fn new(epilogue: &EpilogueProgram, element: &str, caps: &Capabilities) -> Self {
        let EpilogueProgram { program, layout, .. } = epilogue;
        let vectors = VectorInputs::default();
        let emitter = Emitter { program, layout, caps, vectors, vector_axis: None, window: false };
        let (storages, computes) = emitter.types(None);
        let functions = emitter.epilogue(epilogue, element);
        Self { storages, computes, files: emitter.files(), functions }
    }

    /// As a function which stores nothing: `name(i, row, column, x)` is the value of the element x at the index i, that of a column of a
    /// row. `prefix` is what the names of its parameters begin with; `columns` says whether its last axis is that of the columns.
    pub fn function(epilogue: &EpilogueProgram, name: &str, prefix: &str, columns: bool, caps: &Capabilities) -> Self {
        let EpilogueProgram { program, layout, .. } = epilogue;
        let vectors = VectorInputs::default();
        let emitter = Emitter { program, layout, caps, vectors, vector_axis: None, window: false };
        let (storages, computes) = emitter.types(None);
        let functions = emitter.function(epilogue, name, prefix, columns);
        Self { storages, computes, files: emitter.files(), functions }
    }

    /// The includes of the files that are not among those that the kernel includes already.
    pub fn includes(&self, included: &[&str]) -> String {
        let files = self.files.iter().filter(|file| !included.contains(file));
        files.map(|file| format!("#include \"lib/{file}\"\n")).collect()
    }
}

impl Emitter<'_> {
    /// `name` of the index and of the linear inputs' elements at it. With `columns`, it has the row and the column of the index, too; where
    /// that is `Some(true)`, the last axis is the columns', and they take the place of a division.
    fn of_elements(&self, name: &str, columns: Option<bool>) -> String {
        let result = self.program.result();
        let stored: String = self.linear().map(|(input, storage)| format!(", {storage} x{input}")).collect();
        let parts = if columns.is_some() { ", IDX row, IDX column" } else { "" };
        let mut text = format!("{} {name}(IDX i{parts}{stored}) {{\n", result.storage());
        self.declare_indices(&mut text);
        let (views, axes) = (self.strided(), self.layout.dims.len());
        if axes > 1 && columns == Some(true) {
            let _ = writeln!(text, "  IDX at{} = column;", axes - 1);
            self.add_axis(&mut text, axes - 1, &views);
            self.add_axes(&mut text, "row", 0..axes - 1, &views);
        } else {
            self.add_axes(&mut text, "i", 0..axes, &views);
        }
        let value = self.nodes(&mut text, self.program.nodes.len());
        let _ = writeln!(text, "  return {};\n}}", store(result, &value));
        text
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

    fn epilogue(&self, epilogue: &EpilogueProgram, element: &str) -> String {
        let storage = epilogue.element_type().storage();
        let result = self.program.result();
        let mut text = self.of_elements("epilogue", None);
        let others = || self.linear().filter(|(input, _)| *input != epilogue.element);
        // The linear inputs in their order, the element among them.
        let call = |index: &str, own: &str, load: &dyn Fn(usize, &str) -> String| {
            let of = |(input, storage)| if input == epilogue.element { own.into() } else { load(input, storage) };
            let inputs: String = self.linear().map(|input| format!(", {}", of(input))).collect();
            format!("epilogue({index}{inputs})")
        };
        let one = call("i", "x", &|input, storage| format!("AT({storage}, p.input{input}, i)"));
        let _ = writeln!(
            text,
            "void store_result(IDX i, {storage} x) {{\n  AT({}, p.result, i) = {one};\n}}\n\
             void store_results(IDX i, {storage} x0, {storage} x1, {storage} x2, {storage} x3) {{",
            result.storage(),
        );
        for (input, storage) in others() {
            let vector = vec4_of(storage);
            let _ = writeln!(text, "  {vector} q{input} = LOAD_VEC4({storage}, p.input{input}, i / 4);");
        }
        let four =
            [0, 1, 2, 3].map(|c| call(&format!("i + {c}"), &format!("x{c}"), &|input, _| format!("q{input}[{c}]")));
        let vector = vec4_of(result.storage());
        let _ = writeln!(
            text,
            "  SET_VEC4({}, p.result, i / 4, {vector}({}));\n}}",
            result.storage(),
            four.join(",\n    "),
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
            "void store_element(IDX i, {storage} x) {{\n{keep}  store_result(i, x);\n}}\n\
             void store_elements(IDX i, {storage} x0, {storage} x1, {storage} x2, {storage} x3) {{\n\
             {keep_four}  store_results(i, x0, x1, x2, x3);\n}}\n",
        );
        text
    }
}
