//! Chains of leapfrog steps on a log-density. This module owns their kernel and its operands; what a log-density is made of is
//! `program::chain`'s, and how chains are spread over invocations and dispatches the choice of `tuning::chain`.
//!
//! A dispatch makes a bounded number of steps of a bounded number of chains. The next one goes on from the state that it stored.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use parking_lot::Mutex;

use super::{KernelSpec, launch};
use crate::device::Capabilities;
use crate::error::{Attempt, Error, Result};
use crate::graph::{Context, Params};
use crate::memory::{AllocationHandle, Buffer};
use crate::program::Type;
use crate::program::chain::{ChainProgram, ChainSteps};
use crate::program::emit::{
    ChainEvaluation, ChainMemory, InverseMass, LeapfrogCost, LeapfrogModule, evaluation, leapfrog_module,
    leapfrog_source,
};
use crate::tuning::chain::{MAX_CPU_CHAIN_ITERATIONS, chain_dispatch, chain_threads, shared_budget};

/// The most elements of the states that a call stores: kernels index them with 32 bits.
const MAX_STATE_ELEMENTS: u64 = 1 << 31;

/// A log-density that chains run on.
pub struct ChainModel {
    pub(super) program: ChainProgram,
    /// The function for few chains.
    pub(super) few: Arc<ChainFunction>,
    /// The functions for more chains, by the invocations of a chain's workgroup.
    more: Mutex<BTreeMap<u32, Arc<ChainFunction>>>,
}

/// A log-density for workgroups of some invocations.
pub(super) struct ChainFunction {
    pub(super) evaluation: ChainEvaluation,
    memory: ChainMemory,
    /// Invocations of a chain's workgroup.
    pub(super) threads: u32,
    /// A hash of all that the source depends on.
    digest: u128,
}

