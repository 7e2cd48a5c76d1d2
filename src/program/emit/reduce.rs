//! Reductions: an element, and the macros of `shaders/lib/loops/reduce.glsl`.

use std::fmt::Write as _;

use super::values::{assign, convert, of_compute, stored};
use super::{Accumulator, EmittedEpilogue, EmittedPrologue, EmittedReduction, Emitter, ReduceSchedule, define};
use crate::program::op::Reduction;
use crate::program::types::Compute;
use crate::program::{Attribute, Type};

impl Emitter<'_> {
    /// An epilogue's functions store the outputs. Before it reads anything, each workgroup computes the row of a prologue.
    pub(super) fn reduce(
        &self,
        text: &mut String,
        schedule: ReduceSchedule,
        accumulator: &Accumulator,
        prologue: Option<&EmittedPrologue>,
        epilogue: Option<&EmittedEpilogue>,
    ) {
        if let Some(prologue) = prologue {
            text.push_str(&prologue.memory);
        }
        let results = epilogue.and_then(|epilogue| epilogue.reduction.as_ref());
        self.element_function(text, accumulator, schedule.from_partial, results);
        let of_prologue = prologue.map_or("", |prologue| &prologue.function);
        text.push_str(of_prologue);
        define(text, "PROLOGUE", if of_prologue.is_empty() { "" } else { "prologue(); barrier();" });
        self.vector_macros(text);
        accumulator.declare_function(text);
        accumulator.macros(text);
        self.schedule_macros(text, schedule);
        define(text, "STORE_OUTPUT(a, index)", self.store_output(schedule.to_partial, accumulator, epilogue.is_some()));
        if let Some(results) = results {
            text.push_str(&results.functions([schedule.threads(), schedule.outputs()], self.caps));
        }
        text.push_str("#include \"lib/loops/reduce.glsl\"\n");
    }

    /// Declares the function of what an element contributes, with the files that it needs: `add_element` where products are added to the
    /// accumulator, otherwise `element`. An epilogue's reduction of the results needs the same files.
    pub(super) fn element_function(
        &self,
        text: &mut String,
        accumulator: &Accumulator,
        from_partial: bool,
        results: Option<&EmittedReduction>,
    ) {
        let Some((reduction, element)) = self.program.reduced_type() else { return };
        let last = &self.program.nodes[self.program.nodes.len() - 1];
        let last_wins = matches!(last.attribute, Attribute::Arg { last: true, .. });
        // Contractions alone have epilogues, and sum up.
        define(text, "LAST_WINS", results.map_or(last_wins, |results| results.last_wins));
        text.push_str("#include \"lib/reduce.glsl\"\n");
        if element.is_complex() {
            text.push_str("#include \"lib/complex/reduce.glsl\"\n");
        }
        let declared = accumulator.join(", ", |i, part| format!("out {} e{i}", part.glsl()));
        let stored: String = self.given().iter().map(|g| format!(", {} x{}", g.storage, g.input)).collect();
        let factors = self.exact_factors(accumulator).filter(|_| !from_partial);
        define(text, "ADDS_PRODUCTS", u32::from(factors.is_some()));
        let _ = match factors {
            Some(_) => writeln!(
                text,
                "#include \"lib/products.glsl\"\nvoid add_element(IDX o, IDX r{stored}, inout {} sum) {{",
                accumulator.parts[0].glsl()
            ),
            None => writeln!(text, "void element(IDX o, IDX r{stored}, {declared}) {{"),
        };
        if let Some([x, y]) = factors {
            self.reduced_element(text);
            let _ = match accumulator.parts[0] {
                Compute::Double => writeln!(text, "  add_product(product_factor(v{x}), v{y}, sum);"),
                _ => writeln!(text, "  sum = fma(v{x}, v{y}, sum);"),
            };
        } else if from_partial {
            for (i, part) in accumulator.parts.iter().enumerate() {
                let _ = writeln!(text, "  e{i} = AT({}, p.partial{i}, r * p.outputs + o);", part.glsl());
            }
        } else {
            self.reduced_element(text);
            self.contribution(text, reduction, element, accumulator);
        }
        text.push_str("}\n");
    }

    /// The factors of the products that a sum adds up, where these are exact, by `shaders/lib/products.glsl`: one instruction gives the same bits
    /// as two. The first is the one that more of the elements of a loop have in common.
    pub(super) fn exact_factors(&self, accumulator: &Accumulator) -> Option<[usize; 2]> {
        let [sum] = self.program.reductions() else { return None };
        let [x, y] = self.program.exact_products(sum).filter(|_| self.caps.fma && accumulator.parts.len() == 1)?;
        let is_common = |arg| self.shared_input == Some(arg) || arg < 32 && self.is_broadcast(arg);
        Some(if is_common(y) && !is_common(x) { [y, x] } else { [x, y] })
    }

    /// What the element contributes to the accumulator's parts.
    pub(super) fn contribution(
        &self,
        text: &mut String,
        reduction: Reduction,
        element: Type,
        accumulator: &Accumulator,
    ) {
        let each = accumulator.parts_of_result();
        for (result, node) in self.program.reductions().iter().enumerate() {
            let (argument, first) = (node.args[0], result * each);
            let value = convert((format!("v{argument}"), self.program.type_of(argument)), element);
            let _ = writeln!(text, "  e{first} = {};", accumulator.contribution(value));
            if each == 2 {
                let arg = matches!(reduction, Reduction::ArgMax | Reduction::ArgMin);
                let second = if arg { "r".into() } else { accumulator.identity(1) };
                let _ = writeln!(text, "  e{} = {second};", first + 1);
            }
        }
    }

    fn schedule_macros(&self, text: &mut String, schedule: ReduceSchedule) {
        let ReduceSchedule { output_threads, reduction_threads, vectors, output_vectors, unrolled, .. } = schedule;
        define(text, "OUTPUT_THREADS", output_threads);
        define(text, "REDUCTION_THREADS", reduction_threads);
        define(text, "OUTPUT_VECTORS", output_vectors);
        define(text, "REDUCED_VECTORS", u32::from(vectors.vec4 != 0 && output_vectors == 0));
        define(text, "UNROLLED", unrolled);
        define(text, "EXACT", u32::from(schedule.exact));
        define(text, "CHUNKED", u32::from(schedule.to_partial));
        if schedule.shares_memory() {
            define(text, "SHARED_EXCHANGE", "");
        }
        define(text, "LANES", schedule.lanes);
        define(text, "NEIGHBOURS_SHARE", u32::from(schedule.neighbours_share));
    }

    /// Stores the accumulator `a` as the output `index`, or as its partial result.
    pub(super) fn store_output(&self, to_partial: bool, accumulator: &Accumulator, epilogue: bool) -> String {
        if to_partial {
            return accumulator.join(" ", |i, part| {
                format!("AT({}, p.partial_out{i}, chunk * p.outputs + index) = a##_{i};", part.glsl())
            });
        }
        let ty = self.program.result();
        let stores = (0..accumulator.results).map(|result| {
            let (value, part) = accumulator.finished(result);
            let value = (value, of_compute(part));
            match (epilogue, result) {
                (true, _) => format!("store_element(index, {});", stored(ty, value)),
                (false, 0) => format!("{};", assign(ty, "result", "index", value)),
                (false, _) => format!("{};", assign(ty, &format!("result{result}"), "index", value)),
            }
        });
        stores.collect::<Vec<_>>().join(" ")
    }
}
