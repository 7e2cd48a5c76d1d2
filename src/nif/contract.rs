//! Contractions of strided views.

use rustler::Term;

use super::epilogue::{ContractionRefs, EpilogueTerms, run_contraction};
use super::graphs::KeyTerms;
use super::program::operands;
use super::rows::RowTerms;
use super::*;
use crate::graph::Operand;
use crate::kernels::contraction::{Axis, Contraction, OperandView, PaddedAxis};
use crate::kernels::fusion::Row;
use crate::memory::Blocking;

pair!(contract, contract_dirty, (out_type, a, b, axes), reply, contraction);

pair!(
    contract_with_epilogue,
    contract_with_epilogue_dirty,
    (out_type, a, b, axes, epilogue),
    reply,
    contraction_with_epilogue
);

/// `a` and `b` are `{ref, type, offset}`, or one of them is `{nodes, inputs, shape}`, a row program of one row as `run_rows` takes it, whose result
/// is read from its first element on. `axes` are `{batch, rows, columns, depth, padded_axes}`: lists of
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
    let terms = [OperandTerms::new(a, "a")?, OperandTerms::new(b, "b")?];
    let mut key = KeyTerms::from_slice(&[atoms::contract().to_term(env), axes]);
    terms.iter().for_each(|terms| terms.key(&mut key));
    let buffers = terms.iter().filter_map(OperandTerms::buffer).map(|buffer| Ok((buffer.allocation()?, buffer.len())));
    let buffers = buffers.collect::<Result<SmallVec<[_; 2]>>>()?;
    if buffers.is_empty() {
        return Err(wrong("a", "one row program at most, and a buffer").into());
    }
    let position = terms.iter().position(|terms| terms.row().is_some()).unwrap_or_default();
    let row = terms[position].row();
    let of_row = row.map(RowTerms::operands).transpose()?.unwrap_or_default();
    let of_row = operands(&of_row, buffers.len());
    let mut contracted: SmallVec<[Operand; 8]> = SmallVec::new();
    contracted.extend(buffers.iter().map(|(allocation, bytes)| Operand::Buffer(allocation, *bytes)));
    contracted.extend_from_slice(&of_row);
    run_contraction(out_type, &key, &contracted, epilogue, blocking, |cx, ty, epilogue| {
        let [batch, rows, columns, depth, padded_axes] = tuple_arg(axes, "axes")?[..] else {
            return Err(wrong("axes", "{batch, rows, columns, depth, padded_axes}").into());
        };
        let program = row.map(RowTerms::program).transpose()?;
        let row = program.as_ref().map(|program| Row::new(cx, program, &of_row)).transpose()?;
        let memory = row.as_ref().map(|row| row.allocate(cx)).transpose()?;
        let own = row.as_ref().zip(memory.as_ref());
        let own = own.map(|(row, buffer)| OperandView { buffer, ty: row.ty(), offset: 0 });
        let contraction = Contraction {
            ty,
            a: terms[0].view(own, "a")?,
            b: terms[1].view(own, "b")?,
            batch: axes_arg(batch)?,
            rows: axes_arg(rows)?,
            columns: axes_arg(columns)?,
            depth: axes_arg(depth)?,
            padded_axes: list_arg(padded_axes, "axes")?.map(padded_axis_arg).collect::<Result<_>>()?,
        };
        match row {
            None => contraction.run(cx, epilogue),
            Some(row) => contraction.run_on_row(cx, (&row, position), epilogue),
        }
    })
}

/// The terms of an operand.
enum OperandTerms<'a> {
    View { buffer: &'a Buffer, ty: Term<'a>, offset: Term<'a> },
    Row(Box<RowTerms<'a>>),
}

impl<'a> OperandTerms<'a> {
    fn new(term: Term<'a>, name: &str) -> Result<Self> {
        let invalid = |_| wrong(name, "{ref, type, offset} or {nodes, inputs, shape}");
        let (first, second, third): (Term, Term, Term) = term.decode().map_err(invalid)?;
        if second.is_list() {
            return Ok(Self::Row(Box::new(RowTerms::new(first, second, third)?)));
        }
        Ok(Self::View { buffer: buffer_arg(first, name)?, ty: second, offset: third })
    }

    fn key(&self, key: &mut KeyTerms<'a>) {
        match self {
            Self::View { ty, offset, .. } => key.extend([*ty, *offset]),
            Self::Row(terms) => terms.key(key),
        }
    }

    fn buffer(&self) -> Option<&'a Buffer> {
        match self {
            Self::View { buffer, .. } => Some(buffer),
            Self::Row(_) => None,
        }
    }

    fn row(&self) -> Option<&RowTerms<'a>> {
        match self {
            Self::View { .. } => None,
            Self::Row(terms) => Some(terms),
        }
    }

    /// The operand; `row` is that of a row program.
    fn view<'v>(&self, row: Option<OperandView<'v>>, name: &str) -> Result<OperandView<'v>>
    where
        'a: 'v,
    {
        match self {
            Self::View { buffer, ty, offset } => {
                Ok(OperandView { buffer, ty: type_arg(*ty, name)?, offset: step_arg(*offset, name)? })
            }
            Self::Row(_) => row.ok_or_else(|| wrong(name, "a buffer")),
        }
    }
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
