//! Runs programs. This module checks a program against the device and its operands and launches its kernels; how these go through
//! the iteration space is `tuning::fusion`'s to choose, and what their text is `program::emit`'s.

mod epilogue;
#[cfg(test)]
mod golden;
mod kernel;
mod maps;
mod partial_sum;
mod prologue;
mod rows;

pub use maps::run_maps;
pub use partial_sum::PartialSum;
pub use prologue::RowSource;
pub use rows::{Row, run_rows};

use smallvec::SmallVec;

use super::launch;
use crate::error::{Attempt, Error, Result};
use crate::graph::{Context, Operand};
use crate::memory::{AllocationHandle, Buffer};
use crate::program::Program;
use crate::program::emit::{Accumulator, MAX_PARTS};
use crate::program::layout::Layout;
use crate::program::types::Compute;
use crate::tuning::fusion::{
    FusionLaunch, FusionStrategy, builds_in_seconds, choose, choose_with_prologue, reducing_groups, result_bytes,
    storing, sums_of_a_kernel,
};
pub use epilogue::{Destination, Epilogue, EpilogueLaunch, EpilogueResults};
use kernel::{FusionArgs, FusionKernel, Partials};
use prologue::PrologueArgs;

/// Runs a program on operands of its inputs' kinds; the result is a new dense buffer. Fails where the program is not sound, the
/// device cannot run it, or the operands are too small for it.
pub fn run(cx: &Context, program: &Program, operands: &[Operand]) -> Attempt<Buffer> {
    let layout = check(cx, program, operands, 0)?;
    let bytes = layout.outputs() * program.result().size();
    let out = cx.allocate(bytes)?;
    launch_passes(cx, program, &layout, operands, Destination::Buffer(&out), &[])?;
    Ok(Buffer::new(bytes, out))
}

/// Runs a program that ends with `count` sums of the same axes, and gives the results of all. Fails as [`run`] does.
pub fn run_sums(cx: &Context, program: &Program, count: usize, operands: &[Operand]) -> Attempt<Vec<Buffer>> {
    program.check_sums(count)?;
    check_types(cx, program)?;
    check_building(cx, [program])?;
    let layout = check_operands(program, operands, 0)?;
    let bytes = layout.outputs() * program.result().size();
    let mut results = vec![];
    for sums in program.reductions().chunks(sums_of_a_kernel(program, &layout, cx.caps())) {
        let outs = sums.iter().map(|_| cx.allocate(bytes)).collect::<Attempt<Vec<_>>>()?;
        if let [out, others @ ..] = &outs[..] {
            launch_passes(cx, &program.with_sums(sums), &layout, operands, Destination::Buffer(out), others)?;
        }
        results.extend(outs.into_iter().map(|out| Buffer::new(bytes, out)));
    }
    Ok(results)
}

/// Runs a program of at least one element that ends with a reduction, and an epilogue on its results in the same kernel.
pub fn run_with_epilogue(
    cx: &Context,
    program: &Program,
    operands: &[Operand],
    epilogue: &Epilogue,
) -> Attempt<EpilogueResults> {
    let mut layout = check(cx, program, operands, 0)?;
    layout.index64 |= epilogue.program.layout.index64;
    let groups = storing(program, &layout, cx.caps()).map_or(0, |launch| reducing_groups(&launch, false, cx.caps()));
    let launched = EpilogueLaunch::new(cx, epilogue, (groups, layout.index64))?;
    let _batch = cx.batch();
    launch_passes(cx, program, &layout, operands, Destination::Epilogue(&launched), &[])?;
    launched.finish(cx)
}

/// Runs a program of at least one element that ends with a reduction and reads a row as its input `input`, in the kernel that computes the row.
/// `operands` are those of the other inputs. Gives nothing where two kernels are faster.
pub fn run_with_prologue(
    cx: &Context,
    program: &Program,
    operands: &[Operand],
    (source, input): (RowSource, usize),
    epilogue: Option<&Epilogue>,
) -> Attempt<Option<EpilogueResults>> {
    let mut layout = check_program(cx, program)?;
    layout.index64 |= epilogue.is_some_and(|epilogue| epilogue.program.layout.index64);
    let reduction = epilogue.and_then(|epilogue| epilogue.program.reduction.as_ref());
    let (Some(one), Some(accumulator)) = (
        choose_with_prologue(program, &layout, reduction.is_some(), cx.caps()),
        Accumulator::of(program, &layout, cx.caps()),
    ) else {
        return Ok(None);
    };
    let results = reduction.map_or(0, |reduction| result_bytes(reduction, cx.caps()));
    let Some(shared) = one.shared_bytes(accumulator.bytes(), results) else { return Ok(None) };
    let Some(prologue) = source.prologue(&layout, (&one, shared), cx.caps()) else { return Ok(None) };
    let pass = |destination: Destination| {
        let epilogue = destination.epilogue(layout.index64);
        let kernel = FusionKernel::new(program, &layout, one.schedule, Some((input, prologue)), epilogue);
        let FusionLaunch { chunk, groups, .. } = one;
        let (prologue, layout) = (Some(PrologueArgs { source, input }), &layout);
        let (partials, others) = (None, &[][..]);
        launch(
            cx,
            &kernel,
            &FusionArgs { program, layout, operands, prologue, destination, others, partials, chunk, groups },
        )
    };
    if let Some(epilogue) = epilogue {
        let launched = EpilogueLaunch::new(cx, epilogue, (reducing_groups(&one, true, cx.caps()), layout.index64))?;
        pass(Destination::Epilogue(&launched))?;
        return launched.finish(cx).map(Some);
    }
    let bytes = layout.outputs() * program.result().size();
    let out = cx.allocate(bytes)?;
    pass(Destination::Buffer(&out))?;
    Ok(Some(Buffer::new(bytes, out).into()))
}

