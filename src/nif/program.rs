//! Programs: the eager ops of the backend.

use std::sync::OnceLock;

use rustler::{Atom, Term};
use smallvec::SmallVec;

use super::*;
use crate::kernels;
use crate::memory::{Lease, Patience};
use crate::program::op::{OPS, Op, Reduction, Typing};
use crate::program::{Attribute, Axes, Input, Node, Program, Source, Type, broadcast_strides};

pair!(run, run_dirty, (nodes, inputs, shape), reply, run_program);

fn run_program(nodes: Term, inputs: Term, shape: Term, patience: Patience) -> Result<BufferRef> {
    let shape = shape_arg(shape, "shape")?;
    let mut decoded: SmallVec<[Input; 4]> = SmallVec::new();
    let mut buffers: SmallVec<[Option<BufferRef>; 4]> = SmallVec::new();
    for term in list_arg(inputs, "inputs")? {
        let (input, buffer) = input_arg(term, &shape)?;
        decoded.push(input);
        buffers.push(buffer);
    }
    let nodes = list_arg(nodes, "nodes")?.map(node_arg).collect::<Result<_>>()?;
    let program = Program::new(decoded, nodes, shape)?;
    let leases = buffers
        .iter()
        .map(|buffer| buffer.as_ref().map(|b| Ok((b.lease()?, b.len()))).transpose())
        .collect::<Result<SmallVec<[_; 4]>>>()?;
    let blocks: SmallVec<[Option<(&Lease, u64)>; 4]> =
        leases.iter().map(|lease| lease.as_ref().map(|(lease, len)| (&**lease, *len))).collect();
    kernels::program::run(gpu(patience)?, &program, &blocks, patience).map(BufferRef::from)
}

/// A tuple of extents.
pub(super) fn shape_arg(term: Term, name: &str) -> Result<Axes<u64>> {
    tuple_arg(term, name)?.into_iter().map(|dim| size_arg(dim, name)).collect()
}

pub(super) fn type_arg(term: Term, name: &str) -> Result<Type> {
    let invalid = || wrong(name, "a type such as {:f, 32}");
    let (kind, bits): (Atom, u32) = term.decode().map_err(|_| invalid())?;
    let kind = match kind {
        kind if kind == atoms::f() => "f",
        kind if kind == atoms::s() => "s",
        kind if kind == atoms::u() => "u",
        kind if kind == atoms::bf() => "bf",
        _ => "",
    };
    Type::from_nx(kind, bits).ok_or_else(|| Error::Unsupported(format!("{name}: no kernels for this type")))
}

fn input_arg(term: Term, over: &Axes<u64>) -> Result<(Input, Option<BufferRef>)> {
    let parts = tuple_arg(term, "inputs")?;
    match parts[..] {
        [buffer, ty, shape] if buffer.is_atom() => {
            let ty = type_arg(ty, "inputs")?;
            let value = bytes_arg(shape, "inputs")?;
            let mut bits = [0; 8];
            let place = bits.get_mut(..value.len()).filter(|place| place.len() as u64 == ty.size());
            place.ok_or_else(|| wrong("inputs", "a scalar of its type's size"))?.copy_from_slice(&value);
            Ok((Input { ty, source: Source::Scalar(bits) }, None))
        }
        [buffer, ty, shape] => {
            let (buffer, ty) = (buffer_arg(buffer, "inputs")?, type_arg(ty, "inputs")?);
            let shape = shape_arg(shape, "inputs")?;
            let strides = broadcast_strides(&shape, over)
                .ok_or_else(|| wrong("inputs", "shapes that broadcast to the iteration space"))?;
            Ok((Input { ty, source: Source::View { offset: 0, strides } }, Some(buffer)))
        }
        [buffer, ty, offset, strides] => {
            let (buffer, ty) = (buffer_arg(buffer, "inputs")?, type_arg(ty, "inputs")?);
            let number = |term: Term| {
                let value: i64 = term.decode().map_err(|_| wrong("inputs", "integers as offset and strides"))?;
                // Larger than any buffer, and small enough that sums of products cannot overflow.
                if value.abs() > 1 << 48 { Err(Error::SizeMismatch) } else { Ok(value) }
            };
            let strides = list_arg(strides, "inputs")?.map(number).collect::<Result<_>>()?;
            Ok((Input { ty, source: Source::View { offset: number(offset)?, strides } }, Some(buffer)))
        }
        _ => Err(wrong("inputs", "{ref, type, shape}, {ref, type, offset, strides} or {:scalar, type, binary}")),
    }
}

fn node_arg(term: Term) -> Result<Node> {
    let parts = tuple_arg(term, "nodes")?;
    let (op, ty, args, attribute) = match parts[..] {
        [op, ty, args] => (op, ty, args, None),
        [op, ty, args, attribute] => (op, ty, args, Some(attribute)),
        _ => return Err(wrong("nodes", "{op, type, args} or {op, type, args, attrs}")),
    };
    let op = op_arg(op)?;
    let index = |term: Term| size_arg(term, "nodes").map(|index| index as usize);
    let args = list_arg(args, "nodes")?.map(index).collect::<Result<_>>()?;
    Ok(Node { op, ty: type_arg(ty, "nodes")?, args, attribute: attribute_arg(op, attribute)? })
}

fn op_arg(term: Term) -> Result<&'static Op> {
    static ATOMS: OnceLock<Vec<(Atom, &'static Op)>> = OnceLock::new();
    let atom: Atom = term.decode().map_err(|_| wrong("nodes", "an op's name"))?;
    let atoms = ATOMS.get_or_init(|| {
        OPS.iter().filter_map(|op| Some((Atom::from_str(term.get_env(), op.name).ok()?, op))).collect()
    });
    let unknown = || Error::Argument(format!("nodes: unknown op {term:?}").into());
    atoms.iter().find(|(name, _)| *name == atom).map(|&(_, op)| op).ok_or_else(unknown)
}

fn attribute_arg(op: &Op, term: Option<Term>) -> Result<Attribute> {
    let axis = |term: Term| {
        if term.decode::<Atom>().is_ok_and(|atom| atom == atoms::nil()) {
            return Ok(None);
        }
        size_arg(term, "nodes").map(|axis| Some(axis as usize))
    };
    let Some(term) = term else { return Ok(Attribute::None) };
    match op.typing {
        Typing::Iota => Ok(Attribute::Axis(axis(term)?)),
        Typing::Reduce(Reduction::ArgMax | Reduction::ArgMin) => {
            let invalid = || wrong("nodes", "{axis | nil, :low | :high} for argmax and argmin");
            let (at, tie): (Term, Atom) = term.decode().map_err(|_| invalid())?;
            let last = tie == atoms::high();
            if !last && tie != atoms::low() {
                return Err(invalid());
            }
            Ok(Attribute::Arg { axis: axis(at)?, last })
        }
        Typing::Reduce(_) => {
            let axes = list_arg(term, "nodes")?.map(|axis| size_arg(axis, "nodes").map(|axis| axis as usize));
            Ok(Attribute::Axes(axes.collect::<Result<_>>()?))
        }
        _ if term.is_atom() => Ok(Attribute::None),
        _ => Err(wrong("nodes", "no attributes for this op")),
    }
}
