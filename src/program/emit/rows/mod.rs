//! Kernels of row programs. An invocation goes through every `LANES`-th element of its row, or every `LANES`-th vector of four, once for each
//! pass: a pass computes the reductions whose operands are known, and the last one stores the results. What a later pass needs again is kept,
//! or computed again. This file has the kernel and its passes; `elements` writes what is computed of an element, `exchange` how the invocations
//! of a row combine their accumulators.

mod elements;
mod exchange;
mod parts;
mod prologue;

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::values::assign;
use super::{Accumulator, Emitter, VectorInputs, define, head};
use crate::device::Capabilities;
use crate::program::op::Typing;
use crate::program::rows::{RowProgram, SoundRows};
use crate::program::types::Compute;
use crate::program::{Node, Program, Source, Type};

pub use prologue::{EmittedPrologue, PROLOGUE_PARAMETERS, RowPrologue, SHARED_ROW, shared_element};

/// Where the values of elements are kept from one pass to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeptValues {
    /// In registers of an invocation, which goes through the row in this many steps.
    Registers(u32),
    /// In shared memory, which has room for this many elements of each row.
    Shared(u32),
    /// In the device's memory: what takes longer to compute than to load.
    Memory,
    /// Nowhere: they are computed again.
    Recomputed,
}

/// How rows are spread over invocations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RowSchedule {
    /// Rows of a workgroup.
    pub rows: u32,
    /// Invocations of a row, a power of two.
    pub lanes: u32,
    /// How an invocation reads the inputs of four neighbouring elements; `None` where it goes through single elements.
    pub vectors: Option<VectorInputs>,
    /// Where values are kept.
    pub kept: KeptValues,
    /// Whether the steps of all invocations make a row, without a rest.
    pub exact: bool,
    /// Whether the first pass loads what later passes alone need, too: those loads overlap.
    pub prefetched: bool,
    /// Invocations of a row that are of one subgroup, and hand values to each other directly: a power of two, and 1 where none do.
    pub subgroup_lanes: u32,
}

/// The values of elements that later passes need again, by what they cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeptBytes {
    /// Bytes for each element, inputs included.
    pub all: u64,
    /// Bytes of those that take longer to compute than to load.
    pub computed: u64,
    /// Bytes of the inputs that passes after the first one alone need.
    pub later: u64,
}

/// The bytes of what later passes need again.
pub fn kept_bytes(rows: &RowProgram, sound: &SoundRows, caps: &Capabilities) -> KeptBytes {
    let emitter = |kept| {
        let (vectors, exact, prefetched) = (None, false, false);
        let schedule = RowSchedule { rows: 1, lanes: 1, vectors, kept, exact, prefetched, subgroup_lanes: 1 };
        RowEmitter::new(rows, sound, schedule, caps)
    };
    let bytes =
        |values: &BTreeSet<usize>| values.iter().map(|&value| rows.program.type_of(value).compute().size()).sum();
    let (all, computed) = (emitter(KeptValues::Shared(0)), emitter(KeptValues::Memory));
    KeptBytes { all: bytes(&all.kept), computed: bytes(&computed.kept), later: bytes(&all.later_inputs()) }
}

/// The values that are kept in the device's memory, with their types.
pub fn kept_in_memory(
    rows: &RowProgram,
    sound: &SoundRows,
    schedule: RowSchedule,
    caps: &Capabilities,
) -> Vec<(usize, Compute)> {
    if schedule.kept != KeptValues::Memory {
        return vec![];
    }
    let emitter = RowEmitter::new(rows, sound, schedule, caps);
    emitter.kept.iter().map(|&value| (value, rows.program.type_of(value).compute())).collect()
}

/// Writes the kernel's source from the GLSL of its parameters' block.
pub fn emit_rows(
    rows: &RowProgram,
    sound: &SoundRows,
    schedule: RowSchedule,
    parameters: &str,
    caps: &Capabilities,
) -> String {
    let emitter = RowEmitter::new(rows, sound, schedule, caps);
    let mut text = emitter.head(parameters);
    emitter.macros(&mut text);
    emitter.parts(&mut text);
    let _ = writeln!(text, "layout(local_size_x = {}) in;", schedule.rows * schedule.lanes);
    emitter.memory(&mut text);
    text.push_str("void main() {\n  IDX group = workgroup();\n  if (group >= p.groups) return;\n");
    emitter.rows(&mut text);
    text
}