/// Runs a program with an output view into `out`, a buffer of `bytes` bytes.
pub fn run_into(
    cx: &Context,
    program: &Program,
    operands: &[Operand],
    (out, bytes): (&AllocationHandle, u64),
) -> Attempt<()> {
    let layout = check(cx, program, operands, bytes)?;
    launch_passes(cx, program, &layout, operands, Destination::Buffer(out), &[])
}

/// The layout of a program that can run on these operands, and with an output of `out_bytes`.
fn check(cx: &Context, program: &Program, operands: &[Operand], out_bytes: u64) -> Result<Layout> {
    check_program(cx, program)?;
    check_operands(program, operands, out_bytes)
}

/// The layout of a program that the device can run.
fn check_program(cx: &Context, program: &Program) -> Result<Layout> {
    program.check()?;
    check_types(cx, program)?;
    check_building(cx, [program])?;
    Layout::new(program)
}

fn check_operands(program: &Program, operands: &[Operand], out_bytes: u64) -> Result<Layout> {
    let layout = Layout::new(program)?;
    let sizes = program.inputs.iter().map(|input| input.ty.size()).chain([program.result().size()]);
    let bytes = operands.iter().map(|operand| operand.bytes().unwrap_or(0)).chain([out_bytes]);
    let required = layout.required_lengths.iter().zip(sizes).zip(bytes);
    let mut fits = required.map(|((&len, size), bytes)| len.checked_mul(size).is_some_and(|needed| needed <= bytes));
    if operands.len() != program.inputs.len() || !fits.all(|fits| fits) {
        return Err(Error::SizeMismatch);
    }
    Ok(layout)
}

/// Fails where the driver would take long to build a kernel of these programs.
fn check_building<'a>(cx: &Context, programs: impl IntoIterator<Item = &'a Program>) -> Result<()> {
    if builds_in_seconds(programs, cx.caps()) {
        return Ok(());
    }
    Err(Error::Unsupported(format!("{} takes minutes to build a kernel of many functions", cx.caps().name)))
}

/// Fails where the device lacks a type of the program.
fn check_types(cx: &Context, program: &Program) -> Result<()> {
    let mut values = 0..program.inputs.len() + program.nodes.len();
    values.try_for_each(|index| program.type_of(index).check_program(cx.caps()))
}

fn launch_passes(
    cx: &Context,
    program: &Program,
    layout: &Layout,
    operands: &[Operand],
    destination: Destination,
    others: &[AllocationHandle],
) -> Attempt<()> {
    if program.elements() == 0 {
        return Ok(());
    }
    let pass = |launched: &FusionLaunch, partials| {
        let kernel = FusionKernel::new(program, layout, launched.schedule, None, destination.epilogue(layout.index64));
        let FusionLaunch { chunk, groups, .. } = *launched;
        let prologue = None;
        launch(
            cx,
            &kernel,
            &FusionArgs { program, layout, operands, prologue, destination, others, partials, chunk, groups },
        )
    };
    match choose(program, layout, cx.caps()) {
        FusionStrategy::OnePass(one) => pass(&one, None),
        FusionStrategy::TwoPasses { partial, combining, chunks } => {
            let accumulator = Accumulator::of(program, layout, cx.caps());
            let parts = accumulator.map(|accumulator| accumulator.parts).unwrap_or_default();
            let allocation = |part: &Compute| cx.allocate(chunks * layout.outputs() * part.size());
            let allocations = parts.iter().map(allocation).collect::<Attempt<SmallVec<[_; MAX_PARTS]>>>()?;
            let partials = Some(Partials { parts: &parts, allocations: &allocations, chunks });
            let _batch = cx.batch();
            pass(&partial, partials)?;
            pass(&combining, partials)
        }
        FusionStrategy::ComputedFirst => {
            let Some([computing, reduction]) = program.computed_first() else { return Ok(()) };
            let computed = run(cx, &computing, operands)?;
            let (allocation, bytes) = (computed.allocation()?, computed.len());
            let operands = [Operand::Buffer(&allocation, bytes)];
            launch_passes(cx, &reduction, &check(cx, &reduction, &operands, 0)?, &operands, destination, others)
        }
    }
}
