//! Attention of strided views.

use rustler::Term;

use super::epilogue::EpilogueTerms;
use super::graphs::KeyTerms;
use super::program::{input_operands, operands as input_list};
use super::*;
use crate::graph::{Context, Operand};
use crate::kernels::attention::{Attention, AttentionAxis, AttentionUpdate, RowPosition};
use crate::kernels::contraction::OperandView;
use crate::kernels::fusion::Epilogue;
use crate::memory::{Blocking, Buffer};
use crate::program::Type;
use crate::tuning::attention::{AttentionProblem, pays};

mod names {
    rustler::atoms! { attention }
}

pair!(attention, attention_dirty, (out_type, operands, axes, programs, updates), reply, attend);

/// `operands` is `{q, k, v}`, each `{ref, type, offset}`; `axes` are `{batch, rows, depth, keys, columns}`: two lists and three of
/// `{extent, stride in q, stride in k, stride in v, stride in the result}`, see [`Attention`]. `programs` are `{score, weight}`, each `nil` or
/// `{nodes, inputs, shape, index of the element among the inputs, false}`. `updates`, of the keys and of the values, are each `nil` or
/// `{{ref, type, offset}, strides along the batch axes, stride along a head, position}`, see [`AttentionUpdate`]; the position is an integer or
/// `{ref, type, {}}`. The answer is a tuple of the result and what was updated.
fn attend<'a>(
    out_type: Term<'a>,
    operands: Term<'a>,
    axes: Term<'a>,
    programs: Term<'a>,
    updates: Term<'a>,
    blocking: Blocking,
) -> Attempt<BufferRefs> {
    let env = out_type.get_env();
    let [q, k, v] = exactly(operands, "operands")?;
    let [score, weight] = exactly(programs, "programs")?;
    let views = [view_terms(q)?, view_terms(k)?, view_terms(v)?];
    let buffers =
        [buffer_arg(views[0].0, "operands")?, buffer_arg(views[1].0, "operands")?, buffer_arg(views[2].0, "operands")?];
    let allocations = [buffers[0].allocation()?, buffers[1].allocation()?, buffers[2].allocation()?];
    let programs = [program_terms(score)?, program_terms(weight)?];
    let mut values = vec![];
    for program in &programs {
        values.push(program.as_ref().map_or(Ok(Default::default()), |terms| input_operands(terms.inputs()))?);
    }
    let [of_keys, of_values] = exactly(updates, "updates")?;
    let updates = [UpdateTerms::from_term(of_keys)?, UpdateTerms::from_term(of_values)?];
    let read: Vec<_> = updates.iter().flatten().flat_map(UpdateTerms::buffers).collect();
    let read_allocations = read.iter().map(|buffer| buffer.allocation()).collect::<Result<Vec<_>>>()?;
    let mut call_operands: SmallVec<[Operand; 8]> = SmallVec::new();
    let own = allocations.iter().zip(buffers);
    call_operands.extend(own.map(|(allocation, buffer)| Operand::Buffer(allocation, buffer.len())));
    let first = [3, 3 + values[0].len()];
    let inputs = [0, 1].map(|i| input_list(&values[i], first[i]));
    inputs.iter().for_each(|inputs| call_operands.extend_from_slice(inputs));
    let own = read_allocations.iter().zip(&read);
    call_operands.extend(own.map(|(allocation, buffer)| Operand::Buffer(allocation, buffer.len())));
    let mut key = KeyTerms::from_slice(&[names::attention().to_term(env), out_type, axes]);
    views.iter().for_each(|&(_, ty, offset)| key.extend([ty, offset]));
    for program in &programs {
        match program {
            Some(program) => program.key(&mut key),
            None => key.push(atoms::nil().to_term(env)),
        }
    }
    for update in &updates {
        match update {
            Some(update) => update.key(&mut key),
            None => key.push(atoms::nil().to_term(env)),
        }
    }
    let call = |cx: &Context| {
        let view = |i: usize| view_arg(buffers[i], views[i], "operands");
        let program = |i: usize| -> Result<Option<Epilogue>> {
            let Some(terms) = &programs[i] else { return Ok(None) };
            Ok(Some(Epilogue { program: terms.program(Type::F32)?, operands: &inputs[i] }))
        };
        let update = |i: usize| updates[i].as_ref().map(UpdateTerms::update).transpose();
        let [batch, rows, depth, keys, columns] = exactly(axes, "axes")?;
        let attention = Attention {
            ty: type_arg(out_type, "out_type")?,
            operands: [view(0)?, view(1)?, view(2)?],
            batch: list_arg(batch, "axes")?.map(axis_arg).collect::<Result<_>>()?,
            rows: list_arg(rows, "axes")?.map(axis_arg).collect::<Result<_>>()?,
            depth: axis_arg(depth)?,
            keys: axis_arg(keys)?,
            columns: axis_arg(columns)?,
            programs: [program(0)?, program(1)?],
            updates: [update(0)?, update(1)?],
        };
        attention.run(cx)
    };
    let count = 1 + updates.iter().flatten().count();
    Ok(graphs::run_list(env, None, key, &call_operands, blocking, count, call)?.into())
}