struct RowEmitter<'a> {
    rows: &'a RowProgram,
    sound: &'a SoundRows,
    schedule: RowSchedule,
    emitter: Emitter<'a>,
    /// The pass before which each value is known: 0 where it needs no reduction.
    levels: Vec<usize>,
    /// What each node's own views are, from this one on.
    node_views: Vec<usize>,
    /// Values of elements that are kept, in order.
    kept: BTreeSet<usize>,
    /// Whether the elements of the result go to shared memory.
    is_prologue: bool,
}

impl<'a> RowEmitter<'a> {
    fn new(rows: &'a RowProgram, sound: &'a SoundRows, schedule: RowSchedule, caps: &'a Capabilities) -> Self {
        let (program, layout) = (&rows.program, &sound.layout);
        let vectors = schedule.vectors.unwrap_or_default();
        let vector_axis = schedule.vectors.and(layout.dims.len().checked_sub(1));
        let emitter = Emitter { program, layout, caps, vectors, vector_axis, window: false, shared_input: None };
        let mut levels = vec![0; program.inputs.len()];
        let mut node_views = vec![];
        let mut views = program.inputs.iter().filter(|input| matches!(input.source, Source::View { .. })).count();
        for node in &program.nodes {
            let before = node.args.iter().map(|&arg| levels[arg]).max().unwrap_or(0);
            levels.push(before + usize::from(matches!(node.op.typing, Typing::Reduce(_))));
            node_views.push(views);
            views += match node.op.typing {
                Typing::Iota => 1,
                Typing::Eye => 2,
                _ => 0,
            };
        }
        let mut made =
            Self { rows, sound, schedule, emitter, levels, node_views, kept: BTreeSet::new(), is_prologue: false };
        if schedule.kept != KeptValues::Recomputed {
            made.kept = made.values_to_keep();
        }
        made
    }

