//! Linear algebra on batches of matrices: triangular factors and systems, and orthogonal decompositions, which are QR, the
//! eigenvalues of Hermitian matrices and singular values.
//!
//! Factors and systems are blocked, as LAPACK's are: one workgroup works on a block of [`width`] rows or columns, and
//! [`Update`] brings what follows up to date by a matrix product. They work in place on dense matrices of a [`working`]
//! type, which [`Pack`] makes from tensors of any type. The orthogonal decompositions work on [`copies`].

mod blocks;
pub mod cholesky;
mod copies;
pub mod eigh;
mod jacobi;
pub mod lu;
mod matrices;
pub mod qr;
mod step;
pub mod svd;
pub mod triangular;

use std::fmt::Write as _;

use smallvec::SmallVec;

use super::contraction::{Axis, Groups, Held, Panels, Tile, multiply_add, vector};
use super::{Kernel, check_indices};
use crate::error::{Attempt, Error, Result};
use crate::graph::{Context, Params};
use crate::memory::{Allocation, AllocationHandle, Buffer};
use crate::program::Type;
use crate::program::emit::{assign, convert, element, head};
use crate::program::types::Compute;

use copies::*;
pub use matrices::Matrices;
use step::*;

/// The type in which matrices of type `ty` are factored; it must be a type of floats.
fn working(ty: Type) -> Result<Type> {
    match ty {
        Type::F32 | Type::F64 | Type::C64 | Type::C128 => Ok(ty),
        ty if ty.is_float() => Ok(Type::F32),
        _ => Err(Error::Argument("type: expected a type of floats or complex numbers".into())),
    }
}

/// Rows or columns of a block. What a workgroup shares of it fits the 16 KiB that every device has.
fn width(ty: Type) -> u64 {
    if ty.size() > 8 { 16 } else { 32 }
}

/// Whether invocations are the lanes of a processor, which reach shared memory one after the other: they hand to each other
/// what all of them need.
fn processor(cx: &Context) -> bool {
    cx.caps().cpu && matches!(cx.caps().subgroup, 4 | 8 | 16)
}

/// Columns of a panel that threads hold in registers.
const REGISTERS: u64 = 16;

/// Threads of a workgroup that holds panels of so many rows in registers, where the device can and they are few enough.
fn panel_threads(cx: &Context, rows: u64) -> Option<u64> {
    let subgroup = u64::from(cx.caps().subgroup);
    // How many of them at most, and of how many rows each. Lavapipe's compiler is not up to more.
    let (most, each) = if cx.caps().cpu { (256, 2) } else { (512.min(cx.caps().max_threads.into()), 16) };
    // Few sizes, each of which is a kernel to build.
    let threads = rows.next_power_of_two().max(subgroup).min(most);
    (matches!(subgroup, 4 | 8 | 16 | 32 | 64) && rows <= threads * each).then_some(threads)
}

/// A batch of matrices within a block: element (i, j) of matrix b is at offset + b·batch + i·row + j·column. Strides may
/// be negative.
#[derive(Clone, Copy)]
struct View<'a> {
    block: &'a Allocation,
    offset: i64,
    batch: i64,
    row: i64,
    column: i64,
}

impl<'a> View<'a> {
    fn dense(block: &'a Allocation, rows: u64, columns: u64) -> Self {
        View { block, offset: 0, batch: (rows * columns) as i64, row: columns as i64, column: 1 }
    }

    /// The part that begins at row `i` and column `j`.
    fn at(self, i: u64, j: u64) -> Self {
        View { offset: self.offset + i as i64 * self.row + j as i64 * self.column, ..self }
    }

    fn transposed(self) -> Self {
        View { row: self.column, column: self.row, ..self }
    }

    /// With the order of the first `rows` rows reversed.
    fn rows_reversed(self, rows: u64) -> Self {
        View { offset: self.offset + (rows as i64 - 1) * self.row, row: -self.row, ..self }
    }

