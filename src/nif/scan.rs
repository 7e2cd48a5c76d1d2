//! Cumulative operations along an axis.

use rustler::{Atom, Term};

use super::*;
use crate::kernels::scan::{self, Operation, Scan};
use crate::memory::Blocking;

mod names {
    rustler::atoms! { sum, product, max, min }
}

pair!(scan, scan_dirty, (operation, tensor, axis, reverse), reply, scanned);

/// The prefixes of a tensor `{ref, type, shape}` along an axis; `operation` is :sum, :product, :max or :min.
fn scanned(operation: Term, tensor: Term, axis: Term, reverse: Term, blocking: Blocking) -> Attempt<BufferRef> {
    let operation = match operation.decode::<Atom>() {
        Ok(name) if name == names::sum() => Operation::Sum,
        Ok(name) if name == names::product() => Operation::Product,
        Ok(name) if name == names::max() => Operation::Max,
        Ok(name) if name == names::min() => Operation::Min,
        _ => return Err(wrong("operation", ":sum, :product, :max or :min").into()),
    };
    let tensor = tensor_arg(tensor, "tensor")?;
    let scan = Scan { operation, rows: tensor.along(axis)?, reverse: bool_arg(reverse, "reverse")? };
    scan::run(&context(blocking)?, &scan).map(BufferRef::from)
}
