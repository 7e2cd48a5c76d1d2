//! Contractions of strided views.

use rustler::Term;

use super::graphs::KeyTerms;
use super::*;
use crate::graph::{Context, Operand};
use crate::kernels::contraction::{Axis, Border, Contraction, View};
use crate::memory::Blocking;

pair!(contract, contract_dirty, (out_type, a, b, axes), reply, product);

/// `a` and `b` are `{ref, type, offset}`; `axes` are `{batch, rows, columns, depth, borders}`: lists of
/// `{extent, stride in a, stride in b, stride in the result}`, with the index of a border and the step along its coordinate
/// behind where there is one, and a list of borders `{start, extent, stride}`, see [`Contraction`].
fn product<'a>(out_type: Term<'a>, a: Term<'a>, b: Term<'a>, axes: Term<'a>, blocking: Blocking) -> Attempt<BufferRef> {
    let env = out_type.get_env();
    let [(buffer_a, ty_a, offset_a), (buffer_b, ty_b, offset_b)] = [view_terms(a, "a")?, view_terms(b, "b")?];
    let [buffer_a, buffer_b] = [buffer_arg(buffer_a, "a")?, buffer_arg(buffer_b, "b")?];
    let allocations = [buffer_a.allocation()?, buffer_b.allocation()?];
    let operands = [Operand::Buffer(&allocations[0], buffer_a.len()), Operand::Buffer(&allocations[1], buffer_b.len())];
    let view = |buffer, ty, offset, name| -> Result<View> {
        Ok(View { buffer, ty: type_arg(ty, name)?, offset: step_arg(offset, name)? })
    };
    let call = |cx: &Context| {
        let [batch, rows, columns, depth, borders] = tuple_arg(axes, "axes")?[..] else {
            return Err(wrong("axes", "{batch, rows, columns, depth, borders}").into());
        };
        let contraction = Contraction {
            ty: type_arg(out_type, "out_type")?,
            a: view(buffer_a, ty_a, offset_a, "a")?,
            b: view(buffer_b, ty_b, offset_b, "b")?,
            batch: axes_arg(batch)?,
            rows: axes_arg(rows)?,
            columns: axes_arg(columns)?,
            depth: axes_arg(depth)?,
            borders: list_arg(borders, "axes")?.map(border_arg).collect::<Result<_>>()?,
        };
        Ok([contraction.run(cx)?])
    };
    let parts = [atoms::contract().to_term(env), out_type, ty_a, offset_a, ty_b, offset_b, axes];
    graphs::run(env, KeyTerms::from_slice(&parts), &operands, blocking, call).map(|[buffer]| buffer.into())
}

fn view_terms<'a>(term: Term<'a>, name: &str) -> Result<(Term<'a>, Term<'a>, Term<'a>)> {
    term.decode().map_err(|_| wrong(name, "{ref, type, offset}"))
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
