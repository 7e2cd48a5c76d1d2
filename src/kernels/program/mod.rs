//! Runs programs: elementwise kernels, and reductions in one pass or two.

mod fours;
mod pass;

use smallvec::SmallVec;

use super::{STRAIGHT, check_indices};
use crate::error::{Attempt, Error, Result};
use crate::graph::Context;
use crate::graph::Operand;
use crate::memory::{Allocation, AllocationHandle, Buffer};
use crate::program::emit::{Accumulator, ELEMENTS, Fours, QUADS, Stage, Tile, lanes};
use crate::program::layout::Layout;
use crate::program::types::Compute;
use crate::program::{Node, Program};
use pass::{Partial, Pass};

const THREADS: u32 = 256;

/// Bytes of each operand that a workgroup moves: with 8 KiB an H200 took up to 2 % longer.
const PIECE: u32 = 4 << 10;
/// And its threads at least, and where what is computed takes longer than moving it.
const FEW: u32 = 128;

/// Workgroups that keep the cores of a processor busy, and the fewest elements of one of them.
const BUSY: u64 = 128;
const LEAST: u64 = 1024;

/// A partial result stands for as many elements at least where there are more parts than fill the device.
const PARTIAL: u64 = 1024;

/// Runs a program on operands of its inputs' kinds; the result is a new dense buffer. Fails where the program is not sound, the
/// device cannot run it, or the operands are too small for it.
pub fn run(cx: &Context, program: &Program, operands: &[Operand]) -> Attempt<Buffer> {
    let layout = check(cx, program, operands, 0)?;
    let bytes = layout.outputs() * program.result().size();
    let out = cx.allocate(bytes)?;
    Run { cx, program, layout: &layout, operands, out: &out }.run()?;
    Ok(Buffer::new(bytes, out))
}

/// Runs a program with an output place into `out`, a buffer of so many bytes.
pub fn run_into(
    cx: &Context,
    program: &Program,
    operands: &[Operand],
    (out, bytes): (&AllocationHandle, u64),
) -> Attempt<()> {
    let layout = check(cx, program, operands, bytes)?;
    Run { cx, program, layout: &layout, operands, out }.run()
}

/// The layout of a program that can run on these operands, and with an output of `out_bytes`.
fn check(cx: &Context, program: &Program, operands: &[Operand], out_bytes: u64) -> Result<Layout> {
    program.check()?;
    for index in 0..program.inputs.len() + program.nodes.len() {
        program.type_of(index).check_program(cx.caps())?;
    }
    let layout = Layout::new(program)?;
    let sizes = program.inputs.iter().map(|input| input.ty.size()).chain([program.result().size()]);
    let bytes = operands.iter().map(|operand| operand.bytes().unwrap_or(0)).chain([out_bytes]);
    let reaches = layout.reaches.iter().zip(sizes).zip(bytes);
    let fits = reaches.map(|((&elements, size), bytes)| elements.checked_mul(size).is_some_and(|reach| reach <= bytes));
    if operands.len() != program.inputs.len() || !fits.into_iter().all(|fits| fits) {
        return Err(Error::SizeMismatch);
    }
    check_indices(cx.caps(), layout.wide)?;
    Ok(layout)
}

/// One run of a program, decided by nothing but the program, the device and the sizes of the operands' buffers.
struct Run<'a> {
    cx: &'a Context<'a>,
    program: &'a Program,
    layout: &'a Layout,
    operands: &'a [Operand<'a>],
    out: &'a Allocation,
}

/// The threads of a reduction's workgroups: so many across outputs and along the reduced axes, and what each gets for four
/// neighbours, which are outputs where `beside` is not 0: so many fours of them.
#[derive(Clone, Copy)]
struct Shape {
    across: u32,
    along: u32,
    fours: Fours,
    beside: u32,
}

/// The fewest results for which [`STRAIGHT`] code pays off. Of so many 2×2 or 3×3 windows it saves lavapipe 0.6 to 2 ms a call and
/// takes 25 to 60 ms to build; `window` saves several times as much for an element.
const ENOUGH_RESULTS: u64 = 1 << 16;

