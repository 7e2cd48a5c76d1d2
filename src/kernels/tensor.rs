//! Dense tensors as kernels' operands, whole or along one of their axes. This module owns their extents and whether their buffers hold
//! them; what is computed with them it does not know.

use crate::error::{Error, Result};
use crate::memory::Buffer;
use crate::program::{Type, elements};

/// A dense tensor: its elements are in row-major order, from the buffer's start on.
#[derive(Clone, Copy)]
pub struct Tensor<'a> {
    /// The buffer of the elements; it may be longer than they are.
    pub buffer: &'a Buffer,
    /// The type of the elements.
    pub ty: Type,
    /// The extents of the axes, outermost first.
    pub shape: &'a [u64],
}

/// A dense tensor as the rows along one of its axes: `outer` × `len` × `inner` elements, along the middle axis.
#[derive(Clone, Copy)]
pub struct Rows<'a> {
    /// The buffer of the elements; it may be longer than they are.
    pub buffer: &'a Buffer,
    /// The type of the elements.
    pub ty: Type,
    /// Product of the extents of the axes before the rows' axis.
    pub outer: u64,
    /// Elements of a row.
    pub len: u64,
    /// Product of the extents of the axes after the rows' axis: elements from one of a row to the next.
    pub inner: u64,
}

impl<'a> Tensor<'a> {
    /// How many elements it has; fails where its buffer does not hold them.
    pub fn elements(&self) -> Result<u64> {
        let elements = elements(self.shape)?;
        match elements.checked_mul(self.ty.size()) {
            Some(bytes) if bytes <= self.buffer.len() => Ok(elements),
            _ => Err(Error::SizeMismatch),
        }
    }

    /// Its rows along an axis; fails where it has no such axis, or its buffer does not hold it.
    pub fn along(&self, axis: usize) -> Result<Rows<'a>> {
        let Self { buffer, ty, shape } = *self;
        let len = *shape.get(axis).ok_or(Error::Argument("axis: expected an axis of the tensor".into()))?;
        let (outer, inner) = (elements(&shape[..axis])?, elements(&shape[axis + 1..])?);
        self.elements()?;
        // Empty rows have no elements, and may be too many to count.
        elements(&[outer, inner])?;
        Ok(Rows { buffer, ty, outer, len, inner })
    }
}

impl Rows<'_> {
    /// How many rows there are.
    pub fn count(&self) -> u64 {
        self.outer * self.inner
    }

    /// Whether indices of elements need 64 bits.
    pub fn index64(&self) -> bool {
        self.count() * self.len >= 1 << 31
    }
}
