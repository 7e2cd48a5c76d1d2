//! Loops and branches that one workgroup runs. This module owns their kernel and its operands; what a program is made of is
//! `program::workgroup`'s, and how it is spread over invocations and dispatches the choice of `tuning::device_loop`.
//!
//! A dispatch runs a bounded number of iterations and says whether the program goes on. The next dispatch takes its state.

use std::sync::Arc;

use super::{KernelSpec, launch};
use crate::device::Capabilities;
use crate::error::{Attempt, Error, Result};
use crate::graph::{Context, Operand, Params};
use crate::memory::{AllocationHandle, Buffer};
use crate::program::emit::{WorkgroupSchedule, check_number, emit_program, shared_bytes};
use crate::program::workgroup::{LoopStep, Statement, Statements, WorkgroupProgram, all_statements};
use crate::tuning::device_loop::{StepCost, conditions, fits, reduction_threads, threads};

/// What a program that has not ended goes on from: its scratch memory, with the places of its slots.
#[derive(Clone)]
pub struct LoopState {
    scratch: Arc<AllocationHandle>,
    /// Of each operand, whether it is a value and no buffer.
    values: Vec<bool>,
}

/// A program that the device runs.
pub struct DeviceLoop {
    program: WorkgroupProgram,
    schedule: WorkgroupSchedule,
    /// For each loop what its condition and its body cost, without the loops within.
    costs: Vec<Vec<StepCost>>,
}

impl DeviceLoop {
    /// Fails where the statements are not sound, where the device lacks a type, and where kernels that the host issues are faster.
    pub fn new(given: Statements, caps: &Capabilities) -> Result<Self> {
        let program = WorkgroupProgram::new(given)?;
        program.check_types(caps)?;
        let all: Vec<StepCost> = program.given.steps().map(cost).collect();
        if !fits(&all, caps) {
            return Err(Error::Unsupported("a loop of many elements or operations".into()));
        }
        let threads = threads(&all, shared_bytes(&program, caps), caps);
        let shared = |step: &LoopStep| match step.program.reduced_axes() {
            Some(_) => reduction_threads(step.layout.outputs(), step.layout.reduced(), threads),
            None => 1,
        };
        let schedule = WorkgroupSchedule { threads, reduction_threads: program.given.steps().map(shared).collect() };
        let costs = all_statements(&program.given.list).into_iter().filter_map(loop_costs).collect();
        Ok(Self { program, schedule, costs })
    }

    /// Runs the dispatch of index `dispatch` and, where `bound` says how often the program evaluates conditions at most, those that follow.
    /// Operands that are values have 16 bytes. The first result is one word, 0 where the program has ended; `state` is that of the dispatch before.
    pub fn run(
        &self,
        cx: &Context,
        operands: &[Operand],
        state: Option<&LoopState>,
        (dispatch, bound): (u64, Option<u64>),
    ) -> Attempt<(LoopState, Vec<Buffer>)> {
        let Statements { operands: count, results, .. } = self.program.given;
        let slot_bytes = &self.program.slot_bytes;
        let fits = |(operand, &bytes): (&Operand, &u64)| operand.bytes().unwrap_or(16) >= bytes;
        if operands.len() != count || !operands.iter().zip(slot_bytes).all(fits) {
            return Err(Error::SizeMismatch.into());
        }
        let values: Vec<bool> = operands.iter().map(|operand| operand.allocation().is_none()).collect();
        let mut resumed = state.is_some();
        let state = match state {
            Some(state) if state.values != values => return Err(Error::SizeMismatch.into()),
            Some(state) => state.clone(),
            None => LoopState { scratch: Arc::new(cx.allocate(self.program.scratch(&values).1)?), values },
        };
        let allocate = |bytes: &u64| Ok((cx.allocate(*bytes)?, *bytes));
        let results = slot_bytes[count..count + results].iter().map(allocate).collect::<Attempt<Vec<_>>>()?;
        let unfinished = cx.allocate(4)?;
        let kernel = LoopKernel { program: &self.program, schedule: &self.schedule, values: &state.values };
        let mut left = bound.unwrap_or(0);
        for dispatch in dispatch.. {
            let conditions = self.conditions(dispatch, cx.caps());
            let args = LoopArgs {
                program: &self.program,
                operands,
                results: &results,
                scratch: &state.scratch,
                unfinished: &unfinished,
                resumed,
                conditions,
            };
            launch(cx, &kernel, &args)?;
            resumed = true;
            left = left.saturating_sub(conditions);
            if left == 0 {
                break;
            }
        }
        let results = results.into_iter().map(|(allocation, bytes)| Buffer::new(bytes, allocation));
        let results = [Buffer::new(4, unfinished)].into_iter().chain(results).collect();
        Ok((state, results))
    }

