//! Samplers of a log-density: Hamiltonian Monte Carlo and the No-U-Turn sampler. This module owns the state of the chains between two
//! dispatches and their draws; what a step does is `shaders/lib/chain/sampler.glsl`'s, and how long a dispatch takes the choice of the caller.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use super::chain::{ChainFunction, ChainModel};
use super::{KernelSpec, launch};
use crate::device::Capabilities;
use crate::error::{Attempt, Error, Result};
use crate::graph::{Context, Params};
use crate::memory::{AllocationHandle, Buffer};
use crate::program::Type;
use crate::program::emit::{
    ChainMemory, DENSE_MATRICES, InverseMass, SamplerAlgorithm, SamplerKind, SamplerShape, SamplerState, sampler_source,
};
use crate::tuning::chain::{chain_dispatch, most_chain_steps, most_dense_dimensions, shared_budget};

/// The most numbers of the draws and of the chains' states: kernels index them with 32 bits.
const MAX_SAMPLER_ELEMENTS: u64 = 1 << 31;
/// The deepest tree: its points are counted in 32 bits.
const MAX_TREE_DEPTH: u64 = 20;

/// What is asked of a sampler.
#[derive(Clone, Debug)]
pub struct SamplerSettings {
    /// How a transition is made, and with what mass.
    pub kind: SamplerKind,
    /// How many chains there are.
    pub chains: u64,
    /// Transitions that adapt.
    pub warmup: u64,
    /// Draws that are kept of each chain.
    pub draws: u64,
    /// Transitions of a draw.
    pub thin: u64,
    /// The mean number of steps of a trajectory.
    pub steps: u64,
    /// The most doublings of a tree.
    pub max_depth: u64,
    /// The key of the random numbers.
    pub seed: u64,
    /// The acceptance that the step size adapts to.
    pub target_accept: f64,
    /// The step size to start with.
    pub step_size: f64,
    /// Whether a better step size to start with is searched.
    pub search: bool,
    /// The first transition of the first window, then the transitions after each window.
    pub windows: Vec<u32>,
}

/// Results of a sampler: each with its elements for a draw, or for a position.
struct SamplerResults {
    draws: Arc<AllocationHandle>,
    step_sizes: Arc<AllocationHandle>,
    accept: Arc<AllocationHandle>,
    energy: Arc<AllocationHandle>,
    logp: Arc<AllocationHandle>,
    depth: Arc<AllocationHandle>,
    steps: Arc<AllocationHandle>,
    divergent: Arc<AllocationHandle>,
}

/// Chains on their way.
pub struct Sampler {
    model: Arc<ChainModel>,
    function: Arc<ChainFunction>,
    settings: SamplerSettings,
    memory: ChainMemory,
    state: SamplerState,
    data: Vec<Arc<AllocationHandle>>,
    start: Arc<AllocationHandle>,
    windows: Arc<AllocationHandle>,
    words: Arc<AllocationHandle>,
    numbers: AllocationHandle,
    vectors: AllocationHandle,
    matrices: AllocationHandle,
    scratch: AllocationHandle,
    results: SamplerResults,
    chains_per_dispatch: u64,
    /// Steps of a first dispatch that is certainly short.
    pub first_steps: u64,
    /// The most steps of a dispatch.
    pub most_steps: u64,
}

