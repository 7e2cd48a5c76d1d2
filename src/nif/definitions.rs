//! Definitions as one graph each. A definition that comes again is evaluated call by call while its calls are recorded, and is replayed
//! in one call from then on. This module owns the recordings of the processes that evaluate, and does not know expressions.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use parking_lot::Mutex;
use rustler::types::LocalPid;
use rustler::{Atom, Encoder, Env, NewBinary, NifResult, ResourceArc, Term};

use super::*;
use crate::gpu::Gpu;
use crate::graph::{Context, Graph, Operand, Recording, ResultSource};
use crate::kernels::assemble;
use crate::memory::{AllocationHandle, Blocking};

mod names {
    rustler::atoms! { evaluate, record, elsewhere }
}

/// How often a definition is recorded anew because its inputs do not fit its graph.
const MAX_RECORDINGS: u32 = 8;
/// The most commands of all definitions' graphs together. Each takes about 400 bytes.
const MAX_GRAPH_COMMANDS: usize = 1 << 18;

/// Commands of all definitions' graphs.
static COMMANDS: AtomicUsize = AtomicUsize::new(0);

/// A definition on inputs of certain shapes and types.
struct DefinitionResource(Mutex<Definition>);

#[rustler::resource_impl]
impl rustler::Resource for DefinitionResource {}

#[derive(Default)]
struct Definition {
    /// The device that it runs on.
    device: Option<usize>,
    /// The positions of inputs that the caller gives away.
    donated: Vec<usize>,
    came_before: bool,
    recordings: u32,
    /// Whether it is an iteration of a loop, whose first result is the condition of the next iteration.
    iteration: bool,
    /// Whether results of the definition are constants, which its graph computes each time then.
    constant_results: bool,
    graph: Option<Arc<DefinitionGraph>>,
}

struct DefinitionGraph {
    graph: Arc<Graph>,
    gpu: &'static Gpu,
    results: Vec<ReplayedResult>,
}

impl Drop for DefinitionGraph {
    fn drop(&mut self) {
        COMMANDS.fetch_sub(self.graph.commands(), Relaxed);
    }
}

/// A result of a definition.
enum ReplayedResult {
    Buffer(ResultSource),
    /// A value that the host knows.
    Value(Vec<u8>),
}

/// The recordings of the processes that evaluate definitions.
static RECORDINGS: Mutex<Vec<ProcessRecording>> = Mutex::new(vec![]);
/// How many there are: calls look no further where there is none.
static RECORDING_COUNT: AtomicUsize = AtomicUsize::new(0);

struct ProcessRecording {
    pid: LocalPid,
    id: usize,
    /// The device whose commands are recorded.
    gpu: &'static Gpu,
    /// `None` while a call is recorded, and once the recording was given up.
    recording: Option<Recording>,
}

/// Ends its recording when it is dropped, as when the process dies.
struct RecordingResource {
    id: usize,
}

#[rustler::resource_impl]
impl rustler::Resource for RecordingResource {}

impl Drop for RecordingResource {
    fn drop(&mut self) {
        end_recording(self.id);
    }
}

fn end_recording(id: usize) -> Option<(Recording, &'static Gpu)> {
    let mut recordings = RECORDINGS.lock();
    let position = recordings.iter().position(|recording| recording.id == id)?;
    RECORDING_COUNT.fetch_sub(1, Relaxed);
    let ProcessRecording { recording, gpu, .. } = recordings.swap_remove(position);
    recording.map(|recording| (recording, gpu))
}

/// Does something with the calling process's recording, if there is one.
fn with_recording<T>(env: Env, act: impl FnOnce(&mut ProcessRecording) -> T) -> Option<T> {
    if RECORDING_COUNT.load(Relaxed) == 0 {
        return None;
    }
    let pid = env.pid();
    RECORDINGS.lock().iter_mut().find(|recording| recording.pid == pid).map(act)
}

