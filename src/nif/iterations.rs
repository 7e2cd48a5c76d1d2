//! Loops whose iterations are recorded ahead: one NIF call records several, another waits for the oldest of them.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use rustler::{Encoder, Env, NifResult, ResourceArc, Term};

use super::*;
use crate::gpu::Gpu;
use crate::graph::{Iterations, LoopValue, Progress};
use crate::kernels::assemble;
use crate::memory::{Blocking, Buffer};

mod names {
    rustler::atoms! { goes_on, paused, ended }
}

struct IterationsResource(Mutex<Iterations>);

#[rustler::resource_impl]
impl rustler::Resource for IterationsResource {}

/// A loop that runs; `nil` where its iterations cannot be recorded ahead.
struct IterationsRef(Option<ResourceArc<IterationsResource>>);

impl Encoder for IterationsRef {
    fn encode<'a>(&self, env: Env<'a>) -> Term<'a> {
        self.0.encode(env)
    }
}

pair!(iterations_record, iterations_record_dirty, (iterations, count), reply, record);
pair!(iterations_finish, iterations_finish_dirty, (iterations), reply_bare, finish);

/// `inputs` are the definition's: the values, then what the loop captured. `donate` says whether the values that iterations change are given
/// away: the loop writes over copies otherwise.
#[rustler::nif]
fn iterations_new<'a>(env: Env<'a>, definition: Term<'a>, inputs: Term<'a>, donate: Term<'a>) -> NifResult<Term<'a>> {
    reply(env, new(definition, inputs, donate))
}

fn new(definition: Term, inputs: Term, donate: Term) -> Result<IterationsRef> {
    let donate = bool_arg(donate, "donate")?;
    let Some((graph, gpu, results)) = definitions::replayable(definition.get_env(), definition) else {
        return Ok(IterationsRef(None));
    };
    let mut operands = vec![];
    for input in list_arg(inputs, "inputs")? {
        let buffer = buffer_arg(input, "inputs")?;
        let allocation = buffer.allocation()?;
        if !std::ptr::eq(Gpu::of(&allocation)?, gpu) {
            return Ok(IterationsRef(None));
        }
        operands.push((allocation, buffer.len()));
    }
    let iterations = Iterations::new(gpu, &graph, &results, operands, donate);
    Ok(IterationsRef(iterations.map(|iterations| ResourceArc::new(IterationsResource(Mutex::new(iterations))))))
}

/// How many iterations were recorded.
fn record(iterations: Term, count: Term, blocking: Blocking) -> Attempt<usize> {
    let count = size_arg(count, "count")?;
    let mut iterations = iterations_arg(iterations)?;
    iterations.own_values(assemble::copy_of, blocking)?;
    iterations.record(usize::try_from(count).unwrap_or(usize::MAX), blocking)
}

/// `:goes_on`, or `{:paused, values}` or `{:ended, values}`, where a value is a reference or the index of an input.
fn finish(iterations: Term, blocking: Blocking) -> Attempt<Term> {
    let env = iterations.get_env();
    definitions::give_up(env);
    let progress = iterations_arg(iterations)?.finish(blocking)?;
    Ok(match progress {
        Progress::GoesOn => names::goes_on().encode(env),
        Progress::Paused(values) => (names::paused(), value_terms(env, values)).encode(env),
        Progress::Ended(values) => (names::ended(), value_terms(env, values)).encode(env),
    })
}

/// Values that are one buffer are one reference.
fn value_terms(env: Env, values: Vec<LoopValue>) -> Vec<Term> {
    let mut made: Vec<(u64, Term)> = vec![];
    let term = |LoopValue { allocation, bytes, given }: LoopValue| {
        let id = allocation.id;
        match (given, made.iter().find(|known| known.0 == id)) {
            (Some(index), _) => index.encode(env),
            (None, Some(known)) => known.1,
            (None, None) => {
                let term = BufferRef::from(Buffer::of(bytes, Arc::clone(&allocation))).encode(env);
                made.push((id, term));
                term
            }
        }
    };
    values.into_iter().map(term).collect()
}

fn iterations_arg<'a>(term: Term<'a>) -> Result<MutexGuard<'a, Iterations>> {
    let resource: &'a IterationsResource = term.decode().map_err(|_| wrong("iterations", "a loop's reference"))?;
    resource.0.try_lock().ok_or_else(|| wrong("iterations", "a loop that no other process runs"))
}
