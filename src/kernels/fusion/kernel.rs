//! The kernel of a program: what its text depends on, and its parameters.

use super::epilogue::Destination;
use super::prologue::{Prologue, PrologueArgs};
use crate::device::Capabilities;
use crate::graph::{Name, Operand, Params};
use crate::kernels::KernelSpec;
use crate::memory::{Allocation, AllocationHandle};
use crate::program::emit::{LoopNest, MapTraversal, ReduceSchedule, Schedule, emit};
use crate::program::epilogue::EpilogueProgram;
use crate::program::layout::{Layout, Pattern, View};
use crate::program::op::Typing;
use crate::program::types::Compute;
use crate::program::{Attribute, Program, Source, Type};

/// A program's kernel. The program and its layout lack what are parameters: extents, strides, offsets, steps and values.
#[derive(Hash)]
pub(super) struct FusionKernel {
    program: Program,
    layout: Layout,
    schedule: Schedule,
    /// The prologue, and the input that it computes.
    prologue: Option<(usize, Prologue)>,
    epilogue: Option<EpilogueProgram>,
}

/// One launch of a [`FusionKernel`].
pub(super) struct FusionArgs<'a> {
    pub program: &'a Program,
    pub layout: &'a Layout,
    /// The operands of the inputs, but for that which a prologue computes.
    pub operands: &'a [Operand<'a>],
    pub prologue: Option<PrologueArgs<'a>>,
    pub destination: Destination<'a>,
    /// Where the results after the first go, of a program with several sums.
    pub others: &'a [AllocationHandle],
    /// The partial results that a pass of two writes or reads.
    pub partials: Option<Partials<'a>>,
    /// Elements of a chunk; see [`FusionLaunch`](crate::tuning::fusion::FusionLaunch).
    pub chunk: u64,
    pub groups: u64,
}

/// Partial results of `chunks` chunks for each output, in an allocation for each part of the accumulator.
#[derive(Clone, Copy)]
pub(super) struct Partials<'a> {
    pub parts: &'a [Compute],
    pub allocations: &'a [AllocationHandle],
    pub chunks: u64,
}

impl<'a> Partials<'a> {
    pub fn iter(self) -> impl Iterator<Item = (usize, (&'a Compute, &'a AllocationHandle))> {
        self.parts.iter().zip(self.allocations).enumerate()
    }
}

impl FusionKernel {
    pub fn new(
        program: &Program,
        layout: &Layout,
        schedule: Schedule,
        prologue: Option<(usize, Prologue)>,
        epilogue: Option<EpilogueProgram>,
    ) -> Self {
        let window = matches!(schedule.nest, LoopNest::Window(_));
        let partial = matches!(schedule.nest, LoopNest::Reduce(reduce) if reduce.to_partial);
        Self {
            program: program.without_parameters(),
            layout: layout.without_parameters(window),
            schedule,
            prologue,
            epilogue: epilogue.filter(|_| !partial),
        }
    }
}

impl KernelSpec for FusionKernel {
    type Args<'a> = FusionArgs<'a>;

    fn source(&self, caps: &Capabilities, parameters: &str) -> String {
        let Self { program, layout, schedule, prologue, epilogue } = self;
        let prologue = prologue.as_ref().map(|(input, prologue)| (*input, prologue.emit(caps)));
        emit(program, layout, *schedule, prologue, epilogue.as_ref(), parameters, caps)
    }

    fn name(&self) -> String {
        let kind = match self.schedule.nest {
            LoopNest::Reduce(ReduceSchedule { from_partial: true, .. }) => "combine",
            LoopNest::Reduce(_) | LoopNest::Window(_) => "reduce",
            LoopNest::Fold { .. } => "fold",
            LoopNest::Map { .. } => "map",
            LoopNest::Tile { .. } => "transposing map",
        };
        let prologue = self.prologue.as_ref().map(|(_, prologue)| format!("{}, ", prologue.name()));
        format!("{}{kind} {}", prologue.unwrap_or_default(), self.program.summary())
    }

