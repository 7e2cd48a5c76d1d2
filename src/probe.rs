//! What the probe process does: it runs a small kernel of the engine's own for each feature that a device claims, so that a fault of the
//! driver ends this process and not a user's. This module runs kernels and prints what came of them; `device::probe_process` starts the
//! process and decides what follows from it. Started with another argument, it is the process that optimises users' SPIR-V
//! (`pipeline::spirv`), where an optimizer's fault ends no user's process either.

use std::io::Write as _;
use std::ops::Add;
use std::path::Path;
use std::process::exit;
use std::sync::Arc;
use std::thread;

use bytemuck::Pod;
use smallvec::smallvec;

use crate::device::{
    Capabilities, DEVICE, DisabledFeatures, SUPERVISE, TRY, TRY_AT_ONCE, Verdict, beginning, built, end, line,
    supervise,
};
use crate::error::{Attempt, Error, Unfinished};
use crate::gpu::{self, Gpu};
use crate::graph::{Context, Operand};
use crate::kernels::attention::{Attention, AttentionAxis};
use crate::kernels::contraction::OperandView;
use crate::kernels::dot::{self, Factor};
use crate::kernels::{Tensor, fusion};
use crate::memory::{Allocation, Blocking, Buffer, MemoryKind};
use crate::pipeline::spirv::{OPTIMISE, OPTIMISE_CONFINED, optimise_main, supervise_optimiser};
use crate::pipeline::{Pipeline, PipelineCreateInfo, glsl};
use crate::program::{Attribute, Input, Node, Program, Source, Type, op};
use crate::stream::{Binding, Dispatch, DispatchPredicate};
use crate::tuning::has_matrices;

/// A kernel that needs a feature.
struct Step {
    /// The feature's name for `NX_VULKAN_DISABLE`, or [`DEVICE`] for what every device must have.
    name: &'static str,
    /// Whether the device claims the feature.
    claimed: fn(&Capabilities) -> bool,
    kernel: TriedKernel,
}

/// What runs for a feature, and tells whether its result is right.
#[derive(Clone, Copy, PartialEq)]
enum TriedKernel {
    /// Adds vectors of 32-bit floats. It uses subnormals and, on CPU devices, subgroups where they are there, and no other feature.
    AddsF32,
    AddsS64,
    AddsF64,
    AddsU8,
    AddsS16,
    /// Adds 1 to words that a descriptor gives.
    Counts,
    /// Does so under predicates.
    Predicates,
    /// Multiplies matrices of each type that cooperative matrices have.
    Multiplies,
    /// Computes attention in each of these types.
    Attends,
    /// Sums a vector.
    Sums,
}

impl TriedKernel {
    fn is_right(self, gpu: &Gpu) -> Attempt<bool> {
        let cx = &Context::new(gpu, Blocking::Allowed);
        match self {
            Self::AddsF32 => adds::<f32>(cx, Type::F32),
            Self::AddsS64 => adds::<i64>(cx, Type::S64),
            Self::AddsF64 => adds::<f64>(cx, Type::F64),
            Self::AddsU8 => adds::<u8>(cx, Type::U8),
            Self::AddsS16 => adds::<i16>(cx, Type::S16),
            Self::Counts => counts(cx),
            Self::Predicates => predicates(cx),
            Self::Multiplies => multiplies(cx),
            Self::Attends => attends(cx),
            Self::Sums => sums(cx),
        }
    }
}

/// The steps in their order: what is refused first is what the kernels of 32-bit floats can do without.
const STEPS: [Step; 12] = [
    Step { name: "denorm_preserve", claimed: |caps| caps.denorm_preserve, kernel: TriedKernel::AddsF32 },
    Step { name: "subgroup", claimed: |caps| caps.subgroup > 0, kernel: TriedKernel::AddsF32 },
    Step { name: DEVICE, claimed: |_| true, kernel: TriedKernel::AddsF32 },
    Step { name: "int64", claimed: |caps| caps.int64, kernel: TriedKernel::AddsS64 },
    Step { name: "float64", claimed: |caps| caps.float64, kernel: TriedKernel::AddsF64 },
    Step { name: "int8", claimed: |caps| caps.int8, kernel: TriedKernel::AddsU8 },
    Step { name: "int16", claimed: |caps| caps.int16, kernel: TriedKernel::AddsS16 },
    Step { name: "push_descriptor", claimed: |caps| caps.push_descriptor, kernel: TriedKernel::Counts },
    Step { name: "conditional_rendering", claimed: |caps| caps.conditional_rendering, kernel: TriedKernel::Predicates },
    Step {
        name: "cooperative_matrix",
        claimed: |caps| caps.matrices.float16 || caps.matrices.bfloat16,
        kernel: TriedKernel::Multiplies,
    },
    Step { name: "cooperative_matrix2", claimed: |caps| caps.matrices.operations, kernel: TriedKernel::Attends },
    Step { name: DEVICE, claimed: |_| true, kernel: TriedKernel::Sums },
];

