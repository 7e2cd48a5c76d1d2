//! Profiles of all that the device runs between two calls.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use rustler::{Encoder, Env, NifResult, ResourceArc, Term};

use super::*;
use crate::gpu::Gpu;
use crate::stream::{CommandSample, Profile, RecordedSample};

/// Ends its profile when it is dropped, as when the process dies.
struct ProfileResource {
    gpu: &'static Gpu,
    on: AtomicBool,
}

#[rustler::resource_impl]
impl rustler::Resource for ProfileResource {}

impl Drop for ProfileResource {
    fn drop(&mut self) {
        if self.on.load(Relaxed) {
            self.gpu.stream.give_up_profile();
        }
    }
}

/// Has all commands of a device from now on get timestamps, and the most memory in use be counted from now on. Fails where a profile is on.
#[rustler::nif(schedule = "DirtyCpu")]
fn profile_start<'a>(env: Env<'a>, device: Term<'a>) -> NifResult<Term<'a>> {
    let start = || -> Result<ResourceArc<ProfileResource>> {
        let gpu = crate::gpu::gpu_at(device_arg(device)?)?;
        gpu.stream.start_profile()?;
        gpu.pool.reset_most_used();
        Ok(ResourceArc::new(ProfileResource { gpu, on: AtomicBool::new(true) }))
    };
    reply(env, start())
}

/// `{commands, waits, dropped, nanoseconds}`, once all commands have run. A command is `{name, groups, read, written, operations, recorded, host, begin,
/// end}`, a wait `{begin, end}`, in nanoseconds since the profile's beginning.
#[rustler::nif(schedule = "DirtyCpu")]
fn profile_stop<'a>(env: Env<'a>, profile: Term<'a>) -> NifResult<Term<'a>> {
    let stop = || -> Result<Profile> {
        let resource: ResourceArc<ProfileResource> =
            profile.decode().map_err(|_| wrong("profile", "a profile's reference"))?;
        if !resource.on.swap(false, Relaxed) {
            return Err(Error::Argument("profile: it has ended".into()));
        }
        resource.gpu.stream.stop_profile()
    };
    reply(env, stop())
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Encoder for CommandSample {
    fn encode<'a>(&self, env: Env<'a>) -> Term<'a> {
        let Self { recorded: sample, device } = self;
        let RecordedSample { name, groups: [x, y, z], read, written, operations, recorded, host } = sample;
        let elements = [
            (**name).encode(env),
            (x, y, z).encode(env),
            read.encode(env),
            written.encode(env),
            operations.encode(env),
            nanoseconds(*recorded).encode(env),
            nanoseconds(*host).encode(env),
            nanoseconds(device.start).encode(env),
            nanoseconds(device.end).encode(env),
        ];
        rustler::types::tuple::make_tuple(env, &elements)
    }
}

impl Encoder for Profile {
    fn encode<'a>(&self, env: Env<'a>) -> Term<'a> {
        let wait = |wait: &Range<Duration>| (nanoseconds(wait.start), nanoseconds(wait.end));
        let waits: Vec<_> = self.waits.iter().map(wait).collect();
        (&self.commands, waits, self.dropped, nanoseconds(self.elapsed)).encode(env)
    }
}
