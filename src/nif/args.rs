//! Arguments that several families take. Each function names the argument in the ArgumentError that it fails with.

use std::sync::OnceLock;

use rustler::types::tuple::get_tuple;
use rustler::{Atom, Binary, Encoder, Env, ListIterator, Term};

use smallvec::SmallVec;

use super::{BufferResource, atoms};
use crate::error::{Error, Result};
use crate::kernels::{Rows, Tensor};
use crate::memory::{Buffer, CheckedIndices};
use crate::program::{Axes, Type, step_in_bounds};

pub(super) fn wrong(name: &str, expected: &str) -> Error {
    Error::Argument(format!("{name}: expected {expected}").into())
}

/// A buffer that the term keeps alive during the call.
pub(super) fn buffer_arg<'a>(term: Term<'a>, name: &str) -> Result<&'a Buffer> {
    let resource: &BufferResource = term.decode().map_err(|_| wrong(name, "a buffer reference of this node"))?;
    Ok(&resource.0)
}

pub(super) fn bytes_arg<'a>(term: Term<'a>, name: &str) -> Result<Binary<'a>> {
    term.decode().map_err(|_| wrong(name, "a binary"))
}

/// A count or size. Negative numbers and those beyond 2^63 are refused.
pub(super) fn size_arg(term: Term, name: &str) -> Result<u64> {
    let value: i64 = term.decode().map_err(|_| wrong(name, "a non-negative integer below 2^63"))?;
    u64::try_from(value).map_err(|_| wrong(name, "a non-negative integer below 2^63"))
}

pub(super) fn text_arg<'a>(term: Term<'a>, name: &str) -> Result<&'a str> {
    term.decode().map_err(|_| wrong(name, "a string"))
}

pub(super) fn tuple_arg<'a>(term: Term<'a>, name: &str) -> Result<Vec<Term<'a>>> {
    get_tuple(term).map_err(|_| wrong(name, "a tuple"))
}

pub(super) fn list_arg<'a>(term: Term<'a>, name: &str) -> Result<ListIterator<'a>> {
    term.decode().map_err(|_| wrong(name, "a list"))
}

pub(super) fn bool_arg(term: Term, name: &str) -> Result<bool> {
    term.decode().map_err(|_| wrong(name, "a boolean"))
}

pub(super) fn float_arg(term: Term, name: &str) -> Result<f64> {
    term.decode().map_err(|_| wrong(name, "a float"))
}

/// A float, or an integer that a 64-bit one holds.
pub(super) fn number_arg(term: Term, name: &str) -> Result<f64> {
    let integer = || term.decode::<i64>().map(|value| value as f64);
    term.decode().or_else(|_| integer()).map_err(|_| wrong(name, "a number"))
}

/// Whether the argument is the atom nil, where others have a value.
pub(super) fn is_nil(term: Term) -> bool {
    term.decode::<Atom>().is_ok_and(|atom| atom == atoms::nil())
}

/// An offset or stride in elements: no larger than any buffer, so that sums of products cannot overflow.
pub(super) fn step_arg(term: Term, name: &str) -> Result<i64> {
    let value: i64 = term.decode().map_err(|_| wrong(name, "integers as offset and strides"))?;
    if step_in_bounds(value) { Ok(value) } else { Err(Error::SizeMismatch) }
}

/// A list of strides.
pub(super) fn steps_arg<C: FromIterator<i64>>(term: Term, name: &str) -> Result<C> {
    list_arg(term, name)?.map(|step| step_arg(step, name)).collect()
}

/// A list of axes, or of other indices.
pub(super) fn indices_arg<C: FromIterator<usize>>(term: Term, name: &str) -> Result<C> {
    list_arg(term, name)?.map(|index| size_arg(index, name).map(|index| index as usize)).collect()
}

/// A tuple of extents.
pub(super) fn shape_arg(term: Term, name: &str) -> Result<Axes<u64>> {
    let mut shape = Axes::new();
    for dim in tuple_arg(term, name)? {
        shape.push(size_arg(dim, name)?);
    }
    Ok(shape)
}

pub(super) fn type_arg(term: Term, name: &str) -> Result<Type> {
    static TYPES: OnceLock<Vec<((Atom, u32), Type)>> = OnceLock::new();
    let invalid = || wrong(name, "a type such as {:f, 32}");
    let given: (Atom, u32) = term.decode().map_err(|_| invalid())?;
    let types = TYPES.get_or_init(|| {
        let kind = |ty: Type| Atom::from_str(term.get_env(), ty.kind()).ok();
        // In reverse, because floats, the most frequent types, come last in the list.
        Type::ALL.into_iter().rev().filter_map(|ty| Some(((kind(ty)?, ty.bits()), ty))).collect()
    });
    types.iter().find(|(ty, _)| *ty == given).map(|&(_, ty)| ty).ok_or_else(invalid)
}

/// The term of a type, which [`type_arg`] decodes.
pub(super) fn type_term(env: Env, ty: Type) -> Result<Term> {
    let kind =
        Atom::from_str(env, ty.kind()).map_err(|_| Error::Invalid(format!("no name for the type {}", ty.suffix())))?;
    Ok((kind, ty.bits()).encode(env))
}

/// `{op, shape, axes}`: what the error says of an index that is out of bounds.
pub(super) fn checked_indices_arg(term: Term, name: &str) -> Result<CheckedIndices> {
    let invalid = |_| wrong(name, "{op, shape, axes} of checked indices");
    let (op, shape, axes): (Atom, Term, Term) = term.decode().map_err(invalid)?;
    let op = op.to_term(term.get_env()).atom_to_string().map_err(invalid)?;
    let shape = SmallVec::from_slice(&shape_arg(shape, name)?);
    Ok(CheckedIndices { op, shape, axes: indices_arg(axes, name)? })
}

/// The decoded arguments of a [`Tensor`].
pub(super) struct TensorArg<'a> {
    pub buffer: &'a Buffer,
    pub ty: Type,
    pub shape: Axes<u64>,
}

impl<'a> TensorArg<'a> {
    pub fn of(buffer: &'a Buffer, ty: Term, shape: Term, name: &str) -> Result<Self> {
        Ok(Self { buffer, ty: type_arg(ty, name)?, shape: shape_arg(shape, name)? })
    }

    pub fn tensor(&self) -> Tensor<'_> {
        Tensor { buffer: self.buffer, ty: self.ty, shape: &self.shape }
    }

    pub fn along(&self, axis: Term) -> Result<Rows<'_>> {
        self.tensor().along(size_arg(axis, "axis")? as usize)
    }
}

/// The terms of a dense tensor `{ref, type, shape}`.
pub(super) fn tensor_terms<'a>(term: Term<'a>, name: &str) -> Result<(Term<'a>, Term<'a>, Term<'a>)> {
    term.decode().map_err(|_| wrong(name, "{ref, type, shape}"))
}
