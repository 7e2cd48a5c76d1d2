//! Writing and adding at indices.

use rustler::Term;

use super::*;
use crate::kernels::scatter::{self, Mode};
use crate::memory::Blocking;

pair!(scatter, scatter_dirty, (mode, out_type, target, indices, updates, axes), reply, run);

#[allow(clippy::too_many_arguments, reason = "the arguments of the NIF, in its order")]
fn run(
    mode: Term,
    out_type: Term,
    target: Term,
    indices: Term,
    updates: Term,
    axes: Term,
    blocking: Blocking,
) -> Attempt<BufferRef> {
    let mode = match mode.atom_to_string().as_deref() {
        Ok("put") => Mode::Put,
        Ok("add") => Mode::Add,
        _ => return Err(wrong("mode", ":put or :add").into()),
    };
    let ty = type_arg(out_type, "out_type")?;
    let (target, indices) = (tensor_arg(target, "target")?, tensor_arg(indices, "indices")?);
    let (updates, axes) = (tensor_arg(updates, "updates")?, indices_arg::<Vec<_>>(axes, "axes")?);
    let [target, indices, updates] = [&target, &indices, &updates].map(TensorArg::tensor);
    scatter::run(&context(blocking)?, mode, ty, &target, &indices, &updates, &axes).map(BufferRef::from)
}
