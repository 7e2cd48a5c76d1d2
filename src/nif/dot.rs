//! Products of tensors.

use rustler::Term;

use super::*;
use crate::kernels::dot::{self, Operand};
use crate::memory::Patience;

pair!(dot, dot_dirty, (out_type, a, contract_a, batch_a, b, contract_b, batch_b), reply, product);

#[allow(clippy::too_many_arguments, reason = "the arguments of the NIF, in its order")]
fn product(
    out_type: Term,
    a: Term,
    contract_a: Term,
    batch_a: Term,
    b: Term,
    contract_b: Term,
    batch_b: Term,
    patience: Patience,
) -> Result<BufferRef> {
    let ty = type_arg(out_type, "out_type")?;
    let (a, b) = (tensor_arg(a, "a")?, tensor_arg(b, "b")?);
    let a_axes = (indices_arg(contract_a, "contract_a")?, indices_arg(batch_a, "batch_a")?);
    let b_axes = (indices_arg(contract_b, "contract_b")?, indices_arg(batch_b, "batch_b")?);
    let a = Operand { tensor: a.tensor(), contract: a_axes.0, batch: a_axes.1 };
    let b = Operand { tensor: b.tensor(), contract: b_axes.0, batch: b_axes.1 };
    dot::run(gpu(patience)?, ty, &a, &b, patience).map(BufferRef::from)
}
