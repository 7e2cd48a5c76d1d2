//! Contractions of strided views.

use rustler::Term;

use super::*;
use crate::kernels::contraction::{Axis, Contraction, View};
use crate::memory::Patience;
use crate::program::Type;

pair!(contract, contract_dirty, (out_type, a, b, axes), reply, product);

/// `a` and `b` are `{ref, type, offset}`; `axes` are `{batch, rows, columns, depth}`, lists of
/// `{extent, stride in a, stride in b, stride in the result}`, see [`Contraction`].
fn product(out_type: Term, a: Term, b: Term, axes: Term, patience: Patience) -> Result<BufferRef> {
    let ty = type_arg(out_type, "out_type")?;
    let (a, b) = (view_arg(a, "a")?, view_arg(b, "b")?);
    let [batch, rows, columns, depth] = tuple_arg(axes, "axes")?[..] else {
        return Err(wrong("axes", "{batch, rows, columns, depth}"));
    };
    let contraction = Contraction {
        ty,
        a: View { buffer: &a.0, ty: a.1, offset: a.2 },
        b: View { buffer: &b.0, ty: b.1, offset: b.2 },
        batch: axes_arg(batch)?,
        rows: axes_arg(rows)?,
        columns: axes_arg(columns)?,
        depth: axes_arg(depth)?,
    };
    contraction.run(gpu(patience)?, patience).map(BufferRef::from)
}

fn view_arg(term: Term, name: &str) -> Result<(BufferRef, Type, i64)> {
    match tuple_arg(term, name)?[..] {
        [buffer, ty, offset] => Ok((buffer_arg(buffer, name)?, type_arg(ty, name)?, step_arg(offset, name)?)),
        _ => Err(wrong(name, "{ref, type, offset}")),
    }
}

fn axes_arg(term: Term) -> Result<Vec<Axis>> {
    let axis = |term: Term| match tuple_arg(term, "axes")?[..] {
        [dim, a, b, c] => Ok(Axis {
            dim: size_arg(dim, "axes")?,
            a: step_arg(a, "axes")?,
            b: step_arg(b, "axes")?,
            c: step_arg(c, "axes")?,
        }),
        _ => Err(wrong("axes", "{extent, stride in a, stride in b, stride in the result}")),
    };
    list_arg(term, "axes")?.map(axis).collect()
}
