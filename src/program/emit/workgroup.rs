//! Kernels of workgroup programs: each step as a function of an element, and a `main` with the loops and branches. What is a parameter of other
//! kernels is a constant here: the parameters that the emission of elements names (`p.dim0`) are replaced.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::values::{assign, of_compute, store};
use super::{Accumulator, Emitter, VectorInputs, coherent_head, define, load};
use crate::device::Capabilities;
use crate::program::types::Compute;
use crate::program::workgroup::{
    BranchStatement, LoopStep, Predicate, Statement, StepInput, WhileStatement, WorkgroupProgram, loops,
};
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

/// More than the inputs and nodes of a step.
const MAX_STEP_NODES: usize = 1 << 16;
/// Set in `at` where the program has to go on in another dispatch.
const PAUSED: &str = "0x80000000u";
/// What `at` is where all statements have run.
const FINISHED: &str = "0x7fffffffu";

/// Writes the kernel's source from the GLSL of its parameters' block. `values` says of each operand whether it is a value and no buffer.
///
/// A dispatch evaluates the conditions of all loops `p.conditions` times at most. One that has to stop keeps the number of its loop and the places of the slots
/// in the first words of scratch memory, and the next dispatch goes on there: `at` is 0 where statements run, else the number of
/// the loop in which they will, or in which they stopped.
pub fn emit_program(
    program: &WorkgroupProgram,
    schedule: &WorkgroupSchedule,
    values: &[bool],
    parameters: &str,
    caps: &Capabilities,
) -> String {
    let given = &program.given;
    let numbered = given.steps().zip(&schedule.reduction_threads).enumerate();
    let steps: Vec<EmittedStep> =
        numbered.map(|(number, (step, &threads))| EmittedStep::new(step, number, threads, caps)).collect();
    let predicates: Vec<Type> = given.predicates().map(|predicate| predicate.ty).collect();
    let mut text = head(&steps, &predicates, parameters, caps);
    define(&mut text, "THREADS", schedule.threads);
    text.push_str("#include \"lib/loops/workgroup.glsl\"\n");
    for slot in 0..program.slot_bytes.len() {
        let _ = writeln!(text, "uvec2 slot{slot};");
    }
    partials(&mut text, &steps);
    for step in &steps {
        step.functions(&mut text);
    }
    let mut flow = ControlFlow::default();
    flow.list(&given.list);
    let guarded = loops(&given.list) > 0;
    let statements = std::mem::take(&mut flow.text);
    given.finish.iter().for_each(|step| flow.step(step));
    let (slots, finish) = (slots(program, values), flow.text);
    let _ = write!(text, "void main() {{\n{slots}  meet();\n");
    if !guarded {
        let _ = writeln!(text, "{statements}{finish}  if (INVOCATION == 0) p.unfinished.v[0] = 0u;\n}}");
        return text;
    }
    let (mut kept, mut restored) = (String::new(), String::new());
    for (i, slot) in program.swapped.iter().enumerate() {
        let (low, high) = (2 + 2 * i, 3 + 2 * i);
        let _ = write!(kept, " p.scratch.v[{low}] = slot{slot}.x; p.scratch.v[{high}] = slot{slot}.y;");
        let _ = write!(restored, " slot{slot} = uvec2(p.scratch.v[{low}], p.scratch.v[{high}]);");
    }
    let _ = write!(
        text,
        "  uint left = p.conditions;\n  uint at = 0u;\n\
         \x20 if (p.resumed != 0u) {{\n    at = p.scratch.v[0] == 0u ? {FINISHED} : p.scratch.v[0];\n   {restored}\n    meet();\n  }}\n\
         {statements}  if ((at & {PAUSED}) == 0u) {{\n{finish}  }}\n\
         \x20 if (INVOCATION == 0) {{\n    p.scratch.v[0] = (at & {PAUSED}) == 0u ? 0u : at ^ {PAUSED};\n    \
         p.unfinished.v[0] = p.scratch.v[0];\n   {kept}\n  }}\n}}\n"
    );
    text
}

/// The text of `main` for statements, with barriers between steps that conflict.
#[derive(Default)]
struct ControlFlow {
    text: String,
    /// Slots that steps since the last barrier read and wrote.
    read: BTreeSet<usize>,
    written: BTreeSet<usize>,
    /// Steps and loops so far. Loops are numbered from 1 on.
    steps: usize,
    loops: usize,
}

impl ControlFlow {
    fn line(&mut self, text: std::fmt::Arguments) {
        let _ = writeln!(self.text, "    {text}");
    }

    fn meet(&mut self) {
        if !self.read.is_empty() || !self.written.is_empty() {
            self.line(format_args!("meet();"));
            self.read.clear();
            self.written.clear();
        }
    }

    fn step(&mut self, step: &LoopStep) {
        let slot = step.slot;
        if step.reads().any(|read| self.written.contains(&read))
            || self.written.contains(&slot)
            || self.read.contains(&slot)
        {
            self.meet();
        }
        self.read.extend(step.reads());
        self.written.insert(slot);
        let number = self.steps;
        self.line(format_args!("step{number}();"));
        self.steps += 1;
    }