    fn program(&self) -> &'a Program {
        &self.rows.program
    }

    fn node(&self, value: usize) -> Option<&'a Node> {
        self.program().nodes.get(value.checked_sub(self.program().inputs.len())?)
    }

    fn is_reduction(&self, value: usize) -> bool {
        self.node(value).is_some_and(|node| matches!(node.op.typing, Typing::Reduce(_)))
    }

    /// The number of passes: one for each level of reductions, and the one that stores.
    fn passes(&self) -> usize {
        self.levels.iter().max().map_or(1, |last| last + 1)
    }

    /// The reductions of a pass.
    fn reductions(&self, pass: usize) -> Vec<usize> {
        let all = self.program().inputs.len()..self.levels.len();
        all.filter(|&value| self.is_reduction(value) && self.levels[value] == pass + 1).collect()
    }

    /// The values of elements that a pass computes or, in the first one, loads for later passes.
    fn roots(&self, pass: usize) -> Vec<usize> {
        let mut roots = self.computed(pass);
        if pass == 0 && self.schedule.prefetched {
            roots.extend(self.later_inputs());
        }
        roots
    }

    /// The inputs of elements that passes after the first one need, and not the first one.
    fn later_inputs(&self) -> BTreeSet<usize> {
        let inputs = |pass| {
            let needed = self.leading_to(&self.computed(pass), |_| false);
            needed.into_iter().filter(|&value| self.node(value).is_none()).collect::<BTreeSet<_>>()
        };
        let first = inputs(0);
        (1..self.passes()).flat_map(inputs).filter(|input| !first.contains(input)).collect()
    }

    /// The values of elements that a pass computes for its reductions or, in the last one, for the results.
    fn computed(&self, pass: usize) -> Vec<usize> {
        if pass + 1 == self.passes() {
            return self.rows.outputs.iter().filter(|output| output.of_element).map(|output| output.value).collect();
        }
        self.reductions(pass).into_iter().filter_map(|value| Some(self.node(value)?.args[0])).collect()
    }

    /// The values of elements that lead to `roots`, in order, up to those for which `known` holds.
    fn leading_to(&self, roots: &[usize], known: impl Fn(usize) -> bool) -> BTreeSet<usize> {
        let mut found = BTreeSet::new();
        let mut open = roots.to_vec();
        while let Some(value) = open.pop() {
            if !self.sound.of_element[value] || !found.insert(value) || known(value) {
                continue;
            }
            open.extend(self.node(value).into_iter().flat_map(|node| node.args.iter().copied()));
        }
        found
    }

    /// Inputs, compute-bound values and what is made of a sum of parts, where more than one pass needs them.
    fn values_to_keep(&self) -> BTreeSet<usize> {
        let costly = |value: usize| {
            match self.node(value) {
                Some(node) => node.op.real.is_some_and(|formula| formula.compute_bound) || self.is_made_of_sum(value),
                // A CPU device's caches are the memory that its workgroups share.
                None => !self.emitter.caps.cpu && self.schedule.kept != KeptValues::Memory,
            }
        };
        let (mut kept, mut seen) = (BTreeSet::new(), BTreeSet::new());
        for pass in 0..self.passes() {
            let needed = self.leading_to(&self.roots(pass), |value| seen.contains(&value) && costly(value));
            kept.extend(needed.iter().copied().filter(|&value| seen.contains(&value) && costly(value)));
            seen.extend(needed);
        }
        kept
    }

    fn macros(&self, text: &mut String) {
        let RowSchedule { rows, lanes, subgroup_lanes, .. } = self.schedule;
        define(text, "LANES", format_args!("{lanes}u"));
        define(text, "ROWS", format_args!("{rows}u"));
        define(text, "SUBGROUP_LANES", format_args!("{subgroup_lanes}u"));
        define(text, "PARTIALS", "(LANES / SUBGROUP_LANES)");
    }

    /// The types of the buffers' elements, all types that the kernel computes in, and the files that it needs, some of them twice.
    fn uses(&self) -> (Vec<&'static str>, Vec<Compute>, Vec<&'static str>) {
        let program = self.program();
        let (mut storages, mut computes) = self.emitter.types(None);
        let mut files = vec!["indices.glsl"];
        storages.extend(self.rows.results().map(|(ty, _)| ty.storage()));
        let accumulators = program.nodes.iter().filter_map(|node| self.accumulator(node));
        if self.rows.summed.is_some() {
            computes.push(Compute::Double);
        }
        if self.schedule.kept == KeptValues::Memory {
            storages.extend(self.kept.iter().map(|&value| program.type_of(value).compute().glsl()));
        }
        let parts: Vec<_> = accumulators.flat_map(|accumulator| accumulator.parts).collect();
        if !parts.is_empty() {
            files.push("reduce.glsl");
            if self.schedule.subgroup_lanes > 1 {
                files.push("exchange.glsl");
            }
            let complex = |node: &Node| program.reduction_of(node).is_some_and(|(_, ty)| ty.is_complex());
            if program.nodes.iter().any(complex) {
                files.push("complex/reduce.glsl");
            }
        }
        computes.extend(parts);
        files.extend(self.emitter.files());
        (storages, computes, files)
    }

    fn head(&self, parameters: &str) -> String {
        let (storages, computes, files) = self.uses();
        let mut text = head(self.emitter.caps, self.sound.layout.index64, &storages, &computes, parameters);
        text.push_str("bool last_wins = false;\n#define LAST_WINS last_wins\n");
        let mut seen = BTreeSet::new();
        for file in files.into_iter().filter(|&file| seen.insert(file)) {
            let _ = writeln!(text, "#include \"lib/{file}\"");
        }
        text
    }

    fn accumulator(&self, node: &Node) -> Option<Accumulator> {
        Accumulator::of_node(self.program(), node, self.sound.layout.index64, self.emitter.caps)
    }

    /// What the invocations of a workgroup do for the rows from `group` on, to the end of the function.
    fn rows(&self, text: &mut String) {
        // Views of one element have their index in the address.
        text.push_str(
            "  uint lane = INVOCATION % LANES, own = INVOCATION / LANES;\n  IDX row = group * ROWS + own;\n\
             \x20 IDX n = row < p.rows ? p.reduced : IDX(0);\n  IDX of_row = min(row, p.rows - 1);\n",
        );
        let views = self.views();
        for v in &views {
            let _ = writeln!(text, "  IDX index{v} = p.offset{v};");
        }
        self.emitter.add_axes(text, "of_row", 0..self.sound.layout.kept, &views);
        if let KeptValues::Registers(steps) = self.schedule.kept {
            let count = steps * self.width();
            for &value in &self.kept {
                let _ = writeln!(text, "  {} kept{value}[{count}];", self.glsl(value));
            }
        }
        let (mut stored, mut of_row) = (BTreeSet::new(), RowStatements::default());
        for pass in 0..self.passes() {
            self.row_values(&mut of_row, pass);
            self.row_statements(text, std::mem::take(&mut of_row));
            self.pass(text, pass, &mut stored, &mut of_row);
        }
        text.push_str("  if (lane == 0 && row < p.rows) {\n");
        for (position, output) in self.rows.outputs.iter().enumerate().filter(|(_, output)| !output.of_element) {
            let (value, ty) = (output.value, self.program().type_of(output.value));
            let stored = assign(ty, &format!("result{position}"), "row", (format!("v{value}"), ty));
            let _ = writeln!(text, "  {stored};");
        }
        text.push_str("  }\n}\n");
    }

    /// The views whose indices are computed.
    fn views(&self) -> Vec<usize> {
        let mut views = self.emitter.strided();
        views.extend(self.emitter.given().iter().map(|given| given.view));
        views
    }

    /// Elements of a step.
    fn width(&self) -> u32 {
        if self.schedule.vectors.is_some() { 4 } else { 1 }
    }

    /// The GLSL type of a value.
    fn glsl(&self, value: usize) -> &'static str {
        self.program().type_of(value).compute().glsl()
    }

    /// Shared memory for what is kept, and for what the invocations of a row hand to each other.
    fn memory(&self, text: &mut String) {
        if let KeptValues::Shared(count) = self.schedule.kept {
            for &value in &self.kept {
                let _ = writeln!(text, "shared {} kept{value}[ROWS * {count}u];", self.glsl(value));
            }
        }
        if self.schedule.lanes == self.schedule.subgroup_lanes {
            return;
        }
        // Each reduction has memory of its own, so that none waits until all have read another's.
        for (i, node) in self.program().nodes.iter().enumerate() {
            let (value, accumulator) = (self.program().inputs.len() + i, self.accumulator(node));
            for (i, part) in accumulator.iter().flat_map(|accumulator| accumulator.parts.iter().enumerate()) {
                let _ = writeln!(text, "shared {} partial{value}_{i}[ROWS * PARTIALS];", part.glsl());
            }
        }
    }

    /// The values of rows that are known before a pass and not before the one before it, but for reductions.
    fn row_values(&self, of_row: &mut RowStatements, pass: usize) {
        let own =
            |&value: &usize| !self.sound.of_element[value] && self.levels[value] == pass && !self.is_reduction(value);
        for value in (0..self.levels.len()).filter(own) {
            of_row.set_value(value, self.program().type_of(value), &self.expression(value));
        }
    }

    /// Whether workgroups have more invocations than those of their rows: those of a prologue, which has one row.
    fn has_idle_invocations(&self) -> bool {
        self.is_prologue && self.schedule.rows > 1
    }

    /// Writes statements for the invocations that have a row. The others would take a multiprocessor as long again.
    fn with_row(&self, text: &mut String, statements: &str) {
        match self.has_idle_invocations() {
            true => text.extend(["  if (own == 0) {\n", statements, "  }\n"]),
            false => text.push_str(statements),
        }
    }

    fn row_statements(&self, text: &mut String, of_row: RowStatements) {
        text.push_str(&of_row.declarations);
        if !of_row.statements.is_empty() {
            self.with_row(text, &of_row.statements);
        }
    }

    /// One pass over the row. `stored` are the values that passes before have kept, `of_row` gets what follows for a row.
    fn pass(&self, text: &mut String, pass: usize, stored: &mut BTreeSet<usize>, of_row: &mut RowStatements) {
        let accumulators: Vec<RowAccumulator> = self
            .reductions(pass)
            .into_iter()
            .filter_map(|value| {
                let node = self.node(value)?;
                Some(RowAccumulator { value, node, accumulator: self.accumulator(node)? })
            })
            .collect();
        for own in &accumulators {
            (0..self.width()).for_each(|c| own.declare(text, c));
        }
        let roots = self.roots(pass);
        if !roots.is_empty() {
            let last = pass + 1 == self.passes();
            self.step(text, &Pass { roots, last, accumulators: &accumulators }, stored);
        }
        for own in &accumulators {
            self.exchange(text, own, of_row);
        }
    }
}

/// What all invocations of a row compute alike between two passes.
#[derive(Default)]
struct RowStatements {
    declarations: String,
    statements: String,
}

impl RowStatements {
    /// Declares a value of the row and assigns it.
    fn set_value(&mut self, value: usize, ty: Type, expression: &str) {
        let _ = writeln!(self.declarations, "  {} v{value};", ty.compute().precise());
        let _ = writeln!(self.statements, "  v{value} = {expression};");
    }
}

/// What the loop of a pass computes.
struct Pass<'a> {
    /// The values of elements that it computes or loads.
    roots: Vec<usize>,
    /// Whether it stores the results.
    last: bool,
    /// What it adds its elements to.
    accumulators: &'a [RowAccumulator<'a>],
}

/// A reduction of rows with its accumulators: a thread has one for each of the neighbours that it goes through at once.
struct RowAccumulator<'a> {
    value: usize,
    node: &'a Node,
    accumulator: Accumulator,
}
