//! Runs row programs: checks one against the device and its operands, and launches its kernel.

use super::kernel::ProgramArgs;
use super::partial_sum::{PartialSum, SummingRows};
use crate::device::Capabilities;
use crate::error::{Attempt, Error, Result};
use crate::graph::{Context, Operand, Params};
use crate::kernels::{KernelSpec, launch};
use crate::memory::{AllocationHandle, Buffer};
use crate::program::Type;
use crate::program::emit::{RowPrologue, RowSchedule, emit_rows, kept_in_memory};
use crate::program::layout::Layout;
use crate::program::rows::{RowProgram, SoundRows};
use crate::program::types::Compute;
use crate::tuning::fusion::FusionLaunch;
use crate::tuning::rows::{RowProblem, prologue_schedule, schedule};

/// Runs a row program on operands of its inputs' kinds; the results are new dense buffers. Fails where the program is not sound, the device
/// cannot run it, or the operands are too small for it.
pub fn run_rows(cx: &Context, rows: &RowProgram, operands: &[Operand]) -> Attempt<Vec<Buffer>> {
    let sound = check(cx, rows, operands)?;
    let results = allocate_results(cx, rows, &sound)?;
    let allocations = results.iter().map(Buffer::allocation).collect::<Result<Vec<_>>>()?;
    let mut allocations: Vec<&AllocationHandle> = allocations.iter().map(|allocation| &**allocation).collect();
    let found = PartialSum::find(cx, operands);
    match found.as_ref().and_then(|(input, sum)| sum.join(rows, operands, *input)) {
        None => launch_rows(cx, rows, &sound, operands, &allocations)?,
        Some(SummingRows { rows, operands, sum }) => {
            allocations.push(sum);
            launch_rows(cx, &rows, &check(cx, &rows, &operands)?, &operands, &allocations)?;
        }
    }
    drop(allocations);
    Ok(results)
}

/// What a row program goes through that the device can run on these operands.
fn check(cx: &Context, rows: &RowProgram, operands: &[Operand]) -> Result<SoundRows> {
    let sound = rows.check()?;
    if cx.caps().exponential_loops {
        return Err(Error::Unsupported(format!("{} takes minutes to build a kernel of several loops", cx.caps().name)));
    }
    let program = &rows.program;
    for index in 0..program.inputs.len() + program.nodes.len() {
        program.type_of(index).check_program(cx.caps())?;
    }
    check_operands(rows, &sound, operands)?;
    Ok(sound)
}

fn allocate_results(cx: &Context, rows: &RowProgram, sound: &SoundRows) -> Attempt<Vec<Buffer>> {
    let (program, outer) = (&rows.program, sound.layout.outputs());
    let bytes = |(ty, of_element): (Type, bool)| {
        let elements = if of_element { program.elements() } else { outer };
        elements * ty.size()
    };
    rows.results().map(bytes).map(|bytes| Ok(Buffer::new(bytes, cx.allocate(bytes)?))).collect()
}

fn launch_rows(
    cx: &Context,
    rows: &RowProgram,
    sound: &SoundRows,
    operands: &[Operand],
    results: &[&AllocationHandle],
) -> Attempt<()> {
    let program = &rows.program;
    if program.elements() == 0 {
        return Err(Error::Unsupported("rows without elements".into()).into());
    }
    let problem = RowProblem::new(rows, sound, cx.caps());
    let kernel = RowKernel::new(rows, sound, schedule(problem, cx.caps()), cx.caps());
    let kept = kernel.kept.iter().map(|(_, part)| cx.allocate(program.elements() * part.size()));
    let kept = kept.collect::<Attempt<Vec<_>>>()?;
    launch(cx, &kernel, &RowArgs { rows, sound, operands, results, kept: &kept })
}

/// One row that a row program computes, with the program's operands: an operand of another kernel, which computes it or reads it from memory.
pub struct Row<'a> {
    pub(super) rows: &'a RowProgram,
    pub(super) sound: SoundRows,
    pub(super) operands: &'a [Operand<'a>],
}

