//! Kernels of workgroup programs: each step as a function of an element, and a `main` that loops over the steps. What is a parameter of other
//! kernels is a constant here: the parameters that the emission of elements names (`p.dim0`) are replaced.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::values::{assign, of_compute, store};
use super::{Accumulator, Emitter, VectorInputs, coherent_head, define, load};
use crate::device::Capabilities;
use crate::program::types::Compute;
use crate::program::workgroup::{LoopStep, StepInput, WorkgroupLoop};
use crate::program::{Attribute, Type};

/// How a workgroup goes through its steps.
#[derive(Clone, Debug, Hash)]
pub struct WorkgroupSchedule {
    /// Invocations of the workgroup.
    pub threads: u32,
    /// Invocations that share an output, for each step; 1 for those that reduce nothing.
    pub reduction_threads: Vec<u32>,
}

/// A step as it is emitted.
struct EmittedStep<'a> {
    step: &'a LoopStep,
    emitter: Emitter<'a>,
    accumulator: Option<Accumulator>,
    /// Its position among all steps.
    number: usize,
    reduction_threads: u32,
}

/// Writes the kernel's source from the GLSL of its parameters' block. `values` says of each operand whether it is a value and no buffer.
pub fn emit_loop(
    workgroup_loop: &WorkgroupLoop,
    schedule: &WorkgroupSchedule,
    values: &[bool],
    parameters: &str,
    caps: &Capabilities,
) -> String {
    let given = &workgroup_loop.steps;
    let numbered = given.all().zip(&schedule.reduction_threads).enumerate();
    let steps: Vec<EmittedStep> =
        numbered.map(|(number, (step, &threads))| EmittedStep::new(step, number, threads, caps)).collect();
    let mut text = head(&steps, given.predicate_type, parameters, caps);
    define(&mut text, "THREADS", schedule.threads);
    text.push_str("#include \"lib/loops/workgroup.glsl\"\n");
    for slot in 0..workgroup_loop.slot_bytes.len() {
        let _ = writeln!(text, "uvec2 slot{slot};");
    }
    partials(&mut text, &steps);
    for step in &steps {
        step.functions(&mut text);
    }
    let mut rest = &steps[..];
    let mut section = |count: usize| {
        let (first, others) = rest.split_at(count);
        rest = others;
        calls(first)
    };
    let setup = section(given.setup.len());
    let condition = section(given.condition.len());
    let body = section(given.body.len());
    let finish = section(given.finish.len());
    let swaps: String = given.swaps.iter().map(|(a, b)| format!("    swap(slot{a}, slot{b});\n")).collect();
    let predicate = element_of(given.predicate, given.predicate_type, "0");
    let predicate = load(given.predicate_type, &predicate);
    let slots = slots(workgroup_loop, values);
    let _ = write!(
        text,
        "void swap(inout uvec2 a, inout uvec2 b) {{ uvec2 other = a; a = b; b = other; }}\n\
         void main() {{\n{slots}  meet();\n{setup}  meet();\n  uint left = p.iterations;\n  bool more;\n\
         \x20 while (true) {{\n{condition}  meet();\n    more = !is_zero({predicate});\n    if (!more || left == 0u) break;\n\
         \x20   left--;\n{body}{swaps}    meet();\n  }}\n{finish}  if (INVOCATION == 0) p.unfinished.v[0] = uint(more);\n}}\n"
    );
    text
}

fn head(steps: &[EmittedStep], predicate: Type, parameters: &str, caps: &Capabilities) -> String {
    let (mut storages, mut computes) = (vec!["uint", predicate.storage()], vec![predicate.compute()]);
    let mut files = vec!["indices.glsl"];
    for step in steps {
        let (own_storages, own_computes) = step.emitter.types(step.accumulator.as_ref());
        storages.extend(own_storages);
        computes.extend(own_computes);
        files.extend(step.emitter.files());
    }
    let mut text = coherent_head(caps, &storages, &computes, parameters);
    if steps.iter().any(|step| step.accumulator.is_some()) {
        // Each step that reduces says which of equal elements wins.
        text.push_str("bool last_wins = false;\n#define LAST_WINS last_wins\n");
        files.push("reduce.glsl");
        let complex = |ty: Type| ty.is_complex();
        if steps.iter().any(|step| step.emitter.program.reduced_type().is_some_and(|(_, ty)| complex(ty))) {
            files.push("complex/reduce.glsl");
        }
    }
    let mut seen = BTreeSet::new();
    for file in files.into_iter().filter(|&file| seen.insert(file)) {
        let _ = writeln!(text, "#include \"lib/{file}\"");
    }
    text
}