    /// Statements before a loop that goes on do not run again, and those after one that has stopped do not run yet. A list ends with a
    /// barrier.
    fn list(&mut self, list: &[Statement]) {
        let guarded = loops(list) > 0;
        let mut rest = list;
        while let Some(first) = rest.first() {
            let run = rest.iter().take_while(|statement| matches!(statement, Statement::Step(_))).count();
            let (steps, others) = rest.split_at(run.max(1));
            rest = others;
            match first {
                Statement::Step(_) => {
                    if guarded {
                        self.line(format_args!("if (at == 0u) {{"));
                    }
                    for statement in steps {
                        if let Statement::Step(step) = statement {
                            self.step(step);
                        }
                    }
                    if guarded {
                        self.meet();
                        self.line(format_args!("}}"));
                    }
                }
                Statement::While(own) => self.while_statement(own),
                Statement::Branch(own) => self.branch(own, guarded),
            }
        }
        self.meet();
    }

    fn while_statement(&mut self, own: &WhileStatement) {
        self.meet();
        self.loops += 1;
        let number = self.loops;
        let last_of_condition = number + loops(&own.condition);
        let last = last_of_condition + loops(&own.body);
        self.line(format_args!("if (at == 0u || (at >= {number}u && at <= {last}u)) while (true) {{"));
        self.line(format_args!("if (at <= {last_of_condition}u) {{"));
        self.line(format_args!("if (at == 0u || at == {number}u) {{"));
        self.line(format_args!("if (left == 0u) {{ at = {number}u | {PAUSED}; break; }}"));
        self.line(format_args!("left--;\n    at = 0u;\n    }}"));
        self.list(&own.condition);
        if last_of_condition > number {
            self.line(format_args!("if (at != 0u) break;"));
        }
        self.line(format_args!("if (is_zero({})) break;", predicate(own.predicate)));
        self.line(format_args!("}}"));
        self.list(&own.body);
        if last > last_of_condition {
            self.line(format_args!("if (at != 0u) break;"));
        }
        for (a, b) in &own.swaps {
            self.line(format_args!("swap(slot{a}, slot{b});"));
        }
        // Nobody writes what others still read of the predicate.
        self.line(format_args!("meet();\n    }}"));
        self.line(format_args!("meet();"));
    }

    fn branch(&mut self, own: &BranchStatement, guarded: bool) {
        self.meet();
        let first = self.loops + 1;
        let last = self.loops + loops(&own.then) + loops(&own.otherwise);
        if last >= first {
            self.line(format_args!("if (at == 0u || (at >= {first}u && at <= {last}u)) {{"));
        } else if guarded {
            self.line(format_args!("if (at == 0u) {{"));
        }
        self.line(format_args!("if (!is_zero({})) {{", predicate(own.predicate)));
        self.list(&own.then);
        self.line(format_args!("}} else {{"));
        self.list(&own.otherwise);
        self.line(format_args!("}}"));
        if last >= first || guarded {
            self.line(format_args!("}}"));
        }
        self.read.insert(own.predicate.slot);
    }
}

/// The number of the parameter with the check of a step's node.
pub fn check_number(step: usize, node: usize) -> usize {
    step * MAX_STEP_NODES + node
}

/// The element that a predicate tests.
fn predicate(own: Predicate) -> String {
    load(own.ty, &element_of(own.slot, own.ty, "0"))
}

fn head(steps: &[EmittedStep], predicates: &[Type], parameters: &str, caps: &Capabilities) -> String {
    let mut storages: Vec<_> = predicates.iter().map(|ty| ty.storage()).chain(["uint"]).collect();
    let mut computes: Vec<_> = predicates.iter().map(|ty| ty.compute()).collect();
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

/// Bytes of shared memory that each invocation needs for the reductions of a program.
pub fn shared_bytes(program: &WorkgroupProgram, caps: &Capabilities) -> u64 {
    let accumulators = program.given.steps().filter_map(|step| Accumulator::of(&step.program, &step.layout, caps));
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
fn slots(program: &WorkgroupProgram, values: &[bool]) -> String {
    let (places, _) = program.scratch(values);
    let mut text = String::new();
    for (slot, place) in places.into_iter().enumerate() {
        let _ = match place {
            Some(offset) => writeln!(text, "  slot{slot} = in_scratch({offset}u);"),
            None => writeln!(text, "  slot{slot} = uvec2(p.slot{slot});"),
        };
    }
    let stored = values.iter().enumerate().filter(|(_, is_value)| **is_value);
    let stored: String = stored
        .map(|(slot, _)| {
            let word = |i| format!(" {}[{i}] = p.value{slot}[{i}];", format_args!("Buffer_uint(slot{slot}).v"));
            (0..4).map(word).collect::<String>()
        })
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

impl<'a> EmittedStep<'a> {
    fn new(step: &'a LoopStep, number: usize, reduction_threads: u32, caps: &'a Capabilities) -> Self {
        let LoopStep { program, layout, .. } = step;
        let vectors = VectorInputs::default();
        let emitter = Emitter { program, layout, caps, vectors, vector_axis: None, window: false, shared_input: None };
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
        let (value, part) = accumulator.finished(0);
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
            ("checkv", &[node]) => Some(format!("p.checkv{}", check_number(self.number, node))),
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
pub(super) fn replaced(text: &str, constant: impl Fn(&str) -> Option<String>) -> String {
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