impl<'a> Row<'a> {
    /// Fails as [`run_rows`] does, and where the program has other results than a row.
    pub fn new(cx: &Context, rows: &'a RowProgram, operands: &'a [Operand<'a>]) -> Result<Self> {
        let sound = check(cx, rows, operands)?;
        if rows.results().map(|(_, of_element)| of_element).ne([true]) || sound.layout.outputs() != 1 {
            return Err(Error::Argument("rows: expected the elements of one row as the result".into()));
        }
        Ok(Self { rows, sound, operands })
    }

    /// The type of its elements.
    pub fn ty(&self) -> Type {
        self.rows.program.type_of(self.rows.outputs[0].value)
    }

    /// Memory for it.
    pub fn allocate(&self, cx: &Context) -> Attempt<Buffer> {
        let bytes = self.rows.program.elements() * self.ty().size();
        Ok(Buffer::new(bytes, cx.allocate(bytes)?))
    }

    /// Computes it by a kernel of its own.
    pub fn write(&self, cx: &Context, to: &AllocationHandle) -> Attempt<()> {
        launch_rows(cx, self.rows, &self.sound, self.operands, &[to])
    }

    /// One for each node that computes, and each element or row that it is computed for.
    pub fn operations(&self) -> u64 {
        self.sound.operations(&self.rows.program)
    }

    /// As a prologue of a reduction's kernel that reads it, where that is faster.
    pub(super) fn prologue(
        &self,
        layout: &Layout,
        launch: (&FusionLaunch, u64),
        caps: &Capabilities,
    ) -> Option<RowPrologue> {
        let problem = RowProblem::new(self.rows, &self.sound, caps);
        let fits = self.sound.layout.index64 == layout.index64 && layout.reduced() == problem.len;
        let schedule = prologue_schedule(self.rows, problem, launch, caps).filter(|_| fits)?;
        let rows = RowProgram { program: self.rows.program.without_parameters(), ..self.rows.clone() };
        let vectors = problem.len.div_ceil(4) as u32;
        Some(RowPrologue { rows, sound: self.sound.without_parameters(), schedule, vectors })
    }
}

fn check_operands(rows: &RowProgram, sound: &SoundRows, operands: &[Operand]) -> Result<()> {
    let inputs = &rows.program.inputs;
    let sizes = inputs.iter().zip(operands).zip(&sound.layout.required_lengths);
    let parts = |input: usize| rows.summed.filter(|summed| summed.input == input).map_or(1, |summed| summed.parts);
    let mut fits = sizes.enumerate().map(|(i, ((input, operand), length))| {
        let needed = length.checked_mul(input.ty.size()).and_then(|bytes| bytes.checked_mul(parts(i)));
        needed.is_some_and(|needed| needed <= operand.bytes().unwrap_or(0))
    });
    if operands.len() != inputs.len() || !fits.all(|fits| fits) {
        return Err(Error::SizeMismatch);
    }
    Ok(())
}

/// A row program's kernel, without what are parameters.
#[derive(Hash)]
pub(super) struct RowKernel {
    rows: RowProgram,
    sound: SoundRows,
    schedule: RowSchedule,
    /// What is kept in the device's memory, by the values' indices in order.
    kept: Vec<(usize, Compute)>,
}

/// One launch of a [`RowKernel`].
pub(super) struct RowArgs<'a> {
    rows: &'a RowProgram,
    sound: &'a SoundRows,
    operands: &'a [Operand<'a>],
    results: &'a [&'a AllocationHandle],
    kept: &'a [AllocationHandle],
}

impl RowKernel {
    pub(super) fn new(rows: &RowProgram, sound: &SoundRows, schedule: RowSchedule, caps: &Capabilities) -> Self {
        let kept = kept_in_memory(rows, sound, schedule, caps);
        let rows = RowProgram { program: rows.program.without_parameters(), ..rows.clone() };
        Self { rows, sound: sound.without_parameters(), schedule, kept }
    }
}

impl KernelSpec for RowKernel {
    type Args<'a> = RowArgs<'a>;

    fn name(&self) -> String {
        format!("rows {}", self.rows.program.summary())
    }

    fn source(&self, caps: &Capabilities, parameters: &str) -> String {
        emit_rows(&self.rows, &self.sound, self.schedule, parameters, caps)
    }

    fn params<'a>(&self, args: &RowArgs<'a>, params: &mut Params<'a>) {
        let (program, layout, operands) = (&args.rows.program, &args.sound.layout, args.operands);
        let program = ProgramArgs { program, layout, operands, prefix: "", given: None, index64: layout.index64 };
        for (position, (&result, (ty, _))) in args.results.iter().zip(args.rows.results()).enumerate() {
            params.write(result, ty.storage(), ("result", position));
        }
        if let Some(sum) = args.results.last().filter(|_| args.rows.summed.is_some()) {
            params.overwrites(sum);
        }
        params.operations(args.sound.operations(&args.rows.program));
        program.inputs(params);
        for ((value, part), allocation) in self.kept.iter().zip(args.kept) {
            params.write(allocation, part.glsl(), ("kept", *value));
        }
        let (rows, groups) = (layout.outputs(), self.groups(args));
        params.extents(layout.index64, [("rows", rows), ("reduced", layout.reduced()), ("groups", groups)]);
        program.steps(params);
    }

    fn groups(&self, args: &RowArgs) -> u64 {
        args.sound.layout.outputs().div_ceil(self.schedule.rows.into())
    }
}
