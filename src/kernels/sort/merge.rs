//! Rows that fit in a workgroup's shared memory. This module owns the kernel around `shaders/lib/sort/merge.glsl`.

use super::*;
use crate::tuning::sort::SORT_THREADS;

#[derive(Hash)]
struct MergeSortKernel {
    elements: SortElements,
    moves: SortMoves,
    /// Neighbours in a row that a thread sorts and merges.
    items: u32,
}

pub(super) fn run(cx: &Context, step: &SortStep, items: u32) -> Attempt<()> {
    launch(cx, &MergeSortKernel { elements: step.elements(), moves: step.moves(), items }, step)
}

impl MergeSortKernel {
    fn group_rows(&self, step: &SortStep) -> u64 {
        u64::from(SORT_THREADS * self.items) / step.sort.rows.len.next_multiple_of(self.items.into())
    }
}

impl KernelSpec for MergeSortKernel {
    type Args<'a> = SortStep<'a>;

    fn params<'a>(&self, step: &SortStep<'a>, params: &mut Params<'a>) {
        let sort = step.sort;
        step.buffers(params);
        let extents = [
            ("groups", self.groups(step)),
            ("group_rows", self.group_rows(step)),
            ("rows", sort.rows.count()),
            ("n", sort.rows.len),
            ("keep", sort.keep),
            ("inner", sort.rows.inner),
        ];
        params.extents(self.elements.index64, extents);
        sort.order(params, 0);
    }

    fn groups(&self, step: &SortStep) -> u64 {
        step.sort.rows.count().div_ceil(self.group_rows(step))
    }

    fn source(&self, caps: &Capabilities, parameters: &str) -> String {
        format!(
            "{head}#define THREADS {SORT_THREADS}u\n#define ITEMS {items}u\n#include \"lib/sort/merge.glsl\"\n",
            head = self.elements.head(caps, parameters, SORT_THREADS, [Some(self.moves), None]),
            items = self.items,
        )
    }
}
