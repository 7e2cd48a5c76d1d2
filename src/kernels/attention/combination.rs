//! The combination of attention's parts within a kernel that reads the result. This module owns what such a kernel reads for it and its text, which is
//! around `shaders/lib/attention_combine.glsl`; which kernels do it is the choice of `tuning::rows`.

use std::fmt::Write as _;

use super::kernel::sum_macros;
use super::{Attention, AttentionAxis, AttentionProblem};
use crate::device::Capabilities;
use crate::graph::{Name, Params};
use crate::memory::AllocationHandle;
use crate::program::Type;
use crate::program::emit::{
    EmittedPrologue, PROLOGUE_PARAMETERS, SHARED_ROW, of_compute, shared_element, stored, vec4_of,
};
use crate::program::types::Compute;

/// The parts of the keys that a result of attention was combined from, whose elements are in the order of its queries.
pub struct Combination {
    /// Sums, largest scores and sums of weights.
    pub(super) partials: [AllocationHandle; 3],
    /// What the text of a kernel depends on.
    pub(super) text: CombinationText,
}

/// What the text of a combination depends on.
#[derive(Clone, Copy, Debug, Hash)]
pub struct CombinationText {
    /// The type of the result.
    pub ty: Type,
    pub(super) accumulator: Compute,
    /// The type of sums of weights.
    pub(super) total: Compute,
    /// How many parts there are.
    pub(super) splits: u64,
    /// Of all batches.
    pub(super) queries: u64,
    /// Elements of a value, a multiple of four.
    pub(super) values: u64,
}

impl Attention<'_> {
    /// Whether the result is in the order of its batches and queries, each with whole vectors.
    pub(super) fn is_in_order(&self, problem: &AttentionProblem) -> bool {
        let mut stride = problem.values as i64;
        let axes = self.batch.iter().chain(&self.rows).rev().filter(|axis| axis.dim != 1);
        let mut next = |axis: &AttentionAxis| {
            let expected = stride;
            stride = stride.saturating_mul(axis.dim as i64);
            axis.strides[3] == expected
        };
        problem.values.is_multiple_of(4) && axes.into_iter().all(&mut next)
    }
}

impl Combination {
    /// What the text of a kernel depends on.
    pub fn text(&self) -> CombinationText {
        self.text
    }

    /// A multiplication and an addition for each element of a part.
    pub fn operations(&self) -> u64 {
        2 * self.text.splits * self.text.elements()
    }

    /// The buffers that it reads.
    pub fn inputs<'a>(&'a self, params: &mut Params<'a>) {
        let storages = self.text.storages();
        for ((partial, storage), name) in self.partials.iter().zip(storages).zip(["sums", "maxima", "totals"]) {
            params.read(partial, storage, Name::from(name).after(PROLOGUE_PARAMETERS));
        }
    }
}

impl CombinationText {
    /// Elements of the result.
    pub fn elements(&self) -> u64 {
        self.queries * self.values
    }

    fn storages(&self) -> [&'static str; 3] {
        [self.accumulator.glsl(), "float", self.total.glsl()]
    }

    /// Bytes of shared memory for the row, the scales of the parts, and the divisors.
    pub fn shared_bytes(&self) -> u64 {
        self.elements() * self.ty.size() + self.queries * (self.splits * 4 + self.total.size())
    }

    /// The prologue by workgroups of so many invocations.
    pub fn emit(&self, threads: u32, caps: &Capabilities) -> EmittedPrologue {
        let &Self { ty, accumulator, total, splits, queries, values } = self;
        let vector = vec4_of(ty.storage());
        let whole = caps.subgroup.is_power_of_two() && threads.is_multiple_of(caps.subgroup);
        let lanes = if whole { splits.next_power_of_two().min(caps.subgroup.into()) } else { 1 };
        let mut text = String::new();
        sum_macros(&mut text, accumulator, total, None);
        let numbers = [
            ("SPLITS", splits),
            ("VALUES", values),
            ("QUERIES", queries),
            ("ELEMENTS", self.elements()),
            ("PROLOGUE_THREADS", threads.into()),
        ];
        for (name, number) in numbers {
            let _ = writeln!(text, "#define {name} {number}u");
        }
        let _ = writeln!(text, "#define QUERY_LANES {lanes}");
        for (name, buffer) in [("SUMS", "sums"), ("MAXIMA", "maxima"), ("TOTALS", "totals")] {
            let _ = writeln!(text, "#define PARTIAL_{name} p.{PROLOGUE_PARAMETERS}{buffer}");
        }
        let element = stored(ty, ("(x)".into(), of_compute(total)));
        let _ = write!(
            text,
            "#define SET_ELEMENT(i, x) {} = {element}\n#include \"lib/attention_combine.glsl\"\n",
            shared_element("i")
        );
        EmittedPrologue {
            storages: self.storages().into_iter().chain([ty.storage()]).collect(),
            computes: vec![Compute::Float, accumulator, total],
            files: vec!["math/exp.glsl"].into_iter().chain((lanes > 1).then_some("exchange.glsl")).collect(),
            memory: format!("shared {vector} {SHARED_ROW}[{}];\n", self.elements() / 4),
            function: text,
        }
    }
}
