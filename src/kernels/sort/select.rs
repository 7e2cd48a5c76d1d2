//! A few of the first elements of long rows: of pieces of them, then of what those left, until one piece is all. This module owns
//! the kernel around `shaders/lib/sort/select.glsl` and the buffers between its launches.

use super::*;
use crate::tuning::sort::{SELECT_PROBE, SelectTile, select_pieces, select_tile};

/// Writes the first elements of each row to the results.
pub(super) fn run(cx: &Context, whole: &SortStep) -> Attempt<()> {
    let sort = whole.sort;
    let mut len = sort.rows.len;
    let mut before: Option<Between> = None;
    loop {
        let pieces = select_pieces(cx.caps(), SortShape { len, ..sort.shape() });
        let last = pieces == 1;
        let next = if last { None } else { Some(Between::new(cx, sort, pieces * sort.keep)?) };
        let step = whole.between(before.as_ref(), next.as_ref());
        let tile = select_tile(cx.caps(), SortShape { len: len / pieces, ..sort.shape() });
        let kernel = SelectKernel { elements: step.elements(), moves: step.moves(), tile };
        launch(cx, &kernel, &SelectArgs { step, len, pieces })?;
        if last {
            return Ok(());
        }
        len = pieces * sort.keep;
        before = next;
    }
}

#[derive(Hash)]
struct SelectKernel {
    elements: SortElements,
    moves: SortMoves,
    tile: SelectTile,
}

struct SelectArgs<'a> {
    step: SortStep<'a>,
    /// Elements of a row, which are what the launch before left of it.
    len: u64,
    /// Pieces of each row.
    pieces: u64,
}

impl KernelSpec for SelectKernel {
    type Args<'a> = SelectArgs<'a>;

    fn params<'a>(&self, args: &SelectArgs<'a>, params: &mut Params<'a>) {
        let sort = args.step.sort;
        args.step.buffers(params);
        let extents = [
            ("groups", self.groups(args)),
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
            head = self.elements.head(caps, parameters, threads as u32, Some(self.moves)),
            one_subgroup = if threads == caps.subgroup.into() { "#define ONE_SUBGROUP\n" } else { "" },
        )
    }
}
