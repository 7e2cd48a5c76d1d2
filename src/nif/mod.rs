//! The NIFs, one file a family: decode, check, call, encode. Nothing here knows Vulkan.

mod buffer;
mod dot;
mod info;
mod program;
mod raw;

use rustler::types::tuple::get_tuple;
use rustler::{Binary, Encoder, Env, ListIterator, NifResult, ResourceArc, Term};

use crate::error::{Error, Result};
use crate::memory::{Buffer, Readback};

mod atoms {
    rustler::atoms! {
        ok, error, nil, defer, collect, already_deallocated, low, high, u, s, f, bf,
        name, r#type = "type", driver, api_version, features, devices, index, used,
        limit, pool_bytes, used_bytes, buffers, heap_bytes,
    }
}

/// A device buffer as a BEAM resource.
#[derive(Clone)]
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
        self.0.encode(env)
    }
}

impl From<Buffer> for BufferRef {
    fn from(buffer: Buffer) -> Self {
        Self(ResourceArc::new(BufferResource(buffer)))
    }
}

impl std::ops::Deref for BufferRef {
    type Target = Buffer;

    fn deref(&self) -> &Buffer {
        &self.0.0
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

/// An error as the NIF's result: a raised ArgumentError, `:defer`, `:collect`, or an `{:error, …}` tuple.
fn failure<'a>(env: Env<'a>, error: &Error) -> NifResult<Term<'a>> {
    Ok(match error {
        Error::Argument(message) => {
            return Err(rustler::Error::RaiseTerm(Box::new(ArgumentError(message.to_string()))));
        }
        Error::Defer => atoms::defer().encode(env),
        Error::Collect => atoms::collect().encode(env),
        error => {
            let (reason, with_message) = error.reason();
            let reason = rustler::Atom::from_str(env, reason)?;
            if with_message {
                (atoms::error(), reason, error.to_string()).encode(env)
            } else {
                (atoms::error(), reason).encode(env)
            }
        }
    })
}

/// `{:ok, value}`, or the error.
fn reply<'a>(env: Env<'a>, result: Result<impl Encoder>) -> NifResult<Term<'a>> {
    match result {
        Ok(value) => Ok((atoms::ok(), value).encode(env)),
        Err(error) => failure(env, &error),
    }
}

/// `:ok`, or the error.
fn reply_ok<'a>(env: Env<'a>, result: Result<()>) -> NifResult<Term<'a>> {
    match result {
        Ok(()) => Ok(atoms::ok().encode(env)),
        Err(error) => failure(env, &error),
    }
}

fn wrong(name: &str, expected: &str) -> Error {
    Error::Argument(format!("{name}: expected {expected}").into())
}

fn buffer_arg(term: Term, name: &str) -> Result<BufferRef> {
    term.decode().map(BufferRef).map_err(|_| wrong(name, "a buffer reference of this node"))
}

fn bytes_arg<'a>(term: Term<'a>, name: &str) -> Result<Binary<'a>> {
    term.decode().map_err(|_| wrong(name, "a binary"))
}

/// A count or size. Negative numbers and those beyond 2^63 are refused.
fn size_arg(term: Term, name: &str) -> Result<u64> {
    let value: i64 = term.decode().map_err(|_| wrong(name, "a non-negative integer below 2^63"))?;
    u64::try_from(value).map_err(|_| wrong(name, "a non-negative integer below 2^63"))
}

fn text_arg<'a>(term: Term<'a>, name: &str) -> Result<&'a str> {
    term.decode().map_err(|_| wrong(name, "a string"))
}

fn tuple_arg<'a>(term: Term<'a>, name: &str) -> Result<Vec<Term<'a>>> {
    get_tuple(term).map_err(|_| wrong(name, "a tuple"))
}

fn list_arg<'a>(term: Term<'a>, name: &str) -> Result<ListIterator<'a>> {
    term.decode().map_err(|_| wrong(name, "a list"))
}

/// Defines the NIF `name` on a normal scheduler, which returns `:defer` where it would have to wait, and `name_dirty`
/// on a dirty one. The body gets the arguments as terms, and how patient it may be.
macro_rules! pair {
    ($name:ident, $dirty:ident, ($($arg:ident),*), $reply:ident, $body:expr) => {
        #[allow(clippy::too_many_arguments, reason = "a NIF takes what its caller gives")]
        #[rustler::nif]
        fn $name<'a>(env: rustler::Env<'a>, $($arg: rustler::Term<'a>),*) -> rustler::NifResult<rustler::Term<'a>> {
            $reply(env, $body($($arg,)* crate::memory::Patience::Prompt))
        }

        #[allow(clippy::too_many_arguments, reason = "a NIF takes what its caller gives")]
        #[rustler::nif(schedule = "DirtyCpu")]
        fn $dirty<'a>(env: rustler::Env<'a>, $($arg: rustler::Term<'a>),*) -> rustler::NifResult<rustler::Term<'a>> {
            $reply(env, $body($($arg,)* crate::memory::Patience::Patient))
        }
    };
}
use pair;

/// The device: made here by patient callers, deferred by prompt ones.
fn gpu(patience: crate::memory::Patience) -> Result<&'static crate::device::Gpu> {
    match patience {
        crate::memory::Patience::Prompt => crate::device::gpu_if_ready(),
        crate::memory::Patience::Patient => crate::device::gpu(),
    }
}
