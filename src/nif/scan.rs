//! Cumulative operations along an axis.

use rustler::{Atom, Term};

use super::graphs::KeyTerms;
use super::*;
use crate::graph::{Context, Operand};
use crate::kernels::scan::{self, Scan, ScanOperation};
use crate::memory::Blocking;

mod names {
    rustler::atoms! { scan, sum, product, max, min }
}

pair!(scan, scan_dirty, (operation, tensor, axis, reverse), reply, scanned);

/// The prefixes of a tensor `{ref, type, shape}` along an axis; `operation` is :sum, :product, :max or :min.
fn scanned<'a>(
    operation: Term<'a>,
    tensor: Term<'a>,
    axis: Term<'a>,
    reverse: Term<'a>,
    blocking: Blocking,
) -> Attempt<BufferRef> {
    let env = tensor.get_env();
    let (buffer, ty, shape) = tensor_terms(tensor, "tensor")?;
    let buffer = buffer_arg(buffer, "tensor")?;
    let allocation = buffer.allocation()?;
    let call = |cx: &Context| {
        let operation = operation_arg(operation)?;
        let tensor = TensorArg::of(buffer, ty, shape, "tensor")?;
        let scan = Scan { operation, rows: tensor.along(axis)?, reverse: bool_arg(reverse, "reverse")? };
        Ok([scan::run(cx, &scan)?])
    };
    let key = KeyTerms::from_slice(&[names::scan().to_term(env), operation, ty, shape, axis, reverse]);
    let operands = [Operand::Buffer(&allocation, buffer.len())];
    graphs::run(env, key, &operands, blocking, call).map(|[buffer]| buffer.into())
}

fn operation_arg(term: Term) -> Result<ScanOperation> {
    match term.decode::<Atom>() {
        Ok(name) if name == names::sum() => Ok(ScanOperation::Sum),
        Ok(name) if name == names::product() => Ok(ScanOperation::Product),
        Ok(name) if name == names::max() => Ok(ScanOperation::Max),
        Ok(name) if name == names::min() => Ok(ScanOperation::Min),
        _ => Err(wrong("operation", ":sum, :product, :max or :min")),
    }
}
