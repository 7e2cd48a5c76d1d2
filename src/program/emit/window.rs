//! Reductions over small windows: straight code in which all positions within the window are known. A thread makes some neighbouring outputs.
//! What several elements need, an index, a comparison or a load, stands once: windows of neighbours overlap.

use std::collections::HashMap;
use std::fmt::Write as _;

use super::values::stored;
use super::vectors::GivenInput;
use super::{Accumulator, EmittedEpilogue, Emitter, VectorInputs, WindowSchedule, define, of_compute, vec4_of};
use crate::program::layout::{Layout, Pattern, View, constant_stride};
use crate::program::{Program, dense_strides};

/// What a thread loads before it combines: the loads overlap, and registers hold the values.
const LOADS_AT_ONCE: usize = 32;

/// The inputs that are loaded outside of the function of an element, all but those that indices choose from.
pub(super) fn loaded_inputs(program: &Program, layout: &Layout) -> VectorInputs {
    let strided = layout.views.iter().filter(|view| view.pattern == Pattern::Strided).filter_map(|view| view.input);
    let loaded = strided.filter(|&input| input < 32 && program.steps(input).next().is_none());
    VectorInputs { vec4: loaded.fold(0, |bits, input| bits | 1 << input), broadcast: 0 }
}

impl Emitter<'_> {
    /// An epilogue's functions store the outputs.
    pub(super) fn window(
        &self,
        text: &mut String,
        schedule: WindowSchedule,
        accumulator: &Accumulator,
        epilogue: Option<&EmittedEpilogue>,
    ) {
        let results = epilogue.and_then(|epilogue| epilogue.reduction.as_ref());
        self.element_function(text, accumulator, false, results);
        accumulator.declare_function(text);
        accumulator.macros(text);
        define(text, "STORE_OUTPUT(a, index)", self.store_output(false, accumulator, epilogue.is_some()));
        let (value, part) = accumulator.finished(0);
        define(text, "STORED_OUTPUT(a)", stored(self.program.result(), (value, of_compute(part))));
        let WindowSchedule { threads, outputs, .. } = schedule;
        let start = if let Some(results) = results {
            text.push_str(&results.functions([threads; 2], self.caps));
            "  start_results();\n"
        } else {
            ""
        };
        let _ = write!(
            text,
            "layout(local_size_x = {threads}) in;\n\
             void main() {{\n{start}  IDX o = (traversed_group() * {threads} + INVOCATION) * {outputs};\n\
             \x20 if (o < p.outputs) {{\n"
        );
        let mut code = WindowCode { emitter: self, schedule, accumulator, text, names: HashMap::new() };
        code.elements();
        code.finish_products();
        code.stores(epilogue.is_some());
        text.push_str("  }\n");
        if results.is_some() {
            let _ = writeln!(text, "  finish_results(traversed_group(), true, INVOCATION, {threads});");
        }
        text.push_str("}\n");
    }
}

/// The code of a thread.
struct WindowCode<'a> {
    emitter: &'a Emitter<'a>,
    schedule: WindowSchedule,
    accumulator: &'a Accumulator,
    text: &'a mut String,
    /// The variable that has the value of an expression.
    names: HashMap<String, String>,
}

