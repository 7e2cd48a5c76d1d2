//! Epilogues of kernels: the operands of an [`EpilogueProgram`], where its results go, and their parameters. This module launches nothing
//! but an epilogue on its own and the second pass of its reduction; which kernels take one is decided in `tuning`.

use smallvec::SmallVec;

use super::kernel::{FusionArgs, FusionKernel, Partials, ProgramArgs};
use super::{check_types, run};
use crate::error::{Attempt, Error, Result};
use crate::graph::{Context, Operand, Params};
use crate::kernels::launch;
use crate::memory::{Allocation, AllocationHandle, Buffer};
use crate::program::Type;
use crate::program::emit::{Accumulator, EPILOGUE_PARAMETERS, MAX_PARTS};
use crate::program::epilogue::{EpilogueProgram, EpilogueReduction};
use crate::program::layout::Layout;
use crate::program::types::Compute;
use crate::tuning::fusion::{FusionLaunch, combining};

/// An epilogue with its operands.
pub struct Epilogue<'a> {
    /// What is done with each element.
    pub program: EpilogueProgram,
    /// The operands of the program's inputs in their order, but for that of the element.
    pub operands: &'a [Operand<'a>],
}

/// The results of a kernel with an epilogue.
pub struct EpilogueResults {
    /// What the epilogue makes of the kernel's elements.
    pub result: Buffer,
    /// The elements themselves, where they are kept.
    pub elements: Option<Buffer>,
}

impl From<Buffer> for EpilogueResults {
    fn from(result: Buffer) -> Self {
        Self { result, elements: None }
    }
}

/// The memory of the results.
pub struct EpilogueLaunch<'a> {
    epilogue: &'a Epilogue<'a>,
    result: AllocationHandle,
    elements: Option<AllocationHandle>,
    /// What the kernel reduces its results to, if it does.
    partial_results: Option<PartialResults>,
}

/// A partial result of each workgroup of a kernel, and the layout of the reduction that it is of.
struct PartialResults {
    layout: Layout,
    parts: SmallVec<[Compute; MAX_PARTS]>,
    allocations: SmallVec<[AllocationHandle; MAX_PARTS]>,
    groups: u64,
}

/// Where a kernel stores its elements.
#[derive(Clone, Copy)]
pub enum Destination<'a> {
    /// As they are.
    Buffer(&'a Allocation),
    /// By way of an epilogue.
    Epilogue(&'a EpilogueLaunch<'a>),
}

impl<'a> Epilogue<'a> {
    /// Fails unless the device can run the program, and the operands are large enough for it.
    pub fn check(&self, cx: &Context, ty: Type, elements: u64) -> Result<()> {
        let EpilogueProgram { program, layout, element, .. } = &self.program;
        check_types(cx, program)?;
        if program.elements() != elements || self.program.element_type() != ty {
            return Err(Error::SizeMismatch);
        }
        let others = (0..program.inputs.len()).filter(|input| input != element);
        let fits = |(input, operand): (usize, &Operand)| {
            let size = program.inputs[input].ty.size();
            let needed = layout.required_lengths[input].checked_mul(size);
            needed.is_some_and(|needed| needed <= operand.bytes().unwrap_or(0))
        };
        if self.operands.len() + 1 != program.inputs.len() || !others.zip(self.operands).all(fits) {
            return Err(Error::SizeMismatch);
        }
        Ok(())
    }

    fn args(&self, prefix: &'static str, index64: bool) -> ProgramArgs<'_> {
        let Self { program: EpilogueProgram { program, layout, element, .. }, operands } = self;
        ProgramArgs { program, layout, operands, prefix, given: Some(*element), index64 }
    }

    /// The parameters of what the program reads: addresses and values. `prefix` is what their names begin with.
    pub fn inputs<'p>(&'p self, prefix: &'static str, params: &mut Params<'p>) {
        self.args(prefix, false).inputs(params);
    }

    /// The parameters that are indices.
    pub fn steps<'p>(&'p self, prefix: &'static str, index64: bool, params: &mut Params<'p>) {
        self.args(prefix, index64).steps(params);
    }

    /// Runs the program on the elements as another kernel has stored them.
    pub fn run_on(&self, cx: &Context, elements: Buffer) -> Attempt<EpilogueResults> {
        let allocation = elements.allocation()?;
        let mut operands: SmallVec<[Operand; 8]> = self.operands.iter().copied().collect();
        operands.insert(self.program.element, Operand::Buffer(&allocation, elements.len()));
        let result = run(cx, &self.program.whole(), &operands)?;
        drop(operands);
        drop(allocation);
        Ok(EpilogueResults { result, elements: self.program.keeps_element.then_some(elements) })
    }
}

