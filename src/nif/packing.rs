//! Conversion of elements between the host's packing and a buffer's.

use rustler::{Encoder, Env, OwnedBinary, Term};

use super::*;
use crate::memory::{Blocking, Packing};

pair!(pack, pack_dirty, (data, bits, stored), packed, to_host);
pair!(unpack, unpack_dirty, (data, bits, stored, count), packed, to_buffer);

/// Packing more bytes would block a normal scheduler for too long.
const MAX_NONBLOCKING_PACK_BYTES: usize = 64 << 10;

/// The length of a binary, and the function that fills it.
struct BinaryOf<F>(usize, F);

fn packed<'a>(env: Env<'a>, filled: Attempt<BinaryOf<impl FnOnce(&mut [u8])>>) -> NifResult<Term<'a>> {
    let binary = filled.map(|BinaryOf(len, fill)| {
        let mut binary = OwnedBinary::new(len);
        fill(binary.as_mut_slice());
        binary.release(env).encode(env)
    });
    reply(env, binary)
}

fn to_host<'a>(
    data: Term<'a>,
    bits: Term,
    stored: Term,
    blocking: Blocking,
) -> Attempt<BinaryOf<impl FnOnce(&mut [u8]) + 'a>> {
    let (data, packing) = (bytes_arg(data, "data")?, packing_arg(bits, stored)?);
    if data.len() > MAX_NONBLOCKING_PACK_BYTES {
        blocking.require()?;
    }
    Ok(BinaryOf(packing.packed_bytes(&data), move |host: &mut [u8]| packing.pack(&data, host)))
}

fn to_buffer<'a>(
    data: Term<'a>,
    bits: Term,
    stored: Term,
    count: Term,
    blocking: Blocking,
) -> Attempt<BinaryOf<impl FnOnce(&mut [u8]) + 'a>> {
    let (data, packing) = (bytes_arg(data, "data")?, packing_arg(bits, stored)?);
    let count = usize::try_from(size_arg(count, "count")?).map_err(|_| Error::SizeMismatch)?;
    let len = packing.unpacked_bytes(&data, count).ok_or(Error::SizeMismatch)?;
    if len > MAX_NONBLOCKING_PACK_BYTES {
        blocking.require()?;
    }
    Ok(BinaryOf(len, move |buffer: &mut [u8]| packing.unpack(&data, buffer)))
}

fn packing_arg(bits: Term, stored: Term) -> Result<Packing> {
    Packing::new(size_arg(bits, "bits")?, size_arg(stored, "stored")?)
}