    /// In the order of their declaration: addresses, immediates, then indices.
    fn params<'a>(&self, args: &FusionArgs<'a>, params: &mut Params<'a>) {
        let (layout, index64) = (args.layout, args.layout.index64);
        let (from_partial, to_partial) = match self.schedule.nest {
            LoopNest::Reduce(reduce) => (reduce.from_partial, reduce.to_partial),
            _ => (false, false),
        };
        let result = args.program.result();
        params.operations(match self.schedule.nest {
            LoopNest::Fold { .. } => 0,
            _ if from_partial => layout.outputs() * args.partials.map_or(0, |partials| partials.chunks),
            _ => {
                let of_prologue = args.prologue.map_or(0, |prologue| prologue.operations() * args.groups);
                of_prologue + args.program.arithmetic_nodes() * layout.outputs() * layout.reduced()
            }
        });
        if !to_partial {
            match args.destination {
                Destination::Buffer(out) => {
                    params.write_at(out, layout.result_offset(args.program), result.storage(), "result");
                }
                destination @ Destination::Epilogue(_) => destination.operands(result, "result", params),
            }
            for (other, allocation) in args.others.iter().enumerate() {
                params.write(allocation, result.storage(), ("result", other + 1));
            }
        }
        for (i, (part, allocation)) in args.partials.into_iter().flat_map(Partials::iter) {
            match to_partial {
                true => params.write(allocation, part.glsl(), ("partial_out", i)),
                false => params.read(allocation, part.glsl(), ("partial", i)),
            }
        }
        let chunks = args.partials.map_or(1, |partials| partials.chunks);
        if from_partial {
            params.extents(index64, [("outputs", layout.outputs()), ("reduced", chunks)]);
            return args.destination.indices(index64, params);
        }
        let program = args.program();
        program.inputs(params);
        if let Some(prologue) = &args.prologue {
            prologue.inputs(params);
        }
        if let (LoopNest::Map { .. }, Destination::Buffer(out)) = (self.schedule.nest, args.destination) {
            let output = layout.views.last().filter(|_| args.program.output.is_some());
            if output.is_none_or(View::is_at_index) && program.in_place(out, result, params) {
                params.copies();
            }
        }
        match self.schedule.nest {
            LoopNest::Reduce(_) | LoopNest::Window(_) | LoopNest::Fold { .. } => {
                params.extents(index64, [("outputs", layout.outputs()), ("reduced", layout.reduced())]);
                if to_partial {
                    params.extents(index64, [("chunk", args.chunk), ("chunks", chunks)]);
                }
            }
            LoopNest::Map { traversal: MapTraversal::Chunk, .. } => {
                params.extents(index64, [("count", layout.outputs()), ("chunk", args.chunk)]);
            }
            LoopNest::Map { .. } | LoopNest::Tile { .. } => params.extent(layout.outputs(), index64, "count"),
        }
        program.steps(params);
        if let Some(prologue) = &args.prologue {
            prologue.steps(params);
        }
        if !to_partial {
            args.destination.indices(index64, params);
        }
        if self.schedule.reversible {
            params.reversed(index64);
        }
    }

    fn groups(&self, args: &FusionArgs) -> u64 {
        self.epilogue.as_ref().and_then(|_| args.destination.reducing_groups()).unwrap_or(args.groups)
    }
}

impl<'a> FusionArgs<'a> {
    fn program(&self) -> ProgramArgs<'a> {
        let &Self { program, layout, operands, .. } = self;
        let given = self.prologue.map(|prologue| prologue.input);
        ProgramArgs { program, layout, operands, prefix: "", given, index64: layout.index64 }
    }
}

/// A program with what it reads.
pub(super) struct ProgramArgs<'a> {
    pub program: &'a Program,
    pub layout: &'a Layout,
    /// The operands of the inputs, but for that of the given one.
    pub operands: &'a [Operand<'a>],
    /// What the names of the parameters begin with.
    pub prefix: &'static str,
    /// The input whose elements the kernel has at hand.
    pub given: Option<usize>,
    pub index64: bool,
}