    /// How often the dispatch of that index evaluates conditions at most.
    fn conditions(&self, dispatch: u64, caps: &Capabilities) -> u64 {
        let conditions = |costs: &Vec<StepCost>| conditions(costs, self.schedule.threads, dispatch, caps);
        self.costs.iter().map(conditions).min().unwrap_or(1)
    }
}

fn cost(step: &LoopStep) -> StepCost {
    let weight = |node: &crate::program::Node| match node.op.real.is_some_and(|formula| formula.compute_bound) {
        true => 8,
        false => 1,
    };
    let complex = if step.program.has_compute_bound_complex() { 64 } else { 0 };
    let operations = step.program.nodes.iter().map(weight).sum::<u64>() + complex;
    StepCost { elements: step.elements(), operations }
}

/// What the steps of a loop cost that are in no loop within; of branches, all.
fn loop_costs(statement: &Statement) -> Option<Vec<StepCost>> {
    let Statement::While(own) = statement else { return None };
    let mut costs = vec![];
    let mut rest: Vec<&Statement> = own.condition.iter().chain(&own.body).collect();
    while let Some(statement) = rest.pop() {
        match statement {
            Statement::Step(step) => costs.push(cost(step)),
            Statement::Branch(branch) => rest.extend(branch.then.iter().chain(&branch.otherwise)),
            Statement::While(_) => {}
        }
    }
    Some(costs)
}

/// The kernel of a program. All of it is constant but the operands that are values.
#[derive(Hash)]
struct LoopKernel<'l> {
    program: &'l WorkgroupProgram,
    schedule: &'l WorkgroupSchedule,
    /// Of each operand, whether it is a value and no buffer.
    values: &'l [bool],
}

/// One launch of a [`LoopKernel`].
struct LoopArgs<'a> {
    /// The kernel's program, with the checks of its indices.
    program: &'a WorkgroupProgram,
    operands: &'a [Operand<'a>],
    results: &'a [(AllocationHandle, u64)],
    scratch: &'a AllocationHandle,
    unfinished: &'a AllocationHandle,
    /// Whether the program goes on from the state in scratch memory.
    resumed: bool,
    conditions: u64,
}

