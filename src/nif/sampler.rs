//! Samplers: the chains of a log-density on their way, dispatch after dispatch.

use rustler::{Atom, Resource, ResourceArc, Term};

use super::chain::ChainResource;
use super::*;
use crate::graph::Context;
use crate::kernels::sampler::{Sampler, SamplerSettings};
use crate::memory::Blocking;
use crate::program::emit::{InverseMass, SamplerAlgorithm, SamplerKind};

mod names {
    rustler::atoms! { nuts, hmc }
}

struct SamplerResource(Sampler);

#[rustler::resource_impl]
impl Resource for SamplerResource {}

/// A sampler as a BEAM resource.
struct SamplerRef(ResourceArc<SamplerResource>);

impl Encoder for SamplerRef {
    fn encode<'a>(&self, env: Env<'a>) -> Term<'a> {
        self.0.encode(env)
    }
}

/// Buffers in the order of [`Sampler::results`].
struct SamplerBuffers(Vec<BufferRef>);

impl Encoder for SamplerBuffers {
    fn encode<'a>(&self, env: Env<'a>) -> Term<'a> {
        self.0.encode(env)
    }
}

pair!(sampler_new, sampler_new_dirty, (chain, data, start, settings), reply, new);
pair!(sampler_run, sampler_run_dirty, (reference, steps), reply, run);
pair!(sampler_results, sampler_results_dirty, (reference), reply, results);

fn sampler(reference: Term) -> Result<ResourceArc<SamplerResource>> {
    reference.decode().map_err(|_| Error::Unsupported("a sampler of another node".into()))
}

/// `settings` is `{{algorithm, dense mass?}, {chains, warm-up, draws, thin}, {steps, max depth}, {seed, target, step size, search?}, windows}`. The result
/// is the sampler, the steps of a first dispatch and the most of one.
fn new(chain: Term, data: Term, start: Term, settings: Term, blocking: Blocking) -> Attempt<(SamplerRef, u64, u64)> {
    blocking.require()?;
    let chain: ResourceArc<ChainResource> =
        chain.decode().map_err(|_| Error::Unsupported("a chain of another node".into()))?;
    let operand = |term: Term, name: &str| {
        let buffer = buffer_arg(term, name)?;
        Ok::<_, Error>((buffer.allocation()?, buffer.len()))
    };
    let data = list_arg(data, "data")?.map(|term| operand(term, "data")).collect::<Result<Vec<_>>>()?;
    let start = operand(start, "q")?;
    let allocations = data.iter().chain([&start]).map(|operand| &*operand.0);
    let cx = Context::new(gpu_of(allocations, chain.1, blocking)?, blocking);
    let sampler = Sampler::new(&cx, chain.0.clone(), settings_arg(settings)?, data, start)?;
    let (first, most) = (sampler.first_steps, sampler.most_steps);
    Ok((SamplerRef(ResourceArc::new(SamplerResource(sampler))), first, most))
}

fn settings_arg(term: Term) -> Result<SamplerSettings> {
    let invalid = || wrong("settings", "{kind, counts, lengths, numbers, windows}");
    let (kind, counts, lengths, numbers, windows): (Term, Term, Term, Term, Vec<u32>) =
        term.decode().map_err(|_| invalid())?;
    let (algorithm, dense): (Atom, bool) = kind.decode().map_err(|_| invalid())?;
    let (chains, warmup, draws, thin): (u64, u64, u64, u64) = counts.decode().map_err(|_| invalid())?;
    let (steps, max_depth): (u64, u64) = lengths.decode().map_err(|_| invalid())?;
    let (seed, target_accept, step_size, search): (u64, f64, f64, bool) = numbers.decode().map_err(|_| invalid())?;
    let algorithm = match algorithm {
        name if name == names::nuts() => SamplerAlgorithm::Tree,
        name if name == names::hmc() => SamplerAlgorithm::Trajectory,
        _ => return Err(invalid()),
    };
    Ok(SamplerSettings {
        kind: SamplerKind { algorithm, mass: if dense { InverseMass::Dense } else { InverseMass::Diagonal } },
        chains,
        warmup,
        draws,
        thin,
        steps,
        max_depth,
        seed,
        target_accept,
        step_size,
        search,
        windows,
    })
}

/// Records up to `steps` steps of each chain. The result has the words of the chains' states.
fn run(reference: Term, steps: Term, blocking: Blocking) -> Attempt<BufferRef> {
    blocking.require()?;
    let resource = sampler(reference)?;
    definitions::give_up(reference.get_env());
    let reported = resource.0.reported();
    resource.0.run(&Context::new(gpu_of_buffer(&reported, blocking)?, blocking), size_arg(steps, "steps")?)?;
    Ok(reported.into())
}

fn results(reference: Term, _blocking: Blocking) -> Attempt<SamplerBuffers> {
    Ok(SamplerBuffers(sampler(reference)?.0.results().into_iter().map(BufferRef::from).collect()))
}