impl Sampler {
    /// Chains that start at `start`. Fails where something is of another size than the model needs.
    pub fn new(
        cx: &Context,
        model: Arc<ChainModel>,
        settings: SamplerSettings,
        data: Vec<(Arc<AllocationHandle>, u64)>,
        start: (Arc<AllocationHandle>, u64),
    ) -> Attempt<Self> {
        let caps = cx.caps();
        let state =
            SamplerState::new(if settings.kind.algorithm == SamplerAlgorithm::Tree { settings.max_depth } else { 0 });
        let (d, size) = (model.dimensions(), model.real().size());
        check(&model, &settings, &state, &data, start.1)?;
        if settings.kind.mass == InverseMass::Dense && d > most_dense_dimensions(caps) {
            let most = most_dense_dimensions(caps);
            return Err(
                Error::Unsupported(format!("a dense mass of {d} elements, where {} takes {most}", caps.name)).into()
            );
        }
        // The first chains of many are those of few, bit by bit.
        let function = model.few.clone();
        let evaluation = &function.evaluation;
        let shape = SamplerShape::new(d, function.threads, settings.kind.mass, caps);
        let shared = evaluation.partial_bytes + shape.shared_bytes(size);
        if shared > caps.max_shared.into() {
            return Err(Error::Unsupported("a log-density of more sums than a workgroup has memory for".into()).into());
        }
        let memory = ChainMemory::new(&model.program, evaluation, shared_budget(shared, caps));
        let operations = evaluation.operations + shape.operations();
        let (each, once) = shape.iterations();
        let iterations = evaluation.iterations + each;
        let chains = settings.chains;
        let (chains_per_dispatch, first_steps) = chain_dispatch(operations, iterations, chains, u32::MAX.into(), caps);
        let most_steps = most_chain_steps(iterations, once, caps);
        let allocate = |bytes: u64| cx.allocate(bytes.max(16));
        let words = allocate(4 * chains * state.words)?;
        cx.zero(&words, 4 * chains * state.words)?;
        let kept = chains * settings.draws;
        let result = |bytes: u64| allocate(bytes * kept).map(Arc::new);
        let listed: Vec<u8> =
            settings.windows.iter().chain(&[u32::MAX]).flat_map(|window| window.to_ne_bytes()).collect();
        Ok(Self {
            windows: cx.uncaptured().upload(&listed, cx.blocking)?.allocation()?,
            words: Arc::new(words),
            numbers: allocate(size * chains * state.numbers)?,
            vectors: allocate(size * chains * state.vectors * d)?,
            matrices: allocate(size * chains * matrix_elements(&settings, d))?,
            scratch: allocate(memory.scratch_bytes * chains_per_dispatch)?,
            results: SamplerResults {
                draws: result(d * size)?,
                step_sizes: Arc::new(allocate(size * chains)?),
                accept: result(size)?,
                energy: result(size)?,
                logp: result(size)?,
                depth: result(4)?,
                steps: result(4)?,
                divergent: result(4)?,
            },
            data: data.into_iter().map(|(allocation, _)| allocation).collect(),
            start: start.0,
            first_steps,
            most_steps,
            chains_per_dispatch,
            memory,
            state,
            settings,
            model,
            function,
        })
    }

    /// Makes up to `steps` steps of each chain that has not ended.
    pub fn run(&self, cx: &Context, steps: u64) -> Attempt<()> {
        let kernel = SamplerKernel { sampler: self };
        let mut first_chain = 0;
        while first_chain < self.settings.chains {
            let chains = self.chains_per_dispatch.min(self.settings.chains - first_chain);
            let launched = SamplerLaunch { sampler: self, first_chain, chains, steps: steps.clamp(1, self.most_steps) };
            launch(cx, &kernel, &launched)?;
            first_chain += chains;
        }
        Ok(())
    }

    /// Words of each chain's state, those that are reported first.
    pub fn reported(&self) -> Buffer {
        Buffer::of(4 * self.settings.chains * self.state.words, self.words.clone())
    }

    /// Draws, step sizes, acceptances, energies, log-densities, depths, leapfrog steps and divergences.
    pub fn results(&self) -> [Buffer; 8] {
        let (d, size) = (self.model.dimensions(), self.model.real().size());
        let SamplerResults { draws, step_sizes, accept, energy, logp, depth, steps, divergent } = &self.results;
        let chains = self.settings.chains;
        let kept = chains * self.settings.draws;
        let of = |(allocation, bytes): (&Arc<AllocationHandle>, u64)| Buffer::of(bytes, allocation.clone());
        [
            (draws, kept * d * size),
            (step_sizes, chains * size),
            (accept, kept * size),
            (energy, kept * size),
            (logp, kept * size),
            (depth, kept * 4),
            (steps, kept * 4),
            (divergent, kept * 4),
        ]
        .map(of)
    }
}

/// Elements of the matrices of a chain.
fn matrix_elements(settings: &SamplerSettings, d: u64) -> u64 {
    if settings.kind.mass == InverseMass::Dense { DENSE_MATRICES * d * d } else { 0 }
}

