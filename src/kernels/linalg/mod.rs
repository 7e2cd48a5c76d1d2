//! Linear algebra on batches of matrices: what its families have in common.
//!
//! All of them are blocked, as LAPACK's are: one workgroup works on a block of [`width`] rows or columns, and
//! [`update`] brings what follows up to date by a matrix product. They work in place on dense matrices of a [`working`]
//! type, which [`Pack`] makes from tensors of any type.

pub mod cholesky;
pub mod lu;
pub mod triangular;

use std::fmt::Write as _;

use super::check_indices;
use super::contraction::{Tile, multiply_add, vector};
use super::matrices::Matrices;
use crate::device::Gpu;
use crate::error::{Error, Result};
use crate::memory::{Block, Buffer, Kind, Lease, Patience};
use crate::program::Type;
use crate::program::emit::{Params, convert, element, head, store};
use crate::program::types::Compute;

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
fn processor(gpu: &Gpu) -> bool {
    gpu.caps.cpu && matches!(gpu.caps.subgroup, 4 | 8)
}

/// A batch of matrices within a block: element (i, j) of matrix b is at offset + b·batch + i·row + j·column. Strides may
/// be negative.
#[derive(Clone, Copy)]
struct View<'a> {
    block: &'a Block,
    offset: i64,
    batch: i64,
    row: i64,
    column: i64,
}

impl<'a> View<'a> {
    fn dense(block: &'a Block, rows: u64, columns: u64) -> Self {
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

    fn params(&self, params: &mut Params, ty: Type, wide: bool, name: &str) {
        params.address(self.block.address, ty.storage(), format_args!("{name}"));
        let parts = [(self.offset, "offset"), (self.batch, "batch"), (self.row, "row"), (self.column, "column")];
        for (value, part) in parts {
            params.index(value, wide, format_args!("{name}_{part}"));
        }
    }
}

/// Whether indices into these blocks need 64 bits.
fn wide(ty: Type, blocks: &[&Block]) -> bool {
    blocks.iter().any(|block| block.size / ty.size() >= 1 << 31)
}

/// A kernel of `shaders/lib/linalg`.
struct Kernel<'a> {
    gpu: &'a Gpu,
    patience: Patience,
    file: &'static str,
    ty: Type,
    /// The type of sums.
    accumulator: Compute,
    wide: bool,
    threads: u32,
    defines: &'a [(&'static str, u64)],
}

impl Kernel<'_> {
    /// Records one run over `groups` workgroups. `params` writes the parameters; `groups` is added to them.
    fn record(&self, groups: u64, params: &dyn Fn(&mut Params), reads: &[&Block], writes: &[&Block]) -> Result<()> {
        let text = |_: &mut String| {};
        self.record_with(groups, params, &[], &text, reads, writes)
    }

    /// As [`Kernel::record`], with other storage types and lines of text that the kernel's source begins with.
    fn record_with(
        &self,
        groups: u64,
        params: &dyn Fn(&mut Params),
        types: &[Type],
        text: &dyn Fn(&mut String),
        reads: &[&Block],
        writes: &[&Block],
    ) -> Result<()> {
        check_indices(self.gpu, self.wide)?;
        let kernel = super::Kernel {
            key: &self.key(types),
            params: &|all| {
                params(all);
                all.extent(groups, self.wide, format_args!("groups"));
            },
            source: &|parameters| self.source(types, text, parameters),
            groups,
            reads,
            writes,
        };
        kernel.launch(self.gpu, self.patience)
    }

    fn key(&self, types: &[Type]) -> Vec<u8> {
        let mut key =
            format!("linalg {} {:?} {:?} {} {}", self.file, self.ty, self.accumulator, self.wide, self.threads);
        let _ = write!(key, " {types:?} {:?}", self.defines);
        key.into_bytes()
    }

    fn source(&self, types: &[Type], text: &dyn Fn(&mut String), parameters: &str) -> String {
        let storages: Vec<&str> = types.iter().map(|ty| ty.storage()).chain([self.ty.storage(), "uint"]).collect();
        let computes: Vec<Compute> =
            types.iter().map(|ty| ty.compute()).chain([self.ty.compute(), self.accumulator]).collect();
        let mut source = head(&self.gpu.caps, self.wide, &storages, &computes, parameters);
        let _ = write!(
            source,
            "#define ELEMENT {element}\n#define PART {part}\n#define ACCUMULATOR {accumulator}\n\
             #define ELEMENTS(b, i) AT({storage}, b, i)\n\
             #define MULTIPLY_ADD(a, b, c) {multiply_add}\n\
             #define PROCESSOR {processor}\n#define SUBGROUP {subgroup}u\n\
             #define LOCAL_SIZE {threads}u\n",
            element = self.ty.compute().glsl(),
            part = self.ty.part().compute().glsl(),
            accumulator = self.accumulator.glsl(),
            storage = self.ty.storage(),
            multiply_add = multiply_add(&self.gpu.caps, self.ty.compute()),
            processor = u8::from(processor(self.gpu)),
            subgroup = self.gpu.caps.subgroup,
            threads = self.threads,
        );
        if self.ty.is_complex() {
            source.push_str("#define COMPLEX_ELEMENTS\n");
        }
        for (name, value) in self.defines {
            let _ = writeln!(source, "#define {name} {value}");
        }
        text(&mut source);
        let _ = write!(
            source,
            "layout(local_size_x = LOCAL_SIZE) in;\n\
             #include \"lib/linalg/scalar.glsl\"\n\
             #include \"lib/linalg/{}.glsl\"\n",
            self.file
        );
        source
    }
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
    Rows(&'a Block),
}

