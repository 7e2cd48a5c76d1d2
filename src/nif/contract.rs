//! Contractions of strided views.

use rustler::Term;

use super::epilogue::{ContractionRefs, EpilogueTerms, run_contraction};
use super::*;
use crate::kernels::contraction::{Axis, Contraction, OperandView, PaddedAxis};
use crate::memory::Blocking;

pair!(contract, contract_dirty, (out_type, a, b, axes), reply, contraction);

pair!(
    contract_with_epilogue,
    contract_with_epilogue_dirty,
    (out_type, a, b, axes, epilogue),
    reply,
    contraction_with_epilogue
);

/// `a` and `b` are `{ref, type, offset}`; `axes` are `{batch, rows, columns, depth, padded_axes}`: lists of
/// `{extent, stride in a, stride in b, stride in the result}`, followed by the index of a padded axis and the
/// step along its coordinate where there is one, and a list of padded axes `{start, extent, stride}`, see [`Contraction`].
fn contraction<'a>(
    out_type: Term<'a>,
    a: Term<'a>,
    b: Term<'a>,
    axes: Term<'a>,
    blocking: Blocking,
) -> Attempt<ContractionRefs> {
    run(out_type, [a, b], axes, None, blocking)
}

/// As `contract`; `epilogue` is `{nodes, inputs, shape, element, keeps_element}`, see [`EpilogueTerms`].
fn contraction_with_epilogue<'a>(
    out_type: Term<'a>,
    a: Term<'a>,
    b: Term<'a>,
    axes: Term<'a>,
    epilogue: Term<'a>,
    blocking: Blocking,
) -> Attempt<ContractionRefs> {
    run(out_type, [a, b], axes, Some(EpilogueTerms::from_term(epilogue)?), blocking)
}

fn run<'a>(
    out_type: Term<'a>,
    [a, b]: [Term<'a>; 2],
    axes: Term<'a>,
    epilogue: Option<EpilogueTerms<'a>>,
    blocking: Blocking,
) -> Attempt<ContractionRefs> {
    let env = out_type.get_env();
    let [(buffer_a, ty_a, offset_a), (buffer_b, ty_b, offset_b)] = [view_terms(a, "a")?, view_terms(b, "b")?];
    let [buffer_a, buffer_b] = [buffer_arg(buffer_a, "a")?, buffer_arg(buffer_b, "b")?];
    let view = |buffer, ty, offset, name| -> Result<OperandView> {
        Ok(OperandView { buffer, ty: type_arg(ty, name)?, offset: step_arg(offset, name)? })
    };
    let key = [atoms::contract().to_term(env), ty_a, offset_a, ty_b, offset_b, axes];
    run_contraction(out_type, &key, [buffer_a, buffer_b], epilogue, blocking, |cx, ty, epilogue| {
        let [batch, rows, columns, depth, padded_axes] = tuple_arg(axes, "axes")?[..] else {
            return Err(wrong("axes", "{batch, rows, columns, depth, padded_axes}").into());
        };
        let contraction = Contraction {
            ty,
            a: view(buffer_a, ty_a, offset_a, "a")?,
            b: view(buffer_b, ty_b, offset_b, "b")?,
            batch: axes_arg(batch)?,
            rows: axes_arg(rows)?,
            columns: axes_arg(columns)?,
            depth: axes_arg(depth)?,
            padded_axes: list_arg(padded_axes, "axes")?.map(padded_axis_arg).collect::<Result<_>>()?,
        };
        contraction.run(cx, epilogue)
    })
}

fn view_terms<'a>(term: Term<'a>, name: &str) -> Result<(Term<'a>, Term<'a>, Term<'a>)> {
    term.decode().map_err(|_| wrong(name, "{ref, type, offset}"))
}

fn axes_arg(term: Term) -> Result<Vec<Axis>> {
    let axis = |term: Term| {
        let numbers = tuple_arg(term, "axes")?;
        let (&[dim, a, b, c], padded) = numbers.split_first_chunk().ok_or_else(wrong_axis)?;
        let padded = match *padded {
            [] => None,
            [padded, step] => Some((size_arg(padded, "axes")? as usize, step_arg(step, "axes")?)),
            _ => return Err(wrong_axis()),
        };
        Ok(Axis {
            dim: size_arg(dim, "axes")?,
            a: step_arg(a, "axes")?,
            b: step_arg(b, "axes")?,
            c: step_arg(c, "axes")?,
            padded,
        })
    };
    list_arg(term, "axes")?.map(axis).collect()
}

fn wrong_axis() -> Error {
    wrong("axes", "{extent, stride in a, stride in b, stride in the result}, or with a padded axis and a step")
}

fn padded_axis_arg(term: Term) -> Result<PaddedAxis> {
    match tuple_arg(term, "axes")?[..] {
        [start, extent, stride] => Ok(PaddedAxis {
            start: step_arg(start, "axes")?,
            extent: size_arg(extent, "axes")?,
            stride: step_arg(stride, "axes")?,
        }),
        _ => Err(wrong("axes", "padded axes {start, extent, stride}")),
    }
}