/// A call's tensors and extents.
pub struct ChainCall<'a> {
    /// The data: the operands after the position, with the bytes of each.
    pub data: &'a [(&'a AllocationHandle, u64)],
    /// Positions of all chains.
    pub q: (&'a AllocationHandle, u64),
    /// Momenta of all chains.
    pub p: (&'a AllocationHandle, u64),
    /// A step size for all chains, or one for each.
    pub step_sizes: (&'a AllocationHandle, u64),
    /// An inverse mass for all chains, or one for each.
    pub inverse_mass: (&'a AllocationHandle, u64),
    /// Whether the mass has all its elements, or its diagonal alone.
    pub mass: InverseMass,
    /// How many chains there are.
    pub chains: u64,
    /// How many steps each makes.
    pub steps: u64,
    /// Whether the last state alone is stored.
    pub last: bool,
}

impl ChainModel {
    /// Fails where the steps are not sound, where the device lacks a type or memory, and where one evaluation is more than a dispatch may do.
    pub fn new(steps: ChainSteps, caps: &Capabilities) -> Result<Self> {
        let program = ChainProgram::new(steps)?;
        program.check_types(caps)?;
        let longest = evaluation(&program, chain_threads(0, 1, caps), caps)?.longest;
        let few = Arc::new(ChainFunction::new(&program, chain_threads(longest, 1, caps), caps)?);
        Ok(Self { program, few, more: Mutex::default() })
    }

    /// The function for that many chains. More chains have smaller workgroups, once they fill the device.
    fn function(&self, chains: u64, caps: &Capabilities) -> Result<Arc<ChainFunction>> {
        let threads = chain_threads(self.few.evaluation.longest, chains, caps);
        if threads == self.few.threads {
            return Ok(self.few.clone());
        }
        match self.more.lock().entry(threads) {
            Entry::Occupied(known) => Ok(known.get().clone()),
            Entry::Vacant(vacant) => {
                Ok(vacant.insert(Arc::new(ChainFunction::new(&self.program, threads, caps)?)).clone())
            }
        }
    }

    /// Elements of the position.
    pub fn dimensions(&self) -> u64 {
        self.program.given.dimensions
    }

    /// The type of the position.
    pub fn real(&self) -> Type {
        self.program.real()
    }

    /// Hashes all that the text of the log-density depends on, which has thousands of nodes.
    pub(super) fn hash_text<H: Hasher>(&self, function: &ChainFunction, state: &mut H) {
        (function.digest, function.threads, self.program.given.dimensions).hash(state);
        (&self.program.given.operands, self.program.given.gradient, &function.evaluation.files).hash(state);
    }

    /// The kernel as a module for `NativeV`, with the extras that it takes.
    pub fn module(&self, caps: &Capabilities) -> Result<LeapfrogModule> {
        leapfrog_module(&self.program, &self.few.evaluation, &self.few.memory, self.few.threads, caps)
    }

    /// What the name of the module ends with: it says the type of the position.
    pub fn module_suffix(&self) -> &'static str {
        if self.program.real() == Type::F64 { "_f64.spv" } else { ".spv" }
    }

    /// The states of the chains: positions, momenta, gradients and log-densities.
    pub fn run(&self, cx: &Context, call: &ChainCall) -> Attempt<[Buffer; 4]> {
        let &ChainCall { chains, steps, last, .. } = call;
        self.check(call)?;
        let size = self.program.real().size();
        let outputs = if last { 1 } else { steps };
        let states = chains * outputs;
        let state_bytes = states * self.dimensions() * size;
        let allocate = |bytes: u64| Ok::<_, crate::error::Unfinished>((cx.allocate(bytes.max(4))?, bytes));
        let results =
            [allocate(state_bytes)?, allocate(state_bytes)?, allocate(state_bytes)?, allocate(states * size)?];
        let function = self.function(chains, cx.caps())?;
        let ChainEvaluation { operations, iterations, .. } = function.evaluation;
        let step = LeapfrogCost::new(self.dimensions(), function.threads, call.mass);
        let (operations, iterations) = (operations + step.operations, iterations + step.iterations);
        let (per_dispatch, steps_per_dispatch) = chain_dispatch(operations, iterations, chains, steps, cx.caps());
        let scratch = cx.allocate((function.memory.scratch_bytes * per_dispatch).max(16))?;
        let kernel = LeapfrogKernel { model: self, function: &function, mass: call.mass };
        let mut first_chain = 0;
        while first_chain < chains {
            let mut first_step = 0;
            while first_step < steps {
                let launched = LeapfrogLaunch {
                    call,
                    results: &results,
                    scratch: &scratch,
                    first_chain,
                    chains: per_dispatch.min(chains - first_chain),
                    first_step,
                    steps: steps_per_dispatch.min(steps - first_step),
                    outputs,
                };
                launch(cx, &kernel, &launched)?;
                first_step += steps_per_dispatch;
            }
            first_chain += per_dispatch;
        }
        Ok(results.map(|(allocation, bytes)| Buffer::new(bytes, allocation)))
    }

    fn check(&self, call: &ChainCall) -> Result<()> {
        let d = self.dimensions();
        let size = self.program.real().size();
        let given = self.program.given.operands.iter().zip(&self.program.slot_elements).skip(1);
        let fits = |((ty, elements), (_, bytes)): ((&Type, &u64), &(_, u64))| ty.size() * elements <= *bytes;
        let states = call.chains.checked_mul(call.steps.max(1)).and_then(|states| states.checked_mul(d));
        if states.is_none_or(|states| states > MAX_STATE_ELEMENTS) {
            return Err(Error::Argument(
                "steps: more states than 2^31 numbers; keep the last one, or make fewer steps".into(),
            ));
        }
        let mass = if call.mass == InverseMass::Dense { d * d } else { d };
        let one_or_each =
            |bytes: u64, elements: u64| bytes == elements * size || bytes == elements * size * call.chains;
        let sound = call.data.len() + 1 == self.program.given.operands.len()
            && given.zip(call.data).all(fits)
            && call.chains > 0
            && call.q.1 == call.chains * d * size
            && call.p.1 == call.q.1
            && one_or_each(call.step_sizes.1, 1)
            && one_or_each(call.inverse_mass.1, mass);
        if sound { Ok(()) } else { Err(Error::SizeMismatch) }
    }
}

impl ChainFunction {
    /// Fails where the device lacks memory, and where one evaluation is more than a dispatch may do.
    fn new(program: &ChainProgram, threads: u32, caps: &Capabilities) -> Result<Self> {
        let evaluation = evaluation(program, threads, caps)?;
        // A dispatch evaluates it where it starts and after each step.
        if caps.cpu && 2 * (evaluation.iterations + 1) > MAX_CPU_CHAIN_ITERATIONS {
            let given = evaluation.iterations;
            let most = MAX_CPU_CHAIN_ITERATIONS / 2 - 1;
            return Err(Error::Unsupported(format!(
                "a log-density whose loops have {given} iterations, where {} runs {most}",
                caps.name
            )));
        }
        if evaluation.partial_bytes > caps.max_shared.into() {
            return Err(Error::Unsupported("a log-density of more sums than a workgroup has memory for".into()));
        }
        let memory = ChainMemory::new(program, &evaluation, shared_budget(evaluation.partial_bytes, caps));
        let texts =
            [evaluation.body.as_bytes(), evaluation.partials.as_bytes(), format!("{memory:?}").as_bytes()].concat();
        let digest = xxhash_rust::xxh3::xxh3_128(&texts);
        Ok(Self { evaluation, memory, threads, digest })
    }
}

/// The kernel of leapfrog steps.
struct LeapfrogKernel<'m> {
    model: &'m ChainModel,
    function: &'m ChainFunction,
    mass: InverseMass,
}

impl Hash for LeapfrogKernel<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.model.hash_text(self.function, state);
        self.mass.hash(state);
    }
}