impl KernelSpec for LoopKernel<'_> {
    type Args<'a> = LoopArgs<'a>;

    fn source(&self, caps: &Capabilities, parameters: &str) -> String {
        emit_program(self.program, self.schedule, self.values, parameters, caps)
    }

    fn params<'a>(&self, args: &LoopArgs<'a>, params: &mut Params<'a>) {
        for (slot, operand) in args.operands.iter().enumerate() {
            match operand {
                Operand::Buffer(allocation, _) => params.read(allocation, "uint", ("slot", slot)),
                Operand::Scalar { index, value } => params.scalar(*index, value, ("value", slot)),
            }
        }
        for (result, (allocation, _)) in args.results.iter().enumerate() {
            params.write(allocation, "uint", ("slot", args.operands.len() + result));
        }
        match args.resumed {
            true => params.update(args.scratch, "uint", "scratch"),
            false => params.write(args.scratch, "uint", "scratch"),
        }
        for (number, step) in args.program.given.steps().enumerate() {
            for (node, check) in step.checks() {
                params.check(check, ("checkv", check_number(number, node)));
            }
        }
        params.write(args.unfinished, "uint", "unfinished");
        params.extent(args.conditions, false, "conditions");
        params.extent(args.resumed.into(), false, "resumed");
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
    use crate::program::workgroup::{BranchStatement, Predicate, StepInput, WhileStatement};
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
    fn halving() -> Statements {
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
        let copied = Statement::Step(Box::new(copy(F32, &shape, x, state)));
        let inner = WhileStatement {
            condition: [
                LoopStep::new(summed, slots(&[state]), sum, &[]).unwrap(),
                LoopStep::new(greater, vec![StepInput::Slot(sum), value(1.0)], predicate, &[]).unwrap(),
            ]
            .map(|step| Statement::Step(Box::new(step)))
            .into(),
            predicate: Predicate { slot: predicate, ty: U8 },
            body: [
                LoopStep::new(half, vec![StepInput::Slot(state), value(0.5)], halved, &[]).unwrap(),
                LoopStep::new(moved, slots(&[state]), halved, &shape).unwrap(),
            ]
            .map(|step| Statement::Step(Box::new(step)))
            .into(),
            swaps: vec![(state, halved)],
        };
        Statements {
            list: vec![copied, Statement::While(inner)],
            finish: vec![copy(F32, &shape, state, result)],
            operands: 1,
            results: 1,
        }
    }

    /// The loop of [`halving`], or none, in a loop that its predicate would not let end.
    fn nested() -> Statements {
        let Statements { list, finish, .. } = halving();
        let (copied, inner) = (list[0].clone(), list[1].clone());
        let Statement::While(own) = inner.clone() else { return halving() };
        let branch = BranchStatement { predicate: own.predicate, then: vec![copied.clone(), inner], otherwise: vec![] };
        let body = vec![copied.clone(), Statement::Branch(branch)];
        let outer = WhileStatement { condition: own.condition, predicate: own.predicate, body, swaps: vec![] };
        Statements { list: vec![copied, Statement::While(outer)], finish, operands: 1, results: 1 }
    }

    #[test]
    fn kernels_are_those_of_the_golden_files() {
        if !packs_elements() {
            return println!("left out: in this process each narrow element has a word");
        }
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("native_tests/golden_loops");
        for (device, caps) in [("h200", h200()), ("lavapipe", lavapipe())] {
            for (name, given) in [("halving", halving()), ("nested", nested())] {
                let DeviceLoop { program, schedule, .. } = DeviceLoop::new(given, &caps).unwrap();
                let text = emit_program(&program, &schedule, &[false], "// parameters\n", &caps);
                let (_, text) = text.split_once("// parameters\n").unwrap();
                let file = folder.join(format!("{name}.{device}.glsl"));
                if env::var("NX_VULKAN_GOLDEN").is_ok_and(|value| value == "write") {
                    fs::create_dir_all(&folder).unwrap();
                    fs::write(&file, text).unwrap();
                }
                let expected = fs::read_to_string(&file).unwrap_or_default();
                assert!(expected == text, "NX_VULKAN_GOLDEN=write rewrites {}\n{text}", file.display());
            }
        }
    }

    #[test]
    fn loops_are_refused_where_their_slots_are_not_theirs() {
        let refused = |change: &dyn Fn(&mut Statements)| {
            let mut steps = halving();
            change(&mut steps);
            DeviceLoop::new(steps, &h200()).is_err()
        };
        let in_loop = |change: &dyn Fn(&mut WhileStatement)| {
            refused(&|given| {
                let Some(Statement::While(own)) = given.list.last_mut() else { return };
                change(own);
            })
        };
        assert!(!refused(&|_| {}));
        // An operand is written, and so is one that was a result.
        assert!(refused(&|given| given.finish[0].slot = 0));
        assert!(refused(&|given| given.operands = 3));
        // Slots of different sizes change places, or some that are not scratch.
        assert!(in_loop(&|own| own.swaps = vec![(2, 3)]));
        assert!(in_loop(&|own| own.swaps = vec![(0, 2)]));
        // What is read was never written.
        assert!(refused(&|given| given.finish[0].inputs[0] = StepInput::Slot(7)));
        assert!(in_loop(&|own| own.predicate.slot = 9));
        // More elements than one workgroup should compute.
        assert!(in_loop(&|own| own.body.push(Statement::Step(Box::new(copy(Type::F32, &[1 << 20], 0, 8))))));
    }
}
