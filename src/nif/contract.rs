//! Contractions of strided views.

use rustler::Term;

use super::*;
use crate::kernels::contraction::{Axis, Border, Contraction, View};
use crate::memory::Patience;
use crate::program::Type;

pair!(contract, contract_dirty, (out_type, a, b, axes), reply, product);

/// `a` and `b` are `{ref, type, offset}`; `axes` are `{batch, rows, columns, depth, borders}`: lists of
/// `{extent, stride in a, stride in b, stride in the result}`, with the index of a border and the step along its coordinate
/// behind where there is one, and a list of borders `{start, extent, stride}`, see [`Contraction`].
fn product(out_type: Term, a: Term, b: Term, axes: Term, patience: Patience) -> Result<BufferRef> {
    let ty = type_arg(out_type, "out_type")?;
    let (a, b) = (view_arg(a, "a")?, view_arg(b, "b")?);
    let [batch, rows, columns, depth, borders] = tuple_arg(axes, "axes")?[..] else {
        return Err(wrong("axes", "{batch, rows, columns, depth, borders}"));
    };
    let contraction = Contraction {
        ty,
        a: View { buffer: a.0, ty: a.1, offset: a.2 },
        b: View { buffer: b.0, ty: b.1, offset: b.2 },
        batch: axes_arg(batch)?,
        rows: axes_arg(rows)?,
        columns: axes_arg(columns)?,
        depth: axes_arg(depth)?,
        borders: list_arg(borders, "axes")?.map(border_arg).collect::<Result<_>>()?,
    };
    contraction.run(gpu(patience)?, patience).map(BufferRef::from)
}

fn view_arg<'a>(term: Term<'a>, name: &str) -> Result<(&'a Buffer, Type, i64)> {
    match tuple_arg(term, name)?[..] {
        [buffer, ty, offset] => Ok((buffer_arg(buffer, name)?, type_arg(ty, name)?, step_arg(offset, name)?)),
        _ => Err(wrong(name, "{ref, type, offset}")),
    }
}

fn axes_arg(term: Term) -> Result<Vec<Axis>> {
    let axis = |term: Term| {
        let numbers = tuple_arg(term, "axes")?;
        let (&[dim, a, b, c], border) = numbers.split_first_chunk().ok_or_else(wrong_axis)?;
        let border = match *border {
            [] => None,
            [border, step] => Some((size_arg(border, "axes")? as usize, step_arg(step, "axes")?)),
            _ => return Err(wrong_axis()),
        };
        Ok(Axis {
            dim: size_arg(dim, "axes")?,
            a: step_arg(a, "axes")?,
            b: step_arg(b, "axes")?,
            c: step_arg(c, "axes")?,
            border,
        })
    };
    list_arg(term, "axes")?.map(axis).collect()
}

fn wrong_axis() -> Error {
    wrong("axes", "{extent, stride in a, stride in b, stride in the result}, or with a border and a step")
}

fn border_arg(term: Term) -> Result<Border> {
    match tuple_arg(term, "axes")?[..] {
        [start, extent, stride] => Ok(Border {
            start: step_arg(start, "axes")?,
            extent: size_arg(extent, "axes")?,
            stride: step_arg(stride, "axes")?,
        }),
        _ => Err(wrong("axes", "borders {start, extent, stride}")),
    }
}
