//! What people ask about the device and its memory.

use rustler::{Encoder, Env, NifResult, Term};

use super::*;
use crate::device;

#[rustler::nif(schedule = "DirtyCpu")]
fn device_info<'a>(env: Env<'a>) -> NifResult<Term<'a>> {
    let found = device::gpu().and_then(|gpu| Ok((gpu, device::devices()?)));
    let info = found.map(|(gpu, devices)| {
        let caps = &gpu.caps;
        let atom =
            |name: &str| rustler::Atom::from_str(env, name).map(|atom| atom.encode(env)).unwrap_or(name.encode(env));
        let features: Vec<Term> = caps.feature_names().into_iter().map(atom).collect();
        let listed = |(i, d): (usize, &device::Listed)| {
            let keys = [atoms::index(), atoms::name(), atoms::r#type()].map(|key| key.encode(env));
            let values = [i.encode(env), d.name.encode(env), atom(d.kind)];
            Term::map_from_term_arrays(env, &keys, &values).unwrap_or_else(|_| d.name.encode(env))
        };
        let devices: Vec<Term> = devices.iter().enumerate().map(listed).collect();
        let pairs = [
            (atoms::name(), caps.name.encode(env)),
            (atoms::r#type(), atom(caps.kind)),
            (atoms::driver(), caps.driver.encode(env)),
            (atoms::api_version(), caps.api_version.encode(env)),
            (atoms::heap_bytes(), caps.heap.encode(env)),
            (atoms::features(), features.encode(env)),
            (atoms::devices(), devices.encode(env)),
        ];
        Term::map_from_pairs(env, &pairs).unwrap_or_else(|_| atoms::nil().encode(env))
    });
    reply(env, info)
}

#[rustler::nif(schedule = "DirtyCpu")]
fn memory_info<'a>(env: Env<'a>) -> NifResult<Term<'a>> {
    match device::gpu() {
        Ok(gpu) => {
            let info = gpu.pool.info();
            let pairs = [
                (atoms::limit(), info.limit),
                (atoms::pool_bytes(), info.pool),
                (atoms::used_bytes(), info.used),
                (atoms::buffers(), info.buffers),
            ];
            Term::map_from_pairs(env, &pairs)
        }
        Err(error) => failure(env, &error),
    }
}

#[rustler::nif(schedule = "DirtyCpu")]
fn sync<'a>(env: Env<'a>) -> NifResult<Term<'a>> {
    reply_ok(env, device::gpu().and_then(|gpu| gpu.stream.finish()))
}
