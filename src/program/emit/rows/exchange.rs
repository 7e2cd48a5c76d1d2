//! What elements add to the accumulators of a row, and how its invocations combine theirs.

use std::fmt::Write as _;

use super::super::values::{convert, of_compute};
use super::{RowAccumulator, RowEmitter, RowStatements};
use crate::program::op::Reduction;
use crate::program::{Attribute, Node};

impl RowAccumulator<'_> {
    /// The parts of the `c`-th accumulator, as arguments.
    fn parts(&self, c: u32) -> String {
        self.accumulator.join(", ", |i, _| format!("a{}_{c}_{i}", self.value))
    }

    /// Declares the `c`-th accumulator.
    pub(super) fn declare(&self, text: &mut String, c: u32) {
        let declared =
            self.accumulator.join(" ", |i, part| format!("precise {} a{}_{c}_{i};", part.glsl(), self.value));
        let _ = writeln!(text, "  {declared}");
        self.start(text, c);
    }

    /// Makes the `c`-th accumulator that of no elements.
    pub(super) fn start(&self, text: &mut String, c: u32) {
        let identity = |i| self.accumulator.identity(i);
        let start = self.accumulator.join(" ", |i, _| format!("a{}_{c}_{i} = {};", self.value, identity(i)));
        let _ = writeln!(text, "  {start}");
    }

    /// Declares the `c`-th extremum of elements that are in range.
    pub(super) fn declare_extremum(&self, text: &mut String, c: u32) {
        let start = if self.accumulator.extremum() == Some("max") { "lowest_float()" } else { "highest_float()" };
        let _ = writeln!(text, "  float extremum{}_{c} = {start};", self.value);
    }

    /// Makes the `c`-th accumulator that of the `c`-th extremum.
    pub(super) fn set_key(&self, text: &mut String, c: u32) {
        let (value, name) = (self.value, self.accumulator.extremum().unwrap_or_default());
        let _ = writeln!(text, "  a{value}_{c}_0 = {name}_key_in_range(extremum{value}_{c});");
    }

    fn set_last_wins(&self, text: &mut String) {
        if let Node { attribute: Attribute::Arg { last, .. }, .. } = self.node {
            let _ = writeln!(text, "  last_wins = {last};");
        }
    }
}

impl RowEmitter<'_> {
    /// Adds what an element contributes to the `c`-th accumulator or, with `in_range`, to the `c`-th extremum.
    pub(super) fn combine_element(&self, text: &mut String, own: &RowAccumulator, (c, in_range): (u32, bool)) {
        let Some((reduction, element)) = self.program().reduction_of(own.node) else { return };
        let (argument, accumulator) = (own.node.args[0], &own.accumulator);
        let contributed = convert((format!("v{argument}"), self.program().type_of(argument)), element);
        if let Some(name) = accumulator.extremum().filter(|_| in_range) {
            let _ = writeln!(text, "  combine_{name}_in_range(extremum{}_{c}, {contributed});", own.value);
            return;
        }
        let contributed = accumulator.contribution(contributed);
        let second = match reduction {
            _ if accumulator.parts.len() < 2 => String::new(),
            Reduction::ArgMax | Reduction::ArgMin => ", r".into(),
            _ => format!(", {}", accumulator.identity(1)),
        };
        own.set_last_wins(text);
        let _ = writeln!(text, "  {}({}, {contributed}{second});", accumulator.function(), own.parts(c));
    }

    /// Combines the accumulators of a row. The value of the row is one of the statements that follow for all its invocations.
    pub(super) fn exchange(&self, text: &mut String, own: &RowAccumulator, of_row: &mut RowStatements) {
        let (accumulator, combine) = (&own.accumulator, own.accumulator.function());
        let shares_memory = self.schedule.lanes > self.schedule.subgroup_lanes;
        let mut before = String::new();
        own.set_last_wins(&mut before);
        for (to, from) in [(0, 1), (2, 3), (0, 2)].into_iter().filter(|_| self.width() == 4) {
            let _ = writeln!(before, "  {combine}({}, {});", own.parts(to), own.parts(from));
        }
        if self.schedule.subgroup_lanes > 1 {
            subgroup_exchange(&mut before, own);
            if !shares_memory {
                broadcast_first(&mut before, own);
            }
        }
        if shares_memory {
            put_shared(&mut before, own);
        }
        self.with_row(text, &before);
        if shares_memory {
            exchange_shared(text, own);
            own.set_last_wins(&mut of_row.statements);
            get_shared(&mut of_row.statements, own);
        }
        let (finished, part) = accumulator.finished(0);
        let finished = finished.replace("a##_", &format!("a{}_0_", own.value));
        let result = convert((finished, of_compute(part)), own.node.ty);
        of_row.set_value(own.value, own.node.ty, &result);
    }
}

