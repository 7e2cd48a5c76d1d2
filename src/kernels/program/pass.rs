//! One pass of a program: what its kernel reads and writes, its parameters, and what it is known by.

use smallvec::SmallVec;

use super::Run;
use crate::error::Attempt;
use crate::graph::{Operand, Params};
use crate::kernels::Kernel;
use crate::memory::{Allocation, AllocationHandle};
use crate::program::emit::{Fours, Stage, Tile, emit};
use crate::program::layout::Pattern;
use crate::program::types::Compute;
use crate::program::{Attribute, Source};

/// Partial results of so many chunks, in blocks by the types of their parts.
#[derive(Clone, Copy)]
pub(super) struct Partial<'a> {
    pub parts: &'a [Compute],
    pub allocations: &'a [AllocationHandle],
    pub chunks: u64,
}

impl<'a> Partial<'a> {
    fn blocks(self) -> SmallVec<[&'a Allocation; 4]> {
        self.allocations.iter().map(|allocation| &**allocation).collect()
    }
}

/// Where a pass reads and writes.
#[derive(Clone, Copy)]
pub(super) enum Pass<'a> {
    Map { chunk: u64 },
    Whole { chunk: u64 },
    ToPartial { partial: Partial<'a>, chunk: u64 },
    FromPartial { partial: Partial<'a> },
}

impl Run<'_> {
    /// How far behind the start of its block the first result is, in bytes, for an output that is linear or one place.
    pub(super) fn result_offset(&self) -> u64 {
        let view = self.layout.views.last().filter(|_| self.program.output.is_some());
        let folded = view.filter(|view| view.pattern != Pattern::Strided).map_or(0, |view| view.offset);
        folded as u64 * self.program.result().size()
    }

    /// Runs the pass.
    pub(super) fn pass(&self, stage: Stage, pass: Pass, groups: u64) -> Attempt<()> {
        let operands = self.operands.iter().filter_map(Operand::allocation);
        let (reads, writes): (SmallVec<[&Allocation; 4]>, SmallVec<[&Allocation; 4]>) = match pass {
            Pass::Map { .. } | Pass::Whole { .. } => (operands.collect(), SmallVec::from_slice(&[self.out])),
            Pass::ToPartial { partial, .. } => (operands.collect(), partial.blocks()),
            Pass::FromPartial { partial } => (partial.blocks(), SmallVec::from_slice(&[self.out])),
        };
        let key = self.key(stage);
        let kernel = Kernel {
            key: bytemuck::cast_slice(&key),
            params: &|params| self.params(params, stage, pass),
            source: &|parameters| emit(self.program, self.layout, stage, parameters, self.cx.caps()),
            groups,
            reads: &reads,
            writes: &writes,
        };
        kernel.launch(self.cx)
    }

    /// The parameters in the order of their declaration: addresses, immediates, then indices.
    fn params(&self, params: &mut Params, stage: Stage, pass: Pass) {
        let (program, layout, wide) = (self.program, self.layout, self.layout.wide);
        let result = program.result();
        let (partial, part_name) = match pass {
            Pass::Map { .. } | Pass::Whole { .. } => (None, ""),
            Pass::ToPartial { partial, .. } => (Some(partial), "partial_out"),
            Pass::FromPartial { partial } => (Some(partial), "partial"),
        };
        if !matches!(pass, Pass::ToPartial { .. }) {
            params.legacy(self.out, self.result_offset(), result.storage(), "result");
        }
        for (i, (part, allocation)) in partial.iter().flat_map(|p| p.parts.iter().zip(p.allocations)).enumerate() {
            params.legacy(allocation, 0, part.glsl(), (part_name, i));
        }
        if let Pass::FromPartial { partial } = pass {
            params.extent(layout.outputs(), wide, "outputs");
            params.extent(partial.chunks, wide, "reduced");
            params.extent(partial.chunks, wide, "chunk");
            return params.extent(1, wide, "chunks");
        }
        // A view that is read linearly or at one place has its offset folded into the address.
        let mut views = layout.views.iter();
        for (i, (input, operand)) in program.inputs.iter().zip(self.operands).enumerate() {
            let folded = match &input.source {
                Source::Scalar => 0,
                Source::View { .. } => {
                    let view = views.next();
                    view.filter(|view| view.pattern != Pattern::Strided).map_or(0, |view| view.offset)
                }
            };
            match operand {
                Operand::Scalar { index, value } => {
                    let held = input.ty.size().max(8) as usize;
                    params.scalar(*index, &value[..held], ("scalar", i));
                }
                Operand::Buffer(allocation, _) => {
                    let offset = folded as u64 * input.ty.size();
                    params.legacy(allocation, offset, input.ty.storage(), ("input", i));
                }
            }
        }
        match pass {
            Pass::Map { chunk, .. } => {
                params.extent(layout.outputs(), wide, "count");
                if self.cx.caps().cpu {
                    params.extent(chunk, wide, "chunk");
                }
            }
            Pass::Whole { chunk, .. } | Pass::ToPartial { chunk, .. } => {
                let chunks = if let Pass::ToPartial { partial, .. } = pass { partial.chunks } else { 1 };
                params.extent(layout.outputs(), wide, "outputs");
                params.extent(layout.reduced(), wide, "reduced");
                params.extent(chunk, wide, "chunk");
                params.extent(chunks, wide, "chunks");
            }
            Pass::FromPartial { .. } => {}
        }
        for (n, node) in program.nodes.iter().enumerate() {
            let Attribute::Steps(steps) = &node.attribute else { continue };
            for (k, &(extent, step)) in steps.iter().enumerate() {
                params.extent(extent, wide, ("extentv", program.inputs.len() + n, k));
                params.index(step, wide, ("stepv", program.inputs.len() + n, k));
            }
        }
        for (axis, &dim) in layout.dims.iter().enumerate() {
            params.extent(dim, wide, ("dim", axis));
        }
        for (v, view) in layout.views.iter().enumerate().filter(|(_, view)| view.pattern == Pattern::Strided) {
            params.index(view.offset, wide, ("offset", v));
            for (axis, &stride) in view.strides.iter().enumerate() {
                params.index(stride, wide, ("stride", v, axis));
            }
        }
        for (s, start) in program.starts().iter().enumerate() {
            params.extent(start.extent, wide, ("extent", s));
            params.index(start.step, wide, ("step", s));
        }
        if stage.turns(self.cx.caps()) {
            params.reversed(wide);
        }
    }

    /// Everything that the source depends on; extents, strides and values are parameters.
    fn key(&self, stage: Stage) -> SmallVec<[u32; 32]> {
        let (program, layout) = (self.program, self.layout);
        let bytes = u32::from_le_bytes;
        let mut words: SmallVec<[u32; 32]> = SmallVec::new();
        let counts = [program.nodes.len(), program.inputs.len(), layout.views.len(), program.starts().len()];
        words.push(bytes(counts.map(|count| count as u8)));
        words.push(bytes([
            layout.dims.len() as u8,
            layout.kept as u8,
            layout.wide.into(),
            program.output.is_some().into(),
        ]));
        for node in &program.nodes {
            let last = matches!(node.attribute, Attribute::Arg { last: true, .. });
            words.push(bytes([node.op.number, node.ty as u8, last.into(), node.args.len() as u8]));
            node.args.iter().for_each(|&arg| words.push(arg as u32));
        }
        for input in &program.inputs {
            let is_scalar = matches!(input.source, Source::Scalar);
            words.push(bytes([input.ty as u8, is_scalar.into(), 0, 0]));
        }
        layout.views.iter().for_each(|view| words.push(view.pattern as u32));
        program.starts().iter().for_each(|start| words.push(start.value as u32));
        let (kind, numbers) = match stage {
            Stage::Map { threads, fours } => {
                let Fours { quads, ones } = fours.unwrap_or_default();
                (0, [threads, fours.is_some().into(), 0, quads, ones])
            }
            Stage::Reduce { across, along, from_partial, to_partial, fours: Fours { quads, ones }, beside, window } => {
                if window {
                    layout.dims[layout.kept..].iter().for_each(|&dim| words.push(dim as u32));
                }
                let flags = u32::from(from_partial) + 2 * u32::from(to_partial) + 4 * u32::from(window) + 8 * beside;
                (1, [across, along, flags, quads, ones])
            }
            Stage::Fold { threads } => (2, [threads, 0, 0, 0, 0]),
            Stage::Tile { threads, tile: Tile { across, along, width, height, inputs, quads } } => {
                let axes = (u32::from(across) << 16) + (u32::from(along) << 24);
                (3 + u32::from(quads), [threads + axes, width, height, inputs, 0])
            }
        };
        words.push(kind);
        numbers.into_iter().for_each(|number| words.push(number));
        words
    }
}
