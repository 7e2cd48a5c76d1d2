//! Runs programs: elementwise kernels, and reductions in one pass or two.

use std::sync::atomic::Ordering::Relaxed;

use smallvec::SmallVec;

use super::{Kernel, check_indices};
use crate::device::Gpu;
use crate::error::Result;
use crate::memory::{Block, Buffer, Kind, Lease, Patience};
use crate::program::emit::{Accumulator, ELEMENTS, Fours, Params, QUADS, Stage, Tile, emit, lanes, quad_bytes};
use crate::program::layout::{Layout, Pattern, View};
use crate::program::{Attribute, Node, Program, Source, Type};

const THREADS: u32 = 256;
/// Tensors of so many bytes together do not fit into a device's caches.
const LARGE: u64 = 64 << 20;

/// With pieces of 4 KiB of each operand an H200 reached 3.4 TB/s, from 8 on 4.0, whatever its threads' number.
const PIECE: u32 = 8 << 10;

/// Workgroups that keep the cores of a processor busy, and the fewest elements of one of them.
const BUSY: u64 = 128;
const LEAST: u64 = 1024;

/// Runs a program whose inputs read `blocks` (`None` for immediates); the result is a new dense buffer.
pub fn run(gpu: &Gpu, program: &Program, blocks: &[Option<(&Lease, u64)>], patience: Patience) -> Result<Buffer> {
    let layout = layout(gpu, program, blocks, 0)?;
    let bytes = layout.outputs() * program.result().size();
    let out = gpu.allocate(Kind::Device, bytes, patience)?;
    Run { gpu, program, layout: &layout, blocks, patience }.record(&out)?;
    Ok(Buffer::new(bytes, out))
}

/// Runs a program with an output place into `out`, a buffer of `bytes`.
pub fn run_into(
    gpu: &Gpu,
    program: &Program,
    blocks: &[Option<(&Lease, u64)>],
    (out, bytes): (&Lease, u64),
    patience: Patience,
) -> Result<()> {
    let layout = layout(gpu, program, blocks, bytes)?;
    Run { gpu, program, layout: &layout, blocks, patience }.record(out)
}

fn layout(gpu: &Gpu, program: &Program, blocks: &[Option<(&Lease, u64)>], out_bytes: u64) -> Result<Layout> {
    for index in 0..program.inputs.len() + program.nodes.len() {
        program.type_of(index).check_program(&gpu.caps)?;
    }
    let element_size = |input: usize| program.inputs[input].ty.size();
    let mut lens: SmallVec<[u64; 4]> =
        blocks.iter().enumerate().map(|(i, block)| block.map_or(0, |(_, bytes)| bytes / element_size(i))).collect();
    lens.push(out_bytes / program.result().size());
    let layout = Layout::new(program, &lens)?;
    check_indices(gpu, layout.wide)?;
    Ok(layout)
}

struct Run<'a> {
    gpu: &'a Gpu,
    program: &'a Program,
    layout: &'a Layout,
    blocks: &'a [Option<(&'a Lease, u64)>],
    patience: Patience,
}

/// The threads of a reduction's workgroups: so many across outputs and along the reduced axes, and what each gets for four
/// neighbours, which are outputs where `beside` is not 0: so many fours of them.
struct Shape {
    across: u32,
    along: u32,
    fours: Fours,
    beside: u32,
}