/// Bytes of shared memory that each invocation needs for the reductions of a loop.
pub fn shared_bytes(given: &WorkgroupLoop, caps: &Capabilities) -> u64 {
    let accumulators = given.steps.all().filter_map(|step| Accumulator::of(&step.program, &step.layout, caps));
    let parts: BTreeSet<(usize, &str, u64)> =
        accumulators.flat_map(|accumulator| partial_types(&accumulator)).collect();
    parts.into_iter().map(|(_, _, size)| size).sum()
}

/// The parts of an accumulator: position, type and bytes. Reductions with equal ones share memory.
fn partial_types(accumulator: &Accumulator) -> Vec<(usize, &'static str, u64)> {
    accumulator.parts.iter().enumerate().map(|(i, part)| (i, part.glsl(), part.size())).collect()
}

fn partials(text: &mut String, steps: &[EmittedStep]) {
    let accumulators = steps.iter().filter_map(|step| step.accumulator.as_ref());
    let parts: BTreeSet<_> = accumulators.flat_map(partial_types).collect();
    for (i, part, _) in parts {
        let _ = writeln!(text, "shared {part} partial{i}_{part}[THREADS];");
    }
}

/// The slots' addresses. Operands that are values are stored first.
fn slots(given: &WorkgroupLoop, values: &[bool]) -> String {
    let mut text = String::new();
    for slot in 0..given.slot_bytes.len() {
        let _ = writeln!(text, "  slot{slot} = uvec2(p.slot{slot});");
    }
    let stored = values.iter().enumerate().filter(|(_, is_value)| **is_value);
    let stored: String = stored
        .map(|(slot, _)| (0..4).map(|i| format!(" p.slot{slot}.v[{i}] = p.value{slot}[{i}];")).collect::<String>())
        .collect();
    if !stored.is_empty() {
        let _ = writeln!(text, "  if (INVOCATION == 0) {{{stored} }}");
    }
    text
}

/// An element of a slot, as it is stored.
fn element_of(slot: usize, ty: Type, index: &str) -> String {
    format!("Buffer_{}(slot{slot}).v[{index}]", ty.storage())
}

/// The calls of the steps, with barriers between those that conflict.
fn calls(steps: &[EmittedStep]) -> String {
    let (mut read, mut written) = (BTreeSet::new(), BTreeSet::new());
    let mut text = String::new();
    for step in steps {
        let slot = step.step.slot;
        if step.step.reads().any(|read| written.contains(&read)) || written.contains(&slot) || read.contains(&slot) {
            text.push_str("    meet();\n");
            read.clear();
            written.clear();
        }
        read.extend(step.step.reads());
        written.insert(slot);
        let _ = writeln!(text, "    step{}();", step.number);
    }
    text
}

impl<'a> EmittedStep<'a> {
    fn new(step: &'a LoopStep, number: usize, reduction_threads: u32, caps: &'a Capabilities) -> Self {
        let LoopStep { program, layout, .. } = step;
        let vectors = VectorInputs::default();
        let emitter = Emitter { program, layout, caps, vectors, vector_axis: None, window: false };
        Self { step, emitter, accumulator: Accumulator::of(program, layout, caps), number, reduction_threads }
    }

    /// The function of an element, and the function of the step.
    fn functions(&self, text: &mut String) {
        let mut own = String::new();
        match &self.accumulator {
            None => self.map(&mut own),
            Some(accumulator) => self.reduction(&mut own, accumulator),
        }
        text.push_str(&replaced(&own, |name| self.constant(name)));
    }

    fn map(&self, text: &mut String) {
        let (number, emitter) = (self.number, &self.emitter);
        let result = emitter.program.result();
        let _ = writeln!(text, "void make{number}(IDX i) {{");
        for (input, storage) in emitter.linear() {
            let _ = writeln!(text, "  {storage} x{input} = AT({storage}, p.input{input}, i);");
        }
        emitter.declare_indices(text);
        emitter.add_axes(text, "i", 0..emitter.layout.dims.len(), &emitter.strided());
        let target = emitter.strided_output().map_or("i".into(), |v| format!("index{v}"));
        let value = emitter.nodes(text, emitter.program.nodes.len());
        let _ = writeln!(text, "  AT({}, p.result, {target}) = {};\n}}", result.storage(), store(result, &value));
        let _ = writeln!(text, "void step{number}() {{ MAP_STEP({}u, make{number}) }}", emitter.layout.outputs());
    }