/// Prints what it finds and ends the process. Its arguments say whether it is the one that tries the device, or the one that starts those.
pub fn main() -> ! {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [SUPERVISE, executable, wanted] => {
            if let Some(findings) = supervise(Path::new(executable), wanted, say) {
                findings.text().lines().for_each(say);
                say(&end());
            }
            exit(0)
        }
        [OPTIMISE, executable] => {
            supervise_optimiser(Path::new(executable));
            exit(0)
        }
        [OPTIMISE_CONFINED] => {
            optimise_main();
            exit(0)
        }
        [TRY_AT_ONCE, wanted, without] => try_at_once(open(wanted, without)),
        [TRY, wanted, without] => try_one_after_the_other(open(wanted, without)),
        _ => exit(0),
    }
}

/// The device that is wanted without the features that are named.
fn open(wanted: &str, without: &str) -> &'static Gpu {
    say(&beginning(DEVICE));
    let Ok(disabled) = DisabledFeatures::parse(without) else { exit(0) };
    // An error that the driver reports, it reports to the user's process, too.
    gpu::open_untried(wanted, disabled, || say(&built()), &ask).unwrap_or_else(|_| exit(0))
}

fn claimed(gpu: &Gpu) -> impl Iterator<Item = &'static Step> {
    STEPS.iter().filter(|step| (step.claimed)(&gpu.caps))
}

/// Tries all features at once. Where one does not work, the process ends without a word on any.
fn try_at_once(gpu: &'static Gpu) -> ! {
    let mut kernels: Vec<TriedKernel> = vec![];
    for step in claimed(gpu) {
        say(&beginning(step.name));
        if !kernels.contains(&step.kernel) {
            kernels.push(step.kernel);
        }
    }
    let threads: Vec<_> = kernels.into_iter().map(|kernel| thread::spawn(move || kernel.is_right(gpu))).collect();
    if threads.into_iter().all(|thread| matches!(thread.join(), Ok(Ok(true)))) {
        claimed(gpu).for_each(|step| say(&line(step.name, &Verdict::Works)));
        say(&end());
    }
    exit(0)
}

/// Tries each feature after the last one has worked.
fn try_one_after_the_other(gpu: &Gpu) -> ! {
    for step in claimed(gpu) {
        say(&beginning(step.name));
        match step.kernel.is_right(gpu) {
            Ok(true) => say(&line(step.name, &Verdict::Works)),
            Ok(false) => refuse(step.name, "its kernel's result is wrong"),
            // Memory is short on this machine now: that says nothing of the driver.
            Err(Unfinished::Failed(Error::OutOfMemory(_)) | Unfinished::Retry(_)) => exit(0),
            Err(Unfinished::Failed(error)) => refuse(step.name, &error.to_string()),
        }
    }
    say(&end());
    exit(0)
}

/// Says whether a kernel finds a feature.
fn ask(name: &str, probe: &dyn Fn() -> bool) -> bool {
    say(&beginning(name));
    let found = probe();
    say(&line(name, if found { &Verdict::Works } else { &Verdict::Absent }));
    found
}

fn say(line: &str) {
    let mut output = std::io::stdout().lock();
    // Without a reader there is nothing to find out.
    if writeln!(output, "{line}").and_then(|()| output.flush()).is_err() {
        exit(0);
    }
}

/// Ends the process: what failed may have taken the device along.
fn refuse(name: &str, reason: &str) -> ! {
    say(&line(name, &Verdict::Refused(reason.to_owned())));
    exit(1)
}

/// Elements of the vectors. Their sums fit every type that is tried.
const ELEMENTS: u8 = 100;

/// Adds two vectors of the numbers from 0 on.
fn adds<T: Pod + From<u8> + Add<Output = T> + PartialEq>(cx: &Context, ty: Type) -> Attempt<bool> {
    let numbers: Vec<T> = (0..ELEMENTS).map(T::from).collect();
    let sums: Vec<T> = numbers.iter().map(|&number| number + number).collect();
    let operand = upload(cx, &numbers)?;
    let result = compute(cx, ("add", ty, Attribute::None), &[&operand, &operand])?;
    Ok(read::<T>(cx, &result)? == sums)
}

/// Sums a vector that several threads share.
fn sums(cx: &Context) -> Attempt<bool> {
    let ones = upload(cx, &[1_f32; 5000])?;
    let axes = Attribute::Axes(smallvec![0]);
    Ok(read::<f32>(cx, &compute(cx, ("sum", Type::F32, axes), &[&ones])?)? == [5000.0])
}

/// One node over vectors of one type.
fn compute(cx: &Context, (name, ty, attribute): (&str, Type, Attribute), operands: &[&Buffer]) -> Attempt<Buffer> {
    let op = op::find(name).ok_or_else(|| Error::Invalid(format!("there is no operation {name}")))?;
    let view = Input { ty, source: Source::View { offset: 0, strides: smallvec![1] } };
    let elements = operands.first().map_or(0, |operand| operand.len() / ty.size());
    let program = Program {
        inputs: operands.iter().map(|_| view.clone()).collect(),
        nodes: smallvec![Node { op, ty, args: (0..operands.len()).collect(), attribute }],
        shape: smallvec![elements],
        output: None,
    };
    let allocations = operands.iter().map(|operand| operand.allocation()).collect::<Result<Vec<_>, _>>()?;
    let operand = |(allocation, operand): (_, &&Buffer)| Operand::Buffer(allocation, operand.len());
    let operands: Vec<_> = allocations.iter().zip(operands).map(operand).collect();
    fusion::run(cx, &program, &operands)
}

