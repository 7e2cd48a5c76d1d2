//! Which device a call runs on: its operands', or the one that it names. Operands that were copied from the host belong to any device, and
//! are moved to that of the others.

use rustler::types::tuple::get_tuple;
use rustler::{Atom, ListIterator, NifResult, Term};

use super::*;
use crate::gpu::{Gpu, gpu_at as open_at, gpu_if_ready};
use crate::graph::Operand;
use crate::memory::{AllocationHandle, Blocking};

/// The index of a device, or nil for the default one.
pub(super) fn device_arg(term: Term) -> Result<Option<usize>> {
    if is_nil(term) { Ok(None) } else { size_arg(term, "device").map(|index| Some(index as usize)) }
}

/// A device by its index, or the default one, once it is not too far behind its callers. A call that may block makes it and waits for it.
pub(super) fn gpu_at(device: Option<usize>, blocking: Blocking) -> Attempt<&'static Gpu> {
    let gpu = match blocking {
        Blocking::Refused => gpu_if_ready(device)?,
        Blocking::Allowed => open_at(device)?,
    };
    gpu.stream.apply_backpressure(blocking)?;
    Ok(gpu)
}

/// The device that all of these are on, or `device` where there are none, once it is not too far behind its callers.
pub(super) fn gpu_of<'a>(
    allocations: impl Iterator<Item = &'a AllocationHandle>,
    device: Option<usize>,
    blocking: Blocking,
) -> Attempt<&'static Gpu> {
    let mut found: Option<&'static Gpu> = None;
    for allocation in allocations {
        let gpu = Gpu::of(allocation)?;
        if found.is_some_and(|found| !std::ptr::eq(found, gpu)) {
            return Err(Retry::AfterMove.into());
        }
        found = Some(gpu);
    }
    let Some(gpu) = found else { return gpu_at(device, blocking) };
    gpu.stream.apply_backpressure(blocking)?;
    Ok(gpu)
}

/// As [`gpu_of`], of a call's operands.
pub(super) fn gpu_of_operands(
    operands: &[Operand],
    device: Option<usize>,
    blocking: Blocking,
) -> Attempt<&'static Gpu> {
    gpu_of(operands.iter().filter_map(Operand::handle).map(|handle| &**handle), device, blocking)
}

/// The device that a buffer is on, once it is not too far behind its callers.
pub(super) fn gpu_of_buffer(buffer: &Buffer, blocking: Blocking) -> Attempt<&'static Gpu> {
    gpu_of([&*buffer.allocation()?].into_iter(), None, blocking)
}

/// As [`gpu_of_buffer`], of buffers that are all on one device.
pub(super) fn gpu_of_buffers(buffers: &[&Buffer], blocking: Blocking) -> Attempt<&'static Gpu> {
    let allocations = buffers.iter().map(|buffer| buffer.allocation()).collect::<Result<SmallVec<[_; 4]>>>()?;
    gpu_of(allocations.iter().map(|allocation| &**allocation), None, blocking)
}

/// Moves the operands of a call that came from the host to the device of its others. Fails where those are of several.
#[rustler::nif(schedule = "DirtyCpu")]
fn move_operands<'a>(env: Env<'a>, args: Term<'a>) -> NifResult<Term<'a>> {
    reply_ok(env, moved(args))
}

fn moved(args: Term) -> Attempt<()> {
    let mut buffers = vec![];
    add_buffers(args, &mut buffers);
    let gpu_of = |buffer: &Buffer| Gpu::of(&*buffer.allocation()?);
    let (movable, fixed): (Vec<&Buffer>, Vec<&Buffer>) = buffers.into_iter().partition(|buffer| buffer.is_movable());
    // That a device was lost says more than that there are two.
    fixed.iter().try_for_each(|buffer| gpu_of(buffer)?.stream.submit())?;
    let Some(first) = fixed.first().or(movable.first()) else { return Err(Error::SizeMismatch.into()) };
    let target = gpu_of(first)?;
    for other in &fixed {
        let other = gpu_of(other)?;
        if !std::ptr::eq(other, target) {
            return Err(apart(target, other).into());
        }
    }
    for buffer in movable {
        let gpu = gpu_of(buffer)?;
        if !std::ptr::eq(gpu, target) {
            let readback = gpu.read(buffer, 0, buffer.len())?;
            buffer.move_to(&target.upload(readback.bytes(), Blocking::Allowed)?);
        }
    }
    Ok(())
}

/// The error of a call whose operands are of two devices.
fn apart(one: &Gpu, other: &Gpu) -> Error {
    Error::Argument(
        format!(
            "the operands are on {} and {}: move one to the other's device, by Nx.backend_transfer(tensor, \
             {{Nx.Vulkan.VulkanoBackend, device: {}}})",
            one.label(),
            other.label(),
            one.index,
        )
        .into(),
    )
}

/// Adds all buffers in a term of lists and tuples.
fn add_buffers<'a>(term: Term<'a>, buffers: &mut Vec<&'a Buffer>) {
    if let Ok(buffer) = buffer_arg(term, "args") {
        buffers.push(buffer);
    } else if let Ok(list) = term.decode::<ListIterator>() {
        list.for_each(|element| add_buffers(element, buffers));
    } else if let Ok(elements) = get_tuple(term) {
        elements.into_iter().for_each(|element| add_buffers(element, buffers));
    }
}

/// Whether a buffer is on a device, the default one for nil.
#[rustler::nif(schedule = "DirtyCpu")]
fn buf_on_device<'a>(env: Env<'a>, buffer: Term<'a>, device: Term<'a>) -> NifResult<Term<'a>> {
    let on_device = || -> Result<bool> {
        let allocation = buffer_arg(buffer, "ref")?.allocation()?;
        Ok(std::ptr::eq(Gpu::of(&allocation)?, open_at(device_arg(device)?)?))
    };
    reply(env, on_device())
}

/// The index of a device by its UUID or part of its name.
#[rustler::nif(schedule = "DirtyCpu")]
fn device_index<'a>(env: Env<'a>, wanted: Term<'a>) -> NifResult<Term<'a>> {
    let index = || crate::gpu::devices()?.find(text_arg(wanted, "device")?);
    reply(env, index())
}

/// Makes a device anew, the default one for nil.
#[rustler::nif(schedule = "DirtyCpu")]
fn reset<'a>(env: Env<'a>, device: Term<'a>) -> NifResult<Term<'a>> {
    reply_ok(env, device_arg(device).and_then(crate::gpu::reset))
}

/// How many devices were lost.
#[rustler::nif]
fn losses() -> usize {
    crate::gpu::losses()
}

/// The devices of the process, `{devices, index of the default one, whether NX_VULKAN_DEVICES lists them}`.
#[rustler::nif(schedule = "DirtyCpu")]
fn device_list(env: Env) -> NifResult<Term> {
    let list = crate::gpu::devices().map(|devices| {
        let device = |(index, device): (usize, crate::device::Listed)| {
            let kind = Atom::from_str(env, device.kind).unwrap_or(atoms::nil());
            let pairs = [
                (atoms::index(), index.encode(env)),
                (atoms::name(), device.name.encode(env)),
                (atoms::r#type(), kind.encode(env)),
                (atoms::uuid(), device.uuid.encode(env)),
            ];
            Term::map_from_pairs(env, &pairs).unwrap_or_else(|_| atoms::nil().encode(env))
        };
        let list: Vec<Term> = devices.listed().into_iter().enumerate().map(device).collect();
        (list, devices.default_index(), devices.restricted)
    });
    reply(env, list)
}