impl PartialResults {
    /// Memory for the partial results of so many workgroups, whose indices are of that width.
    fn new(cx: &Context, reduction: &EpilogueReduction, (groups, index64): (u64, bool)) -> Attempt<Self> {
        let layout = Layout { index64, ..reduction.layout.clone() };
        let accumulator = Accumulator::of(&reduction.program, &layout, cx.caps());
        let parts = accumulator.map(|accumulator| accumulator.parts).unwrap_or_default();
        let allocations = parts.iter().map(|part| cx.allocate(groups * part.size())).collect::<Attempt<_>>()?;
        Ok(Self { layout, parts, allocations, groups })
    }

    fn partials(&self) -> Partials<'_> {
        Partials { parts: &self.parts, allocations: &self.allocations, chunks: self.groups }
    }

    /// Reduces them to the result.
    fn combine(&self, cx: &Context, reduction: &EpilogueReduction, result: &Allocation) -> Attempt<()> {
        let (program, layout) = (&reduction.program, &self.layout);
        let Some(launched) = combining(program, layout, self.groups, cx.caps()) else { return Ok(()) };
        let FusionLaunch { schedule, chunk, groups } = launched;
        let kernel = FusionKernel::new(program, layout, schedule, None, None);
        let (prologue, destination, partials) = (None, Destination::Buffer(result), Some(self.partials()));
        let (operands, others) = (&[][..], &[][..]);
        let args = FusionArgs { program, layout, operands, prologue, destination, others, partials, chunk, groups };
        launch(cx, &kernel, &args)
    }
}

impl<'a> EpilogueLaunch<'a> {
    /// Allocates the results of a kernel of so many workgroups, whose indices are of that width.
    pub fn new(cx: &Context, epilogue: &'a Epilogue<'a>, groups: (u64, bool)) -> Attempt<Self> {
        let program = &epilogue.program;
        let (result, elements) = Self::bytes(program);
        let partial_results = |reduction| PartialResults::new(cx, reduction, groups);
        Ok(Self {
            epilogue,
            result: cx.allocate(result)?,
            elements: program.keeps_element.then(|| cx.allocate(elements)).transpose()?,
            partial_results: program.reduction.as_ref().map(partial_results).transpose()?,
        })
    }

    /// Bytes of the result and of the elements themselves.
    fn bytes(epilogue: &EpilogueProgram) -> (u64, u64) {
        let elements = epilogue.program.elements() * epilogue.element_type().size();
        (epilogue.outputs() * epilogue.result().size(), elements)
    }

    /// What the kernel has written, or what its partial results are reduced to.
    pub fn finish(self, cx: &Context) -> Attempt<EpilogueResults> {
        if let (Some(partial), Some(reduction)) = (&self.partial_results, &self.epilogue.program.reduction) {
            partial.combine(cx, reduction, &self.result)?;
        }
        let (result, elements) = Self::bytes(&self.epilogue.program);
        Ok(EpilogueResults {
            result: Buffer::new(result, self.result),
            elements: self.elements.map(|allocation| Buffer::new(elements, allocation)),
        })
    }
}

impl<'a> Destination<'a> {
    /// What the text of a kernel with such indices depends on.
    pub fn epilogue(&self, index64: bool) -> Option<EpilogueProgram> {
        match self {
            Self::Buffer(_) => None,
            Self::Epilogue(launch) => {
                let mut program = launch.epilogue.program.without_parameters();
                program.layout.index64 = index64;
                if let Some(reduction) = &mut program.reduction {
                    reduction.layout.index64 = index64;
                }
                Some(program)
            }
        }
    }

    /// The parameters of what is written, and of what an epilogue reads: addresses and values, which come before a kernel's indices.
    /// `name` is the kernel's own for its elements, of type `ty`.
    pub fn operands(&self, ty: Type, name: &'static str, params: &mut Params<'a>) {
        let launch = match *self {
            Self::Buffer(allocation) => return params.write(allocation, ty.storage(), name),
            Self::Epilogue(launch) => launch,
        };
        if let Some(elements) = &launch.elements {
            params.write(elements, ty.storage(), name);
        }
        match &launch.partial_results {
            None => {
                let storage = launch.epilogue.program.program.result().storage();
                params.write(&launch.result, storage, (EPILOGUE_PARAMETERS, "result"));
            }
            Some(partial) => {
                for (i, (part, allocation)) in partial.partials().iter() {
                    params.write(allocation, part.glsl(), (EPILOGUE_PARAMETERS, "partial_out", i));
                }
            }
        }
        launch.epilogue.inputs(EPILOGUE_PARAMETERS, params);
    }

    /// The workgroups that reduce their results, where they do.
    pub fn reducing_groups(&self) -> Option<u64> {
        match self {
            Self::Buffer(_) => None,
            Self::Epilogue(launch) => launch.partial_results.as_ref().map(|partial| partial.groups),
        }
    }

    /// The indices of an epilogue's parameters.
    pub fn indices(&self, index64: bool, params: &mut Params<'a>) {
        if let Self::Epilogue(launch) = *self {
            if let Some(partial) = &launch.partial_results {
                params.extent(partial.groups, index64, (EPILOGUE_PARAMETERS, "groups"));
            }
            launch.epilogue.steps(EPILOGUE_PARAMETERS, index64, params);
        }
    }
}