/// Combines the accumulators of a subgroup in each of its invocations.
fn subgroup_exchange(text: &mut String, own: &RowAccumulator) {
    let RowAccumulator { value, accumulator, .. } = own;
    let declared = accumulator.join(" ", |i, part| format!("{} b{i} = from_lane(a{value}_0_{i}, s);", part.glsl()));
    let others = accumulator.join(", ", |i, _| format!("b{i}"));
    let _ = writeln!(
        text,
        "  [[unroll]] for (uint s = SUBGROUP_LANES / 2u; s > 0u; s /= 2u) {{ {declared} {}({}, {others}); }}",
        accumulator.function(),
        own.parts(0)
    );
}

/// All invocations go on with the value of the subgroup's first one: those of others may be rounded otherwise.
fn broadcast_first(text: &mut String, own: &RowAccumulator) {
    let RowAccumulator { value, accumulator, .. } = own;
    let first =
        accumulator.join(" ", |i, _| format!("a{value}_0_{i} = from_lane(a{value}_0_{i}, lane % SUBGROUP_LANES);"));
    let _ = writeln!(text, "  {first}");
}

/// The place of a part of the accumulator in shared memory.
fn partial(value: usize, part: usize, index: &str) -> String {
    format!("partial{value}_{part}[own * PARTIALS + {index}]")
}

/// Puts what a subgroup, or an invocation, has into shared memory.
fn put_shared(text: &mut String, own: &RowAccumulator) {
    let RowAccumulator { value, accumulator, .. } = own;
    let put =
        accumulator.join(" ", |i, _| format!("{} = a{value}_0_{i};", partial(*value, i, "lane / SUBGROUP_LANES")));
    let _ = writeln!(text, "  if (lane % SUBGROUP_LANES == 0) {{ {put} }}");
}

/// Waits for all of these, and adds up many until eight are left.
fn exchange_shared(text: &mut String, own: &RowAccumulator) {
    let RowAccumulator { value, accumulator, .. } = own;
    let at = |i: usize, index: &str| partial(*value, i, index);
    let next = accumulator.join(", ", |i, _| at(i, "lane + s"));
    let put_own = accumulator.join(" ", |i, _| format!("{} = a{value}_0_{i};", at(i, "lane")));
    let get_own = accumulator.join(" ", |i, _| format!("a{value}_0_{i} = {};", at(i, "lane")));
    let (combine, parts) = (accumulator.function(), own.parts(0));
    let _ = writeln!(
        text,
        "  barrier();\n  \
         if (PARTIALS > 8u) {{\n    if (lane < PARTIALS) {{ {get_own} }}\n    \
         for (uint s = PARTIALS / 2u; s > 4u; s /= 2u) {{\n      \
         if (lane < s) {{ {combine}({parts}, {next}); {put_own} }}\n      barrier();\n    }}\n  }}"
    );
}

/// All invocations of a row add up what is left, in the same order.
fn get_shared(text: &mut String, own: &RowAccumulator) {
    let RowAccumulator { value, accumulator, .. } = own;
    let first = accumulator.join(" ", |i, _| format!("a{value}_0_{i} = {};", partial(*value, i, "0")));
    let others = accumulator.join(", ", |i, _| partial(*value, i, "s"));
    let _ = writeln!(
        text,
        "  {first}\n  [[unroll]] for (uint s = 1; s < min(PARTIALS, 8u); s++) {}({}, {others});",
        accumulator.function(),
        own.parts(0)
    );
}