/// The terms of an update, and the buffers that it reads.
struct UpdateTerms<'a> {
    row: (Term<'a>, Term<'a>, Term<'a>),
    row_buffer: &'a Buffer,
    batch: Term<'a>,
    head: Term<'a>,
    position: PositionTerms<'a>,
}

enum PositionTerms<'a> {
    Known(Term<'a>),
    Stored { buffer: &'a Buffer, ty: Term<'a>, shape: Term<'a> },
}

impl<'a> UpdateTerms<'a> {
    /// `None` for nil.
    fn from_term(term: Term<'a>) -> Result<Option<Self>> {
        if is_nil(term) {
            return Ok(None);
        }
        let [row, batch, head, position] = exactly(term, "updates")?;
        let row: (Term, Term, Term) = row.decode().map_err(|_| wrong("updates", "a row {ref, type, offset}"))?;
        let row_buffer = buffer_arg(row.0, "updates")?;
        let position = match position.decode::<(Term, Term, Term)>() {
            Ok((buffer, ty, shape)) => PositionTerms::Stored { buffer: buffer_arg(buffer, "updates")?, ty, shape },
            Err(_) => PositionTerms::Known(position),
        };
        Ok(Some(Self { row, row_buffer, batch, head, position }))
    }

    fn buffers(&self) -> impl Iterator<Item = &'a Buffer> {
        let position = match self.position {
            PositionTerms::Known(_) => None,
            PositionTerms::Stored { buffer, .. } => Some(buffer),
        };
        [self.row_buffer].into_iter().chain(position)
    }

    fn key(&self, key: &mut KeyTerms<'a>) {
        let (_, ty, offset) = self.row;
        key.extend([ty, offset, self.batch, self.head]);
        match self.position {
            PositionTerms::Known(position) => key.push(position),
            PositionTerms::Stored { ty, shape, .. } => key.extend([ty, shape]),
        }
    }

    fn update(&self) -> Result<AttentionUpdate<'a>> {
        Ok(AttentionUpdate {
            row: view_arg(self.row_buffer, self.row, "updates")?,
            batch: steps_arg(self.batch, "updates")?,
            head: step_arg(self.head, "updates")?,
            position: match self.position {
                PositionTerms::Known(position) => RowPosition::Known(size_arg(position, "updates")?),
                PositionTerms::Stored { buffer, ty, .. } => RowPosition::Stored(buffer, type_arg(ty, "updates")?),
            },
        })
    }
}

/// Whether a device should have attention in one kernel. `device` is its index, or nil for the default one; `sizes` are
/// `{batches, queries, keys, elements of a key, elements of a value}`, and `matrix_type` is nil or [`AttentionProblem::matrix_type`].
#[rustler::nif(schedule = "DirtyCpu")]
fn attention_pays<'a>(env: Env<'a>, device: Term<'a>, sizes: Term<'a>, matrix_type: Term<'a>) -> NifResult<Term<'a>> {
    let pays = || {
        let [batches, queries, keys, depth, values] = exactly(sizes, "sizes")?.map(|size| size_arg(size, "sizes"));
        let problem = AttentionProblem {
            batches: batches?,
            queries: queries?,
            keys: keys?,
            depth: depth?,
            values: values?,
            matrix_type: if is_nil(matrix_type) { None } else { Some(type_arg(matrix_type, "matrix_type")?) },
        };
        let gpu = device_arg(device).and_then(crate::gpu::gpu_at)?;
        Ok::<bool, Error>(pays(&problem, &gpu.caps))
    };
    reply(env, pays())
}

/// The terms of a tuple of that size.
fn exactly<'a, const N: usize>(term: Term<'a>, name: &str) -> Result<[Term<'a>; N]> {
    let terms = tuple_arg(term, name)?;
    <[Term; N]>::try_from(&terms[..]).map_err(|_| wrong(name, &format!("a tuple of {N}")))
}

fn view_terms(term: Term) -> Result<(Term, Term, Term)> {
    term.decode().map_err(|_| wrong("operands", "{ref, type, offset}"))
}

/// `terms` are those of [`view_terms`].
fn view_arg<'a>(buffer: &'a Buffer, (_, ty, offset): (Term, Term, Term), name: &str) -> Result<OperandView<'a>> {
    Ok(OperandView { buffer, ty: type_arg(ty, name)?, offset: step_arg(offset, name)? })
}

fn program_terms(term: Term) -> Result<Option<EpilogueTerms>> {
    if is_nil(term) { Ok(None) } else { EpilogueTerms::from_term(term).map(Some) }
}

fn axis_arg(term: Term) -> Result<AttentionAxis> {
    let [dim, q, k, v, c] = exactly(term, "axes")?;
    let stride = |term| step_arg(term, "axes");
    Ok(AttentionAxis { dim: size_arg(dim, "axes")?, strides: [stride(q)?, stride(k)?, stride(v)?, stride(c)?] })
}
