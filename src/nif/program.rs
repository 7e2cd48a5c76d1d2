//! Programs: the eager ops of the backend.

use std::sync::{Arc, OnceLock};

use rustler::{Atom, Term};
use smallvec::SmallVec;

use super::*;
use crate::kernels;
use crate::memory::{Lease, Patience};
use crate::program::op::{OPS, Op, Reduction, Typing};
use crate::program::{Attribute, Axes, Input, Node, Program, Source, broadcast_strides};

pair!(run, run_dirty, (nodes, inputs, shape), reply, run_program);

fn run_program<'a>(nodes: Term, inputs: Term<'a>, shape: Term<'a>, patience: Patience) -> Result<BufferRef> {
    let mut program = Program::over(shape_arg(shape, "shape")?);
    let leases = inputs_arg(inputs, shape, &mut program)?;
    for node in list_arg(nodes, "nodes")? {
        program.nodes.push(node_arg(node)?);
    }
    kernels::program::run(gpu(patience)?, &program, &blocks(&leases), patience).map(BufferRef::from)
}

/// The memory that a program's inputs read, kept while its use is recorded, and its size in bytes; `None` for an immediate.
pub(super) type Leases = SmallVec<[Option<(Arc<Lease>, u64)>; 4]>;

/// Adds the inputs of a list to a program. `shape` is the term of its shape.
pub(super) fn inputs_arg<'a>(inputs: Term<'a>, shape: Term<'a>, program: &mut Program) -> Result<Leases> {
    let mut leases = Leases::new();
    for term in list_arg(inputs, "inputs")? {
        let (input, buffer) = input_arg(term, shape, &program.shape)?;
        program.inputs.push(input);
        leases.push(buffer.map(|buffer| Ok((buffer.lease()?, buffer.len()))).transpose()?);
    }
    Ok(leases)
}

pub(super) fn blocks(leases: &Leases) -> SmallVec<[Option<(&Lease, u64)>; 4]> {
    leases.iter().map(|lease| lease.as_ref().map(|(lease, len)| (&**lease, *len))).collect()
}

/// `over` is the iteration space, of the term `space`: most inputs have its very shape, which is decoded once then.
fn input_arg<'a>(term: Term<'a>, space: Term<'a>, over: &Axes<u64>) -> Result<(Input, Option<&'a Buffer>)> {
    // Tuples of a known size are decoded without memory of their own.
    if let Ok((buffer, ty, value)) = term.decode::<(Term, Term, Term)>() {
        let ty = type_arg(ty, "inputs")?;
        if buffer.is_atom() {
            let value = bytes_arg(value, "inputs")?;
            let mut bits = [0; 16];
            let place = bits.get_mut(..value.len()).filter(|place| place.len() as u64 == ty.size());
            place.ok_or_else(|| wrong("inputs", "a scalar of its type's size"))?.copy_from_slice(&value);
            return Ok((Input { ty, source: Source::Scalar(bits) }, None));
        }
        let strides = if value == space {
            broadcast_strides(over, over)
        } else {
            broadcast_strides(&shape_arg(value, "inputs")?, over)
        };
        let strides = strides.ok_or_else(|| wrong("inputs", "shapes that broadcast to the iteration space"))?;
        return Ok((Input { ty, source: Source::View { offset: 0, strides } }, Some(buffer_arg(buffer, "inputs")?)));
    }
    let (buffer, ty, offset, strides): (Term, Term, Term, Term) = term
        .decode()
        .map_err(|_| wrong("inputs", "{ref, type, shape}, {ref, type, offset, strides} or {:scalar, type, binary}"))?;
    let (buffer, ty) = (buffer_arg(buffer, "inputs")?, type_arg(ty, "inputs")?);
    let (offset, strides) = (step_arg(offset, "inputs")?, steps_arg(strides, "inputs")?);
    Ok((Input { ty, source: Source::View { offset, strides } }, Some(buffer)))
}

fn node_arg(term: Term) -> Result<Node> {
    let invalid = || wrong("nodes", "{op, type, args} or {op, type, args, attrs}");
    let (op, ty, args, attribute) = match term.decode::<(Term, Term, Term)>() {
        Ok((op, ty, args)) => (op, ty, args, None),
        Err(_) => {
            let (op, ty, args, attribute): (Term, Term, Term, Term) = term.decode().map_err(|_| invalid())?;
            (op, ty, args, Some(attribute))
        }
    };
    let op = op_arg(op)?;
    let args = indices_arg(args, "nodes")?;
    Ok(Node { op, ty: type_arg(ty, "nodes")?, args, attribute: attribute_arg(op, attribute)? })
}

fn op_arg(term: Term) -> Result<&'static Op> {
    static ATOMS: OnceLock<Vec<(Atom, &'static Op)>> = OnceLock::new();
    let atom: Atom = term.decode().map_err(|_| wrong("nodes", "an op's name"))?;
    let atoms = ATOMS.get_or_init(|| {
        let named = |op: &'static Op| Some((Atom::from_str(term.get_env(), op.name).ok()?, op));
        let mut atoms: Vec<_> = OPS.iter().filter_map(named).collect();
        atoms.sort_unstable_by_key(|(name, _)| name.as_c_arg());
        atoms
    });
    let found = atoms.binary_search_by_key(&atom.as_c_arg(), |(name, _)| name.as_c_arg());
    found.map(|at| atoms[at].1).map_err(|_| Error::Argument(format!("nodes: unknown op {term:?}").into()))
}

fn attribute_arg(op: &Op, term: Option<Term>) -> Result<Attribute> {
    let axis = |term: Term| {
        if is_nil(term) {
            return Ok(None);
        }
        size_arg(term, "nodes").map(|axis| Some(axis as usize))
    };
    let Some(term) = term else { return Ok(Attribute::None) };
    match op.typing {
        Typing::Iota => Ok(Attribute::Axis(axis(term)?)),
        Typing::Gather => {
            let step = |term: Term| term.decode().map_err(|_| wrong("nodes", "{extent, step} for each index"));
            Ok(Attribute::Steps(list_arg(term, "nodes")?.map(step).collect::<Result<_>>()?))
        }
        Typing::Reduce(Reduction::ArgMax | Reduction::ArgMin) => {
            let invalid = || wrong("nodes", "{axis | nil, :low | :high} for argmax and argmin");
            let (at, tie): (Term, Atom) = term.decode().map_err(|_| invalid())?;
            let last = tie == atoms::high();
            if !last && tie != atoms::low() {
                return Err(invalid());
            }
            Ok(Attribute::Arg { axis: axis(at)?, last })
        }
        Typing::Reduce(_) => Ok(Attribute::Axes(indices_arg(term, "nodes")?)),
        _ if term.is_atom() => Ok(Attribute::None),
        _ => Err(wrong("nodes", "no attributes for this op")),
    }
}
