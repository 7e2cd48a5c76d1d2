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

/// What is read and written, once for all rows: `pieces` of each row of `len` elements, which is what the cut before left of it.
struct Cut<'a> {
    first: bool,
    last: bool,
    len: u64,
    pieces: u64,
    source: &'a Block,
    source_places: Option<&'a Block>,
    values: Option<&'a Block>,
    places: Option<&'a Block>,
}

impl Shape {
    /// Of a workgroup that keeps so many elements of a piece of `len`.
    fn of(gpu: &Gpu, ty: Type, len: u64, keep: u64) -> Self {
        if gpu.caps.cpu {
            // Its sorting is what costs: the room is no larger than it must be.
            let (threads, each) = (u64::from(lanes(&gpu.caps)), 8);
            return Self { threads, each, room: (4 * keep).max(2 * threads * each).next_power_of_two() };
        }
        // Short pieces are too little for many threads: an H200 took the first 5 of 65536 rows of 1000 elements in 950 us with
        // 256 threads a row, in 430 with 64. The first 10 of 1024 rows of 50000 it took in 200 us, and in 290.
        let most = if shared(8 * 256, ty) < gpu.caps.max_shared.into() { 256 } else { 128 };
        let threads = (len / PROBE).max(keep.div_ceil(2)).next_power_of_two().clamp(32, most);
        Self { threads, each: 2, room: (8 * threads).max(512) }
    }
}

impl Run<'_> {
    /// Whether so few elements are kept of so long rows, and then taken.
    pub fn select(&self) -> Result<bool> {
        let Self { gpu, sort, patience, .. } = *self;
        let (rows, keep) = (&sort.rows, sort.keep);
        // A processor's sort is not so much slower. How many workgroups fill a device with threads:
        let (least, enough) = if gpu.caps.cpu { (128, 32) } else { (32, 8 * gpu.caps.processors) };
        let room = Shape::of(gpu, rows.ty, rows.len, keep).room;
        if rows.len < SHORTEST.max(least * keep) || 4 * keep > room.min(2048) {
            return Ok(false);
        }
        let mut len = rows.len;
        let mut before: Option<(Lease, Option<Lease>)> = None;
        loop {
            // Each piece leaves a small part of it.
            let pieces = (enough / rows.count()).min(len / PIECE.max(32 * keep)).max(1);
            let last = pieces == 1;
            let elements = rows.count() * pieces * keep;
            let allocate = |size: u64| gpu.allocate(Kind::Device, elements * size, patience);
            let next = match last {
                true => None,
                false => Some((allocate(rows.ty.size())?, sort.places.map(|_| allocate(4)).transpose()?)),
            };
            let (values, places) = match &next {
                None => (self.values, self.places),
                Some((values, places)) => (Some(values), places.as_ref()),
            };
            self.cut(&Cut {
                first: before.is_none(),
                last,
                len,
                pieces,
                source: before.as_ref().map_or(self.source, |(values, _)| values),
                source_places: before.as_ref().and_then(|(_, places)| places.as_deref()),
                values: values.map(|lease| &**lease),
                places: places.map(|lease| &**lease),
            })?;
            if last {
                return Ok(true);
            }
            len = pieces * keep;
            before = next;
        }
    }

    fn cut(&self, cut: &Cut) -> Result<()> {
        let (gpu, sort) = (self.gpu, self.sort);
        let &Cut { first, last, .. } = cut;
        let Shape { threads, each, room } = Shape::of(gpu, sort.rows.ty, cut.len / cut.pieces, sort.keep);
        let groups = sort.rows.count() * cut.pieces;
        let place = sort.carried(first, last);
        let params = |params: &mut Params| {
            params.address(cut.source.address, sort.stored(), format_args!("source"));
            if let Some(block) = cut.source_places {
                params.address(block.address, "uint", format_args!("source_places"));
            }
            if let Some(block) = cut.values {
                params.address(block.address, sort.stored(), format_args!("values"));
            }
            if let Some((block, (_, ty))) = cut.places.zip(place) {
                params.address(block.address, ty.storage(), format_args!("places"));
            }
            // Between the first cut and the last the rows are dense.
            let extents = [
                ("groups", groups),
                ("n", cut.len),
                ("pieces", cut.pieces),
                ("keep", sort.keep),
                ("probe", threads * PROBE),
                ("inner", if first { sort.rows.inner } else { 1 }),
                ("inner_to", if last { sort.rows.inner } else { 1 }),
            ];
            params.extents(sort.rows.wide(), extents);
            sort.order(params, 0);
        };
        let place_type = place.map_or(255, |(_, ty)| ty as u8);
        let variant = [
            sort.rows.ty.bits() as u8,
            sort.rows.wide().into(),
            cut.values.is_some().into(),
            place_type,
            first.into(),
            threads.ilog2() as u8,
            each as u8,
            room.ilog2() as u8,
        ];
        let reads: Vec<&Block> = [cut.source].into_iter().chain(cut.source_places).collect();
        let writes: Vec<&Block> = cut.values.into_iter().chain(cut.places).collect();
        let kernel = Kernel {
            key: &[b"select", variant.as_slice()].concat(),
            params: &params,
            source: &|parameters| {
                format!(
                    "{head}{write}{alone}#define THREADS {threads}u\n#define EACH {each}u\n#define ROOM {room}u\n\
                     #include \"lib/sort/select.glsl\"\n",
                    alone = if threads == gpu.caps.subgroup.into() { "#define ALONE\n" } else { "" },
                    head = sort.head(gpu, parameters, place.map(|(_, ty)| ty), threads as u32),
                    write = sort.write(cut.values.is_some(), place),
                )
            },
            groups,
            reads: &reads,
            writes: &writes,
        };
        kernel.launch(gpu, self.patience)
    }
}
