//! Long rows: passes over eight bits of the keys, from the lowest on, each of them stable.

use super::*;

const THREADS: u64 = 256;
const DIGITS: u64 = 256;
/// Elements of a thread in a tile, at most.
const MOST_EACH: u64 = 16;
/// Of so few in all, larger tiles would leave most of the device idle.
const FEW_EACH: u64 = 4;
const FEW_ELEMENTS: u64 = 1 << 18;
/// Up to so many blocks need no sums in a pass of their own.
const FEW: u64 = 8;

/// How the rows are split: the same in all passes.
struct Split {
    /// Elements of a thread in a tile.
    each: u64,
    blocks: u64,
    block_size: u64,
}

/// A pass over the eight bits of the keys from bit `shift` on.
struct Pass<'a> {
    shift: u64,
    moved: Moved<'a>,
    split: &'a Split,
    counts: &'a Counts,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Histogram,
    Sums,
    Scatter,
}

/// The counts of each block's digits, by row, digit and block, and their totals by row and digit.
struct Counts {
    blocks: AllocationHandle,
    totals: AllocationHandle,
}

impl Split {
    fn of(cx: &Context, rows: &Rows) -> Self {
        if cx.caps().cpu {
            // Each lane of a workgroup is a block. A power of two of them would have all counts in the same few cache lines.
            let lanes = u64::from(lanes(cx.caps()));
            let blocks = (31 / rows.count()).max(1) * lanes;
            return Self { each: 1, blocks, block_size: rows.len.div_ceil(blocks) };
        }
        let each = match rows.count() * rows.len {
            ..=FEW_ELEMENTS => FEW_EACH,
            _ if has_room(cx) => MOST_EACH,
            _ => MOST_EACH / 2,
        };
        let tiles = rows.len.div_ceil(THREADS * each);
        // Enough blocks to fill the device; more would only make more counts.
        let tiles_each = (rows.count() * tiles).div_ceil(1024).min(tiles);
        Self { each, blocks: tiles.div_ceil(tiles_each), block_size: tiles_each * THREADS * each }
    }
}

/// Whether shared memory holds the tokens of [`MOST_EACH`] elements a thread, which are words; 4 KiB is more than the rest
/// takes.
fn has_room(cx: &Context) -> bool {
    cx.caps().max_shared >= 24 << 10
}

impl Run<'_> {
    pub fn radix(&self) -> Attempt<()> {
        let Self { cx, whole } = *self;
        let sort = whole.sort;
        let split = Split::of(cx, &sort.rows);
        let passes = u64::from(sort.bits).div_ceil(8).max(1);
        let elements = sort.rows.count() * sort.rows.len;
        let words = |count: u64| cx.allocate(4 * count);
        let counts = Counts {
            blocks: words(sort.rows.count() * DIGITS * split.blocks)?,
            totals: words(sort.rows.count() * DIGITS)?,
        };
        // The passes write by turns to two blocks of elements, and of places if they are wanted, and the last one to the
        // results.
        let turns = (passes - 1).min(2);
        let values = (0..turns).map(|_| cx.allocate(elements * sort.rows.ty.size())).collect::<Attempt<Vec<_>>>()?;
        let places = match sort.places {
            Some(_) => (0..turns).map(|_| words(elements)).collect::<Attempt<Vec<_>>>()?,
            None => vec![],
        };
        for pass in 0..passes {
            let last = pass + 1 == passes;
            let (source, source_places) = match pass.checked_sub(1) {
                None => (whole.source, None),
                Some(before) => (turn(&values, before).unwrap_or(whole.source), turn(&places, before)),
            };
            let (values, places) = match last {
                true => (whole.values, whole.places),
                false => (turn(&values, pass), turn(&places, pass)),
            };
            let moved = Moved { first: pass == 0, last, source, source_places, values, places, ..whole };
            let pass = Pass { shift: 8 * pass, moved, split: &split, counts: &counts };
            self.stage(Stage::Histogram, &pass)?;
            if split.blocks > FEW || cx.caps().cpu {
                self.stage(Stage::Sums, &pass)?;
            }
            self.stage(Stage::Scatter, &pass)?;
        }
        Ok(())
    }

    fn stage(&self, stage: Stage, pass: &Pass) -> Attempt<()> {
        let &Pass { shift, moved, split, counts } = pass;
        let (cx, sort) = (self.cx, moved.sort);
        let invocations = if cx.caps().cpu { lanes(cx.caps()) } else { THREADS as u32 };
        let each = if cx.caps().cpu { u64::from(invocations) } else { 1 };
        let groups = sort.rows.count() * if stage == Stage::Sums { DIGITS } else { split.blocks } / each;
        let params = |params: &mut Params| {
            match stage {
                Stage::Histogram => params.legacy(moved.source, 0, sort.stored(), "source"),
                Stage::Sums => {}
                Stage::Scatter => moved.addresses(params),
            }
            params.legacy(&counts.blocks, 0, "uint", "counts");
            params.legacy(&counts.totals, 0, "uint", "totals");
            let extents =
                [("groups", groups), ("n", sort.rows.len), ("blocks", split.blocks), ("block_size", split.block_size)];
            // Before the last pass the rows are whole.
            let keep = if moved.last { sort.keep } else { sort.rows.len };
            params.extents(sort.rows.index64(), extents.into_iter().chain(moved.steps()).chain([("keep", keep)]));
            sort.order(params, shift);
        };
        let name = match stage {
            Stage::Histogram => "HISTOGRAM",
            Stage::Sums => "SUMS",
            Stage::Scatter => "SCATTER",
        };
        let wide = sort.rows.index64().into();
        let variant: &[u8] = match stage {
            Stage::Histogram => &[wide, sort.rows.ty.bits() as u8],
            Stage::Sums => &[wide],
            Stage::Scatter => &[moved.key().as_slice(), &[split.each as u8]].concat(),
        };
        let (reads, writes): (Vec<&Allocation>, Vec<&Allocation>) = match stage {
            Stage::Histogram => (vec![moved.source], vec![&counts.blocks]),
            Stage::Sums => (vec![&counts.blocks], vec![&counts.blocks, &counts.totals]),
            Stage::Scatter => {
                let counted = [&*counts.blocks, &counts.totals];
                let lanes = cx.caps().cpu.then_some(&*counts.blocks);
                (moved.reads().chain(counted).collect(), moved.writes().chain(lanes).collect())
            }
        };
        let kernel = Kernel {
            key: &[b"radix", name.as_bytes(), variant].concat(),
            params: &params,
            source: &|parameters| {
                let head = moved.head(cx, parameters, invocations);
                if cx.caps().cpu {
                    let defines = format!("#define {name}\n#define LANES {invocations}u\n");
                    return format!("{head}{defines}#include \"lib/sort/radix_lanes.glsl\"\n");
                }
                format!(
                    "{head}{subgroup}#define {name}\n#define EACH {each}u\n#define FEW {FEW}u\n\
                     #include \"lib/sort/radix.glsl\"\n",
                    each = split.each,
                    // Their counters take as much as the tokens of sixteen elements a thread.
                    subgroup = match cx.caps().subgroup {
                        size @ (8 | 16 | 32) if has_room(cx) => format!("#define SUBGROUP {size}u\n"),
                        _ => String::new(),
                    },
                )
            },
            groups,
            reads: &reads,
            writes: &writes,
        };
        kernel.launch(cx)
    }
}

/// The block that a pass writes to where it is not the last.
fn turn(blocks: &[AllocationHandle], pass: u64) -> Option<&Allocation> {
    blocks.get(pass as usize % 2).map(|allocation| &**allocation)
}