/// One launch of a [`LeapfrogKernel`].
struct LeapfrogLaunch<'a> {
    call: &'a ChainCall<'a>,
    results: &'a [(AllocationHandle, u64); 4],
    scratch: &'a AllocationHandle,
    first_chain: u64,
    chains: u64,
    first_step: u64,
    steps: u64,
    /// States that are stored of each chain.
    outputs: u64,
}

impl KernelSpec for LeapfrogKernel<'_> {
    type Args<'a> = LeapfrogLaunch<'a>;

    fn source(&self, caps: &Capabilities, parameters: &str) -> String {
        let ChainFunction { evaluation, memory, threads, .. } = self.function;
        leapfrog_source(&self.model.program, evaluation, memory, *threads, self.mass, parameters, caps)
    }

    fn params<'a>(&self, args: &LeapfrogLaunch<'a>, params: &mut Params<'a>) {
        let program = &self.model.program;
        let real = program.real().storage();
        let d = program.given.dimensions;
        let call = args.call;
        for (slot, (data, ty)) in call.data.iter().zip(&program.given.operands[1..]).enumerate() {
            params.read(data.0, ty.storage(), ("slot", slot + 1));
        }
        params.write(args.scratch, "uint", "scratch");
        // The state to start from: that of the call, or the one that the dispatch before stored.
        let [q, p, gradient, logp] = args.results;
        if args.first_step == 0 {
            params.read(call.q.0, real, "q");
            params.read(call.p.0, real, "momentum");
        } else {
            params.read(&q.0, real, "q");
            params.read(&p.0, real, "momentum");
        }
        params.read(call.step_sizes.0, real, "step_sizes");
        params.read(call.inverse_mass.0, real, "inverse_mass");
        params.write(&q.0, real, "q_chain");
        params.write(&p.0, real, "p_chain");
        params.write(&gradient.0, real, "grad_chain");
        params.write(&logp.0, real, "logp_chain");
        let (stride, offset) = match args.first_step {
            0 => (d, 0),
            _ if args.outputs == 1 => (d, 0),
            first => (args.outputs * d, (first - 1) * d),
        };
        let size = program.real().size();
        let each = |bytes: u64, elements: u64| if bytes == elements * size { 0 } else { elements };
        let mass = if self.mass == InverseMass::Dense { d * d } else { d };
        params.extents(
            false,
            [
                ("first_chain", args.first_chain),
                ("chains", args.chains),
                ("steps", args.steps),
                ("first_step", args.first_step),
                ("outputs", args.outputs),
                ("position_stride", stride),
                ("position_offset", offset),
                ("step_size_stride", each(call.step_sizes.1, 1)),
                ("mass_stride", each(call.inverse_mass.1, mass)),
            ],
        );
    }

    fn groups(&self, args: &LeapfrogLaunch) -> u64 {
        args.chains
    }
}
