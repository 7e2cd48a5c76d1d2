//! A few of the first elements of long rows: of pieces of them, then of what those left, until one piece is all.

use super::*;

/// The fewest elements of a row, and of a piece of one.
const SHORTEST: u64 = 256;
const PIECE: u64 = 4096;
/// Elements of a thread that the first bound is taken from.
const PROBE: u64 = 16;

/// What a workgroup is made of.
struct Shape {
    threads: u64,
    /// Elements of a thread at once.
    each: u64,
    /// How many elements it gathers in shared memory.
    room: u64,
}

impl Shape {
    /// Of a workgroup that keeps so many elements of a piece of `len`.
    fn of(cx: &Context, ty: Type, len: u64, keep: u64) -> Self {
        if cx.caps().cpu {
            // Its sorting is what costs: the room is no larger than it must be.
            let (threads, each) = (u64::from(lanes(cx.caps())), 8);
            return Self { threads, each, room: (4 * keep).max(2 * threads * each).next_power_of_two() };
        }
        // Short pieces are too little for many threads: an H200 took the first 5 of 65536 rows of 1000 elements in 950 us with
        // 256 threads a row, in 430 with 64. The first 10 of 1024 rows of 50000 it took in 200 us, and in 290.
        let most = if shared(8 * 256, ty) < cx.caps().max_shared.into() { 256 } else { 128 };
        let threads = (len / PROBE).max(keep.div_ceil(2)).next_power_of_two().clamp(32, most);
        Self { threads, each: 2, room: (8 * threads).max(512) }
    }
}

impl Run<'_> {
    /// Whether so few elements are kept of so long rows, and then taken.
    pub fn select(&self) -> Attempt<bool> {
        let Self { cx, whole } = *self;
        let sort = whole.sort;
        let (rows, keep) = (&sort.rows, sort.keep);
        // A processor's sort is not so much slower. How many workgroups fill a device with threads:
        let (least, enough) = if cx.caps().cpu { (128, 32) } else { (32, 8 * cx.caps().processors) };
        let room = Shape::of(cx, rows.ty, rows.len, keep).room;
        if rows.len < SHORTEST.max(least * keep) || 4 * keep > room.min(2048) {
            return Ok(false);
        }
        let mut len = rows.len;
        let mut before: Option<(AllocationHandle, Option<AllocationHandle>)> = None;
        loop {
            // Each piece leaves a small part of it.
            let pieces = (enough / rows.count()).min(len / PIECE.max(32 * keep)).max(1);
            let last = pieces == 1;
            let elements = rows.count() * pieces * keep;
            let allocate = |size: u64| cx.allocate(elements * size);
            let next = match last {
                true => None,
                false => Some((allocate(rows.ty.size())?, sort.places.map(|_| allocate(4)).transpose()?)),
            };
            let (source, source_places) = match &before {
                None => (whole.source, None),
                Some((values, places)) => (&**values, places.as_deref()),
            };
            let (values, places) = match &next {
                None => (whole.values, whole.places),
                Some((values, places)) => (Some(&**values), places.as_deref()),
            };
            let moved = Moved { first: before.is_none(), last, source, source_places, values, places, ..whole };
            self.cut(&moved, len, pieces)?;
            if last {
                return Ok(true);
            }
            len = pieces * keep;
            before = next;
        }
    }

    /// One kernel for all rows: of `pieces` of each row of `len` elements, which is what the cut before left of it.
    fn cut(&self, moved: &Moved, len: u64, pieces: u64) -> Attempt<()> {
        let (cx, sort) = (self.cx, moved.sort);
        let Shape { threads, each, room } = Shape::of(cx, sort.rows.ty, len / pieces, sort.keep);
        let groups = sort.rows.count() * pieces;
        let params = |params: &mut Params| {
            moved.addresses(params);
            let extents =
                [("groups", groups), ("n", len), ("pieces", pieces), ("keep", sort.keep), ("probe", threads * PROBE)];
            params.extents(sort.rows.index64(), extents.into_iter().chain(moved.steps()));
            sort.order(params, 0);
        };
        let shape = [threads.ilog2(), each as u32, room.ilog2()].map(|number| number as u8);
        let (reads, writes): (Vec<&Allocation>, Vec<&Allocation>) = (moved.reads().collect(), moved.writes().collect());
        let kernel = Kernel {
            key: &[b"select".as_slice(), &moved.key(), &shape].concat(),
            params: &params,
            source: &|parameters| {
                format!(
                    "{head}{alone}#define THREADS {threads}u\n#define EACH {each}u\n#define ROOM {room}u\n\
                     #include \"lib/sort/select.glsl\"\n",
                    head = moved.head(cx, parameters, threads as u32),
                    alone = if threads == cx.caps().subgroup.into() { "#define ALONE\n" } else { "" },
                )
            },
            groups,
            reads: &reads,
            writes: &writes,
        };
        kernel.launch(cx)
    }
}
