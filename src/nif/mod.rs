//! The NIFs, one file a family: decode, check, call, encode. Nothing here knows Vulkan.

mod accounts;
mod args;
mod assemble;
mod attention;
mod buffer;
mod chain;
mod contract;
mod definitions;
mod device;
mod device_loop;
mod dot;
mod epilogue;
mod fourier;
mod graphs;
mod halt;
mod info;
mod iterations;
mod linalg;
mod maps;
mod packing;
mod profile;
mod program;
mod raw;
mod rows;
mod sampler;
mod scan;
mod scatter;
mod sort;
mod sums;
mod tensor_kernel;
mod window;

use std::path::Path;

use rustler::{Encoder, Env, NifResult, ResourceArc, Term};
use smallvec::SmallVec;

use crate::error::{Attempt, Error, Result, Retry, Unfinished};
use crate::gpu::Readback;
use crate::memory::Buffer;
use args::*;
use device::*;

mod atoms {
    rustler::atoms! {
        ok, error, nil, defer, pending, device, emulated, fallback, collect, collect_all, r#move = "move",
        already_deallocated, low, high,
        window_scatter_max, window_scatter_min,
        name, r#type = "type", driver, api_version, features, refused, devices, index, used, uuid,
        pid, bytes, limit, pool_bytes, used_bytes, most_used_bytes, buffers, heap_bytes, cache_dir, cache_limit,
        built, pipelines, from_disk, nanoseconds, free, held,
        fft, ifft, rfft, irfft,
        dot, contract, assemble, scalar, constant, same, tensor, view, padded,
    }
}

/// Called with the path of this library when the BEAM loads it: the probe's executable is beside it.
pub(crate) fn load(env: Env, library: Term) -> bool {
    if let Ok(library) = library.decode::<String>() {
        crate::device::set_probe_executable(&Path::new(&library).with_file_name("nx_vulkan_probe"));
    }
    halt::wait_at_halt(env);
    true
}

/// A result: a device buffer as a BEAM resource.
struct BufferRef(ResourceArc<BufferResource>);

struct BufferResource(Buffer);

#[rustler::resource_impl]
impl rustler::Resource for BufferResource {}

/// Memory that a large binary on the BEAM points into.
struct ReadbackResource(Readback);

#[rustler::resource_impl]
impl rustler::Resource for ReadbackResource {}

impl Encoder for BufferRef {
    fn encode<'a>(&self, env: Env<'a>) -> Term<'a> {
        accounts::charge(env, &self.0.0);
        self.0.encode(env)
    }
}

impl From<Buffer> for BufferRef {
    fn from(buffer: Buffer) -> Self {
        Self(ResourceArc::new(BufferResource(buffer)))
    }
}

/// Several results, as a tuple.
struct BufferRefs(Vec<BufferRef>);

impl Encoder for BufferRefs {
    fn encode<'a>(&self, env: Env<'a>) -> Term<'a> {
        let references: Vec<Term> = self.0.iter().map(|reference| reference.encode(env)).collect();
        rustler::types::tuple::make_tuple(env, &references)
    }
}

impl From<Vec<Buffer>> for BufferRefs {
    fn from(buffers: Vec<Buffer>) -> Self {
        Self(buffers.into_iter().map(BufferRef::from).collect())
    }
}

/// An ArgumentError with a message of its own.
struct ArgumentError(String);

impl Encoder for ArgumentError {
    fn encode<'a>(&self, env: Env<'a>) -> Term<'a> {
        let atom =
            |name| rustler::Atom::from_str(env, name).map_or_else(|_| atoms::nil().encode(env), |a| a.encode(env));
        let keys = [atom("__struct__"), atom("__exception__"), atom("message")];
        let values = [atom("Elixir.ArgumentError"), true.encode(env), self.0.encode(env)];
        Term::map_from_term_arrays(env, &keys, &values).unwrap_or_else(|_| self.0.encode(env))
    }
}