    /// As parameters: the offset and the three strides, by these names.
    fn extents(&self, names: [&'static str; 4]) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        let parts = [self.offset, self.batch, self.row, self.column];
        names.into_iter().zip(parts.map(|part| part as u64))
    }
}

/// Whether indices into these blocks need 64 bits.
fn wide(ty: Type, blocks: &[&Allocation]) -> bool {
    blocks.iter().any(|block| block.size / ty.size() >= 1 << 31)
}

/// Which elements a copy takes, and from where.
#[derive(Clone, Copy)]
enum Pack<'a> {
    All,
    /// Zeros above the diagonal.
    Lower,
    /// Each matrix transposed.
    Transposed,
    /// Row i is row permutation\[i\] of the operand.
    Rows(&'a Allocation),
}

impl Pack<'_> {
    /// A dense copy of `from` in the working type `to`.
    fn copy(self, cx: &Context, from: &Matrices, to: Type) -> Attempt<AllocationHandle> {
        to.check_program(cx.caps())?;
        from.ty.check_program(cx.caps())?;
        let source = from.allocation()?;
        let elements = from.elements();
        let allocation = cx.allocate(elements * to.size())?;
        let (mode, permutation) = match self {
            Pack::All => (0, None),
            Pack::Lower => (1, None),
            Pack::Transposed => (2, None),
            Pack::Rows(permutation) => (3, Some(permutation)),
        };
        let narrowest = if from.ty.size() < to.size() { from.ty } else { to };
        let scheme = Scheme::plain(to, wide(narrowest, &[&source, &allocation]), 256);
        let mut reads: SmallVec<[Operand; 2]> = SmallVec::new();
        reads.push(("tensor", Holds::Tensor(from.ty), &source));
        reads.extend(permutation.map(|block| Holds::Indices.of("permutation", block)));
        Step {
            defines: &[("MODE", mode)],
            tensor: Some(from.ty),
            reads: &reads,
            writes: &[("to", Holds::Cells, &allocation)],
            extents: &[("rows", from.rows), ("columns", from.columns), ("count", elements)],
            groups: elements.div_ceil(256),
            ..Step::new(&["exact", "pack"], Run { cx, scheme })
        }
        .record()?;
        Ok(allocation)
    }
}

/// The result of type `to` from so many elements of the working type.
fn unpack(cx: &Context, allocation: AllocationHandle, from: Type, elements: u64, to: Type) -> Attempt<Buffer> {
    if from == to {
        return Ok(Buffer::new(elements * from.size(), allocation));
    }
    to.check_program(cx.caps())?;
    let result = cx.allocate(elements * to.size())?;
    let narrowest = if from.size() < to.size() { from } else { to };
    let scheme = Scheme::plain(from, wide(narrowest, &[&allocation, &result]), 256);
    Step {
        tensor: Some(to),
        reads: &[("from", Holds::Cells, &allocation)],
        writes: &[("tensor", Holds::Tensor(to), &result)],
        extents: &[("count", elements)],
        groups: elements.div_ceil(256),
        ..Step::new(&["exact", "unpack"], Run { cx, scheme })
    }
    .record()?;
    Ok(Buffer::new(elements * to.size(), result))
}

/// An update of fewer multiplications is not worth two more kernels.
const LARGE: u64 = 1 << 18;

/// `c -= a · b`, where c has `rows` rows and `columns` columns and the product sums over `depth`.
struct Update<'a> {
    ty: Type,
    batch: u64,
    rows: u64,
    columns: u64,
    depth: u64,
    /// Whether a and b are taken conjugated.
    conjugate: [bool; 2],
    a: View<'a>,
    b: View<'a>,
    c: View<'a>,
}