/// The parts of the partial results with their GLSL types.
type Partial<'a> = &'a [(Lease, &'static str)];

/// Where a pass of a reduction reads and writes.
#[derive(Clone, Copy)]
enum Pass<'a> {
    Map { out: &'a Block, chunk: u64 },
    Whole { out: &'a Block, chunk: u64 },
    ToPartial { partial: Partial<'a>, chunk: u64, chunks: u64 },
    FromPartial { partial: Partial<'a>, out: &'a Block, chunks: u64 },
}

impl Run<'_> {
    fn record(&self, out: &Block) -> Result<()> {
        if self.program.elements() == 0 {
            return Ok(());
        }
        match Accumulator::of(self.program, self.layout, &self.gpu.caps) {
            None if self.program.reduced_axes().is_some() => self.fold(out),
            None => self.map(out),
            Some(accumulator) => self.reduce(out, &accumulator),
        }
    }

    /// The address of the first result, with the offset of an output that is linear or one place.
    fn result_address(&self, out: &Block) -> u64 {
        let view = self.layout.views.last().filter(|_| self.program.output.is_some());
        let folded = view.filter(|view| view.pattern != Pattern::Strided).map_or(0, |view| view.offset);
        out.address + folded as u64 * self.program.result().size()
    }

    fn map(&self, out: &Block) -> Result<()> {
        let cpu = self.gpu.caps.cpu;
        if let Some(mut tile) = Tile::of(self.program, self.layout) {
            tile.quads = self.tiles_in_quads(&tile, out);
            // A processor's caches hold the tile.
            if cpu && !tile.quads {
                tile.inputs = 0;
            }
            let threads = if cpu { lanes(&self.gpu.caps) } else { THREADS };
            let stage = Stage::Tile { threads, tile };
            return self.pass(stage, Pass::Map { out, chunk: 0 }, tile.groups(self.layout));
        }
        let fours = self.map_in_fours(out);
        let elements = if fours.is_some() { 4 * QUADS } else { ELEMENTS };
        let threads = if cpu { lanes(&self.gpu.caps) } else { self.threads_of_map(elements) };
        let stage = Stage::Map { threads, fours };
        if cpu {
            // Each workgroup costs as much as some hundred elements; few keep all cores busy.
            let run = if fours.is_some() { 4 } else { 1 };
            let outputs = self.layout.outputs() / run;
            let chunk = outputs.div_ceil(BUSY).max(LEAST / run).next_multiple_of(threads.into());
            return self.pass(stage, Pass::Map { out, chunk }, outputs.div_ceil(chunk));
        }
        // Fours and what they leave over.
        let groups = (self.layout.outputs() + 3).div_ceil((threads * elements).into());
        self.pass(stage, Pass::Map { out, chunk: 0 }, groups)
    }

    /// Threads of an elementwise workgroup on a GPU whose threads take so many elements. It should move [`PIECE`] bytes of
    /// each operand, unless what is computed takes longer than that.
    fn threads_of_map(&self, elements: u32) -> u32 {
        let program = self.program;
        let is_long = |node: &Node| node.op.real.is_some_and(|formula| formula.long);
        if program.nodes.iter().any(|node| is_long(node) || program.is_complex(node)) {
            return THREADS;
        }
        let sizes = program.inputs.iter().map(|input| input.ty.size()).chain([program.result().size()]);
        let size = sizes.max().unwrap_or(1) as u32;
        (PIECE / (elements * size)).min(self.gpu.caps.max_threads.min(1024)).max(THREADS)
    }

    /// What a thread gets for four results that it stores at once, where all that it reads and writes four at a time is
    /// aligned: views that are linear or one element, or have neighbours or one element along the last axis.
    fn map_in_fours(&self, out: &Block) -> Option<Fours> {
        let quad = |ty: Type| quad_bytes(ty.storage());
        let types = self.program.inputs.iter().map(|input| input.ty).chain([self.program.result()]);
        if self.program.is_long()
            || types.into_iter().any(|ty| ty.compute().is_emulated())
            || !self.result_address(out).is_multiple_of(quad(self.program.result()))
        {
            return None;
        }
        let aligned = |view: &View| {
            let Some(input) = view.input else { return true };
            let ty = self.program.inputs[input].ty;
            let base = self.blocks[input].map_or(0, |(lease, _)| lease.address);
            (base + view.offset as u64 * ty.size()).is_multiple_of(quad(ty))
        };
        let mut strided = false;
        for view in &self.layout.views {
            match view.pattern {
                Pattern::Single => {}
                Pattern::Linear if aligned(view) => {}
                Pattern::Linear => return None,
                Pattern::Strided => strided = true,
            }
        }
        if !strided {
            return Some(Fours::default());
        }
        let last = self.layout.dims.len().checked_sub(1).filter(|&last| self.layout.dims[last].is_multiple_of(4))?;
        let fours = self.fours(last);
        let taken = |view: &View| {
            view.pattern != Pattern::Strided
                || view.input.is_some_and(|input| input < 32 && (fours.quads | fours.ones) >> input & 1 == 1)
        };
        self.layout.views.iter().all(taken).then_some(fours)
    }

    /// Whether a tile's rows and columns are whole fours of aligned elements. The program stands in the kernel four times.
    fn tiles_in_quads(&self, tile: &Tile, out: &Block) -> bool {
        let (across, along) = (usize::from(tile.across), usize::from(tile.along));
        let (dims, result) = (&self.layout.dims, self.program.result());
        let held = |view: &&View| view.input.is_some_and(|input| input < 32 && tile.inputs >> input & 1 == 1);
        tile.inputs != 0
            && !self.program.is_long()
            && (self.program.output.is_none() || self.layout.views.last().is_some_and(|v| v.pattern == Pattern::Linear))
            && dims[across].is_multiple_of(4)
            && dims[along].is_multiple_of(4)
            && self.result_address(out).is_multiple_of(quad_bytes(result.storage()))
            && !result.compute().is_emulated()
            && self.layout.views.iter().filter(held).all(|view| matches!(self.quad(view, along), Some((_, 1))))
    }

    /// The order is the function's: all that runs side by side is the outputs.
    fn fold(&self, out: &Block) -> Result<()> {
        let threads = 64;
        let groups = self.layout.outputs().div_ceil(threads.into());
        self.pass(Stage::Fold { threads }, Pass::Whole { out, chunk: self.layout.reduced() }, groups)
    }

    fn reduce(&self, out: &Block, accumulator: &Accumulator) -> Result<()> {
        let (outputs, reduced) = (self.layout.outputs(), self.layout.reduced());
        let Shape { across, along, fours, beside } = self.shape_of_groups(outputs, reduced);
        let groups = outputs.div_ceil(u64::from(across) * u64::from(4 * beside).max(1));
        // Split the reduced axes where the outputs alone do not fill the device: a second pass costs an H200 as much as half
        // of its threads.
        let (enough, wanted) = if self.gpu.caps.cpu { (32, 32) } else { (512, 2048) };
        let chunks = if groups < enough { (wanted / groups).min(reduced / (u64::from(along) * 8)).max(1) } else { 1 };
        let stage = |from_partial, to_partial| Stage::Reduce { across, along, from_partial, to_partial, fours, beside };
        if chunks == 1 {
            return self.pass(stage(false, false), Pass::Whole { out, chunk: reduced }, groups);
        }
        let chunk = reduced.div_ceil(chunks).next_multiple_of(4);
        let chunks = reduced.div_ceil(chunk);
        let partial = accumulator
            .parts
            .iter()
            .map(|part| {
                let lease = self.gpu.allocate(Kind::Device, chunks * outputs * part.size(), self.patience)?;
                Ok((lease, part.glsl()))
            })
            .collect::<Result<SmallVec<[_; 2]>>>()?;
        let partial = &partial;
        let _together = self.gpu.stream.together();
        self.pass(stage(false, true), Pass::ToPartial { partial, chunk, chunks }, groups * chunks)?;
        let (across, along) = match outputs {
            0.. if self.gpu.caps.cpu => {
                let lanes = lanes(&self.gpu.caps);
                if outputs < lanes.into() { (1, lanes) } else { (lanes, 1) }
            }
            64.. => (64, 4),
            _ => (1, THREADS),
        };
        let fours = Fours::default();
        let stage = Stage::Reduce { across, along, from_partial: true, to_partial: false, fours, beside: 0 };
        self.pass(stage, Pass::FromPartial { partial, out, chunks }, outputs.div_ceil(across.into()))
    }

    /// What a reduction gets for four neighbours along the last axis, which is reduced.
    fn fours_along(&self) -> Fours {
        let (dims, kept) = (&self.layout.dims, self.layout.kept);
        let last = dims.len().checked_sub(1).filter(|&axis| axis >= kept);
        // Fours end with a row, or the last of all is taken apart.
        let whole = |&axis: &usize| axis == kept || dims[axis].is_multiple_of(4);
        last.filter(whole).map(|last| self.fours(last)).filter(|fours| fours.quads != 0).unwrap_or_default()
    }

    /// Likewise along the last axis that is kept, whose outputs one thread makes four by four.
    fn fours_beside(&self) -> Fours {
        let last = self.layout.kept.checked_sub(1).filter(|&axis| self.layout.dims[axis].is_multiple_of(4));
        last.map(|last| self.fours(last)).filter(|fours| fours.quads != 0).unwrap_or_default()
    }

    /// What a thread gets for four neighbours along an axis.
    fn fours(&self, axis: usize) -> Fours {
        let mut fours = Fours::default();
        if self.program.is_long() {
            return fours;
        }
        for view in &self.layout.views {
            match self.quad(view, axis) {
                Some((input, 1)) => fours.quads |= 1 << input,
                Some((input, _)) => fours.ones |= 1 << input,
                None => {}
            }
        }
        fours
    }

    /// The input of a view that has four neighbours along an axis, the first of each at an aligned address, or one element
    /// for all of them, and its stride.
    fn quad(&self, view: &View, axis: usize) -> Option<(usize, i64)> {
        let input = view.input.filter(|&input| input < 32 && view.pattern == Pattern::Strided)?;
        let (ty, stride) = (self.program.inputs[input].ty, view.strides[axis]);
        let base = self.blocks[input].map_or(0, |(lease, _)| lease.address);
        let others = (0..view.strides.len()).filter(|&other| other != axis).map(|other| view.strides[other]);
        let aligned = || {
            others.chain([view.offset]).all(|step| step % 4 == 0)
                && base.is_multiple_of(quad_bytes(ty.storage()))
                && !ty.compute().is_emulated()
        };
        let fits = self.program.steps(input).next().is_none() && (stride == 0 || stride == 1 && aligned());
        fits.then_some((input, stride))
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
        if self.gpu.caps.cpu {
            // One subgroup.
            let lanes = lanes(&self.gpu.caps);
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
        if inner_kept < inner_reduced {
            let run = if beside.quads != 0 { 4 } else { 1 };
            let across = up(outputs / run).min(if outputs >= 1 << 16 { THREADS / run as u32 } else { 32 });
            let along = up(reduced.div_ceil(4)).min(THREADS / across);
            Shape { across, along, fours: beside, beside: run as u32 / 4 }
        } else {
            let threads = up(reduced.div_ceil(4));
            Shape { across: THREADS / threads, along: threads, fours: along, beside: 0 }
        }
    }

    fn pass(&self, stage: Stage, pass: Pass, groups: u64) -> Result<()> {
        let mut reads: SmallVec<[&Block; 4]> = SmallVec::new();
        let mut writes: SmallVec<[&Block; 2]> = SmallVec::new();
        if !matches!(pass, Pass::FromPartial { .. }) {
            reads.extend(self.blocks.iter().flatten().map(|(lease, _)| &***lease));
        }
        match pass {
            Pass::Map { out, .. } | Pass::Whole { out, .. } => writes.push(out),
            Pass::ToPartial { partial, .. } => writes.extend(partial.iter().map(|(lease, _)| &**lease)),
            Pass::FromPartial { partial, out, .. } => {
                reads.extend(partial.iter().map(|(lease, _)| &**lease));
                writes.push(out);
            }
        }
        let bytes = reads.iter().chain(&writes).map(|block| block.size).sum::<u64>();
        // What the pass before touched last is in the device's cache still: this one begins there.
        let backwards =
            stage.turns(&self.gpu.caps).then(|| bytes >= LARGE && !self.gpu.backwards.fetch_xor(true, Relaxed));
        let kernel = Kernel {
            key: &self.key(stage),
            params: &|params| {
                self.params(params, pass);
                if let Some(backwards) = backwards {
                    params.extent(backwards.into(), self.layout.wide, format_args!("backwards"));
                }
            },
            source: &|parameters| emit(self.program, self.layout, stage, parameters, &self.gpu.caps),
            groups,
            reads: &reads,
            writes: &writes,
        };
        kernel.launch(self.gpu, self.patience)
    }

    /// The parameters in the order of their declaration: addresses, immediates, then indices.
    fn params(&self, params: &mut Params, pass: Pass) {
        let (program, layout, wide) = (self.program, self.layout, self.layout.wide);
        let result = program.result();
        let parts = |params: &mut Params, partial: Partial, name: &str| {
            for (i, (lease, part)) in partial.iter().enumerate() {
                params.address(lease.address, part, format_args!("{name}{i}"));
            }
        };
        match pass {
            Pass::Map { out, .. } | Pass::Whole { out, .. } => {
                params.address(self.result_address(out), result.storage(), format_args!("result"))
            }
            Pass::ToPartial { partial, .. } => parts(params, partial, "partial_out"),
            Pass::FromPartial { partial, out, .. } => {
                params.address(out.address, result.storage(), format_args!("result"));
                parts(params, partial, "partial");
            }
        }
        if let Pass::FromPartial { chunks, .. } = pass {
            let outputs = layout.outputs();
            let extents = [(outputs, "outputs"), (chunks, "reduced"), (chunks, "chunk"), (1, "chunks")];
            return params.extents(wide, extents);
        }
        // A view that is read linearly or at one place has its offset folded into the address.
        let mut views = layout.views.iter();
        for (i, input) in program.inputs.iter().enumerate() {
            match (&input.source, self.blocks[i]) {
                (Source::Scalar(bits), _) => {
                    let held = input.ty.size().max(8) as usize;
                    params.bits(&bits[..held], format_args!("scalar{i}"));
                }
                (Source::View { .. }, block) => {
                    let base = block.map_or(0, |(lease, _)| lease.address);
                    let view = views.next();
                    let folded = view.filter(|view| view.pattern != Pattern::Strided).map_or(0, |view| view.offset);
                    let address = base + folded as u64 * input.ty.size();
                    params.address(address, input.ty.storage(), format_args!("input{i}"));
                }
            }
        }
        match pass {
            Pass::Map { chunk, .. } => {
                params.extent(layout.outputs(), wide, format_args!("count"));
                if self.gpu.caps.cpu {
                    params.extent(chunk, wide, format_args!("chunk"));
                }
            }
            Pass::Whole { chunk, .. } | Pass::ToPartial { chunk, .. } => {
                let chunks = if let Pass::ToPartial { chunks, .. } = pass { chunks } else { 1 };
                let (outputs, reduced) = (layout.outputs(), layout.reduced());
                let extents = [(outputs, "outputs"), (reduced, "reduced"), (chunk, "chunk"), (chunks, "chunks")];
                params.extents(wide, extents);
            }
            Pass::FromPartial { .. } => {}
        }
        for (n, node) in program.nodes.iter().enumerate() {
            let Attribute::Steps(steps) = &node.attribute else { continue };
            for (k, &(extent, step)) in steps.iter().enumerate() {
                params.extent(extent, wide, format_args!("extentv{}_{k}", program.inputs.len() + n));
                params.index(step, wide, format_args!("stepv{}_{k}", program.inputs.len() + n));
            }
        }
        for (axis, &dim) in layout.dims.iter().enumerate() {
            params.extent(dim, wide, format_args!("dim{axis}"));
        }
        for (v, view) in layout.views.iter().enumerate().filter(|(_, view)| view.pattern == Pattern::Strided) {
            params.index(view.offset, wide, format_args!("offset{v}"));
            for (axis, &stride) in view.strides.iter().enumerate() {
                params.index(stride, wide, format_args!("stride{v}_{axis}"));
            }
        }
        for (s, start) in program.starts().iter().enumerate() {
            params.extent(start.extent, wide, format_args!("extent{s}"));
            params.index(start.step, wide, format_args!("step{s}"));
        }
    }

    /// Everything that the source depends on; extents, strides and values are parameters.
    fn key(&self, stage: Stage) -> SmallVec<[u8; 256]> {
        let mut bytes: SmallVec<[u8; 256]> = SmallVec::new();
        for node in &self.program.nodes {
            bytes.extend_from_slice(&[node.op.number, node.ty as u8]);
            bytes.extend(node.args.iter().map(|&arg| arg as u8));
            let last = matches!(node.attribute, Attribute::Arg { last: true, .. });
            bytes.extend_from_slice(&[0xff, last as u8]);
        }
        for input in &self.program.inputs {
            bytes.extend_from_slice(&[input.ty as u8, matches!(input.source, Source::Scalar(_)) as u8]);
        }
        bytes.extend(self.layout.views.iter().map(|view| view.pattern as u8));
        for start in self.program.starts() {
            bytes.extend_from_slice(&[0xfd, start.value as u8]);
        }
        bytes.push(self.program.output.is_some().into());
        bytes.extend_from_slice(&[0xfe, self.layout.dims.len() as u8, self.layout.kept as u8, self.layout.wide as u8]);
        let (kind, numbers) = match stage {
            Stage::Map { threads, fours } => {
                let Fours { quads, ones } = fours.unwrap_or_default();
                (0, [threads, fours.is_some().into(), 0, quads, ones])
            }
            Stage::Reduce { across, along, from_partial, to_partial, fours: Fours { quads, ones }, beside } => {
                let flags = u32::from(from_partial) + 2 * u32::from(to_partial) + 4 * beside;
                (1, [across, along, flags, quads, ones])
            }
            Stage::Fold { threads } => (2, [threads, 0, 0, 0, 0]),
            Stage::Tile { threads, tile: Tile { across, along, width, height, inputs, quads } } => {
                let axes = (u32::from(across) << 16) + (u32::from(along) << 24);
                (3 + u8::from(quads), [threads + axes, width, height, inputs, 0])
            }
        };
        bytes.push(kind);
        numbers.iter().for_each(|number| bytes.extend_from_slice(&number.to_le_bytes()));
        bytes
    }
}