/// Whether the calling process records a definition.
pub(super) fn is_recording(env: Env) -> bool {
    with_recording(env, |own| own.recording.is_some()).unwrap_or(false)
}

/// The results of a call, which is captured where the calling process records a definition.
pub(super) fn record<R: AsRef<[Buffer]>>(
    env: Env,
    gpu: &Gpu,
    blocking: Blocking,
    call: impl FnOnce(&Context) -> Attempt<R>,
) -> Attempt<R> {
    let cx = &Context::new(gpu, blocking);
    // A call on another device is no part of the graph, and its results are not known to be the same each time.
    let taken = |own: &mut ProcessRecording| own.recording.take().filter(|_| std::ptr::eq(own.gpu, gpu));
    let Some(recording) = with_recording(env, taken).flatten() else { return call(cx) };
    let (recording, results) = recording.call(cx, call);
    with_recording(env, |own| own.recording = recording);
    results
}

/// Gives the calling process's recording up: what the host reads of the device may decide what it calls next.
pub(super) fn give_up(env: Env) {
    with_recording(env, |own| own.recording = None);
}

/// Has an uploaded buffer be a constant of the definition that the calling process records: the inputs are uploaded before.
pub(super) fn constant(env: Env, gpu: &Gpu, buffer: &Buffer) -> Result<()> {
    let allocation = buffer.allocation()?;
    with_recording(env, |own| {
        if std::ptr::eq(own.gpu, gpu)
            && let Some(recording) = own.recording.as_mut()
        {
            recording.constant(allocation);
        }
    });
    Ok(())
}

/// `donated` are the positions of inputs that the caller gives away. `iteration` says whether the definition is an iteration of a loop:
/// its first result is the condition of the next one then, and the others are the next values.
#[rustler::nif]
fn definition_new<'a>(env: Env<'a>, donated: Term<'a>, iteration: Term<'a>, device: Term<'a>) -> NifResult<Term<'a>> {
    let definition = || -> Result<ResourceArc<DefinitionResource>> {
        let (donated, iteration) = (indices_arg(donated, "donated")?, bool_arg(iteration, "iteration")?);
        let definition = Definition { donated, iteration, device: device_arg(device)?, ..Definition::default() };
        Ok(ResourceArc::new(DefinitionResource(Mutex::new(definition))))
    };
    reply(env, definition())
}

/// What comes of a definition's call.
enum Outcome<'a> {
    /// Its results: references, the indices of inputs, and binaries that are values of the host.
    Results(Vec<Term<'a>>),
    /// The caller evaluates it between `definition_record` and `definition_keep`.
    Record,
    /// The caller evaluates it.
    Evaluate,
    /// The caller moves its inputs to the definition's device first.
    Elsewhere,
}

impl Encoder for Outcome<'_> {
    fn encode<'a>(&self, env: Env<'a>) -> Term<'a> {
        match self {
            Self::Results(results) => results.encode(env),
            Self::Record => names::record().encode(env),
            Self::Evaluate => names::evaluate().encode(env),
            Self::Elsewhere => names::elsewhere().encode(env),
        }
    }
}

pair!(definition_run, definition_run_dirty, (definition, inputs, donate), reply, run);