fn check(
    model: &ChainModel,
    settings: &SamplerSettings,
    state: &SamplerState,
    data: &[(Arc<AllocationHandle>, u64)],
    start_bytes: u64,
) -> Result<()> {
    let SamplerSettings { chains, warmup, draws, thin, steps, max_depth, .. } = *settings;
    let d = model.dimensions();
    let fits = |counts: &[u64]| {
        let product = counts.iter().try_fold(1u64, |product, &count| product.checked_mul(count));
        product.is_some_and(|product| product <= MAX_SAMPLER_ELEMENTS)
    };
    if !fits(&[chains, draws, d])
        || !fits(&[chains, state.vectors, d])
        || !fits(&[chains, matrix_elements(settings, d)])
    {
        return Err(Error::Argument(
            "draws: more than 2^31 numbers; keep fewer draws, or fewer chains at a time".into(),
        ));
    }
    let transitions = draws.checked_mul(thin).and_then(|kept| kept.checked_add(warmup));
    let counted = transitions.is_some_and(|transitions| transitions <= MAX_SAMPLER_ELEMENTS);
    let in_bounds =
        thin > 0 && (1..=MAX_SAMPLER_ELEMENTS / 2).contains(&steps) && (1..=MAX_TREE_DEPTH).contains(&max_depth);
    if chains == 0 || !counted || !in_bounds {
        return Err(Error::Argument("settings: expected numbers of chains, transitions and steps in bounds".into()));
    }
    let windows = &settings.windows;
    if windows.is_empty() || windows.iter().any(|&window| u64::from(window) > warmup) {
        return Err(Error::Argument("windows: expected transitions of the warm-up".into()));
    }
    let numbers = [settings.target_accept, settings.step_size];
    if numbers.iter().any(|number| !number.is_finite()) {
        return Err(Error::Argument("settings: expected finite numbers".into()));
    }
    let given = model.program.given.operands.iter().zip(&model.program.slot_elements).skip(1);
    let sound = data.len() + 1 == model.program.given.operands.len()
        && given.zip(data).all(|((ty, elements), (_, bytes))| ty.size() * elements <= *bytes)
        && start_bytes == chains * d * model.real().size();
    if sound { Ok(()) } else { Err(Error::SizeMismatch) }
}

/// The kernel of a sampler.
struct SamplerKernel<'s> {
    sampler: &'s Sampler,
}

impl Hash for SamplerKernel<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Sampler { model, function, settings, memory, .. } = self.sampler;
        model.hash_text(function, state);
        (settings.kind, format!("{memory:?}")).hash(state);
    }
}

/// One launch of a [`SamplerKernel`].
struct SamplerLaunch<'a> {
    sampler: &'a Sampler,
    first_chain: u64,
    chains: u64,
    steps: u64,
}

impl KernelSpec for SamplerKernel<'_> {
    type Args<'a> = SamplerLaunch<'a>;

    fn source(&self, caps: &Capabilities, parameters: &str) -> String {
        let Sampler { model, function, settings, memory, .. } = self.sampler;
        let ChainFunction { evaluation, threads, .. } = &**function;
        sampler_source(&model.program, evaluation, memory, *threads, settings.kind, parameters, caps)
    }

    fn params<'a>(&self, args: &SamplerLaunch<'a>, params: &mut Params<'a>) {
        let sampler = args.sampler;
        let Sampler { model, settings, results, .. } = sampler;
        let real = model.real().storage();
        for (slot, (data, ty)) in sampler.data.iter().zip(&model.program.given.operands[1..]).enumerate() {
            params.read(data, ty.storage(), ("slot", slot + 1));
        }
        params.write(&sampler.scratch, "uint", "scratch");
        params.read(&sampler.start, real, "start");
        params.read(&sampler.windows, "uint", "windows");
        params.update(&sampler.words, "uint", "words");
        params.update(&sampler.numbers, real, "numbers");
        params.update(&sampler.vectors, real, "vectors");
        params.update(&sampler.matrices, real, "matrices");
        params.write(&results.draws, real, "draw");
        params.write(&results.step_sizes, real, "step_sizes");
        params.write(&results.accept, real, "accept");
        params.write(&results.energy, real, "energy");
        params.write(&results.logp, real, "logp");
        params.write(&results.depth, "uint", "depth");
        params.write(&results.steps, "uint", "leapfrog_steps");
        params.write(&results.divergent, "uint", "divergent");
        params.bits(&number_bits(model.real(), settings.target_accept), "target_accept");
        params.bits(&number_bits(model.real(), settings.step_size), "first_step_size");
        params.extents(
            false,
            [
                ("first_chain", args.first_chain),
                ("chains", args.chains),
                ("budget", args.steps),
                ("warmup", settings.warmup),
                ("transitions", settings.warmup + settings.draws * settings.thin),
                ("draws", settings.draws),
                ("thin", settings.thin),
                ("steps", settings.steps),
                ("max_depth", settings.max_depth),
                ("search", settings.search.into()),
                ("window_count", settings.windows.len() as u64 - 1),
                ("seed_low", settings.seed & u64::from(u32::MAX)),
                ("seed_high", settings.seed >> 32),
                ("vector_stride", sampler.state.vectors * model.dimensions()),
            ],
        );
    }

    fn groups(&self, args: &SamplerLaunch) -> u64 {
        args.chains
    }
}

/// The bits of a number of that type, in 8 bytes.
fn number_bits(ty: Type, number: f64) -> [u8; 8] {
    match ty {
        Type::F64 => number.to_ne_bytes(),
        _ => u64::from((number as f32).to_bits()).to_le_bytes(),
    }
}