impl WindowCode<'_> {
    fn elements(&mut self) {
        let emitter = self.emitter;
        let given = emitter.given();
        let views = emitter.with_coordinates(given.iter().map(|given| given.view));
        for v in &views {
            let _ = writeln!(self.text, "  IDX index{v} = p.offset{v};");
        }
        emitter.add_axes(self.text, "o", 0..emitter.layout.kept, &views);
        for c in 0..self.schedule.outputs {
            for (i, part) in self.accumulator.parts.iter().enumerate() {
                let _ = writeln!(self.text, "  precise {} a{c}_{i} = {};", part.glsl(), self.accumulator.identity(i));
            }
        }
        let window = &emitter.layout.dims[emitter.layout.kept..];
        let steps = dense_strides(window);
        let (mut combining, mut before) = (String::new(), 0);
        for r in 0..emitter.layout.reduced() {
            let at: Vec<u64> = window.iter().zip(&steps).map(|(&dim, &step)| r / step as u64 % dim).collect();
            for c in 0..self.schedule.outputs {
                let stored: String =
                    given.iter().map(|given| format!(", {}", self.loaded(given, c.into(), &at))).collect();
                combining += &self.combined(c, r, &stored);
            }
            if self.names.len() >= before + LOADS_AT_ONCE {
                self.text.push_str(&std::mem::take(&mut combining));
                before = self.names.len();
            }
        }
        self.text.push_str(&combining);
    }

    fn finish_products(&mut self) {
        if self.emitter.exact_factors(self.accumulator).is_some() {
            for c in 0..self.schedule.outputs {
                let _ = writeln!(self.text, "  a{c}_0 = product_sum(a{c}_0);");
            }
        }
    }

    /// Adds the element at `r` to the accumulator of the `c`-th output.
    fn combined(&self, c: u32, r: u64, stored: &str) -> String {
        let accumulator = self.accumulator;
        let parts = accumulator.join(", ", |i, _| format!("a{c}_{i}"));
        if self.emitter.exact_factors(accumulator).is_some() {
            return format!("  add_element(o + {c}, {r}{stored}, {parts});\n");
        }
        let declared = accumulator.join(" ", |i, part| format!("{} x_{i};", part.glsl()));
        let element = accumulator.join(", ", |i, _| format!("x_{i}"));
        let combine = accumulator.function();
        format!("  {{ {declared} element(o + {c}, {r}{stored}, {element}); {combine}({parts}, {element}); }}\n")
    }

    /// The stored element of an input for the `c`-th output, at an index along each axis of the window.
    fn loaded(&mut self, given: &GivenInput, c: u64, at: &[u64]) -> String {
        let &GivenInput { view, input, storage } = given;
        let is_vector = self.schedule.vectors.vec4 >> input & 1 == 1;
        let (load, ty, first) = match is_vector {
            true => ("LOAD_VEC4", vec4_of(storage), 0),
            false => ("AT", storage, c),
        };
        let coordinates: Vec<(usize, u64)> = self.emitter.layout.coordinates(view).to_vec();
        let exist = |code: &mut Self, v: usize| {
            let coordinate = code.index(v, first, at);
            code.shared("bool", format!("{coordinate} < p.bound{v}"))
        };
        let exist: Vec<String> = coordinates.iter().map(|&(v, _)| exist(self, v)).collect();
        let index = self.index(view, first, at);
        let index = if is_vector { format!("({index}) / 4") } else { index };
        let load = format!("{load}({storage}, p.input{input}, {index})");
        let padded = self.emitter.or_padding(view, &exist.join(" && "), load, is_vector);
        let name = self.shared(ty, padded);
        if is_vector { format!("{name}[{c}]") } else { name }
    }

    /// The index of a view for the `c`-th output, at an index along each axis of the window.
    fn index(&mut self, v: usize, c: u64, at: &[u64]) -> String {
        let layout = self.emitter.layout;
        let View { strides, .. } = &layout.views[v];
        let between = layout.kept.checked_sub(1).map(|axis| (axis, c));
        let within = at.iter().enumerate().map(|(axis, &index)| (layout.kept + axis, index));
        let (mut row, mut constant) = (format!("index{v}"), 0);
        for (axis, index) in between.into_iter().chain(within).filter(|&(_, index)| index != 0) {
            match constant_stride(strides[axis]) {
                Some(stride) => constant += stride * index as i64,
                None => {
                    let _ = write!(row, " + {index} * p.stride{v}_{axis}");
                }
            }
        }
        if row.contains(' ') {
            row = self.shared("IDX", row);
        }
        match constant {
            0 => row,
            1.. => format!("{row} + {constant}"),
            _ => format!("{row} - {}", -constant),
        }
    }

    /// The variable with the value of an expression.
    fn shared(&mut self, ty: &str, expression: String) -> String {
        let name = format!("x{}", self.names.len());
        self.names
            .entry(expression)
            .or_insert_with_key(|expression| {
                let _ = writeln!(self.text, "  {ty} {name} = {expression};");
                name
            })
            .clone()
    }

    fn stores(&mut self, epilogue: bool) {
        let result = self.emitter.program.result();
        if self.schedule.outputs == 4 && !epilogue && self.accumulator.results == 1 && !result.compute().is_emulated() {
            let (storage, vector) = (result.storage(), vec4_of(result.storage()));
            let outputs = [0, 1, 2, 3].map(|c| format!("STORED_OUTPUT(a{c})")).join(", ");
            let _ = writeln!(self.text, "  SET_VEC4({storage}, p.result, o / 4, {vector}({outputs}));");
            return;
        }
        for c in 0..self.schedule.outputs {
            let _ = writeln!(self.text, "  STORE_OUTPUT(a{c}, o + {c})");
        }
    }
}
