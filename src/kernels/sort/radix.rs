//! Long rows: passes over eight bits of the keys, from the lowest on, each of them stable. This module owns the kernels around
//! `shaders/lib/sort/radix.glsl` and `radix_lanes.glsl`, and the buffers that the passes alternate between.

use super::*;
use crate::tuning::sort::{MAX_SUMMED_BLOCKS, RADIX_DIGITS, RadixMethod, RadixSplit, radix_split};

/// Sorts the rows into the results.
pub(super) fn run(cx: &Context, whole: &SortStep) -> Attempt<()> {
    let sort = whole.sort;
    let split = radix_split(cx.caps(), sort.rows.count(), sort.rows.len);
    let passes = u64::from(sort.bits).div_ceil(8).max(1);
    let digits = 4 * sort.rows.count() * RADIX_DIGITS;
    let (counts, totals) = (&*cx.allocate(digits * split.blocks)?, &*cx.allocate(digits)?);
    // The passes alternate between two buffers; the last one writes the results.
    let alternating = (1..passes.min(3)).map(|_| Between::new(cx, sort, sort.rows.len)).collect::<Attempt<Vec<_>>>()?;
    let between = |pass: u64| alternating.get(pass as usize % 2);
    for pass in 0..passes {
        let from = pass.checked_sub(1).and_then(between);
        let to = if pass + 1 == passes { None } else { between(pass) };
        let step = whole.between(from, to);
        let args = RadixArgs { step, shift: 8 * pass, split, counts, totals };
        let kernel = |elements, stage| RadixKernel { elements, method: split.method, stage };
        launch(cx, &kernel(step.elements(), RadixStage::Histogram), &args)?;
        if split.sums {
            launch(cx, &kernel(SortElements::words(sort.rows.index64()), RadixStage::Sums), &args)?;
        }
        launch(cx, &kernel(step.elements(), RadixStage::Scatter(step.moves())), &args)?;
    }
    Ok(())
}

/// What one of the kernels of a pass does.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum RadixStage {
    /// Counts the digits of each block.
    Histogram,
    /// Sums of the counts over the blocks before.
    Sums,
    /// Writes the elements where the sums say.
    Scatter(SortMoves),
}

#[derive(Hash)]
struct RadixKernel {
    elements: SortElements,
    method: RadixMethod,
    stage: RadixStage,
}

struct RadixArgs<'a> {
    step: SortStep<'a>,
    /// The lowest bit of the keys that the pass sorts by.
    shift: u64,
    split: RadixSplit,
    /// The counts by row, digit and block, and their totals by row and digit.
    counts: &'a Allocation,
    totals: &'a Allocation,
}

impl KernelSpec for RadixKernel {
    type Args<'a> = RadixArgs<'a>;

    fn params<'a>(&self, args: &RadixArgs<'a>, params: &mut Params<'a>) {
        let RadixArgs { step, shift, split, .. } = *args;
        let sort = step.sort;
        match self.stage {
            RadixStage::Histogram => {
                params.read(step.source, self.elements.stored, "source");
                params.write(args.counts, "uint", "counts");
            }
            RadixStage::Sums => {
                params.update(args.counts, "uint", "counts");
                params.write(args.totals, "uint", "totals");
            }
            RadixStage::Scatter(_) => {
                step.buffers(params);
                match self.method {
                    RadixMethod::Lanes { .. } => params.update(args.counts, "uint", "counts"),
                    RadixMethod::Tiles { .. } => params.read(args.counts, "uint", "counts"),
                }
                if split.sums {
                    params.read(args.totals, "uint", "totals");
                } else {
                    params.absent("uint", "totals");
                }
            }
        }
        let extents = [
            ("groups", self.groups(args)),
            ("n", sort.rows.len),
            ("blocks", split.blocks),
            ("block_len", split.block_len),
            // Before the last pass the rows are whole.
            ("keep", if step.last { sort.keep } else { sort.rows.len }),
        ];
        params.extents(self.elements.index64, extents.into_iter().chain(step.strides()));
        sort.order(params, shift);
    }

    fn groups(&self, args: &RadixArgs) -> u64 {
        let columns = if self.stage == RadixStage::Sums { RADIX_DIGITS } else { args.split.blocks };
        args.step.sort.rows.count() * columns / self.method.group_blocks()
    }

    fn source(&self, caps: &Capabilities, parameters: &str) -> String {
        let (name, moves) = match self.stage {
            RadixStage::Histogram => ("HISTOGRAM", None),
            RadixStage::Sums => ("SUMS", None),
            RadixStage::Scatter(moves) => ("SCATTER", Some(moves)),
        };
        let head = self.elements.head(caps, parameters, self.method.threads(), [moves, None]);
        match self.method {
            RadixMethod::Lanes { threads } => {
                format!("{head}#define {name}\n#define LANES {threads}u\n#include \"lib/sort/radix_lanes.glsl\"\n")
            }
            RadixMethod::Tiles { items, subgroup } => {
                let subgroup = subgroup.map_or(String::new(), |size| format!("#define SUBGROUP {size}u\n"));
                format!(
                    "{head}{subgroup}#define {name}\n#define ITEMS {items}u\n\
                     #define MAX_SUMMED_BLOCKS {MAX_SUMMED_BLOCKS}u\n#include \"lib/sort/radix.glsl\"\n"
                )
            }
        }
    }
}
