//! Calls by the terms that they came from: a call that comes again is replayed from its graph.

use rustler::env::{OwnedEnv, SavedTerm};
use rustler::types::tuple::make_tuple;
use rustler::{Encoder, Env, Term};
use smallvec::SmallVec;

use super::{definitions, gpu_of_operands};
use crate::error::{Attempt, Error, Result};
use crate::gpu::{Gpu, Kept};
use crate::graph::{Cache, Context, Found, Graph, Operand};
use crate::memory::{Blocking, Buffer};
use crate::mutex::PerThread;

/// Calls of more operands are not captured: each operand is compared with all before it.
const MAX_OPERANDS: usize = 64;

/// The terms that say all that a call is, but what its operands hold. No other call's terms are the same.
pub(super) type KeyTerms<'a> = SmallVec<[Term<'a>; 16]>;

struct Graphs {
    /// Holds the keys' terms.
    terms: OwnedEnv,
    cache: Cache<SavedTerm>,
}

impl Default for Graphs {
    fn default() -> Self {
        Self { terms: OwnedEnv::new(), cache: Cache::default() }
    }
}

/// The graphs of a device. Each scheduler has some: comparing the key of a call takes too long for all of them to do it one after the other. A
/// call is captured once for each scheduler.
#[derive(Default)]
struct DeviceGraphs(PerThread<Graphs>);

impl Kept for DeviceGraphs {
    fn clear(&self) {
        self.0.lock_each().for_each(|mut graphs| *graphs = Graphs::default());
    }
}

/// The results of a call: replayed where its graph is there, captured where it has come once before. The calls of a definition that is
/// recorded become part of its graph.
pub(super) fn run<'a, const N: usize>(
    env: Env<'a>,
    key: KeyTerms<'a>,
    operands: &[Operand],
    blocking: Blocking,
    call: impl FnOnce(&Context) -> Attempt<[Buffer; N]>,
) -> Attempt<[Buffer; N]> {
    run_at(env, None, key, operands, blocking, call)
}

/// As [`run`], of a call that runs on `device` where it has no operands in buffers.
pub(super) fn run_at<'a, const N: usize>(
    env: Env<'a>,
    device: Option<usize>,
    mut key: KeyTerms<'a>,
    operands: &[Operand],
    blocking: Blocking,
    call: impl FnOnce(&Context) -> Attempt<[Buffer; N]>,
) -> Attempt<[Buffer; N]> {
    let gpu = gpu_of_operands(operands, device, blocking)?;
    if definitions::is_recording(env) {
        return definitions::record(env, gpu, blocking, call);
    }
    let cx = Context::new(gpu, blocking);
    if operands.len() > MAX_OPERANDS {
        return call(&cx);
    }
    // Operands that are one buffer are so in each replay.
    for (i, operand) in operands.iter().enumerate() {
        let Some(allocation) = operand.allocation() else { continue };
        let same = |other: &Operand| other.allocation().is_some_and(|other| other.id == allocation.id);
        key.extend(operands[..i].iter().position(same).map(|first| (i, first).encode(env)));
    }
    let key = make_tuple(env, &key);
    let hash = key.hash_internal(0);
    match find(gpu, key, hash)? {
        Found::Graph(graph) if graph.fits(operands) => graph.replay(&cx, operands),
        Found::Nothing | Found::Uncapturable => call(&cx),
        Found::Graph(_) | Found::Seen => {
            let (results, graph) = Graph::capture(&cx, operands, call)?;
            keep(gpu, key, hash, graph)?;
            Ok(results)
        }
    }
}

/// As [`run_at`], of a call with `count` results, 24 at most.
pub(super) fn run_list<'a>(
    env: Env<'a>,
    device: Option<usize>,
    key: KeyTerms<'a>,
    operands: &[Operand],
    blocking: Blocking,
    count: usize,
    call: impl FnOnce(&Context) -> Attempt<Vec<Buffer>>,
) -> Attempt<Vec<Buffer>> {
    macro_rules! of_count {
        ($($n:literal)*) => {
            match count {
                $($n => run_at::<$n>(env, device, key, operands, blocking, |cx| array(call(cx)?)).map(Vec::from),)*
                _ => Err(Error::Argument("outputs: expected one to 24".into()).into()),
            }
        };
    }
    of_count!(1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24)
}

fn array<const N: usize>(results: Vec<Buffer>) -> Attempt<[Buffer; N]> {
    results.try_into().map_err(|_| Error::DispatchFailed("a call has other results than it says".into()).into())
}

fn find(gpu: &Gpu, key: Term, hash: u64) -> Result<Found> {
    let mut graphs = gpu.kept::<DeviceGraphs>()?.0.lock();
    let Graphs { terms, cache } = &mut *graphs;
    Ok(cache.find(hash, |saved| terms.run(|env| saved.load(env) == key)))
}

fn keep(gpu: &Gpu, key: Term, hash: u64, graph: Option<Graph>) -> Result<()> {
    let mut graphs = gpu.kept::<DeviceGraphs>()?.0.lock();
    if graphs.cache.is_full(graph.as_ref().map_or(0, Graph::commands)) {
        *graphs = Graphs::default();
    }
    let saved = graphs.terms.save(key);
    graphs.cache.insert(hash, saved, graph);
    Ok(())
}
