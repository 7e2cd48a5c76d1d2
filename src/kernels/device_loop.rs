//! Loops that one workgroup runs. This module owns their kernel and its operands; what a loop is made of is `program::workgroup`'s, and how it
//! is spread over invocations and dispatches the choice of `tuning::device_loop`.
//!
//! A dispatch runs a bounded number of iterations and says whether the loop goes on. The next dispatch takes its results as operands.

use super::{KernelSpec, launch};
use crate::device::Capabilities;
use crate::error::{Attempt, Error, Result};
use crate::graph::{Context, Operand, Params};
use crate::memory::{AllocationHandle, Buffer};
use crate::program::emit::{WorkgroupSchedule, emit_loop, shared_bytes};
use crate::program::workgroup::{LoopStep, LoopSteps, WorkgroupLoop};
use crate::tuning::device_loop::{StepCost, fits, iterations, reduction_threads, threads};

/// Bytes that slots in scratch memory are aligned to.
const SLOT_ALIGNMENT: u64 = 16;

/// A loop that the device runs.
pub struct DeviceLoop {
    given: WorkgroupLoop,
    schedule: WorkgroupSchedule,
    /// What a dispatch that goes on costs: the steps of a condition and a body.
    costs: Vec<StepCost>,
}

impl DeviceLoop {
    /// Fails where the steps are not sound, where the device lacks a type, and where kernels that the host issues are faster.
    pub fn new(steps: LoopSteps, caps: &Capabilities) -> Result<Self> {
        let given = WorkgroupLoop::new(steps)?;
        given.check_types(caps)?;
        let cost = |step: &LoopStep| {
            let weight = |node: &crate::program::Node| match node.op.real.is_some_and(|formula| formula.compute_bound) {
                true => 8,
                false => 1,
            };
            let complex = if step.program.has_compute_bound_complex() { 64 } else { 0 };
            let operations = step.program.nodes.iter().map(weight).sum::<u64>() + complex;
            StepCost { elements: step.elements(), operations }
        };
        let all: Vec<StepCost> = given.steps.all().map(cost).collect();
        if !fits(&all, caps) {
            return Err(Error::Unsupported("a loop of many elements or operations".into()));
        }
        let threads = threads(&all, shared_bytes(&given, caps), caps);
        let shared = |step: &LoopStep| match step.program.reduced_axes() {
            Some(_) => reduction_threads(step.layout.outputs(), step.layout.reduced(), threads),
            None => 1,
        };
        let schedule = WorkgroupSchedule { threads, reduction_threads: given.steps.all().map(shared).collect() };
        let costs = given.steps.condition.iter().chain(&given.steps.body).map(cost).collect();
        Ok(Self { given, schedule, costs })
    }

    /// The most iterations that the dispatch of that index makes.
    pub fn iterations(&self, dispatch: u64, caps: &Capabilities) -> u64 {
        iterations(&self.costs, self.schedule.threads, dispatch, caps)
    }

    /// Runs that many iterations at most. Operands that are values have 16 bytes. The first result is one word, 0 where the loop has ended.
    pub fn run(&self, cx: &Context, operands: &[Operand], iterations: u64) -> Attempt<Vec<Buffer>> {
        let LoopSteps { operands: count, results, .. } = self.given.steps;
        let fits = |(operand, &bytes): (&Operand, &u64)| operand.bytes().unwrap_or(16) >= bytes;
        if operands.len() != count || !operands.iter().zip(&self.given.slot_bytes).all(fits) {
            return Err(Error::SizeMismatch.into());
        }
        let values: Vec<bool> = operands.iter().map(|operand| operand.allocation().is_none()).collect();
        let mut bytes = 0;
        let offsets = self.given.slot_bytes.iter().enumerate().map(|(slot, &own)| {
            let start = bytes;
            let in_scratch = slot >= count + results || values.get(slot) == Some(&true);
            bytes += if in_scratch { own.max(SLOT_ALIGNMENT).next_multiple_of(SLOT_ALIGNMENT) } else { 0 };
            start
        });
        let offsets: Vec<u64> = offsets.collect();
        let allocate = |bytes: &u64| Ok((cx.allocate(*bytes)?, *bytes));
        let allocated =
            self.given.slot_bytes[count..count + results].iter().map(allocate).collect::<Attempt<Vec<_>>>()?;
        let (scratch, unfinished) = (cx.allocate(bytes.max(SLOT_ALIGNMENT))?, cx.allocate(4)?);
        let kernel = LoopKernel { given: &self.given, schedule: &self.schedule, values };
        let results = &allocated;
        let args =
            LoopArgs { operands, results, scratch: &scratch, offsets: &offsets, unfinished: &unfinished, iterations };
        launch(cx, &kernel, &args)?;
        let results = allocated.into_iter().map(|(allocation, bytes)| Buffer::new(bytes, allocation));
        Ok([Buffer::new(4, unfinished)].into_iter().chain(results).collect())
    }
}