/// Elements along the reduced axes that a thread takes at least where outputs fill the device: as many as it loads at a time.
const TURN: u64 = 16;
/// Threads that fill a GPU's processor.
const FILL: u64 = 2048;

/// Neighbouring threads use all that they load, one after the other, where they read every fourth element or closer.
const CLOSE: i64 = 4;

impl Run<'_> {
    fn run(&self) -> Attempt<()> {
        if self.program.elements() == 0 {
            return Ok(());
        }
        match Accumulator::of(self.program, self.layout, self.cx.caps()) {
            None if self.program.reduced_type().is_some() => self.fold(),
            None => self.map(),
            Some(accumulator) => self.reduce(&accumulator),
        }
    }

    fn map(&self) -> Attempt<()> {
        let cpu = self.cx.caps().cpu;
        if let Some(mut tile) = Tile::of(self.program, self.layout) {
            tile.quads = self.tiles_in_quads(&tile);
            // A processor's caches hold the tile.
            if cpu && !tile.quads {
                tile.inputs = 0;
            }
            let threads = if cpu { lanes(self.cx.caps()) } else { THREADS };
            let stage = Stage::Tile { threads, tile };
            return self.pass(stage, Pass::Map { chunk: 0 }, tile.groups(self.layout));
        }
        let fours = self.map_in_fours();
        let elements = if fours.is_some() { 4 * QUADS } else { ELEMENTS };
        let threads = if cpu { lanes(self.cx.caps()) } else { self.threads_of_map(elements) };
        let stage = Stage::Map { threads, fours };
        if cpu {
            // Each workgroup costs as much as some hundred elements; few keep all cores busy.
            let run = if fours.is_some() { 4 } else { 1 };
            let outputs = self.layout.outputs() / run;
            let chunk = outputs.div_ceil(BUSY).max(LEAST / run).next_multiple_of(threads.into());
            return self.pass(stage, Pass::Map { chunk }, outputs.div_ceil(chunk));
        }
        // Fours and what they leave over.
        let groups = (self.layout.outputs() + 3).div_ceil((threads * elements).into());
        self.pass(stage, Pass::Map { chunk: 0 }, groups)
    }

    /// Threads of an elementwise workgroup on a GPU whose threads take so many elements. It should move [`PIECE`] bytes of
    /// each operand, unless what is computed takes longer than that.
    fn threads_of_map(&self, elements: u32) -> u32 {
        let program = self.program;
        let is_long = |node: &Node| node.op.real.is_some_and(|formula| formula.long);
        if program.nodes.iter().any(|node| is_long(node) || program.is_complex(node)) {
            return FEW;
        }
        let sizes = program.inputs.iter().map(|input| input.ty.size()).chain([program.result().size()]);
        let size = sizes.max().unwrap_or(1) as u32;
        (PIECE / (elements * size)).min(self.cx.caps().max_threads.min(1024)).max(FEW)
    }

    /// The order is the function's: all that runs side by side is the outputs.
    fn fold(&self) -> Attempt<()> {
        let threads = 64;
        let groups = self.layout.outputs().div_ceil(threads.into());
        self.pass(Stage::Fold { threads }, Pass::Whole { chunk: self.layout.reduced() }, groups)
    }

    fn reduce(&self, accumulator: &Accumulator) -> Attempt<()> {
        let (outputs, reduced) = (self.layout.outputs(), self.layout.reduced());
        let shape = self.shape_of_groups(outputs, reduced);
        let Shape { across, along, fours, beside } = shape;
        let groups = outputs.div_ceil(u64::from(across) * u64::from(4 * beside).max(1));
        // Split the reduced axes where the outputs alone do not fill the device: a second pass costs an H200 as much as half
        // of its threads. Smaller parts end closer together, but what they leave to the second pass should be little.
        let (enough, most) = if self.cx.caps().cpu { (32, 32) } else { (512, 8192) };
        let parts = |wanted: u64, least: u64| (wanted / groups).min(reduced / least.max(u64::from(along) * 8));
        let chunks = if groups < enough { parts(enough, 1).max(parts(most, PARTIAL)).max(1) } else { 1 };
        let window = chunks == 1 && self.is_window(shape);
        let stage =
            |to_partial| Stage::Reduce { across, along, from_partial: false, to_partial, fours, beside, window };
        if chunks == 1 {
            return self.pass(stage(false), Pass::Whole { chunk: reduced }, groups);
        }
        let chunk = reduced.div_ceil(chunks).next_multiple_of(4);
        let chunks = reduced.div_ceil(chunk);
        let parts = accumulator.parts.as_slice();
        let allocation = |part: &Compute| self.cx.allocate(chunks * outputs * part.size());
        let partial = parts.iter().map(allocation).collect::<Attempt<SmallVec<[_; 2]>>>()?;
        let partial = Partial { parts, allocations: &partial, chunks };
        let _together = self.cx.batch();
        self.pass(stage(true), Pass::ToPartial { partial, chunk }, groups * chunks)?;
        let (across, along) = match outputs {
            0.. if self.cx.caps().cpu => {
                let lanes = lanes(self.cx.caps());
                if outputs < lanes.into() { (1, lanes) } else { (lanes, 1) }
            }
            64.. => (64, 4),
            _ => (1, THREADS),
        };
        let fours = Fours::default();
        let stage =
            Stage::Reduce { across, along, from_partial: true, to_partial: false, fours, beside: 0, window: false };
        self.pass(stage, Pass::FromPartial { partial }, outputs.div_ceil(across.into()))
    }

    /// Whether the reduced axes are a small window, whose places would each be found by division.
    fn is_window(&self, shape: Shape) -> bool {
        let (outputs, reduced) = (self.layout.outputs(), self.layout.reduced());
        let apart = shape.along == 1 && shape.beside == 0 && shape.fours.quads == 0;
        apart && self.layout.dims.len() > self.layout.kept + 1 && reduced <= STRAIGHT && outputs >= ENOUGH_RESULTS
    }

    /// Neighbouring threads, and the neighbours that one thread takes, should read neighbouring elements.
    fn shape_of_groups(&self, outputs: u64, reduced: u64) -> Shape {
        let kept = self.layout.kept;
        let step = |axis: Option<usize>| {
            let axis = axis?;
            // The widest counts: what is read again and again comes from a cache.
            self.layout.views.iter().map(|view| view.strides[axis].abs()).max().filter(|&step| step != 0)
        };
        let inner_kept = step(kept.checked_sub(1)).unwrap_or(i64::MAX);
        let inner_reduced =
            step(self.layout.dims.len().checked_sub(1).filter(|&axis| axis >= kept)).unwrap_or(i64::MAX);
        let (beside, along) = (self.fours_beside(), self.fours_along());
        if self.cx.caps().cpu {
            // One subgroup.
            let lanes = lanes(self.cx.caps());
            let neighbours = inner_reduced <= inner_kept && along.quads != 0 && reduced >= 64;
            return if neighbours || outputs < lanes.into() {
                Shape { across: 1, along: lanes, fours: along, beside: 0 }
            } else {
                // Whole lines of memory: what is read of a row lies far from what is read of the next.
                let times = match outputs {
                    _ if beside.quads == 0 => 0,
                    _ if outputs.is_multiple_of(16) && outputs >= u64::from(64 * lanes) => 4,
                    _ => 1,
                };
                Shape { across: lanes, along: 1, fours: beside, beside: times }
            };
        }
        let up = |n: u64| n.clamp(1, THREADS.into()).next_power_of_two() as u32;
        if inner_kept < inner_reduced.saturating_mul(CLOSE) {
            let run = if beside.quads != 0 { 4 } else { 1 };
            let across = up(outputs / run).min(if outputs >= 1 << 16 { THREADS / run as u32 } else { 32 });
            let along = up(reduced.div_ceil(4)).min(THREADS / across);
            Shape { across, along, fours: beside, beside: run as u32 / 4 }
        } else {
            let few = up(reduced.div_ceil(TURN));
            let fills = outputs * u64::from(few) >= FILL * self.cx.caps().processors;
            let threads = if fills { few } else { up(reduced.div_ceil(4)) };
            Shape { across: THREADS / threads, along: threads, fours: along, beside: 0 }
        }
    }
}