/// A kernel with a descriptor, as user SPIR-V has them.
const COUNTING: &str = "#version 460\n\
    layout(local_size_x = 64) in;\n\
    layout(set = 0, binding = 0) buffer Words { uint v[]; };\n\
    void main() { v[gl_GlobalInvocationID.x] += 1u; }\n";

/// Adds 1 to each word of a buffer.
fn counts(cx: &Context) -> Attempt<bool> {
    counts_under(cx, &[None])
}

/// Adds 1 to each word of a buffer under a predicate that is true, and under one that is not.
fn predicates(cx: &Context) -> Attempt<bool> {
    let gpu = cx.uncaptured();
    let words = gpu.allocate(MemoryKind::Predicates, 8, Blocking::Allowed)?;
    gpu.stream.update(&words, bytemuck::cast_slice(&[0_u32, 1]))?;
    counts_under(cx, &[0, 4].map(|offset| Some(DispatchPredicate { allocation: &words, offset })))
}

/// Adds 1 to each word of a buffer under each of the predicates, one of which is true.
fn counts_under(cx: &Context, predicates: &[Option<DispatchPredicate>]) -> Attempt<bool> {
    let gpu = cx.uncaptured();
    let info = PipelineCreateInfo { name: "probe", push_bytes: 0, bindings: 1, entry_point: "main" };
    let pipeline = Arc::new(Pipeline::build_now(&gpu.device, &glsl::compile(COUNTING)?, &info, &[])?.0);
    let buffer = gpu.zeroed(256, Blocking::Allowed)?;
    let allocation = buffer.allocation()?;
    let bindings = [Binding { allocation: &allocation, offset: 0, range: 256 }];
    let writes: [&Allocation; 1] = [&allocation];
    for &predicate in predicates {
        gpu.stream.dispatch(&Dispatch {
            pipeline: &pipeline,
            push: &[],
            groups: [1; 3],
            reads: &[],
            writes: &writes,
            bindings: &bindings,
            check: None,
            predicate,
            operations: 0,
        })?;
    }
    Ok(read::<u32>(cx, &buffer)? == [1; 64])
}

/// The types that cooperative matrices have, with one and 128 in them.
fn matrix_types(cx: &Context) -> impl Iterator<Item = (Type, u16, u16)> {
    let types = [(Type::F16, 0x3C00, 0x5800), (Type::BF16, 0x3F80, 0x4300)];
    types.into_iter().filter(|&(ty, ..)| has_matrices(cx.caps(), ty))
}

/// Computes attention of ones.
fn attends(cx: &Context) -> Attempt<bool> {
    const SIDE: i64 = 64;
    for (ty, one, _) in matrix_types(cx) {
        let ones = upload(cx, &[one; (SIDE * SIDE) as usize])?;
        let axis = |strides| AttentionAxis { dim: SIDE as u64, strides };
        let attention = Attention {
            ty,
            operands: [0; 3].map(|offset| OperandView { buffer: &ones, ty, offset }),
            batch: vec![],
            rows: vec![axis([SIDE, 0, 0, SIDE])],
            depth: axis([1, 1, 0, 0]),
            keys: axis([0, SIDE, SIDE, 0]),
            columns: axis([0, 0, 1, 1]),
            programs: [None, None],
            updates: [None, None],
        };
        if read::<u16>(cx, &attention.run(cx)?[0])?.iter().any(|&element| element != one) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Multiplies matrices of ones of each type that cooperative matrices have.
fn multiplies(cx: &Context) -> Attempt<bool> {
    const SIDE: u64 = 128;
    for (ty, one, sum) in matrix_types(cx) {
        let ones = upload(cx, &[one; (SIDE * SIDE) as usize])?;
        let tensor = Tensor { buffer: &ones, ty, shape: &[SIDE, SIDE] };
        let factor = |axis| Factor { tensor, contract: smallvec![axis], batch: smallvec![] };
        let product = dot::contraction(ty, &factor(1), &factor(0))?.run(cx, None)?.result;
        if read::<u16>(cx, &product)?.iter().any(|&element| element != sum) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn upload<T: Pod>(cx: &Context, elements: &[T]) -> Attempt<Buffer> {
    cx.uncaptured().upload(bytemuck::cast_slice(elements), Blocking::Allowed)
}

fn read<T: Pod>(cx: &Context, buffer: &Buffer) -> Attempt<Vec<T>> {
    Ok(bytemuck::allocation::pod_collect_to_vec(cx.uncaptured().read(buffer, 0, buffer.len())?.bytes()))
}
