//! Reductions: how they accumulate, and their kernel.

use std::fmt::Write as _;
use std::ops::Range;

use smallvec::SmallVec;

use super::values::{assign, convert, of_compute};
use super::{Emitter, Exchange, ReduceSchedule, VectorInputs};
use crate::device::Capabilities;
use crate::program::layout::Layout;
use crate::program::op::Reduction;
use crate::program::types::Compute;
use crate::program::{Attribute, Program};

/// How a reduction accumulates.
pub struct Accumulator {
    /// Types of the accumulator's one or two parts.
    pub parts: SmallVec<[Compute; 2]>,
    name: &'static str,
}

/// What sums and products of elements are formed in: double for narrow floats where the device has it, as in
/// BinaryBackend.
pub fn widened(element: Compute, caps: &Capabilities) -> Compute {
    match element {
        Compute::Float if caps.float64 => Compute::Double,
        Compute::Complex if caps.float64 => Compute::ComplexDouble,
        other => other,
    }
}

/// What a sum of elements is accumulated in: the sum, and for floats with nothing wider what rounding dropped from it.
pub fn sum_parts(element: Compute, caps: &Capabilities) -> SmallVec<[Compute; 2]> {
    use Compute::{Complex, ComplexDouble, Double, Float};
    let sum = widened(element, caps);
    let compensated = sum == element && matches!(element, Float | Double | Complex | ComplexDouble);
    SmallVec::from_elem(sum, if compensated { 2 } else { 1 })
}

impl Accumulator {
    /// The accumulator of the program's reduction, if it has one. Sums and products of narrow floats run in double, as
    /// BinaryBackend's do, or compensated where the device has no double; sums of doubles are compensated where the
    /// result is one.
    pub fn of(program: &Program, layout: &Layout, caps: &Capabilities) -> Option<Self> {
        let (reduction, element) = program.reduced_type()?;
        let index = if layout.wide { Compute::Uint64 } else { Compute::Uint };
        let (name, parts): (_, SmallVec<[Compute; 2]>) = match reduction {
            // Wider than the result already, as products of narrow floats are.
            Reduction::Sum if program.result().compute() != element.compute() => {
                ("sum", SmallVec::from_slice(&[element.compute()]))
            }
            Reduction::Sum => ("sum", sum_parts(element.compute(), caps)),
            Reduction::Product => ("product", SmallVec::from_slice(&[widened(element.compute(), caps)])),
            Reduction::Max => ("max", SmallVec::from_slice(&[element.compute()])),
            Reduction::Min => ("min", SmallVec::from_slice(&[element.compute()])),
            Reduction::All => ("all", SmallVec::from_slice(&[Compute::Uint])),
            Reduction::Any => ("any", SmallVec::from_slice(&[Compute::Uint])),
            Reduction::ArgMax => ("argmax", SmallVec::from_slice(&[element.compute(), index])),
            Reduction::ArgMin => ("argmin", SmallVec::from_slice(&[element.compute(), index])),
            // Its order is the function's: nothing is accumulated apart and combined.
            Reduction::Fold => return None,
        };
        Some(Self { parts, name })
    }

    fn list(&self, f: impl Fn(usize, &str) -> String) -> String {
        self.parts.iter().enumerate().map(|(i, part)| f(i, part.glsl())).collect::<Vec<_>>().join(" ")
    }

    fn call(&self, function: &str, a: impl Fn(usize) -> String, b: impl Fn(usize) -> String) -> String {
        let count = self.parts.len();
        let arguments = (0..count).map(&a).chain((0..count).map(&b)).collect::<Vec<_>>().join(", ");
        format!("{function}_{}({arguments});", self.name)
    }

    /// The identity of a part.
    fn identity(&self, part: usize) -> String {
        let ty = self.parts[part];
        match (self.name, part) {
            ("product", _) if matches!(ty, Compute::Complex | Compute::ComplexDouble) => format!("{}(1, 0)", ty.glsl()),
            ("product", _) | ("all", _) => ty.literal(1),
            ("max" | "argmax", 0) => format!("lowest_{}()", ty.glsl()),
            ("min" | "argmin", 0) => format!("highest_{}()", ty.glsl()),
            // No element yet: any index beats it.
            ("argmax" | "argmin", _) => format!("~{}(0)", ty.glsl()),
            _ => ty.literal(0),
        }
    }
}

