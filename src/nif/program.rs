//! Programs: the eager ops of the backend.

use std::sync::OnceLock;

use rustler::{Atom, Term};
use smallvec::SmallVec;

use super::*;
use crate::kernels;
use crate::memory::{Lease, Patience};
use crate::program::op::{OPS, Op, Reduction, Typing};
use crate::program::{Attribute, Axes, Input, Node, Program, Source, broadcast_strides};

pair!(run, run_dirty, (nodes, inputs, shape), reply, run_program);

fn run_program(nodes: Term, inputs: Term, shape: Term, patience: Patience) -> Result<BufferRef> {
    let shape = shape_arg(shape, "shape")?;
    let inputs = Inputs::decode(inputs, &shape)?;
    let nodes = list_arg(nodes, "nodes")?.map(node_arg).collect::<Result<_>>()?;
    let program = Program::new(inputs.inputs, nodes, shape)?;
    let leases = leases(&inputs.buffers)?;
    kernels::program::run(gpu(patience)?, &program, &blocks(&leases), patience).map(BufferRef::from)
}

/// The inputs of a program with their buffers.
pub(super) struct Inputs {
    pub inputs: SmallVec<[Input; 4]>,
    pub buffers: SmallVec<[Option<BufferRef>; 4]>,
}

impl Inputs {
    /// `over` is the iteration space.
    pub fn decode(term: Term, over: &Axes<u64>) -> Result<Self> {
        let mut all = Self { inputs: SmallVec::new(), buffers: SmallVec::new() };
        for term in list_arg(term, "inputs")? {
            let (input, buffer) = input_arg(term, over)?;
            all.inputs.push(input);
            all.buffers.push(buffer);
        }
        Ok(all)
    }
}

/// A buffer that is kept while its use is recorded, and its size in bytes; `None` for an immediate.
pub(super) type Leases = SmallVec<[Option<(std::sync::Arc<Lease>, u64)>; 4]>;

pub(super) fn leases(buffers: &[Option<BufferRef>]) -> Result<Leases> {
    buffers.iter().map(|buffer| buffer.as_ref().map(|b| Ok((b.lease()?, b.len()))).transpose()).collect()
}

pub(super) fn blocks(leases: &Leases) -> SmallVec<[Option<(&Lease, u64)>; 4]> {
    leases.iter().map(|lease| lease.as_ref().map(|(lease, len)| (&**lease, *len))).collect()
}

fn input_arg(term: Term, over: &Axes<u64>) -> Result<(Input, Option<BufferRef>)> {
    // Tuples of a known size are decoded without memory of their own.
    if let Ok(parts @ (buffer, ty, value)) = term.decode::<(Term, Term, Term)>() {
        if buffer.is_atom() {
            let ty = type_arg(ty, "inputs")?;
            let value = bytes_arg(value, "inputs")?;
            let mut bits = [0; 16];
            let place = bits.get_mut(..value.len()).filter(|place| place.len() as u64 == ty.size());
            place.ok_or_else(|| wrong("inputs", "a scalar of its type's size"))?.copy_from_slice(&value);
            return Ok((Input { ty, source: Source::Scalar(bits) }, None));
        }
        let TensorArg { buffer, ty, shape } = tensor_parts(parts, "inputs")?;
        let strides = broadcast_strides(&shape, over)
            .ok_or_else(|| wrong("inputs", "shapes that broadcast to the iteration space"))?;
        return Ok((Input { ty, source: Source::View { offset: 0, strides } }, Some(buffer)));
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
        OPS.iter().filter_map(|op| Some((Atom::from_str(term.get_env(), op.name).ok()?, op))).collect()
    });
    let unknown = || Error::Argument(format!("nodes: unknown op {term:?}").into());
    atoms.iter().find(|(name, _)| *name == atom).map(|&(_, op)| op).ok_or_else(unknown)
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
