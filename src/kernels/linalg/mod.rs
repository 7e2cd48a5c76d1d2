//! Linear algebra on batches of matrices: triangular factors and systems, and orthogonal decompositions, which are QR, the
//! eigenvalues of Hermitian matrices and singular values.
//!
//! Factors and systems are blocked, as LAPACK's are: one workgroup works on a block of [`block_width`] rows or columns, and
//! [`MatrixUpdate`] brings what follows up to date by a matrix product. They work in place on dense matrices of a
//! [`working_type`], which [`DenseCopy`] makes from tensors of any type. The orthogonal decompositions work on [`columns`].

mod blocks;
pub mod cholesky;
mod columns;
mod dense;
pub mod eigh;
mod jacobi;
mod kernel;
pub mod lu;
mod matrices;
pub mod qr;
pub mod svd;
pub mod triangular;
mod update;

use std::fmt::Write as _;

use smallvec::SmallVec;

use super::contraction::{multiply_add, shared_vector};
use super::{KernelSpec, launch};
use crate::device::Capabilities;
use crate::error::{Attempt, Error, Result};
use crate::graph::{Context, Params};
use crate::memory::{Allocation, AllocationHandle, Buffer};
use crate::program::Type;
use crate::program::emit::{assign, convert, element, head};
use crate::program::types::Compute;
use crate::tuning::linalg::{MAX_EXACT_ORDER, REGISTER_COLUMNS, block_width, cpu_vectors, panel_threads};

use columns::*;
use dense::{DenseCopy, tensor_of};
use kernel::*;
pub use matrices::Matrices;
use update::MatrixUpdate;

/// The type in which matrices of type `ty` are factored; it must be a type of floats.
fn working_type(ty: Type) -> Result<Type> {
    match ty {
        Type::F32 | Type::F64 | Type::C64 | Type::C128 => Ok(ty),
        ty if ty.is_float() => Ok(Type::F32),
        _ => Err(Error::Argument("type: expected a type of floats or complex numbers".into())),
    }
}

/// A batch of matrices within an allocation: element (i, j) of matrix b is at offset + b·batch + i·row + j·column. Strides
/// may be negative.
#[derive(Clone, Copy)]
struct MatrixView<'a> {
    allocation: &'a Allocation,
    offset: i64,
    batch: i64,
    row: i64,
    column: i64,
}

impl<'a> MatrixView<'a> {
    fn dense(allocation: &'a Allocation, rows: u64, columns: u64) -> Self {
        MatrixView { allocation, offset: 0, batch: (rows * columns) as i64, row: columns as i64, column: 1 }
    }

    /// The part that begins at row `i` and column `j`.
    fn at(self, i: u64, j: u64) -> Self {
        MatrixView { offset: self.offset + i as i64 * self.row + j as i64 * self.column, ..self }
    }

    fn transposed(self) -> Self {
        MatrixView { row: self.column, column: self.row, ..self }
    }

    /// With the order of the first `rows` rows reversed.
    fn rows_reversed(self, rows: u64) -> Self {
        MatrixView { offset: self.offset + (rows as i64 - 1) * self.row, row: -self.row, ..self }
    }

    /// With the order of the first `columns` columns reversed.
    fn columns_reversed(self, columns: u64) -> Self {
        self.transposed().rows_reversed(columns).transposed()
    }

    /// As parameters: the offset and the three strides, by these names.
    fn extents(&self, names: [&'static str; 4]) -> impl Iterator<Item = Extent> + use<> {
        let values = [self.offset, self.batch, self.row, self.column];
        names.into_iter().zip(values.map(|value| value as u64))
    }
}

/// Whether indices into these allocations need 64 bits.
fn needs_index64(ty: Type, allocations: &[&Allocation]) -> bool {
    allocations.iter().any(|allocation| allocation.size / ty.size() >= 1 << 31)
}