impl<'a> ProgramArgs<'a> {
    fn name(&self, name: impl Into<Name>) -> Name {
        name.into().after(self.prefix)
    }

    /// The inputs' addresses and values, and where their indices are checked. A view that is read linearly or at one index has its offset in the address.
    pub fn inputs(&self, params: &mut Params<'a>) {
        let mut views = self.layout.views.iter();
        let mut operands = self.operands.iter();
        for (i, input) in self.program.inputs.iter().enumerate() {
            let offset = match &input.source {
                Source::Scalar | Source::Constant(_) => 0,
                Source::View { .. } | Source::Padded(_) => views.next().map_or(0, |view| view.address_offset()),
            };
            if self.given == Some(i) {
                continue;
            }
            if matches!(input.source, Source::Constant(_)) {
                operands.next();
                continue;
            }
            match operands.next() {
                Some(Operand::Scalar { index, value }) => {
                    let held = input.ty.size().max(8) as usize;
                    params.scalar(*index, &value[..held], self.name(("scalar", i)));
                }
                Some(Operand::Buffer(allocation, _)) => {
                    let (offset, storage) = (offset as u64 * input.ty.size(), input.ty.storage());
                    params.read_at(allocation, offset, storage, self.name(("input", i)));
                }
                None => {}
            }
        }
        self.checks(params);
    }

    /// Where indices that are out of bounds are reported.
    fn checks(&self, params: &mut Params<'a>) {
        for (n, node) in self.program.nodes.iter().enumerate() {
            if let Attribute::Steps { check: Some(check), .. } = &node.attribute {
                params.check(check, self.name(("checkv", self.program.inputs.len() + n)));
            }
        }
    }

    /// Names the inputs that an element-wise kernel reads where it writes an element of `out`, which may be in their memory. Whether it copies
    /// one of them.
    pub fn in_place(&self, out: &Allocation, ty: Type, params: &mut Params<'a>) -> bool {
        let program = self.program;
        let chosen_from = |input| program.steps(input).next().is_some();
        let mut copies = false;
        for view in self.layout.views.iter().filter(|view| view.is_at_index()) {
            let Some(input) = view.input.filter(|&input| !chosen_from(input)) else { continue };
            let read = program.inputs[input].ty;
            if let Operand::Buffer(allocation, _) = self.operands[input]
                && read.size() == ty.size()
            {
                params.in_place(allocation, out);
                let is_copy = program.nodes.len() == 1 && program.nodes[0].op.typing == Typing::Convert;
                copies |= is_copy && read == ty;
            }
        }
        copies
    }

    /// Extents, strides and steps.
    pub fn steps(&self, params: &mut Params<'a>) {
        let &Self { program, layout, index64, .. } = self;
        for (n, node) in program.nodes.iter().enumerate() {
            let Attribute::Steps { steps, .. } = &node.attribute else { continue };
            for (k, &(extent, step)) in steps.iter().enumerate() {
                params.extent(extent, index64, self.name(("extentv", program.inputs.len() + n, k)));
                params.index(step, index64, self.name(("stepv", program.inputs.len() + n, k)));
            }
        }
        for (axis, &dim) in layout.dims.iter().enumerate() {
            match axis {
                0 => params.extent(dim, index64, self.name(("dim", axis))),
                _ => params.divisor(dim, index64, self.name(("dim", axis)), self.name(("magic", axis))),
            }
        }
        for (v, view) in layout.views.iter().enumerate().filter(|(_, view)| view.pattern == Pattern::Strided) {
            params.index(view.offset, index64, self.name(("offset", v)));
            for (axis, &stride) in view.strides.iter().enumerate() {
                params.index(stride, index64, self.name(("stride", v, axis)));
            }
        }
        for &(v, extent) in layout.padded.iter().flat_map(|padded| &padded.coordinates) {
            params.extent(extent, index64, self.name(("bound", v)));
        }
        for (s, start) in program.dynamic_offsets().iter().enumerate() {
            params.extent(start.extent, index64, self.name(("extent", s)));
            params.index(start.step, index64, self.name(("step", s)));
        }
    }
}
