//! What a pass computes of an element, and how an invocation goes from one to the next.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::super::expression::Value;
use super::super::values::{immediate, load, stored as stored_value};
use super::super::vec4_of;
use super::{KeptValues, Pass, RowAccumulator, RowEmitter, SHARED_ROW, shared_element};
use crate::program::Node;

impl RowEmitter<'_> {
    /// An input or a node, as an expression.
    pub(super) fn expression(&self, value: usize) -> String {
        let program = self.program();
        match self.node(value) {
            None => self.input(value),
            Some(node) => {
                let position = value - program.inputs.len();
                let known = |value: usize| -> Value { (format!("v{value}"), program.type_of(value)) };
                let before: Vec<Value> = (0..value).map(known).collect();
                let mut views = self.node_views[position]..self.sound.layout.views.len();
                let expression = self.emitter.node(node, &before, &mut views);
                match self.emitter.may_be_known(node) {
                    true => format!("{expression} + {}(gl_WorkGroupID.z)", program.type_of(value).compute().glsl()),
                    false => expression,
                }
            }
        }
    }

    fn input(&self, input: usize) -> String {
        let Some(view) = self.sound.layout.views.iter().position(|view| view.input == Some(input)) else {
            let ty = self.program().inputs[input].ty;
            return load(ty, &immediate(ty, &format!("p.scalar{input}")));
        };
        if self.is_summed(input) && !self.emitter.is_given(input) {
            return format!("sum_of_parts(p.input{input}, of_row * p.reduced + r, p.rows * p.reduced)");
        }
        self.emitter.input(input, view)
    }

    /// The loop of a pass over the elements. `before` are the values that passes before have kept, to which this one adds its own.
    pub(super) fn step(&self, text: &mut String, pass: &Pass, before: &mut BTreeSet<usize>) {
        let values = self.leading_to(&pass.roots, |value| before.contains(&value));
        let divides = values.difference(before).any(|&value| self.divides_in_range(value));
        let extrema: Vec<_> = pass.accumulators.iter().filter(|own| self.has_extremum_in_range(own)).collect();
        if !divides && extrema.is_empty() {
            self.elements(text, pass, before, false);
            return;
        }
        text.push_str("  begin_in_range();\n");
        for own in &extrema {
            (0..self.width()).for_each(|c| own.declare_extremum(text, c));
        }
        // Quotients that are out of range are not kept.
        let exact = before.clone();
        self.elements(text, pass, before, true);
        if divides {
            *before = exact;
        }
        for own in &extrema {
            (0..self.width()).for_each(|c| own.set_key(text, c));
        }
        text.push_str("  if (any_out_of_range()) {\n");
        for own in pass.accumulators {
            (0..self.width()).for_each(|c| own.start(text, c));
        }
        self.elements(text, pass, before, false);
        text.push_str("  }\n");
    }

    /// Whether the value is a quotient by a number of the row that `nx_divide_in_range` can form. With a branch for each quotient the gradient of
    /// softmax of 8,192 × 1,024 floats takes an H200 97 µs, and with one for each pass 64.
    fn divides_in_range(&self, value: usize) -> bool {
        let caps = self.emitter.caps;
        let by_row = |node: &Node| node.op.name == "divide" && !self.sound.of_element[node.args[1]];
        let divides = |node: &Node| by_row(node) && !self.emitter.divides_in_double(node);
        caps.fast_float64 && !caps.cpu && self.glsl(value) == "float" && self.node(value).is_some_and(divides)
    }

    /// Whether a GPU finds the extremum of floats by its own operation, in place of the four on integers that keys take.
    fn has_extremum_in_range(&self, own: &RowAccumulator) -> bool {
        !self.emitter.caps.cpu && own.accumulator.extremum().is_some()
    }

    /// The loop itself: the values that lead to the roots, what they add to the accumulators and, in the last pass, the results. With `in_range`
    /// it has no branches, and `any_out_of_range()` says afterwards whether a quotient or an extremum may be wrong.
    fn elements(&self, text: &mut String, pass: &Pass, before: &mut BTreeSet<usize>, in_range: bool) {
        let known = before.clone();
        let values = self.leading_to(&pass.roots, |value| known.contains(&value));
        self.begin_step(text);
        let loaded: Vec<_> = self
            .emitter
            .given()
            .into_iter()
            .filter(|given| values.contains(&given.input) && !known.contains(&given.input))
            .collect();
        let views: Vec<usize> = loaded.iter().map(|given| given.view).collect();
        self.add_row_axes(text, "first", &views);
        for given in &loaded {
            let (input, storage, view) = (given.input, given.storage, given.view);
            let _ = match self.emitter.is_broadcast(input) {
                true => writeln!(text, "  {storage} q{input} = AT({storage}, p.input{input}, index{view});"),
                false if self.is_summed(input) => writeln!(
                    text,
                    "  {} q{input} = sum_of_parts(p.input{input}, of_row * p.reduced + first, p.rows * p.reduced);",
                    vec4_of(storage)
                ),
                false => writeln!(
                    text,
                    "  {} q{input} = LOAD_VEC4({storage}, p.input{input}, index{view} / 4);",
                    vec4_of(storage)
                ),
            };
        }
        let outputs = self.rows.outputs.iter().enumerate().filter(|(_, output)| pass.last && output.of_element);
        let outputs: Vec<(usize, usize)> = outputs.map(|(position, output)| (position, output.value)).collect();
        for (position, value) in &outputs {
            let storage = self.program().type_of(*value).storage();
            let names: Vec<String> = (0..self.width()).map(|c| format!("r{position}_{c}")).collect();
            let _ = writeln!(text, "  {storage} {};", names.join(", "));
        }
        for c in 0..self.width() {
            let _ = writeln!(text, "  {{\n  IDX r = first + {c};");
            for given in &loaded {
                let element = if self.emitter.is_broadcast(given.input) { "" } else { &format!("[{c}]") };
                let _ = writeln!(text, "  {} x{input} = q{input}{element};", given.storage, input = given.input);
            }
            let own: Vec<usize> = self.emitter.strided().into_iter().filter(|&v| self.sound.varying[v]).collect();
            self.add_row_axes(text, "r", &own);
            self.element_values(text, &values, &known, before, (c, in_range));
            for own in pass.accumulators {
                self.combine_element(text, own, (c, in_range && self.has_extremum_in_range(own)));
            }
            for (position, value) in &outputs {
                let ty = self.program().type_of(*value);
                let _ = writeln!(text, "  r{position}_{c} = {};", stored_value(ty, (format!("v{value}"), ty)));
            }
            text.push_str("  }\n");
        }
        for (position, value) in &outputs {
            let storage = self.program().type_of(*value).storage();
            let index = "row * p.reduced + first";
            let elements = (0..self.width()).map(|c| format!("r{position}_{c}")).collect::<Vec<_>>().join(", ");
            let _ = match (self.width(), self.is_prologue) {
                (1, true) => writeln!(text, "  {} = {elements};", shared_element("first")),
                (1, false) => writeln!(text, "  AT({storage}, p.result{position}, {index}) = {elements};"),
                (_, true) => writeln!(text, "  {SHARED_ROW}[first / 4] = {}({elements});", vec4_of(storage)),
                (_, false) => {
                    let vector = vec4_of(storage);
                    writeln!(text, "  SET_VEC4({storage}, p.result{position}, ({index}) / 4, {vector}({elements}));")
                }
            };
        }
        text.push_str("  }\n");
    }

    /// `first` is the index in the row of the step's first element, `k` the step's number.
    fn begin_step(&self, text: &mut String) {
        let width = self.width();
        let _ = match (self.schedule.kept, self.schedule.exact) {
            (KeptValues::Registers(steps), exact) => writeln!(
                text,
                "  [[unroll]] for (uint k = 0; k < {steps}u; k++) {{\n  IDX first = (lane + k * LANES) * {width}u;\n\
                 \x20 if ({}) continue;",
                if exact { "n == 0" } else { "first >= n" }
            ),
            _ => writeln!(text, "  for (IDX first = lane * {width}u; first < n; first += LANES * {width}u) {{"),
        };
    }

    /// Declares the indices of `views` at an index in the row. Those of its first element stay.
    fn add_row_axes(&self, text: &mut String, linear: &str, views: &[usize]) {
        for v in views {
            let _ = writeln!(text, "  IDX base{v} = index{v};\n  IDX index{v} = base{v};");
        }
        let layout = &self.sound.layout;
        self.emitter.add_axes(text, linear, layout.kept..layout.dims.len(), views);
    }

    /// The values of an element, the `c`-th of its step. What is kept is stored when it is first computed.
    fn element_values(
        &self,
        text: &mut String,
        values: &BTreeSet<usize>,
        known: &BTreeSet<usize>,
        before: &mut BTreeSet<usize>,
        (c, in_range): (u32, bool),
    ) {
        let kept = |value: usize| match self.schedule.kept {
            KeptValues::Shared(count) => format!("kept{value}[own * {count}u + uint(r)]"),
            KeptValues::Memory => format!("AT({}, p.kept{value}, row * p.reduced + r)", self.glsl(value)),
            _ => format!("kept{value}[k * {}u + {c}u]", self.width()),
        };
        for &value in values {
            if known.contains(&value) {
                let _ = writeln!(text, "  precise {} v{value} = {};", self.glsl(value), kept(value));
                continue;
            }
            let ty = self.program().type_of(value).compute().precise();
            let mut expression = self.expression(value);
            if in_range && self.divides_in_range(value) {
                expression = expression.replacen("nx_divide", "nx_divide_in_range", 1);
            }
            let _ = writeln!(text, "  {ty} v{value} = {expression};");
            if self.kept.contains(&value) {
                let _ = writeln!(text, "  {} = v{value};", kept(value));
                before.insert(value);
            }
        }
    }
}