impl Update<'_> {
    /// How many commands it records at most.
    fn commands(cx: &Context) -> u64 {
        if processor(cx) { 3 } else { 1 }
    }

    /// By the panels of `contraction` where the device is a processor and the product large enough.
    fn by_panels(&self, cx: &Context) -> Attempt<bool> {
        let &Update { ty, batch, rows, columns, depth, mut a, mut b, mut c, .. } = self;
        let conjugates = ty.is_complex() && self.conjugate != [false; 2];
        if !processor(cx) || conjugates || c.block.size / ty.size() >= 1 << 31 || batch * rows * columns * depth < LARGE
        {
            return Ok(false);
        }
        // Panels begin at the lowest address.
        let ascend = |count: u64, first: (&mut i64, &mut i64), second: (&mut i64, &mut i64)| {
            for (offset, stride) in [first, second] {
                *offset += (count as i64 - 1) * *stride;
                *stride = -*stride;
            }
        };
        if a.row < 0 && c.row < 0 {
            ascend(rows, (&mut a.offset, &mut a.row), (&mut c.offset, &mut c.row));
        }
        if b.column < 0 && c.column < 0 {
            ascend(columns, (&mut b.offset, &mut b.column), (&mut c.offset, &mut c.column));
        }
        if a.column < 0 && b.row < 0 {
            ascend(depth, (&mut a.offset, &mut a.column), (&mut b.offset, &mut b.row));
        }
        if [a.row, a.column, b.row, b.column, c.row, c.column].iter().any(|&stride| stride < 0) {
            return Ok(false);
        }
        let axis = |dim, a, b, c| vec![Axis { dim, a, b, c, border: None }];
        let groups = Groups {
            batch: axis(batch, a.batch, b.batch, c.batch),
            m: axis(rows, a.row, 0, c.row),
            n: axis(columns, 0, b.column, c.column),
            k: axis(depth, a.column, b.row, 0),
            borders: None,
        };
        let [a, b, c] = [a, b, c].map(|view| Held { block: view.block, ty, offset: view.offset });
        match Panels::of(cx.caps(), &groups, [a, b], ty, ty.compute()) {
            Some(panels) => panels.run(cx, c, true).map(|()| true),
            None => Ok(false),
        }
    }

    fn record(&self, cx: &Context) -> Attempt<()> {
        let &Update { ty, batch, rows, columns, depth, a, b, c, .. } = self;
        if batch == 0 || rows == 0 || columns == 0 || depth == 0 {
            return Ok(());
        }
        // Neighbouring threads write neighbouring columns: where rows lie closer together, the transposed product is taken.
        if c.row.abs() < c.column.abs() {
            let conjugate = [self.conjugate[1], self.conjugate[0]];
            let (a, b, c) = (b.transposed(), a.transposed(), c.transposed());
            return Update { rows: columns, columns: rows, conjugate, a, b, c, ..*self }.record(cx);
        }
        if self.by_panels(cx)? {
            return Ok(());
        }
        let (tile, _) = Tile::chosen(cx.caps(), [ty.compute(); 2], false, [batch, rows, columns, depth.min(32)]);
        let (width, _) = vector(ty.compute());
        let scheme = Scheme::plain(ty, wide(ty, &[a.block, b.block, c.block]), tile.threads());
        let flag = |is: bool| u32::from(is);
        let mut extents: SmallVec<[(&'static str, u64); 15]> = SmallVec::new();
        extents.extend(c.extents(["c_offset", "c_batch", "c_row", "c_column"]));
        extents.extend(a.extents(["a_offset", "a_batch", "a_row", "a_column"]));
        extents.extend(b.extents(["b_offset", "b_batch", "b_row", "b_column"]));
        extents.extend([("m", rows), ("n", columns), ("k", depth)]);
        Step {
            defines: &[
                ("BM", tile.rows),
                ("BN", tile.columns),
                ("BK", tile.depth),
                ("TM", tile.thread_rows),
                ("TN", tile.thread_columns),
                ("SLICES", tile.slices),
                ("WIDTH", width),
                ("BY_LANES", flag(tile.lanes())),
                ("A_ALONG_K", flag(a.column.abs() <= a.row.abs())),
                ("B_ALONG_N", flag(b.column.abs() <= b.row.abs())),
                ("CONJUGATE_A", flag(self.conjugate[0] && ty.is_complex())),
                ("CONJUGATE_B", flag(self.conjugate[1] && ty.is_complex())),
            ],
            reads: &[("a", Holds::Cells, a.block), ("b", Holds::Cells, b.block)],
            writes: &[("c", Holds::Cells, c.block)],
            extents: &extents,
            groups: batch * rows.div_ceil(tile.rows.into()) * columns.div_ceil(tile.columns.into()),
            ..Step::new(&["exact", "update"], Run { cx, scheme })
        }
        .record()
    }
}