/// The kernel of a loop. All of the loop is constant but the operands that are values.
#[derive(Hash)]
struct LoopKernel<'l> {
    given: &'l WorkgroupLoop,
    schedule: &'l WorkgroupSchedule,
    /// Of each operand, whether it is a value and no buffer.
    values: Vec<bool>,
}

/// One launch of a [`LoopKernel`].
struct LoopArgs<'a> {
    operands: &'a [Operand<'a>],
    results: &'a [(AllocationHandle, u64)],
    scratch: &'a AllocationHandle,
    /// Where each slot in scratch memory starts.
    offsets: &'a [u64],
    unfinished: &'a AllocationHandle,
    iterations: u64,
}

impl KernelSpec for LoopKernel<'_> {
    type Args<'a> = LoopArgs<'a>;

    fn source(&self, caps: &Capabilities, parameters: &str) -> String {
        emit_loop(self.given, self.schedule, &self.values, parameters, caps)
    }

    fn params<'a>(&self, args: &LoopArgs<'a>, params: &mut Params<'a>) {
        for (slot, &offset) in args.offsets.iter().enumerate() {
            let result = slot.checked_sub(args.operands.len()).and_then(|result| args.results.get(result));
            match (args.operands.get(slot), result) {
                (Some(Operand::Buffer(allocation, _)), _) => params.read(allocation, "uint", ("slot", slot)),
                (_, Some((allocation, _))) => params.write(allocation, "uint", ("slot", slot)),
                _ => params.write_at(args.scratch, offset, "uint", ("slot", slot)),
            }
        }
        for (slot, operand) in args.operands.iter().enumerate() {
            if let Operand::Scalar { index, value } = operand {
                params.scalar(*index, value, ("value", slot));
            }
        }
        params.write(args.unfinished, "uint", "unfinished");
        params.extent(args.iterations, false, "iterations");
    }

    fn groups(&self, _args: &LoopArgs) -> u64 {
        1
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::{env, fs};

    use smallvec::SmallVec;

    use super::*;
    use crate::program::workgroup::StepInput;
    use crate::program::{Attribute, Axes, Input, Node, OutputView, Program, Source, Type, dense_strides, op};
    use crate::tuning::devices::{h200, lavapipe, packs_elements};

    fn dense(ty: Type, shape: &[u64]) -> Input {
        Input { ty, source: Source::View { offset: 0, strides: dense_strides(shape) } }
    }

    fn node(name: &str, ty: Type, args: &[usize], attribute: Attribute) -> Node {
        Node { op: op::find(name).unwrap(), ty, args: args.into(), attribute }
    }

    fn program(shape: &[u64], inputs: &[Input], nodes: &[Node], output: Option<OutputView>) -> Program {
        Program { inputs: inputs.into(), nodes: nodes.into(), shape: shape.into(), output }
    }

    fn copy(ty: Type, shape: &[u64], from: usize, to: usize) -> LoopStep {
        let nodes = [node("as_type", ty, &[0], Attribute::None)];
        LoopStep::new(program(shape, &[dense(ty, shape)], &nodes, None), vec![StepInput::Slot(from)], to, &[]).unwrap()
    }

    /// x is halved, and its second half copied to the first, while its sum is more than 1.
    fn halving() -> LoopSteps {
        use Type::{F32, U8};
        let [x, result, state, sum, predicate, halved] = [0, 1, 2, 3, 4, 5];
        let shape = [100];
        let slots = |slots: &[usize]| slots.iter().map(|&slot| StepInput::Slot(slot)).collect::<Vec<_>>();
        let axes = Attribute::Axes(Axes::from_slice(&[0]));
        let summed = program(&shape, &[dense(F32, &shape)], &[node("sum", F32, &[0], axes)], None);
        let scalar = Input { ty: F32, source: Source::Scalar };
        let value = |number: f32| {
            let mut value = [0; 16];
            value[..4].copy_from_slice(&number.to_ne_bytes());
            StepInput::Value(value)
        };
        let greater = [node("greater", U8, &[0, 1], Attribute::None)];
        let greater = program(&[], &[dense(F32, &[]), scalar.clone()], &greater, None);
        let half = [node("multiply", F32, &[0, 1], Attribute::None)];
        let half = program(&shape, &[dense(F32, &shape), scalar], &half, None);
        let moved = Input { ty: F32, source: Source::View { offset: 50, strides: Axes::from_slice(&[1]) } };
        let view = OutputView { offset: 0, strides: Axes::from_slice(&[1]), dynamic_offsets: SmallVec::new() };
        let nodes = [node("as_type", F32, &[0], Attribute::None)];
        let moved = program(&[50], &[moved], &nodes, Some(view));
        LoopSteps {
            setup: vec![copy(F32, &shape, x, state)],
            condition: vec![
                LoopStep::new(summed, slots(&[state]), sum, &[]).unwrap(),
                LoopStep::new(greater, vec![StepInput::Slot(sum), value(1.0)], predicate, &[]).unwrap(),
            ],
            body: vec![
                LoopStep::new(half, vec![StepInput::Slot(state), value(0.5)], halved, &[]).unwrap(),
                LoopStep::new(moved, slots(&[state]), halved, &shape).unwrap(),
            ],
            finish: vec![copy(F32, &shape, state, result)],
            swaps: vec![(state, halved)],
            predicate,
            predicate_type: U8,
            operands: 1,
            results: 1,
        }
    }

    #[test]
    fn kernels_are_those_of_the_golden_files() {
        if !packs_elements() {
            return println!("left out: in this process each narrow element has a word");
        }
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("native_tests/golden_loops");
        for (device, caps) in [("h200", h200()), ("lavapipe", lavapipe())] {
            let DeviceLoop { given, schedule, .. } = DeviceLoop::new(halving(), &caps).unwrap();
            let text = emit_loop(&given, &schedule, &[false], "// parameters\n", &caps);
            let (_, text) = text.split_once("// parameters\n").unwrap();
            let file = folder.join(format!("halving.{device}.glsl"));
            if env::var("NX_VULKAN_GOLDEN").is_ok_and(|value| value == "write") {
                fs::create_dir_all(&folder).unwrap();
                fs::write(&file, text).unwrap();
            }
            let expected = fs::read_to_string(&file).unwrap_or_default();
            assert!(expected == text, "NX_VULKAN_GOLDEN=write rewrites {}\n{text}", file.display());
        }
    }

    #[test]
    fn loops_are_refused_where_their_slots_are_not_theirs() {
        let refused = |change: &dyn Fn(&mut LoopSteps)| {
            let mut steps = halving();
            change(&mut steps);
            DeviceLoop::new(steps, &h200()).is_err()
        };
        assert!(!refused(&|_| {}));
        // An operand is written, and so is one that was a result.
        assert!(refused(&|steps| steps.finish[0].slot = 0));
        assert!(refused(&|steps| steps.operands = 3));
        // Slots of different sizes change places, or some that are not scratch.
        assert!(refused(&|steps| steps.swaps = vec![(2, 3)]));
        assert!(refused(&|steps| steps.swaps = vec![(0, 2)]));
        // What is read was never written.
        assert!(refused(&|steps| steps.condition[1].inputs[0] = StepInput::Slot(7)));
        assert!(refused(&|steps| steps.predicate = 9));
        // More elements than one workgroup should compute.
        assert!(refused(&|steps| steps.setup.push(copy(Type::F32, &[1 << 20], 0, 8))));
    }
}
