//! Writing and adding at indices.

use std::sync::Arc;

use rustler::Term;

use super::graphs::KeyTerms;
use super::*;
use crate::graph::{Context, Operand};
use crate::kernels::scatter::{self, Scatter, ScatterMode};
use crate::memory::Blocking;

mod names {
    rustler::atoms! { scatter }
}

pair!(scatter, scatter_dirty, (mode, out_type, target, indices, updates, axes, check), reply, run);

#[allow(clippy::too_many_arguments, reason = "the arguments of the NIF, in its order")]
fn run<'a>(
    mode: Term<'a>,
    out_type: Term<'a>,
    target: Term<'a>,
    indices: Term<'a>,
    updates: Term<'a>,
    axes: Term<'a>,
    check: Term<'a>,
    blocking: Blocking,
) -> Attempt<BufferRef> {
    let env = out_type.get_env();
    let [target, indices, updates] =
        [tensor_terms(target, "target")?, tensor_terms(indices, "indices")?, tensor_terms(updates, "updates")?];
    let buffers =
        [buffer_arg(target.0, "target")?, buffer_arg(indices.0, "indices")?, buffer_arg(updates.0, "updates")?];
    let allocations = [buffers[0].allocation()?, buffers[1].allocation()?, buffers[2].allocation()?];
    let operands = [0, 1, 2].map(|i| Operand::Buffer(&allocations[i], buffers[i].len()));
    let call = |cx: &Context| {
        let mode = match mode.atom_to_string().as_deref() {
            Ok("put") => ScatterMode::Put,
            Ok("add") => ScatterMode::Add,
            _ => return Err(wrong("mode", ":put or :add").into()),
        };
        let ty = type_arg(out_type, "out_type")?;
        let target = TensorArg::of(buffers[0], target.1, target.2, "target")?;
        let indices = TensorArg::of(buffers[1], indices.1, indices.2, "indices")?;
        let updates = TensorArg::of(buffers[2], updates.1, updates.2, "updates")?;
        let axes = &indices_arg::<Vec<_>>(axes, "axes")?;
        let [target, indices, updates] = [&target, &indices, &updates].map(TensorArg::tensor);
        let check = match is_nil(check) {
            true => None,
            false => Some(Arc::new(checked_indices_arg(check, "check")?)),
        };
        let scatter = Scatter { mode, ty, target, indices, updates, axes, check: check.as_ref() };
        Ok([scatter::run(cx, &scatter)?])
    };
    let mut key = KeyTerms::from_slice(&[names::scatter().to_term(env), mode, out_type, axes, check]);
    [target, indices, updates].iter().for_each(|(_, ty, shape)| key.extend([*ty, *shape]));
    graphs::run(env, key, &operands, blocking, call).map(|[buffer]| buffer.into())
}