    fn reduction(&self, text: &mut String, accumulator: &Accumulator) {
        let (number, emitter) = (self.number, &self.emitter);
        let Some((reduction, element)) = emitter.program.reduced_type() else { return };
        let declared = accumulator.join(", ", |i, part| format!("out {} e{i}", part.glsl()));
        let _ = writeln!(text, "void element{number}(IDX o, IDX r, {declared}) {{");
        emitter.reduced_element(text);
        emitter.contribution(text, reduction, element, accumulator);
        let parts = accumulator.join(", ", |i, part| format!("{} a_{i}", part.glsl()));
        let (value, part) = accumulator.finished();
        let value = (value.replace("##", ""), of_compute(part));
        let stored = assign(emitter.program.result(), "result", "o", value);
        let _ = writeln!(text, "}}\nvoid put{number}(IDX o, {parts}) {{ {stored}; }}");
        let given = accumulator
            .join(", ", |i, part| format!("{}, {}, partial{i}_{}", part.glsl(), accumulator.identity(i), part.glsl()));
        let last = &emitter.program.nodes[emitter.program.nodes.len() - 1];
        let last_wins = matches!(last.attribute, Attribute::Arg { last: true, .. });
        let _ = writeln!(
            text,
            "void step{number}() {{\n  last_wins = {last_wins};\n  \
             REDUCE_STEP_{}({}u, {}u, {}u, {given}, element{number}, {}, put{number})\n}}",
            accumulator.parts.len(),
            emitter.layout.outputs(),
            emitter.layout.reduced(),
            self.reduction_threads,
            accumulator.function(),
        );
    }

    /// What a parameter of the step's program is here, by its name.
    fn constant(&self, name: &str) -> Option<String> {
        let digits = name.find(|c: char| c.is_ascii_digit()).unwrap_or(name.len());
        let (word, numbers) = name.split_at(digits);
        let numbers: Vec<usize> = numbers.split('_').filter_map(|number| number.parse().ok()).collect();
        let LoopStep { program, layout, inputs, slot, .. } = self.step;
        let index = |value: i64| Some(format!("{}u", value as u32));
        match (word, &numbers[..]) {
            ("input", &[input]) => match inputs.get(input)? {
                StepInput::Slot(slot) => Some(format!("Buffer_{}(slot{slot})", program.inputs[input].ty.storage())),
                StepInput::Value(_) => None,
            },
            ("scalar", &[input]) => match inputs.get(input)? {
                StepInput::Value(value) => Some(value_of(program.inputs[input].ty, value)),
                StepInput::Slot(_) => None,
            },
            ("result", []) => Some(format!("Buffer_{}(slot{slot})", program.result().storage())),
            ("dim", &[axis]) => index(*layout.dims.get(axis)? as i64),
            ("offset", &[view]) => index(layout.views.get(view)?.offset),
            ("stride", &[view, axis]) => index(*layout.views.get(view)?.strides.get(axis)?),
            ("extent", &[start]) => index(program.dynamic_offsets().get(start)?.extent as i64),
            ("step", &[start]) => index(program.dynamic_offsets().get(start)?.step),
            ("extentv" | "stepv", &[node, k]) => {
                let Attribute::Steps { steps, .. } =
                    &program.nodes.get(node.checked_sub(program.inputs.len())?)?.attribute
                else {
                    return None;
                };
                let &(extent, step) = steps.get(k)?;
                index(if word == "stepv" { step } else { extent as i64 })
            }
            _ => None,
        }
    }
}

/// A value's bits. An index that no compiler knows hides them: see [`Emitter::nodes`].
fn value_of(ty: Type, value: &[u8; 16]) -> String {
    let words =
        value.as_chunks::<4>().0.iter().map(|&word| format!("{}u | gl_WorkGroupID.z", u32::from_ne_bytes(word)));
    let words: Vec<String> = words.collect();
    match ty.compute() {
        Compute::ComplexDouble => format!("uvec4({})", words.join(", ")),
        _ => format!("uvec2({})", words[..2].join(", ")),
    }
}

/// The text with what `constant` gives in place of the parameters `p.name` that it knows.
fn replaced(text: &str, constant: impl Fn(&str) -> Option<String>) -> String {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(position) = rest.find("p.") {
        let (before, after) = (&rest[..position], &rest[position + 2..]);
        let end = after.find(|c| !is_name(c)).unwrap_or(after.len());
        let known = if before.ends_with(is_name) { None } else { constant(&after[..end]) };
        result.push_str(before);
        match known {
            Some(value) => result.push_str(&value),
            None => result.push_str(&rest[position..position + 2 + end]),
        }
        rest = &after[end..];
    }
    result.push_str(rest);
    result
}
