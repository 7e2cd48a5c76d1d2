//! Writing and adding at indices.

use rustler::Term;

use super::*;
use crate::kernels::scatter::{self, Mode, Tensor};
use crate::memory::Patience;

pair!(scatter, scatter_dirty, (mode, out_type, target, indices, updates, axes), reply, run);

#[allow(clippy::too_many_arguments, reason = "the arguments of the NIF, in its order")]
fn run(
    mode: Term,
    out_type: Term,
    target: Term,
    indices: Term,
    updates: Term,
    axes: Term,
    patience: Patience,
) -> Result<BufferRef> {
    let mode = match mode.atom_to_string().as_deref() {
        Ok("put") => Mode::Put,
        Ok("add") => Mode::Add,
        _ => return Err(wrong("mode", ":put or :add")),
    };
    let ty = type_arg(out_type, "out_type")?;
    let (target, indices) = (tensor(target, "target")?, tensor(indices, "indices")?);
    let (updates, axes) = (tensor(updates, "updates")?, indices_arg::<Vec<_>>(axes, "axes")?);
    scatter::run(gpu(patience)?, mode, ty, &target, &indices, &updates, &axes, patience).map(BufferRef::from)
}

fn tensor(term: Term, name: &str) -> Result<Tensor> {
    let (buffer, ty, shape) = tensor_arg(term, name)?;
    Ok(Tensor { buffer: buffer.lease()?, bytes: buffer.len(), ty, shape })
}
