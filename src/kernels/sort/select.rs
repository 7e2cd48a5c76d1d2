//! A few of the first elements of long rows: of pieces of them, then of what those left, until one piece is all. The last workgroup of a row that is
//! done selects from what few pieces left. This module owns the kernel around `shaders/lib/sort/select.glsl` and the buffers between its launches.

use super::*;
use crate::tuning::sort::{SELECT_PROBE, SelectTile, select_pieces, select_tile};

/// Writes the first elements of each row to the results.
pub(super) fn run(cx: &Context, whole: &SortStep) -> Attempt<()> {
    let sort = whole.sort;
    let pieces_of = |len| select_pieces(cx.caps(), SortShape { len, ..sort.shape() });
    let mut len = sort.rows.len;
    let mut before: Option<Between> = None;
    loop {
        let pieces = pieces_of(len);
        let tile = select_tile(cx.caps(), SortShape { len: len / pieces, ..sort.shape() });
        let next = if pieces == 1 { None } else { Some(Between::new(cx, sort, pieces * sort.keep)?) };
        let step = whole.between(before.as_ref(), next.as_ref());
        let merges = pieces > 1 && pieces_of(pieces * sort.keep) == 1 && !sort.rows.index64();
        let merged = merges.then(|| whole.between(next.as_ref(), None));
        let arrivals = merges.then(|| arrivals(cx, sort.rows.count())).transpose()?;
        let kernel = SelectKernel {
            elements: step.elements(),
            moves: step.moves(),
            merged: merged.as_ref().map(SortStep::moves),
            tile,
        };
        launch(cx, &kernel, &SelectArgs { step, len, pieces, merged: merged.zip(arrivals.as_deref()) })?;
        if pieces == 1 || merges {
            return Ok(());
        }
        len = pieces * sort.keep;
        before = next;
    }
}

/// A counter of the workgroups of each row that are done.
fn arrivals(cx: &Context, rows: u64) -> Attempt<AllocationHandle> {
    let bytes = rows * Type::U32.size();
    let arrivals = cx.allocate(bytes)?;
    cx.zero(&arrivals, bytes)?;
    Ok(arrivals)
}

#[derive(Hash)]
struct SelectKernel {
    elements: SortElements,
    moves: SortMoves,
    /// What the last workgroup of a row that is done writes.
    merged: Option<SortMoves>,
    tile: SelectTile,
}

struct SelectArgs<'a> {
    step: SortStep<'a>,
    /// Elements of a row, which are what the launch before left of it.
    len: u64,
    /// Pieces of each row.
    pieces: u64,
    /// The step of the last workgroup of a row that is done, and the counters of those that are.
    merged: Option<(SortStep<'a>, &'a Allocation)>,
}

impl KernelSpec for SelectKernel {
    type Args<'a> = SelectArgs<'a>;

    fn params<'a>(&self, args: &SelectArgs<'a>, params: &mut Params<'a>) {
        let sort = args.step.sort;
        args.step.buffers(params);
        if let Some((merged, arrivals)) = args.merged {
            merged.results(params, ["merged_values", "merged_indices"]);
            params.update(arrivals, "uint", "arrivals");
        }
        let extents = [
            ("groups", self.groups(args)),
            ("inner_merged", sort.rows.inner),
            ("n", args.len),
            ("pieces", args.pieces),
            ("keep", sort.keep),
            ("probe", self.tile.threads * SELECT_PROBE),
        ];
        params.extents(self.elements.index64, extents.into_iter().chain(args.step.strides()));
        sort.order(params, 0);
    }

    fn groups(&self, args: &SelectArgs) -> u64 {
        args.step.sort.rows.count() * args.pieces
    }

    fn source(&self, caps: &Capabilities, parameters: &str) -> String {
        let SelectTile { threads, items, room } = self.tile;
        format!(
            "{head}{one_subgroup}#define THREADS {threads}u\n#define ITEMS {items}u\n#define ROOM {room}u\n\
             #include \"lib/sort/select.glsl\"\n",
            head = self.elements.head(caps, parameters, threads as u32, [Some(self.moves), self.merged]),
            one_subgroup = if threads == caps.subgroup.into() { "#define ONE_SUBGROUP\n" } else { "" },
        )
    }
}
