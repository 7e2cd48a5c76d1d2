//! Runs programs: elementwise kernels, and reductions in one pass or two.

use smallvec::SmallVec;
use xxhash_rust::xxh3::xxh3_128;

use super::{Launch, grid, max_push};
use crate::device::Gpu;
use crate::error::Result;
use crate::memory::{Block, Buffer, Kind, Lease, Patience};
use crate::program::emit::{Accumulator, ELEMENTS, Params, QUADS, Stage, Variant, emit, quad_bytes};
use crate::program::layout::{Layout, Pattern, View};
use crate::program::op::Typing;
use crate::program::{Attribute, Program, Source, Type};

const THREADS: u32 = 256;

/// Runs a program whose inputs read `blocks` (`None` for immediates); the result is a new dense buffer.
pub fn run(gpu: &Gpu, program: &Program, blocks: &[Option<(&Lease, u64)>], patience: Patience) -> Result<Buffer> {
    for index in 0..program.inputs.len() + program.nodes.len() {
        program.type_of(index).check(&gpu.caps)?;
    }
    let element_size = |input: usize| program.inputs[input].ty.size();
    let lens: SmallVec<[u64; 4]> =
        blocks.iter().enumerate().map(|(i, block)| block.map_or(0, |(_, bytes)| bytes / element_size(i))).collect();
    let layout = Layout::new(program, &lens)?;
    let result = program.nodes[program.nodes.len() - 1].ty;
    let bytes = layout.outputs() * result.size();
    let out = gpu.allocate(Kind::Device, bytes, patience)?;
    let run = Run { gpu, program, layout: &layout, blocks, patience };
    if program.elements() > 0 {
        match Accumulator::of(program, &layout, &gpu.caps) {
            None => run.map(&out)?,
            Some(accumulator) => run.reduce(&out, &accumulator)?,
        }
    }
    Ok(Buffer::new(bytes, out))
}

struct Run<'a> {
    gpu: &'a Gpu,
    program: &'a Program,
    layout: &'a Layout,
    blocks: &'a [Option<(&'a Lease, u64)>],
    patience: Patience,
}