/// What a NIF answers without a result: a raised ArgumentError, an `{:error, …}` tuple, or how the call is to be repeated.
fn failure<'a>(env: Env<'a>, unfinished: impl Into<Unfinished>) -> NifResult<Term<'a>> {
    Ok(match unfinished.into() {
        Unfinished::Failed(Error::Argument(message)) => {
            return Err(rustler::Error::RaiseTerm(Box::new(ArgumentError(message.to_string()))));
        }
        Unfinished::Failed(error) => {
            let (reason, with_message) = error.reason();
            let reason = rustler::Atom::from_str(env, reason)?;
            if with_message {
                (atoms::error(), reason, error.to_string()).encode(env)
            } else {
                (atoms::error(), reason).encode(env)
            }
        }
        Unfinished::Retry(Retry::Blocking) => atoms::defer().encode(env),
        Unfinished::Retry(Retry::Later) => atoms::pending().encode(env),
        Unfinished::Retry(Retry::AfterCollection) => atoms::collect().encode(env),
        Unfinished::Retry(Retry::AfterFullCollection) => atoms::collect_all().encode(env),
        Unfinished::Retry(Retry::AfterMove) => atoms::r#move().encode(env),
    })
}

/// `{:ok, value}`, or the error.
fn reply<'a, E: Into<Unfinished>>(env: Env<'a>, result: Result<impl Encoder, E>) -> NifResult<Term<'a>> {
    match result {
        Ok(value) => Ok((atoms::ok(), value).encode(env)),
        Err(error) => failure(env, error),
    }
}

/// The value as it is, or the error.
fn reply_bare<'a, E: Into<Unfinished>>(env: Env<'a>, result: Result<impl Encoder, E>) -> NifResult<Term<'a>> {
    match result {
        Ok(value) => Ok(value.encode(env)),
        Err(error) => failure(env, error),
    }
}

/// `:ok`, or the error.
fn reply_ok<'a, E: Into<Unfinished>>(env: Env<'a>, result: Result<(), E>) -> NifResult<Term<'a>> {
    match result {
        Ok(()) => Ok(atoms::ok().encode(env)),
        Err(error) => failure(env, error),
    }
}

/// An answer, as `{:built, measurements, answer}` where pipelines were built for it.
fn with_builds<'a>(env: Env<'a>, answer: Term<'a>) -> Term<'a> {
    let builds = crate::pipeline::take_builds();
    if builds.pipelines == 0 {
        return answer;
    }
    let nanoseconds = u64::try_from(builds.elapsed.as_nanos()).unwrap_or(u64::MAX);
    let keys = [atoms::pipelines(), atoms::from_disk(), atoms::nanoseconds()].map(|key| key.encode(env));
    let values = [builds.pipelines.encode(env), builds.from_disk.encode(env), nanoseconds.encode(env)];
    match Term::map_from_term_arrays(env, &keys, &values) {
        Ok(measurements) => (atoms::built(), measurements, answer).encode(env),
        Err(_) => answer,
    }
}

/// Charges time to the calling process's time slice: half a millisecond is a whole slice. The BEAM counts a call and not its duration, and
/// a loop of operations would otherwise keep its scheduler for dozens of milliseconds.
fn spend(env: Env, time: std::time::Duration) {
    let percent = time.as_micros() / 5;
    rustler::schedule::consume_timeslice(env, percent.clamp(1, 100) as i32);
}

/// Defines the NIF `name` on a normal scheduler, which returns `:defer` or `:pending` where it would have to wait, and
/// `name_dirty` on a dirty one. The body gets the arguments as terms, and the blocking mode.
macro_rules! pair {
    ($name:ident, $dirty:ident, ($($arg:ident),*), $reply:ident, $body:expr) => {
        #[allow(clippy::too_many_arguments, reason = "a NIF takes what its caller gives")]
        #[rustler::nif]
        fn $name<'a>(env: rustler::Env<'a>, $($arg: rustler::Term<'a>),*) -> rustler::NifResult<rustler::Term<'a>> {
            let start = std::time::Instant::now();
            let answer = $reply(env, $body($($arg,)* crate::memory::Blocking::Refused));
            spend(env, start.elapsed());
            answer
        }

        #[allow(clippy::too_many_arguments, reason = "a NIF takes what its caller gives")]
        #[rustler::nif(schedule = "DirtyCpu")]
        fn $dirty<'a>(env: rustler::Env<'a>, $($arg: rustler::Term<'a>),*) -> rustler::NifResult<rustler::Term<'a>> {
            crate::pipeline::take_builds();
            let answer = $reply(env, $body($($arg,)* crate::memory::Blocking::Allowed))?;
            Ok(with_builds(env, answer))
        }
    };
}
use pair;
