//! Programs: the eager ops of the backend.

use std::sync::{Arc, OnceLock};

use rustler::{Atom, Term};
use smallvec::SmallVec;

use super::graphs::KeyTerms;
use super::*;
use crate::graph::{Context, Operand};
use crate::kernels::fusion;
use crate::memory::{AllocationHandle, Blocking};
use crate::program::op::{OPS, Op, Reduction, Typing};
use crate::program::{
    Attribute, Axes, Input, Node, PaddedCoordinate, PaddedView, Program, Source, Type, broadcast_strides,
};

pair!(run, run_dirty, (nodes, inputs, shape, device), reply, run_program);

/// `device` is the one that a program without buffers runs on.
fn run_program<'a>(
    nodes: Term<'a>,
    inputs: Term<'a>,
    shape: Term<'a>,
    device: Term<'a>,
    blocking: Blocking,
) -> Attempt<BufferRef> {
    let given = input_terms(inputs)?;
    let input_operands = input_operands(&given)?;
    let operands = operands(&input_operands, 0);
    let call = |cx: &Context| {
        let program = program_arg(nodes, &given, shape)?;
        Ok([fusion::run(cx, &program, &operands)?])
    };
    let env = nodes.get_env();
    // Keys of other calls begin with an atom.
    let mut key = KeyTerms::from_slice(&[nodes, shape]);
    input_key(&mut key, &given, shape);
    graphs::run_at(env, device_arg(device)?, key, &operands, blocking, call).map(|[buffer]| buffer.into())
}

/// The program of these nodes and inputs over the axes of `shape`.
pub(super) fn program_arg<'a>(nodes: Term<'a>, inputs: &[InputTerms<'a>], shape: Term<'a>) -> Result<Program> {
    let mut program = Program::over(shape_arg(shape, "shape")?);
    add_inputs(inputs, shape, &mut program)?;
    add_nodes(nodes, &mut program)?;
    Ok(program)
}

/// Adds to a cache key what the inputs are besides their memory and values. `shape` is the term of the program's shape.
pub(super) fn input_key<'a>(key: &mut KeyTerms<'a>, inputs: &[InputTerms<'a>], shape: Term<'a>) {
    let env = shape.get_env();
    // The atoms say where an input ends.
    for input in inputs {
        match *input {
            InputTerms::Scalar { ty, .. } => key.extend([atoms::scalar().to_term(env), ty]),
            InputTerms::Constant { ty, value } => key.extend([atoms::constant().to_term(env), ty, value]),
            InputTerms::Tensor { ty, shape: own, .. } if own == shape => key.extend([atoms::same().to_term(env), ty]),
            InputTerms::Tensor { ty, shape, .. } => key.extend([atoms::tensor().to_term(env), ty, shape]),
            InputTerms::View { ty, offset, strides, .. } => {
                key.extend([atoms::view().to_term(env), ty, offset, strides]);
            }
            InputTerms::Padded { ty, offset, strides, value, coordinates, .. } => {
                key.extend([atoms::padded().to_term(env), ty, offset, strides, value, coordinates]);
            }
        }
    }
}

/// An input's terms.
pub(super) enum InputTerms<'a> {
    Scalar {
        ty: Term<'a>,
        value: Term<'a>,
    },
    Constant {
        ty: Term<'a>,
        value: Term<'a>,
    },
    Tensor {
        buffer: Term<'a>,
        ty: Term<'a>,
        shape: Term<'a>,
    },
    View {
        buffer: Term<'a>,
        ty: Term<'a>,
        offset: Term<'a>,
        strides: Term<'a>,
    },
    Padded {
        buffer: Term<'a>,
        ty: Term<'a>,
        offset: Term<'a>,
        strides: Term<'a>,
        value: Term<'a>,
        coordinates: Term<'a>,
    },
}

/// What an input reads: an allocation, kept while its use is recorded, with its size in bytes; or a value.
pub(super) enum InputOperand {
    Buffer(Arc<AllocationHandle>, u64),
    Scalar([u8; 16]),
}

pub(super) type InputOperands = SmallVec<[InputOperand; 4]>;

impl InputOperand {
    fn operand(&self, index: usize) -> Operand<'_> {
        match self {
            Self::Buffer(allocation, bytes) => Operand::Buffer(allocation, *bytes),
            Self::Scalar(value) => Operand::Scalar { index, value: *value },
        }
    }
}

impl<'a> InputTerms<'a> {
    fn from_term(term: Term<'a>) -> Result<Self> {
        // Tuples of a known size are decoded without memory of their own.
        if let Ok((buffer, ty, value)) = term.decode::<(Term, Term, Term)>() {
            return Ok(match buffer.decode::<Atom>() {
                Ok(kind) if kind == atoms::constant() => Self::Constant { ty, value },
                Ok(_) => Self::Scalar { ty, value },
                Err(_) => Self::Tensor { buffer, ty, shape: value },
            });
        }
        if let Ok((buffer, ty, offset, strides)) = term.decode() {
            return Ok(Self::View { buffer, ty, offset, strides });
        }
        let (buffer, ty, offset, strides, (value, coordinates)) = term.decode().map_err(|_| {
            let kinds = "{ref, type, shape}, {ref, type, offset, strides}, {ref, type, offset, strides, {binary, coordinates}} or \
                         {:scalar | :constant, type, binary}";
            wrong("inputs", kinds)
        })?;
        Ok(Self::Padded { buffer, ty, offset, strides, value, coordinates })
    }