/// Each of `inputs` is a reference, or a binary that is a value of the host. `donate` says whether the donated ones are given away in this call:
/// its graph writes over copies otherwise.
fn run<'a>(definition: Term<'a>, inputs: Term<'a>, donate: Term<'a>, blocking: Blocking) -> Attempt<Outcome<'a>> {
    let env = definition.get_env();
    let donate = bool_arg(donate, "donate")?;
    // A definition that was sent comes without what it refers to here.
    let Ok(definition) = definition_arg(definition) else { return Ok(Outcome::Evaluate) };
    let recording = with_recording(env, |_| ()).is_some();
    let (device, graph) = {
        let definition = definition.lock();
        (definition.device, definition.graph.clone().filter(|_| !recording))
    };
    let gpu = gpu_at(device, blocking)?;
    let mut buffers: SmallVec<[(Arc<AllocationHandle>, u64); 8]> = SmallVec::new();
    // The caller's buffers, and those that were made of values of the host.
    let mut owners: SmallVec<[Option<&Buffer>; 8]> = SmallVec::new();
    for input in list_arg(inputs, "inputs")? {
        if input.is_binary() {
            // Only a graph reads it.
            if graph.is_none() {
                continue;
            }
            let uploaded = gpu.upload(&bytes_arg(input, "inputs")?, blocking)?;
            buffers.push((uploaded.allocation()?, uploaded.len()));
            owners.push(None);
        } else {
            let buffer = buffer_arg(input, "inputs")?;
            let allocation = buffer.allocation()?;
            if !std::ptr::eq(Gpu::of(&allocation)?, gpu) {
                return Ok(Outcome::Elsewhere);
            }
            buffers.push((allocation, buffer.len()));
            owners.push(Some(buffer));
        }
    }
    let graph = match graph {
        _ if recording => return Ok(Outcome::Evaluate),
        Some(graph) if std::ptr::eq(graph.gpu, gpu) => graph,
        Some(_) => return Ok(definition.lock().renewed().next_recording()),
        None => return Ok(definition.lock().next_recording()),
    };
    let operands = operands(&buffers);
    if !graph.graph.fits(&operands) {
        return Ok(definition.lock().next_recording());
    }
    let cx = Context::new(gpu, blocking);
    let donated = |position: usize| match owners[position] {
        _ if !donate => assemble::copy_of(&cx, &buffers[position].0),
        // Of two calls at a time one has it.
        Some(owner) => Ok(owner.take().ok_or(Error::Deallocated)?),
        None => Ok(buffers[position].0.clone()),
    };
    let made = graph.graph.replay_all(&cx, &operands, donated)?;
    let made: SmallVec<[Term; 4]> = made.into_iter().map(|buffer| BufferRef::from(buffer).encode(env)).collect();
    let result = |result: &ReplayedResult| match result {
        ReplayedResult::Buffer(ResultSource::Input(index)) => index.encode(env),
        ReplayedResult::Buffer(ResultSource::Made(position)) => made[*position],
        ReplayedResult::Value(bytes) => binary_term(env, bytes),
    };
    Ok(Outcome::Results(graph.results.iter().map(result).collect()))
}

impl Definition {
    /// The definition without its graph, whose device was lost.
    fn renewed(&mut self) -> &mut Self {
        (self.graph, self.recordings) = (None, 0);
        self
    }

    /// Most definitions that come a second time come often.
    fn next_recording<'a>(&mut self) -> Outcome<'a> {
        if !std::mem::replace(&mut self.came_before, true) || self.recordings == MAX_RECORDINGS {
            return Outcome::Evaluate;
        }
        self.recordings += 1;
        Outcome::Record
    }
}

/// The graph of a definition that the calling process may replay, its device, and where its results come from: all of them are buffers.
pub(super) fn replayable(env: Env, definition: Term) -> Option<(Arc<Graph>, &'static Gpu, Vec<ResultSource>)> {
    if with_recording(env, |_| ()).is_some() {
        return None;
    }
    let graph = definition_arg(definition).ok()?.lock().graph.clone()?;
    let source = |result: &ReplayedResult| match result {
        ReplayedResult::Buffer(source) => Some(*source),
        ReplayedResult::Value(_) => None,
    };
    Some((graph.graph.clone(), graph.gpu, graph.results.iter().map(source).collect::<Option<_>>()?))
}

fn binary_term<'a>(env: Env<'a>, bytes: &[u8]) -> Term<'a> {
    let mut binary = NewBinary::new(env, bytes.len());
    binary.copy_from_slice(bytes);
    binary.into()
}

fn operands(buffers: &[(Arc<AllocationHandle>, u64)]) -> SmallVec<[Operand<'_>; 8]> {
    buffers.iter().map(|(allocation, bytes)| Operand::Buffer(allocation, *bytes)).collect()
}

