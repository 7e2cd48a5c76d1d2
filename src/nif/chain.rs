//! Chains of leapfrog steps: a log-density is decoded and checked once, and run by its reference.

use std::sync::Arc;

use rustler::{Atom, Resource, ResourceArc, Term};

use super::device_loop::{slot_arg, step_arg_of};
use super::*;
use crate::kernels::chain::{ChainCall, ChainModel};
use crate::memory::{AllocationHandle, Blocking};
use crate::program::chain::{ChainSteps, MatrixOperation};
use crate::program::emit::InverseMass;

mod names {
    rustler::atoms! { cholesky, triangular_solve }
}

/// A model, and the device that it was lowered for.
pub(super) struct ChainResource(pub(super) Arc<ChainModel>, pub(super) Option<usize>);

#[rustler::resource_impl]
impl Resource for ChainResource {}

/// A log-density as a BEAM resource.
struct ChainRef(ResourceArc<ChainResource>);

impl Encoder for ChainRef {
    fn encode<'a>(&self, env: Env<'a>) -> Term<'a> {
        self.0.encode(env)
    }
}

pair!(chain_new, chain_new_dirty, (steps, device), reply, new);
pair!(chain_module, chain_module_dirty, (reference), reply, module);
pair!(chain_run, chain_run_dirty, (reference, data, state, integrator, extents), reply, run);

/// `steps` is `{steps, matrices, types of the operands, slot of the log-density, slot of the gradient, elements of the position}`, see [`ChainSteps`].
fn new(steps: Term, device: Term, blocking: Blocking) -> Attempt<ChainRef> {
    // Steps are many terms.
    blocking.require()?;
    let [given, matrices, operands, logp, gradient, dimensions] = tuple_arg(steps, "steps")?[..] else {
        return Err(wrong("steps", "{steps, matrices, operands, logp, gradient, dimensions}").into());
    };
    let steps = ChainSteps {
        steps: list_arg(given, "steps")?.map(step_arg_of).collect::<Result<_>>()?,
        matrices: list_arg(matrices, "matrices")?.map(matrix_arg).collect::<Result<_>>()?,
        operands: list_arg(operands, "operands")?.map(|ty| type_arg(ty, "operands")).collect::<Result<_>>()?,
        logp: slot_arg(logp)?,
        gradient: slot_arg(gradient)?,
        dimensions: size_arg(dimensions, "dimensions")?,
    };
    if steps.operands.is_empty() {
        return Err(wrong("operands", "the type of the position").into());
    }
    let device = device_arg(device)?;
    let model = ChainModel::new(steps, &gpu_at(device, blocking)?.caps)?;
    Ok(ChainRef(ResourceArc::new(ChainResource(Arc::new(model), device))))
}

/// The path of the kernel as a module for `NativeV`, with the elements of each operand that its extras hold, and those of scratch memory
/// behind them.
fn module(reference: Term, blocking: Blocking) -> Attempt<(String, Vec<u64>, u64)> {
    blocking.require()?;
    let resource: ResourceArc<ChainResource> =
        reference.decode().map_err(|_| Error::Unsupported("a chain of another node".into()))?;
    let gpu = gpu_at(resource.1, blocking)?;
    let module = resource.0.module(&gpu.caps)?;
    let path = gpu.pipelines.module_file(&module.source, resource.0.module_suffix())?;
    Ok((path.to_string_lossy().into_owned(), module.data, module.scratch))
}

/// `{step, [:cholesky, order]}`, or `{step, [:triangular_solve, lower?, transposed?, left?, order]}`.
fn matrix_arg(term: Term) -> Result<(usize, MatrixOperation)> {
    let invalid = || wrong("matrices", "{step, [operation, ...]}");
    let (step, given): (Term, Vec<Term>) = term.decode().map_err(|_| invalid())?;
    let operation: Atom = given.first().ok_or_else(invalid)?.decode().map_err(|_| invalid())?;
    let operation = match given[1..] {
        [order] if operation == names::cholesky() => MatrixOperation::Cholesky { order: size_arg(order, "matrices")? },
        [lower, transposed, left, order] if operation == names::triangular_solve() => MatrixOperation::Solve {
            order: size_arg(order, "matrices")?,
            lower: bool_arg(lower, "matrices")?,
            transposed: bool_arg(transposed, "matrices")?,
            left: bool_arg(left, "matrices")?,
        },
        _ => return Err(invalid()),
    };
    Ok((slot_arg(step)?, operation))
}

/// `state` is `{q, p}` and `integrator` `{step sizes, inverse mass, whether that is dense}`, buffers all; `extents` is
/// `{chains, steps, whether the last state alone is kept}`.
fn run(
    reference: Term,
    data: Term,
    state: Term,
    integrator: Term,
    extents: Term,
    blocking: Blocking,
) -> Attempt<(BufferRef, BufferRef, BufferRef, BufferRef)> {
    let resource: ResourceArc<ChainResource> =
        reference.decode().map_err(|_| Error::Unsupported("a chain of another node".into()))?;
    type Held = (Arc<AllocationHandle>, u64);
    let buffer = |term: Term, name: &str| -> Result<Held> {
        let buffer = buffer_arg(term, name)?;
        Ok((buffer.allocation()?, buffer.len()))
    };
    let data = list_arg(data, "data")?.map(|term| buffer(term, "data")).collect::<Result<Vec<_>>>()?;
    let data: Vec<(&AllocationHandle, u64)> = data.iter().map(|(allocation, bytes)| (&**allocation, *bytes)).collect();
    let (q, p): (Term, Term) = state.decode().map_err(|_| wrong("state", "{q, p}"))?;
    let (step_sizes, mass, dense): (Term, Term, bool) =
        integrator.decode().map_err(|_| wrong("integrator", "{step sizes, inverse mass, dense?}"))?;
    let (chains, steps, last): (Term, Term, bool) =
        extents.decode().map_err(|_| wrong("extents", "{chains, steps, last?}"))?;
    let (q, p) = (buffer(q, "q")?, buffer(p, "p")?);
    let (step_sizes, inverse_mass) = (buffer(step_sizes, "step_size")?, buffer(mass, "inverse_mass")?);
    let call = ChainCall {
        data: &data,
        q: (&q.0, q.1),
        p: (&p.0, p.1),
        step_sizes: (&step_sizes.0, step_sizes.1),
        inverse_mass: (&inverse_mass.0, inverse_mass.1),
        mass: if dense { InverseMass::Dense } else { InverseMass::Diagonal },
        chains: size_arg(chains, "chains")?,
        steps: size_arg(steps, "steps")?,
        last,
    };
    let operands = call.data.iter().chain([&call.q, &call.p, &call.step_sizes, &call.inverse_mass]);
    let gpu = gpu_of(operands.map(|operand| operand.0), resource.1, blocking)?;
    let [q, p, gradient, logp] =
        definitions::record(reference.get_env(), gpu, blocking, |cx| resource.0.run(cx, &call))?.map(BufferRef::from);
    Ok((q, p, gradient, logp))
}