    pub(super) fn operand(&self) -> Result<InputOperand> {
        match *self {
            Self::Scalar { ty, value } | Self::Constant { ty, value } => {
                Ok(InputOperand::Scalar(value_arg(type_arg(ty, "inputs")?, value)?))
            }
            Self::Tensor { buffer, .. } | Self::View { buffer, .. } | Self::Padded { buffer, .. } => {
                let buffer = buffer_arg(buffer, "inputs")?;
                Ok(InputOperand::Buffer(buffer.allocation()?, buffer.len()))
            }
        }
    }

    /// `over` is the iteration space, of the term `space`: most inputs have its very shape, which is decoded once then.
    fn input(&self, space: Term<'a>, over: &Axes<u64>) -> Result<Input> {
        match *self {
            Self::Scalar { ty, .. } => Ok(Input { ty: type_arg(ty, "inputs")?, source: Source::Scalar }),
            Self::Constant { ty, .. } => {
                let ty = type_arg(ty, "inputs")?;
                let InputOperand::Scalar(value) = self.operand()? else {
                    return Err(wrong("inputs", "a constant's value"));
                };
                match ty.size() {
                    0..=8 => Ok(Input { ty, source: Source::Constant(u64::from_ne_bytes(value.as_chunks().0[0])) }),
                    _ => Err(wrong("inputs", "a constant of up to 8 bytes")),
                }
            }
            Self::Tensor { ty, shape, .. } => {
                let ty = type_arg(ty, "inputs")?;
                let strides = if shape == space {
                    broadcast_strides(over, over)
                } else {
                    broadcast_strides(&shape_arg(shape, "inputs")?, over)
                };
                let strides = strides.ok_or_else(|| wrong("inputs", "shapes that broadcast to the iteration space"))?;
                Ok(Input { ty, source: Source::View { offset: 0, strides } })
            }
            Self::View { ty, offset, strides, .. } => {
                let ty = type_arg(ty, "inputs")?;
                let (offset, strides) = (step_arg(offset, "inputs")?, steps_arg(strides, "inputs")?);
                Ok(Input { ty, source: Source::View { offset, strides } })
            }
            Self::Padded { ty, offset, strides, value, coordinates, .. } => {
                let ty = type_arg(ty, "inputs")?;
                let (offset, strides) = (step_arg(offset, "inputs")?, steps_arg(strides, "inputs")?);
                let coordinates = list_arg(coordinates, "inputs")?.map(coordinate_arg).collect::<Result<_>>()?;
                let value = u128::from_ne_bytes(value_arg(ty, value)?);
                Ok(Input { ty, source: Source::Padded(PaddedView { offset, strides, coordinates, value }.into()) })
            }
        }
    }
}

/// A value's bytes as its type stores them.
fn value_arg(ty: Type, value: Term) -> Result<[u8; 16]> {
    let value = bytes_arg(value, "inputs")?;
    let mut bits = [0; 16];
    let bytes = bits.get_mut(..value.len()).filter(|bytes| bytes.len() as u64 == ty.size());
    bytes.ok_or_else(|| wrong("inputs", "a scalar of its type's size"))?.copy_from_slice(&value);
    Ok(bits)
}

fn coordinate_arg(term: Term) -> Result<PaddedCoordinate> {
    let invalid = |_| wrong("inputs", "{start, extent, stride, steps} of coordinates");
    let (start, extent, stride, steps): (Term, Term, Term, Term) = term.decode().map_err(invalid)?;
    Ok(PaddedCoordinate {
        start: step_arg(start, "inputs")?,
        extent: size_arg(extent, "inputs")?,
        stride: step_arg(stride, "inputs")?,
        steps: steps_arg(steps, "inputs")?,
    })
}

pub(super) fn input_terms<'a>(inputs: Term<'a>) -> Result<SmallVec<[InputTerms<'a>; 4]>> {
    let mut given = SmallVec::new();
    for term in list_arg(inputs, "inputs")? {
        given.push(InputTerms::from_term(term)?);
    }
    Ok(given)
}

pub(super) fn input_operands(inputs: &[InputTerms]) -> Result<InputOperands> {
    let mut operands = InputOperands::new();
    for given in inputs {
        operands.push(given.operand()?);
    }
    Ok(operands)
}

/// Adds inputs to a program. `shape` is the term of its shape.
pub(super) fn add_inputs<'a>(inputs: &[InputTerms<'a>], shape: Term<'a>, program: &mut Program) -> Result<()> {
    for given in inputs {
        program.inputs.push(given.input(shape, &program.shape)?);
    }
    Ok(())
}

pub(super) fn add_nodes(nodes: Term, program: &mut Program) -> Result<()> {
    for node in list_arg(nodes, "nodes")? {
        program.nodes.push(node_arg(node)?);
    }
    Ok(())
}

/// The operands of a call from the index `first` on.
pub(super) fn operands(inputs: &InputOperands, first: usize) -> SmallVec<[Operand<'_>; 4]> {
    (first..).zip(inputs).map(|(index, input)| input.operand(index)).collect()
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
            let (steps, check) = match term.decode::<(Term, Term)>() {
                Ok((steps, check)) => (steps, Some(Arc::new(checked_indices_arg(check, "nodes")?))),
                Err(_) => (term, None),
            };
            Ok(Attribute::Steps { steps: list_arg(steps, "nodes")?.map(step).collect::<Result<_>>()?, check })
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
