//! Runs row programs: checks one against the device and its operands, and launches its kernel.

use smallvec::SmallVec;

use super::kernel::ProgramArgs;
use crate::device::Capabilities;
use crate::error::{Attempt, Error, Result};
use crate::graph::{Context, Operand, Params};
use crate::kernels::{KernelSpec, launch};
use crate::memory::{AllocationHandle, Buffer};
use crate::program::Type;
use crate::program::emit::{RowSchedule, emit_rows, kept_bytes, kept_in_memory};
use crate::program::rows::{RowProgram, SoundRows};
use crate::program::types::Compute;
use crate::tuning::rows::{RowProblem, schedule, vectors};

/// Runs a row program on operands of its inputs' kinds; the results are new dense buffers. Fails where the program is not sound, the device
/// cannot run it, or the operands are too small for it.
pub fn run_rows(cx: &Context, rows: &RowProgram, operands: &[Operand]) -> Attempt<Vec<Buffer>> {
    let sound = rows.check()?;
    if cx.caps().exponential_loops {
        return Err(
            Error::Unsupported(format!("{} takes minutes to build a kernel of several loops", cx.caps().name)).into()
        );
    }
    let program = &rows.program;
    for index in 0..program.inputs.len() + program.nodes.len() {
        program.type_of(index).check_program(cx.caps())?;
    }
    check_operands(rows, &sound, operands)?;
    let (outer, len) = (sound.layout.outputs(), sound.layout.reduced());
    let bytes = |(ty, of_element): (Type, bool)| {
        let elements = if of_element { program.elements() } else { outer };
        elements * ty.size()
    };
    let sizes: SmallVec<[u64; 4]> = rows.results(&sound).map(bytes).collect();
    let allocations = sizes.iter().map(|&bytes| cx.allocate(bytes)).collect::<Attempt<Vec<_>>>()?;
    if program.elements() == 0 {
        return Err(Error::Unsupported("rows without elements".into()).into());
    }
    let problem = RowProblem {
        rows: outer,
        len,
        vectors: vectors(rows, &sound, cx.caps()),
        kept: kept_bytes(rows, &sound, cx.caps()),
    };
    let kernel = RowKernel::new(rows, &sound, schedule(problem, cx.caps()), cx.caps());
    let kept = kernel.kept.iter().map(|(_, part)| cx.allocate(program.elements() * part.size()));
    let kept = kept.collect::<Attempt<Vec<_>>>()?;
    launch(cx, &kernel, &RowArgs { rows, sound: &sound, operands, results: &allocations, kept: &kept })?;
    Ok(allocations.into_iter().zip(sizes).map(|(allocation, bytes)| Buffer::new(bytes, allocation)).collect())
}

fn check_operands(rows: &RowProgram, sound: &SoundRows, operands: &[Operand]) -> Result<()> {
    let inputs = &rows.program.inputs;
    let sizes = inputs.iter().zip(operands).zip(&sound.layout.required_lengths);
    let mut fits = sizes.map(|((input, operand), length)| {
        length.checked_mul(input.ty.size()).is_some_and(|needed| needed <= operand.bytes().unwrap_or(0))
    });
    if operands.len() != inputs.len() || !fits.all(|fits| fits) {
        return Err(Error::SizeMismatch);
    }
    Ok(())
}

/// A row program's kernel, without what are parameters.
#[derive(Hash)]
struct RowKernel {
    rows: RowProgram,
    sound: SoundRows,
    schedule: RowSchedule,
    /// What is kept in the device's memory, by the values' indices in order.
    kept: Vec<(usize, Compute)>,
}

/// One launch of a [`RowKernel`].
struct RowArgs<'a> {
    rows: &'a RowProgram,
    sound: &'a SoundRows,
    operands: &'a [Operand<'a>],
    results: &'a [AllocationHandle],
    kept: &'a [AllocationHandle],
}

impl RowKernel {
    fn new(rows: &RowProgram, sound: &SoundRows, schedule: RowSchedule, caps: &Capabilities) -> Self {
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
        for (position, (result, (ty, _))) in args.results.iter().zip(args.rows.results(args.sound)).enumerate() {
            params.write(result, ty.storage(), ("result", position));
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