impl Pack<'_> {
    /// A dense copy of `from` in the type `to`.
    fn copy(self, gpu: &Gpu, from: &Matrices, to: Type, patience: Patience) -> Result<Lease> {
        to.check_program(&gpu.caps)?;
        from.ty.check_program(&gpu.caps)?;
        let source = from.lease()?;
        let elements = from.elements();
        let lease = gpu.allocate(Kind::Device, elements * to.size(), patience)?;
        let (mode, permutation) = match self {
            Pack::All => (0, None),
            Pack::Lower => (1, None),
            Pack::Transposed => (2, None),
            Pack::Rows(permutation) => (3, Some(permutation)),
        };
        let narrowest = if from.ty.size() < to.size() { from.ty } else { to };
        let wide = wide(narrowest, &[&source, &lease]);
        let kernel = Kernel {
            gpu,
            patience,
            file: "pack",
            ty: to,
            accumulator: to.compute(),
            wide,
            threads: 256,
            defines: &[("MODE", mode)],
        };
        let params = |params: &mut Params| {
            params.address(lease.address, to.storage(), format_args!("to"));
            params.address(source.address, from.ty.storage(), format_args!("from"));
            params.address(permutation.map_or(0, |block| block.address), "uint", format_args!("permutation"));
            for (value, name) in [(from.rows, "rows"), (from.columns, "columns"), (elements, "count")] {
                params.extent(value, wide, format_args!("{name}"));
            }
        };
        let text = |text: &mut String| {
            let value = store(to, &convert(element(from.ty, "from", "i"), to));
            let _ = writeln!(text, "#define SOURCE(i) {value}");
        };
        let mut reads: Vec<&Block> = vec![&source];
        reads.extend(permutation);
        kernel.record_with(elements.div_ceil(256), &params, &[from.ty], &text, &reads, &[&lease])?;
        Ok(lease)
    }
}

/// The result of type `to` from matrices in the working type.
fn unpack(gpu: &Gpu, lease: Lease, from: Type, shape: [u64; 3], to: Type, patience: Patience) -> Result<Buffer> {
    let [batch, rows, columns] = shape;
    let elements = batch * rows * columns;
    let buffer = Buffer::new(elements * from.size(), lease);
    if from == to {
        return Ok(buffer);
    }
    let operand = Matrices { buffer: &buffer, ty: from, batch, rows, columns };
    let lease = Pack::All.copy(gpu, &operand, to, patience)?;
    Ok(Buffer::new(elements * to.size(), lease))
}

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
    fn record(&self, gpu: &Gpu, patience: Patience) -> Result<()> {
        let &Update { ty, batch, rows, columns, depth, a, b, c, .. } = self;
        if batch == 0 || rows == 0 || columns == 0 || depth == 0 {
            return Ok(());
        }
        // Neighbouring threads write neighbouring columns: where rows lie closer together, the transposed product is taken.
        if c.row.abs() < c.column.abs() {
            let conjugate = [self.conjugate[1], self.conjugate[0]];
            let (a, b, c) = (b.transposed(), a.transposed(), c.transposed());
            return Update { rows: columns, columns: rows, conjugate, a, b, c, ..*self }.record(gpu, patience);
        }
        let (tile, _) = Tile::choose(&gpu.caps, ty.compute(), ty.compute(), [batch, rows, columns, depth.min(32)]);
        let (width, vector) = vector(ty.compute());
        let flag = |is: bool| u64::from(is);
        let wide = wide(ty, &[a.block, b.block, c.block]);
        let kernel = Kernel {
            gpu,
            patience,
            file: "update",
            ty,
            accumulator: ty.compute(),
            wide,
            threads: tile.threads(),
            defines: &[
                ("BM", tile.rows.into()),
                ("BN", tile.columns.into()),
                ("BK", tile.depth.into()),
                ("TM", tile.thread_rows.into()),
                ("TN", tile.thread_columns.into()),
                ("WIDTH", width.into()),
                ("LANES", flag(tile.lanes())),
                ("A_ALONG_K", flag(a.column.abs() <= a.row.abs())),
                ("B_ALONG_N", flag(b.column.abs() <= b.row.abs())),
                ("CONJUGATE_A", flag(self.conjugate[0] && ty.is_complex())),
                ("CONJUGATE_B", flag(self.conjugate[1] && ty.is_complex())),
            ],
        };
        let params = |params: &mut Params| {
            c.params(params, ty, wide, "c");
            a.params(params, ty, wide, "a");
            b.params(params, ty, wide, "b");
            for (value, name) in [(rows, "m"), (columns, "n"), (depth, "k")] {
                params.extent(value, wide, format_args!("{name}"));
            }
        };
        let groups = batch * rows.div_ceil(tile.rows.into()) * columns.div_ceil(tile.columns.into());
        let text = |text: &mut String| {
            let _ = writeln!(text, "#define VECTOR {vector}");
        };
        kernel.record_with(groups, &params, &[], &text, &[a.block, b.block, c.block], &[c.block])
    }
}