impl Emitter<'_> {
    pub(super) fn reduce(&self, text: &mut String, schedule: ReduceSchedule, accumulator: &Accumulator) {
        let ReduceSchedule {
            output_threads: across,
            reduction_threads: along,
            vectors: VectorInputs { vec4, .. },
            output_vectors: beside,
            unrolled,
            exchange,
            window,
            from_partial,
            to_partial,
        } = schedule;
        let Some((reduction, element)) = self.program.reduced_type() else { return };
        let last = &self.program.nodes[self.program.nodes.len() - 1];
        let parts = accumulator.parts.len();
        let threads = across * along;
        let arg = matches!(reduction, Reduction::ArgMax | Reduction::ArgMin);
        let ties_last = matches!(last.attribute, Attribute::Arg { last: true, .. });
        let _ = writeln!(
            text,
            "layout(local_size_x = {threads}) in;\n\
             #define LAST_WINS {ties_last}\n\
             #include \"lib/reduce.glsl\"",
        );
        if element.is_complex() {
            text.push_str("#include \"lib/complex/reduce.glsl\"\n");
        }
        // What one element contributes: `o` is the output's index, `r` the place along the reduced axes.
        let declared = accumulator.list(|i, ty| format!("out {ty} e{i}{}", if i + 1 < parts { "," } else { "" }));
        let held = self.held();
        let given = |f: &dyn Fn(usize, &str) -> String| -> String {
            held.iter().map(|&(_, input, storage)| format!("{}, ", f(input, storage))).collect()
        };
        let stored = given(&|input, storage| format!("{storage} x{input}"));
        let _ = writeln!(text, "void element(IDX o, IDX r, {stored}{declared}) {{");
        if from_partial {
            for (i, part) in accumulator.parts.iter().enumerate() {
                let _ = writeln!(text, "  e{i} = AT({}, p.partial{i}, r * p.outputs + o);", part.glsl());
            }
        } else {
            self.reduced(text);
            let argument = format!("v{}", last.args[0]);
            let value = convert((argument, self.program.type_of(last.args[0])), element);
            let lifted = match reduction {
                Reduction::All | Reduction::Any => format!("uint(!is_zero({value}))"),
                _ if accumulator.parts[0].is_emulated() => value,
                _ => format!("{}({value})", accumulator.parts[0].glsl()),
            };
            let _ = writeln!(text, "  e0 = {lifted};");
            if parts == 2 {
                let _ = writeln!(text, "  e1 = {};", if arg { "r".into() } else { accumulator.identity(1) });
            }
        }
        text.push_str("}\n");
        let outputs = (4 * beside).max(1);
        // Lanes of one subgroup hand their sums to each other, others go through shared memory.
        let exchanges = exchange == Exchange::Subgroup;
        if exchanges {
            text.push_str("#include \"lib/exchange.glsl\"\n");
        } else if along > 1 {
            for (i, part) in accumulator.parts.iter().enumerate() {
                let _ = writeln!(text, "shared {} shared{i}[{}];", part.glsl(), threads * outputs);
            }
        }
        self.loaders(text);
        // Elements of a thread side by side, and how many such runs it takes at a time, so that their loads overlap.
        let side = if vec4 != 0 && beside == 0 { 4 } else { 1 };
        // Each of four neighbours has an accumulator of its own, a0_1 being the first part of the second one's: an
        // addition waits for the one before it.
        let initial = |c| accumulator.list(|i, ty| format!("precise {ty} a{i}_{c} = {};", accumulator.identity(i)));
        let initial = (0..side * outputs).map(initial).collect::<Vec<_>>().join(" ");
        let each = beside.max(1);
        let bases = (0..each).map(|w| self.bases(w, &format!("o + {}", 4 * w))).collect::<Vec<_>>().join(" ");
        let first = if window { "0".into() } else { format!("chunk * p.chunk + y * {side}") };
        let _ = writeln!(
            text,
            "void main() {{\n\
             \x20 uint lane = INVOCATION, x = lane % {across}, y = lane / {across};\n\
             \x20 IDX group = turned();\n\
             \x20 IDX chunk = group % p.chunks;\n\
             \x20 IDX o = ((group / p.chunks) * {across} + x) * {outputs};\n\
             \x20 IDX end = min((chunk + 1) * p.chunk, p.reduced);\n\
             \x20 {initial}\n\
             \x20 if (o < p.outputs) {{\n\
             \x20   {bases}\n\
             \x20   IDX r = {first};"
        );
        let load = |k: u32| {
            let r = format!("r + {}", along * side * k);
            (0..each).map(|w| self.load_held("four", k * each + w, w, &r)).collect::<Vec<_>>().join(" ")
        };
        let element = |k: u32, c: u32, stored: &dyn Fn(usize) -> String| {
            let names = accumulator.list(|i, ty| format!("{ty} x{k}_{c}_{i};"));
            let passed: Vec<_> = (0..parts).map(|i| format!("x{k}_{c}_{i}")).collect();
            let (o, r) = if beside > 0 { (c, along * k) } else { (0, along * side * k + c) };
            let stored = given(&|input, _| stored(input));
            format!("{names} element(o + {o}, r + {r}, {stored}{});", passed.join(", "))
        };
        let take = |k: u32, c: u32| element(k, c, &|input| self.of_four(input, k * each + c / 4, c % 4));
        let combine =
            |k: u32, c: u32| accumulator.call("combine", |i| format!("a{i}_{c}"), |i| format!("x{k}_{c}_{i}"));
        let run = |k: u32| (0..side * outputs).map(|c| (k, c)).collect::<Vec<_>>();
        let step = along * side;
        let turns = |text: &mut String, turns: Range<u32>| {
            let all = || turns.clone().flat_map(run);
            let loads = turns.clone().map(load);
            let rest = all().map(|(k, c)| take(k, c)).chain(all().map(|(k, c)| combine(k, c)));
            loads.chain(rest).for_each(|line| text.extend(["      ", &line, "\n"]));
        };
        if window {
            let reduced = self.layout.reduced() as u32;
            (0..reduced).step_by(unrolled as usize).for_each(|k| turns(text, k..reduced.min(k + unrolled)));
        } else {
            let _ = writeln!(
                text,
                "    for (; r + {} < end; r += {}) {{",
                step * (unrolled - 1) + side - 1,
                step * unrolled
            );
            turns(text, 0..unrolled);
            text.push_str("    }\n");
            let next = if side == 4 { "r + 3 < end" } else { "r < end" };
            let _ = writeln!(text, "    for (; {next}; r += {step}) {{");
            turns(text, 0..1);
            text.push_str("    }\n");
        }
        if side == 4 {
            // What is left of the last four is one thread's.
            let _ = writeln!(
                text,
                "    for (; r < end; r++) {{ {} {} {} }}",
                self.load_held("one", 0, 0, "r"),
                element(0, 0, &|input| format!("q0_{input}")),
                combine(0, 0)
            );
            for (to, from) in [(0, 1), (2, 3), (0, 2)] {
                let join = accumulator.call("combine", |i| format!("a{i}_{to}"), |i| format!("a{i}_{from}"));
                let _ = writeln!(text, "    {join}");
            }
        }
        text.push_str("  }\n");
        if exchanges {
            for s in std::iter::successors(Some(along / 2), |s| Some(s / 2)).take_while(|&s| s > 0) {
                let names = accumulator.list(|i, ty| format!("{ty} s{i} = from_lane(a{i}_0, {});", s * across));
                let get = accumulator.call("combine", |i| format!("a{i}_0"), |i| format!("s{i}"));
                let _ = writeln!(text, "  {{ {names} {get} }}");
            }
        } else if along > 1 {
            let all = |f: &dyn Fn(u32) -> String| (0..outputs).map(f).collect::<Vec<_>>().join(" ");
            let put = all(&|c| accumulator.list(|i, _| format!("shared{i}[{} + lane] = a{i}_{c};", c * threads)));
            let from = |c: u32, i: usize| format!("shared{i}[{} + lane + s * {across}]", c * threads);
            let get = all(&|c| accumulator.call("combine", |i| format!("a{i}_{c}"), |i| from(c, i)));
            let _ = writeln!(
                text,
                "  {put}\n\
                 \x20 for (uint s = {}; s > 0; s >>= 1) {{\n\
                 \x20   barrier();\n\
                 \x20   if (y < s) {{ {get} {put} }}\n\
                 \x20 }}",
                along / 2
            );
        }
        text.push_str("  if (y == 0 && o < p.outputs) {\n");
        for c in 0..outputs {
            if to_partial {
                for (i, part) in accumulator.parts.iter().enumerate() {
                    let place = format!("chunk * p.outputs + o + {c}");
                    let _ = writeln!(text, "    AT({}, p.partial_out{i}, {place}) = a{i}_{c};", part.glsl());
                }
                continue;
            }
            let finished = match (accumulator.name, parts) {
                ("sum", 2) => (format!("finish_sum(a0_{c}, a1_{c})"), accumulator.parts[0]),
                ("argmax" | "argmin", _) => (format!("a1_{c}"), accumulator.parts[1]),
                _ => (format!("a0_{c}"), accumulator.parts[0]),
            };
            let finished = (finished.0, of_compute(finished.1));
            let _ = writeln!(text, "    {};", assign(last.ty, "result", &format!("o + {c}"), finished));
        }
        text.push_str("  }\n}\n");
    }
}
