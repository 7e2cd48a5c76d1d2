//! What people ask about the device and its memory.

use std::time::Duration;

use rustler::{Encoder, Env, NifResult, Term};

use super::*;
use crate::device::ClockState;
use crate::memory::{Blocking, MemoryInfo};
use crate::program::Type;
use crate::program::types::Support;

/// The longest that a report waits for the CUDA context that holds the clock.
const MAX_CLOCK_WAIT: Duration = Duration::from_secs(10);

#[rustler::nif(schedule = "DirtyCpu")]
fn device_info<'a>(env: Env<'a>, device: Term<'a>) -> NifResult<Term<'a>> {
    let info = device_arg(device).and_then(crate::gpu::gpu_at).and_then(|gpu| {
        let caps = &gpu.caps;
        let atom =
            |name: &str| rustler::Atom::from_str(env, name).map(|atom| atom.encode(env)).unwrap_or(name.encode(env));
        let features: Vec<Term> = caps.feature_names().into_iter().map(atom).collect();
        let (names, reasons): (Vec<_>, Vec<_>) =
            gpu.findings.refused().map(|(name, reason)| (atom(name), reason.encode(env))).unzip();
        let refused = Term::map_from_term_arrays(env, &names, &reasons).unwrap_or_else(|_| atoms::nil().encode(env));
        let pairs = [
            (atoms::index(), gpu.index.encode(env)),
            (atoms::name(), caps.name.encode(env)),
            (atoms::r#type(), atom(caps.kind)),
            (atoms::driver(), caps.driver.encode(env)),
            (atoms::api_version(), caps.api_version.encode(env)),
            (atoms::heap_bytes(), caps.heap.encode(env)),
            (
                atoms::cache_dir(),
                gpu.pipelines.folder().map(|folder| folder.to_string_lossy().into_owned()).encode(env),
            ),
            (atoms::cache_limit(), gpu.pipelines.disk_limit().encode(env)),
            (atoms::features(), features.encode(env)),
            (atoms::refused(), refused),
        ];
        Term::map_from_pairs(env, &pairs).map_err(|_| Error::Invalid("keys are distinct".into()))
    });
    reply(env, info)
}

/// Whether the device's clock is held up: `{:held, bytes}` with the device memory that this takes, `nil` where it is not known, or
/// `{:free, reason}`.
#[rustler::nif(schedule = "DirtyIo")]
fn clock<'a>(env: Env<'a>, device: Term<'a>) -> NifResult<Term<'a>> {
    let clock = device_arg(device).and_then(crate::gpu::gpu_at).map(|gpu| match gpu.clock.settled(MAX_CLOCK_WAIT) {
        ClockState::Held { bytes } => (atoms::held(), bytes).encode(env),
        ClockState::Free(reason) => (atoms::free(), reason).encode(env),
        ClockState::Due | ClockState::Starting => (atoms::free(), "CUDA has not answered yet").encode(env),
    });
    reply(env, clock)
}

/// For each type by its Nx name: who computes with it, and the bits of an element in a buffer.
#[rustler::nif(schedule = "DirtyCpu")]
fn type_support<'a>(env: Env<'a>) -> NifResult<Term<'a>> {
    let support = crate::gpu::gpu().and_then(|gpu| {
        let pairs = Type::ALL.map(|ty| {
            let support = match ty.support(&gpu.caps) {
                Support::Device => atoms::device(),
                Support::Emulated => atoms::emulated(),
                Support::Fallback => atoms::fallback(),
            };
            Ok((type_term(env, ty)?, (support, ty.held_bits()).encode(env)))
        });
        let pairs = pairs.into_iter().collect::<Result<Vec<_>>>()?;
        Term::map_from_pairs(env, &pairs).map_err(|_| Error::Invalid("types are distinct".into()))
    });
    reply(env, support)
}

pair!(memory_info, memory_info_dirty, (device), reply_bare, memory);

fn memory(device: Term, blocking: Blocking) -> Attempt<MemoryInfo> {
    Ok(gpu_at(device_arg(device)?, blocking)?.pool.info())
}

impl Encoder for MemoryInfo {
    fn encode<'a>(&self, env: Env<'a>) -> Term<'a> {
        let pairs = [
            (atoms::limit(), self.limit),
            (atoms::pool_bytes(), self.pool),
            (atoms::used_bytes(), self.used),
            (atoms::buffers(), self.buffers),
            (atoms::most_used_bytes(), self.most_used),
        ];
        Term::map_from_pairs(env, &pairs).unwrap_or_else(|_| atoms::nil().encode(env))
    }
}

pair!(sync, sync_dirty, (device), reply_ok, wait);

/// A call that may not block has the device start before it is repeated where it may.
fn wait(device: Term, blocking: Blocking) -> Attempt<()> {
    let gpu = gpu_at(device_arg(device)?, blocking)?;
    match blocking {
        Blocking::Refused => gpu.try_finish(),
        Blocking::Allowed => Ok(gpu.stream.finish()?),
    }
}
