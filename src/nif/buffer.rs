//! Buffers: allocation, transfer, size, freeing.

use rustler::{Encoder, Env, NifResult, OwnedBinary, ResourceArc, Term};

use super::*;
use crate::gpu::{Gpu, PendingRead};
use crate::memory::Blocking;

pair!(buf_alloc, buf_alloc_dirty, (n_bytes, device), reply, alloc);
pair!(buf_upload, buf_upload_dirty, (data, device), reply, upload);
pair!(operand_upload, operand_upload_dirty, (data, device), reply, upload_operand);
pair!(buf_download, buf_download_dirty, (buffer), reply_bare, download);
pair!(buf_read, buf_read_dirty, (buffer, offset, len), reply_bare, read_range);
pair!(read_finish, read_finish_dirty, (read), reply, finish_read);
pair!(buf_upload_into, buf_upload_into_dirty, (buffer, data), reply_ok, upload_into);

fn alloc(n_bytes: Term, device: Term, blocking: Blocking) -> Attempt<BufferRef> {
    let len = size_arg(n_bytes, "n_bytes")?;
    gpu_at(device_arg(device)?, blocking)?.zeroed(len, blocking).map(BufferRef::from)
}

fn upload(data: Term, device: Term, blocking: Blocking) -> Attempt<BufferRef> {
    uploaded(data, device, blocking).map(BufferRef::from)
}

/// As `upload`, of data that belongs to no device: it goes to that of a call's other operands.
fn upload_operand(data: Term, device: Term, blocking: Blocking) -> Attempt<BufferRef> {
    let buffer = uploaded(data, device, blocking)?;
    buffer.set_movable();
    Ok(buffer.into())
}

fn uploaded(data: Term, device: Term, blocking: Blocking) -> Attempt<Buffer> {
    let bytes = bytes_arg(data, "data")?;
    let gpu = gpu_at(device_arg(device)?, blocking)?;
    let buffer = gpu.upload(&bytes, blocking)?;
    definitions::constant(data.get_env(), gpu, &buffer)?;
    Ok(buffer)
}

fn upload_into(buffer: Term, data: Term, blocking: Blocking) -> Attempt<()> {
    let (buffer, data) = (buffer_arg(buffer, "ref")?, bytes_arg(data, "data")?);
    gpu_of_buffer(buffer, blocking)?.upload_into(buffer, &data, blocking)
}

/// A read that a device has started.
struct ReadResource {
    read: PendingRead,
    gpu: &'static Gpu,
}

#[rustler::resource_impl]
impl rustler::Resource for ReadResource {}

/// `{:ok, bytes}`, or `{:pending, read}` where the device does not have them soon.
enum ReadAnswer<'a> {
    Bytes(Term<'a>),
    Pending(ResourceArc<ReadResource>),
}

impl Encoder for ReadAnswer<'_> {
    fn encode<'a>(&self, env: Env<'a>) -> Term<'a> {
        match self {
            Self::Bytes(bytes) => (atoms::ok(), bytes).encode(env),
            Self::Pending(read) => (atoms::pending(), read).encode(env),
        }
    }
}

fn download(buffer: Term, blocking: Blocking) -> Attempt<ReadAnswer> {
    let stored = buffer_arg(buffer, "ref")?;
    let len = stored.len();
    read(buffer.get_env(), stored, 0, len, blocking)
}

fn read_range<'a>(buffer: Term<'a>, offset: Term, len: Term, blocking: Blocking) -> Attempt<ReadAnswer<'a>> {
    let stored = buffer_arg(buffer, "ref")?;
    read(buffer.get_env(), stored, size_arg(offset, "offset")?, size_arg(len, "len")?, blocking)
}

/// Results up to this size are copied: small binaries should not each keep staging memory.
const MAX_COPIED_BYTES: usize = 64 << 10;

fn read<'a>(env: Env<'a>, buffer: &Buffer, offset: u64, len: u64, blocking: Blocking) -> Attempt<ReadAnswer<'a>> {
    let gpu = gpu_of_buffer(buffer, blocking)?;
    definitions::give_up(env);
    if blocking == Blocking::Allowed {
        return Ok(ReadAnswer::Bytes(binary(env, gpu.read(buffer, offset, len)?)?));
    }
    let read = ResourceArc::new(ReadResource { read: gpu.try_read(buffer, offset, len)?, gpu });
    match finished(env, &read, blocking) {
        Ok(bytes) => Ok(ReadAnswer::Bytes(bytes)),
        Err(Unfinished::Retry(Retry::Later)) => Ok(ReadAnswer::Pending(read)),
        Err(error) => Err(error),
    }
}

/// The bytes of a read that was answered with `{:pending, read}`.
fn finish_read(read: Term, blocking: Blocking) -> Attempt<Term> {
    let resource: &ReadResource = read.decode().map_err(|_| wrong("read", "a read's reference"))?;
    finished(read.get_env(), resource, blocking)
}

fn finished<'a>(env: Env<'a>, read: &ReadResource, blocking: Blocking) -> Attempt<Term<'a>> {
    Ok(copied(env, read.gpu.finish_read(&read.read, blocking)?)?)
}

/// Bytes read back as a binary: a copy where small, else the staging memory itself.
pub(super) fn binary(env: Env, readback: Readback) -> Result<Term> {
    if readback.bytes().len() <= MAX_COPIED_BYTES {
        return copied(env, readback.bytes());
    }
    let resource = ResourceArc::new(ReadbackResource(readback));
    Ok(resource.make_binary(env, |resource| resource.0.bytes()).encode(env))
}

fn copied<'a>(env: Env<'a>, bytes: &[u8]) -> Result<Term<'a>> {
    let mut copy = OwnedBinary::new(bytes.len());
    copy.as_mut_slice().copy_from_slice(bytes);
    Ok(copy.release(env).encode(env))
}

#[rustler::nif]
fn buf_byte_size<'a>(env: Env<'a>, buffer: Term<'a>) -> NifResult<Term<'a>> {
    match buffer_arg(buffer, "ref") {
        Ok(buffer) => Ok(buffer.len().encode(env)),
        Err(error) => failure(env, error),
    }
}

#[rustler::nif]
fn buf_free<'a>(env: Env<'a>, buffer: Term<'a>) -> NifResult<Term<'a>> {
    match buffer_arg(buffer, "ref") {
        Ok(buffer) if buffer.free() => Ok(atoms::ok().encode(env)),
        Ok(_) => Ok(atoms::already_deallocated().encode(env)),
        Err(error) => failure(env, error),
    }
}
