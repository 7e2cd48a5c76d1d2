//! Batches of matrices: what linear systems and decompositions take.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::kernels::Tensor;
use crate::memory::{AllocationHandle, Buffer};
use crate::program::{Type, elements};

/// A batch of dense row-major matrices, `rows` × `columns` each.
pub struct Matrices<'a> {
    /// The buffer of the elements, matrix after matrix.
    pub buffer: &'a Buffer,
    /// The type of the elements.
    pub ty: Type,
    /// Number of matrices.
    pub batch: u64,
    /// Rows of a matrix.
    pub rows: u64,
    /// Columns of a matrix.
    pub columns: u64,
}

impl<'a> Matrices<'a> {
    /// The last two axes of a tensor are the matrices', those before them the batch's. Fails where its buffer is too small.
    pub fn of(tensor: Tensor<'a>) -> Result<Self> {
        let Tensor { buffer, ty, shape } = tensor;
        let &[ref batch @ .., rows, columns] = shape else {
            return Err(Error::Argument("shape: expected two axes at least".into()));
        };
        tensor.elements()?;
        Ok(Self { buffer, ty, batch: elements(batch)?, rows, columns })
    }

    /// Elements of all matrices.
    pub fn elements(&self) -> u64 {
        self.batch * self.rows * self.columns
    }

    /// The block that holds them; fails where it was deallocated.
    pub fn allocation(&self) -> Result<Arc<AllocationHandle>> {
        self.buffer.allocation()
    }

    /// The order of square matrices; fails for others.
    pub fn order(&self) -> Result<u64> {
        // Rows are counted in 32 bits.
        if self.rows == self.columns && self.rows < 1 << 31 { Ok(self.rows) } else { Err(Error::SizeMismatch) }
    }
}