/// The parts of the partial results with their GLSL types.
type Partial<'a> = &'a [(Lease, &'static str)];

/// Where a pass of a reduction reads and writes.
#[derive(Clone, Copy)]
enum Pass<'a> {
    Map { out: &'a Block },
    Whole { out: &'a Block, chunk: u64 },
    ToPartial { partial: Partial<'a>, chunk: u64, chunks: u64 },
    FromPartial { partial: Partial<'a>, out: &'a Block, chunks: u64 },
}

impl Run<'_> {
    fn map(&self, out: &Block) -> Result<()> {
        let quads = self.in_quads(out);
        let stage = Stage::Map { threads: THREADS, quads };
        let elements = if quads { 4 * QUADS } else { ELEMENTS };
        // Fours and what they leave over.
        let groups = (self.layout.outputs() + 3).div_ceil((THREADS * elements).into());
        self.pass(stage, Pass::Map { out }, groups)
    }

    /// Whether every view is linear or one element, and all that is read or written four at a time is aligned for it.
    fn in_quads(&self, out: &Block) -> bool {
        let quad = |ty: Type| quad_bytes(ty.storage());
        let aligned = |view: &View| {
            let Some(input) = view.input.filter(|_| view.pattern == Pattern::Linear) else { return true };
            let ty = self.program.inputs[input].ty;
            let base = self.blocks[input].map_or(0, |(lease, _)| lease.address);
            (base + view.offset as u64 * ty.size()).is_multiple_of(quad(ty))
        };
        let result = self.program.nodes[self.program.nodes.len() - 1].ty;
        let mut views = self.layout.views.iter();
        out.address.is_multiple_of(quad(result)) && views.all(|view| view.pattern != Pattern::Strided && aligned(view))
    }

    fn reduce(&self, out: &Block, accumulator: &Accumulator) -> Result<()> {
        let (outputs, reduced) = (self.layout.outputs(), self.layout.reduced());
        let (across, along) = self.shape_of_groups(outputs, reduced);
        let groups = outputs.div_ceil(across.into());
        // Split the reduced axes where the outputs alone do not fill the device.
        let wanted = if self.gpu.caps.cpu { 32 } else { 4096 };
        let chunks = (wanted / groups).min(reduced / (u64::from(along) * 8)).max(1);
        let stage = |from_partial, to_partial| Stage::Reduce { across, along, from_partial, to_partial };
        if chunks == 1 {
            return self.pass(stage(false, false), Pass::Whole { out, chunk: reduced }, groups);
        }
        let chunk = reduced.div_ceil(chunks);
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
        self.pass(stage(false, true), Pass::ToPartial { partial, chunk, chunks }, groups * chunks)?;
        let (across, along) = if outputs >= 64 { (64, 4) } else { (1, THREADS) };
        let stage = Stage::Reduce { across, along, from_partial: true, to_partial: false };
        self.pass(stage, Pass::FromPartial { partial, out, chunks }, outputs.div_ceil(across.into()))
    }

    /// Threads across outputs and along the reduced axes: neighbouring threads should read neighbouring elements.
    fn shape_of_groups(&self, outputs: u64, reduced: u64) -> (u32, u32) {
        let kept = self.layout.kept;
        let step = |axis: Option<usize>| {
            let axis = axis?;
            self.layout.views.iter().find_map(|view| (view.strides[axis] != 0).then(|| view.strides[axis].abs()))
        };
        let inner_kept = step(kept.checked_sub(1)).unwrap_or(i64::MAX);
        let inner_reduced =
            step(self.layout.dims.len().checked_sub(1).filter(|&axis| axis >= kept)).unwrap_or(i64::MAX);
        let up = |n: u64| n.clamp(1, THREADS.into()).next_power_of_two() as u32;
        if inner_kept < inner_reduced {
            let across = up(outputs).min(if outputs >= 1 << 16 { THREADS } else { 32 });
            (across, up(reduced.div_ceil(4)).min(THREADS / across))
        } else {
            let along = up(reduced.div_ceil(4));
            (THREADS / along, along)
        }
    }

    fn pass(&self, stage: Stage, pass: Pass, groups: u64) -> Result<()> {
        let mut params = Params::default();
        self.params(&mut params, pass);
        let buffered = params.bytes.len() > max_push(self.gpu);
        let variant = Variant { stage, buffered };
        let push = if buffered { 8 } else { params.bytes.len() as u32 };
        let pipeline = self.gpu.pipelines.kernel(self.key(variant), push, self.patience, || {
            let mut declared = Params::with_declarations();
            self.params(&mut declared, pass);
            emit(self.program, self.layout, variant, declared, &self.gpu.caps)
        })?;
        let mut reads: SmallVec<[&Block; 4]> = SmallVec::new();
        let mut writes: SmallVec<[&Block; 2]> = SmallVec::new();
        if !matches!(pass, Pass::FromPartial { .. }) {
            reads.extend(self.blocks.iter().flatten().map(|(lease, _)| &***lease));
        }
        match pass {
            Pass::Map { out } | Pass::Whole { out, .. } => writes.push(out),
            Pass::ToPartial { partial, .. } => writes.extend(partial.iter().map(|(lease, _)| &**lease)),
            Pass::FromPartial { partial, out, .. } => {
                reads.extend(partial.iter().map(|(lease, _)| &**lease));
                writes.push(out);
            }
        }
        let launch = Launch {
            pipeline: &pipeline,
            params: &params.bytes,
            buffered,
            groups: grid(self.gpu, groups)?,
            reads: &reads,
            writes: &writes,
        };
        launch.record(self.gpu, self.patience)
    }

    /// The parameters in the order of their declaration: addresses, immediates, then indices.
    fn params(&self, params: &mut Params, pass: Pass) {
        let (program, layout, wide) = (self.program, self.layout, self.layout.wide);
        let result = program.nodes[program.nodes.len() - 1].ty;
        let parts = |params: &mut Params, partial: Partial, name: &str| {
            for (i, (lease, part)) in partial.iter().enumerate() {
                params.address(lease.address, part, format_args!("{name}{i}"));
            }
        };
        match pass {
            Pass::Map { out } | Pass::Whole { out, .. } => {
                params.address(out.address, result.storage(), format_args!("result"))
            }
            Pass::ToPartial { partial, .. } => parts(params, partial, "partial_out"),
            Pass::FromPartial { partial, out, .. } => {
                params.address(out.address, result.storage(), format_args!("result"));
                parts(params, partial, "partial");
            }
        }
        if let Pass::FromPartial { chunks, .. } = pass {
            params.extent(layout.outputs(), wide, format_args!("outputs"));
            params.extent(chunks, wide, format_args!("reduced"));
            params.extent(chunks, wide, format_args!("chunk"));
            return params.extent(1, wide, format_args!("chunks"));
        }
        // A view that is read linearly or at one place has its offset folded into the address.
        let mut views = layout.views.iter();
        for (i, input) in program.inputs.iter().enumerate() {
            match (&input.source, self.blocks[i]) {
                (Source::Scalar(bits), _) => params.bits(*bits, format_args!("scalar{i}")),
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
            Pass::Map { .. } => params.extent(layout.outputs(), wide, format_args!("count")),
            Pass::Whole { chunk, .. } | Pass::ToPartial { chunk, .. } => {
                let chunks = if let Pass::ToPartial { chunks, .. } = pass { chunks } else { 1 };
                params.extent(layout.outputs(), wide, format_args!("outputs"));
                params.extent(layout.reduced(), wide, format_args!("reduced"));
                params.extent(chunk, wide, format_args!("chunk"));
                params.extent(chunks, wide, format_args!("chunks"));
            }
            Pass::FromPartial { .. } => {}
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
    }

    /// A hash over everything that the source depends on; extents, strides and values are parameters.
    fn key(&self, variant: Variant) -> u128 {
        let mut bytes: SmallVec<[u8; 256]> = SmallVec::new();
        for node in &self.program.nodes {
            bytes.extend_from_slice(node.op.name.as_bytes());
            bytes.extend_from_slice(&[0xff, node.ty as u8]);
            bytes.extend(node.args.iter().map(|&arg| arg as u8));
            let last = matches!(node.attribute, Attribute::Arg { last: true, .. });
            bytes.extend_from_slice(&[0xff, last as u8, matches!(node.op.typing, Typing::Reduce(_)) as u8]);
        }
        for input in &self.program.inputs {
            bytes.extend_from_slice(&[input.ty as u8, matches!(input.source, Source::Scalar(_)) as u8]);
        }
        bytes.extend(self.layout.views.iter().map(|view| view.pattern as u8));
        bytes.extend_from_slice(&[
            0xfe,
            self.layout.dims.len() as u8,
            self.layout.kept as u8,
            self.layout.wide as u8,
            variant.buffered as u8,
        ]);
        let (kind, numbers) = match variant.stage {
            Stage::Map { threads, quads } => (0, [threads, quads.into(), 0]),
            Stage::Reduce { across, along, from_partial, to_partial } => {
                (1, [across, along, u32::from(from_partial) + 2 * u32::from(to_partial)])
            }
        };
        bytes.push(kind);
        numbers.iter().for_each(|number| bytes.extend_from_slice(&number.to_le_bytes()));
        xxh3_128(&bytes)
    }
}