fn definition_arg<'a>(term: Term<'a>) -> Result<&'a Mutex<Definition>> {
    let resource: &DefinitionResource = term.decode().map_err(|_| wrong("definition", "a definition's reference"))?;
    Ok(&resource.0)
}

/// Records the calling process's calls from now on; `inputs` are references.
#[rustler::nif]
fn definition_record<'a>(env: Env<'a>, definition: Term<'a>, inputs: Term<'a>) -> NifResult<Term<'a>> {
    let start = || -> Result<ResourceArc<RecordingResource>> {
        let buffer = |input| {
            let buffer = buffer_arg(input, "inputs")?;
            Ok((buffer.allocation()?, buffer.len()))
        };
        let buffers: Vec<_> = list_arg(inputs, "inputs")?.map(buffer).collect::<Result<_>>()?;
        static IDS: AtomicUsize = AtomicUsize::new(0);
        let id = IDS.fetch_add(1, Relaxed);
        let (recording, gpu) = {
            let definition = definition_arg(definition)?.lock();
            let gpu = crate::gpu::gpu_at(definition.device)?;
            let recording = Recording::new(&operands(&buffers), &definition.donated, !definition.constant_results);
            (Some(if definition.iteration { recording.of_iteration() } else { recording }), gpu)
        };
        RECORDINGS.lock().push(ProcessRecording { pid: env.pid(), id, gpu, recording });
        RECORDING_COUNT.fetch_add(1, Relaxed);
        Ok(ResourceArc::new(RecordingResource { id }))
    };
    reply(env, start())
}

/// Ends a recording. Where `results` is a list, of references and of binaries that are values of the host, the definition keeps its graph.
#[rustler::nif]
fn definition_keep<'a>(env: Env<'a>, definition: Term<'a>, recording: Term<'a>, results: Term<'a>) -> NifResult<Atom> {
    // Calls look for recordings no longer, whatever the arguments are.
    let keep = || -> Result<()> {
        let recording: &RecordingResource =
            recording.decode().map_err(|_| wrong("recording", "a recording's reference"))?;
        let recording = end_recording(recording.id);
        if is_nil(results) {
            return Ok(());
        }
        let folded = recording.as_ref().is_some_and(|(recording, _)| recording.folded());
        let graph = match recording {
            Some((recording, gpu)) => recorded_graph(recording, gpu, results)?,
            None => None,
        };
        let definition = definition_arg(definition)?;
        let mut definition = definition.lock();
        match graph {
            Some(graph) => definition.graph = Some(Arc::new(graph)),
            None if folded => definition.constant_results = true,
            None => definition.recordings = MAX_RECORDINGS,
        }
        Ok(())
    };
    match keep() {
        Ok(()) => Ok(atoms::ok()),
        Err(error) => Err(failure(env, error).err().unwrap_or(rustler::Error::BadArg)),
    }
}

/// `None` where the recording does not tell all, or there are too many commands already.
fn recorded_graph(recording: Recording, gpu: &'static Gpu, results: Term) -> Result<Option<DefinitionGraph>> {
    let mut buffers = vec![];
    let mut values = vec![];
    for result in list_arg(results, "results")? {
        let value = result.is_binary().then(|| bytes_arg(result, "results")).transpose()?;
        if value.is_none() {
            buffers.push(buffer_arg(result, "results")?);
        }
        values.push(value.map(|value| value.to_vec()));
    }
    let Some((graph, sources)) = recording.graph(&buffers) else { return Ok(None) };
    let mut sources = sources.into_iter().map(ReplayedResult::Buffer);
    let result = |value: Option<Vec<u8>>| value.map(ReplayedResult::Value).or_else(|| sources.next());
    let results = values.into_iter().filter_map(result).collect();
    let before = COMMANDS.fetch_add(graph.commands(), Relaxed);
    let kept = DefinitionGraph { graph: Arc::new(graph), gpu, results };
    Ok((before <= MAX_GRAPH_COMMANDS).then_some(kept))
}
