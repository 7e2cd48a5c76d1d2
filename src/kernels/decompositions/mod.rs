//! Orthogonal decompositions of batches of matrices: QR, eigenvalues of Hermitian matrices, singular values.
//!
//! All of them work on a copy whose columns are contiguous, scaled by a power of two, in the type of the result or a
//! wider one, and end by rounding it to the result.

mod blocks;
pub mod eigh;
mod jacobi;
pub mod qr;
pub mod svd;

use std::fmt::Write as _;

use smallvec::SmallVec;

use super::Kernel;
use super::matrices::Matrices;
use crate::device::Gpu;
use crate::error::{Error, Result};
use crate::memory::{Block, Buffer, Kind, Lease, Patience};
use crate::program::Type;
use crate::program::emit::{Params, assign, convert, element, head};
use crate::program::types::Compute;

/// Matrices with at most this many rows and columns are worked on with sums formed in double, where the device has it,
/// and quotients and roots right to the last bit: that is how BinaryBackend rounds.
const EXACT: u64 = 64;

/// Fails unless the matrices can be worked on, and the result be of type `ty`.
fn check(gpu: &Gpu, a: &Matrices, ty: Type) -> Result<()> {
    a.ty.check(&gpu.caps)?;
    ty.check(&gpu.caps)?;
    if ty.is_complex() != a.ty.is_complex() || !(ty.is_float() || ty.is_complex()) {
        return Err(Error::Argument("out_type: expected a float or complex type as the matrices have".into()));
    }
    if a.elements() == 0 { Err(Error::SizeMismatch) } else { within_reach(a.elements()) }
}

/// Fails where that many elements are more than a 32-bit index reaches.
fn within_reach(elements: u64) -> Result<()> {
    if elements < 1 << 31 {
        return Ok(());
    }
    Err(Error::Unsupported("the matrices have more than 2^31 elements in all".into()))
}

/// How matrices are computed with: the values that define `shaders/lib/decompositions/scalar.glsl`.
#[derive(Clone, Copy)]
struct Scheme {
    /// The type of the copy that is worked on.
    work: Type,
    /// Whether sums are formed in double and everything else is rounded once.
    fine: bool,
    lanes: u32,
    segments: u32,
}

impl Scheme {
    fn new(gpu: &Gpu, work: Type, rows: u64, columns: u64) -> Self {
        let fine = gpu.caps.float64 && rows.max(columns) <= EXACT;
        // A CPU device runs eight threads as one vector; more would only wait for each other.
        let (lanes, segments) = if gpu.caps.cpu { (8, 1) } else { (32, 4) };
        Self { work, fine, lanes, segments }
    }

    /// For kernels whose threads have an element each and nothing in common.
    fn elementwise(self, gpu: &Gpu) -> Self {
        Self { lanes: if gpu.caps.cpu { 64 } else { 256 }, segments: 1, ..self }
    }

    fn threads(&self) -> u64 {
        (self.lanes * self.segments).into()
    }

    fn is_double(&self) -> bool {
        matches!(self.work, Type::F64 | Type::C128)
    }

    /// The type of real numbers that go with the elements.
    fn real(&self) -> Type {
        if self.is_double() { Type::F64 } else { Type::F32 }
    }

    fn scalars(&self) -> String {
        let complex = self.work.is_complex();
        let sum = if self.fine || self.is_double() { "double" } else { "float" };
        let real = self.real().compute().glsl();
        let element = |real: &str| match (complex, real) {
            (false, real) => real.to_owned(),
            (true, "double") => "dvec2".into(),
            (true, _) => "vec2".into(),
        };
        let eps = if self.is_double() { "2.220446049250313e-16lf" } else { "1.1920928955078125e-7" };
        format!(
            "#define PART {real}\n#define ELEMENT {}\n#define COMPLEX_ELEMENTS {}\n#define SUM {sum}\n\
             #define SUM_ELEMENT {}\n#define EXACT {}\n#define EPS {eps}\n\
             #define LANES {}u\n#define SEGMENTS {}u\n",
            element(real),
            u8::from(complex),
            element(sum),
            u8::from(self.fine && !self.is_double()),
            self.lanes,
            self.segments,
        )
    }

    fn computes(&self) -> SmallVec<[Compute; 4]> {
        let mut computes = SmallVec::from_slice(&[self.work.compute(), self.real().compute()]);
        if self.fine {
            computes.push(Compute::Double);
        }
        computes
    }

    /// Bytes of a block of `count` elements.
    fn cells(&self, gpu: &Gpu, count: u64, patience: Patience) -> Result<Lease> {
        gpu.allocate(Kind::Device, count * self.work.size(), patience)
    }

    fn numbers(&self, gpu: &Gpu, count: u64, patience: Patience) -> Result<Lease> {
        gpu.allocate(Kind::Device, count * self.real().size(), patience)
    }
}

/// What a parameter that is an address points at.
#[derive(Clone, Copy)]
enum Holds {
    Cells,
    Numbers,
    Indices,
    Tensor(Type),
}

/// A kernel under `shaders/lib/decompositions` and one run of it.
struct Step<'a> {
    files: &'a [&'a str],
    scheme: Scheme,
    /// Whether threads of a workgroup read from buffers what others of it wrote.
    coherent: bool,
    defines: &'a [(&'a str, u32)],
    /// The tensor that the kernel reads as `LOAD(i)` or writes as `STORE(i, x)`.
    tensor: Option<Type>,
    reads: &'a [(&'a str, Holds, &'a Lease)],
    writes: &'a [(&'a str, Holds, &'a Lease)],
    extents: &'a [(&'a str, u64)],
    groups: u64,
}

impl Step<'_> {
    fn record(&self, gpu: &Gpu, patience: Patience) -> Result<()> {
        let reads: SmallVec<[&Block; 8]> = self.reads.iter().map(|(_, _, lease)| &***lease).collect();
        let writes: SmallVec<[&Block; 8]> = self.writes.iter().map(|(_, _, lease)| &***lease).collect();
        let kernel = Kernel {
            key: &self.key(),
            params: &|params| self.params(params),
            source: &|parameters| self.source(gpu, parameters),
            groups: self.groups,
            reads: &reads,
            writes: &writes,
        };
        kernel.launch(gpu, patience)
    }

    fn params(&self, params: &mut Params) {
        for &(name, holds, lease) in self.reads.iter().chain(self.writes) {
            let storage = match holds {
                Holds::Cells => "Cell",
                Holds::Numbers => "Number",
                Holds::Indices => "uint",
                Holds::Tensor(ty) => ty.storage(),
            };
            params.address(lease.address, storage, format_args!("{name}"));
        }
        for &(name, value) in self.extents {
            params.extent(value, false, format_args!("{name}"));
        }
        params.extent(self.groups, false, format_args!("groups"));
    }

    fn key(&self) -> Vec<u8> {
        let Scheme { work, fine, lanes, segments } = self.scheme;
        let mut bytes = b"decomposition ".to_vec();
        for file in self.files {
            bytes.extend_from_slice(file.as_bytes());
            bytes.push(0xff);
        }
        bytes.extend_from_slice(&[work as u8, fine.into(), self.coherent.into()]);
        bytes.extend([lanes, segments].iter().flat_map(|count| count.to_le_bytes()));
        bytes.extend(self.tensor.map(|ty| ty as u8));
        bytes.push(0xff);
        bytes.extend(self.defines.iter().flat_map(|(_, value)| value.to_le_bytes()));
        bytes
    }

    fn source(&self, gpu: &Gpu, parameters: &str) -> String {
        let scheme = &self.scheme;
        let mut storages = vec!["uint"];
        storages.extend(self.tensor.map(Type::storage));
        let mut computes = scheme.computes();
        computes.extend(self.tensor.map(Type::compute));
        let coherent = if self.coherent { "coherent " } else { "" };
        let declarations = format!(
            "{scalars}\
             layout(buffer_reference, scalar) {coherent}buffer Buffer_Cell {{ ELEMENT v[]; }};\n\
             layout(buffer_reference, scalar) {coherent}buffer Buffer_Number {{ PART v[]; }};\n\
             {parameters}",
            scalars = scheme.scalars(),
        );
        let mut text = head(&gpu.caps, false, &storages, &computes, &declarations);
        text.push_str("#include \"lib/complex.glsl\"\n");
        for (name, value) in self.defines {
            let _ = writeln!(text, "#define {name} {value}");
        }
        if let Some(ty) = self.tensor {
            let _ = write!(
                text,
                "#define LOAD(i) {}\n#define STORE(i, x) {}\n",
                convert(element(ty, "tensor", "(i)"), scheme.work),
                assign(ty, "tensor", "(i)", ("(x)".into(), scheme.work)),
            );
        }
        let _ = write!(
            text,
            "layout(local_size_x = {}) in;\n\
             #include \"lib/decompositions/scalar.glsl\"\n",
            scheme.threads()
        );
        for file in self.files {
            let _ = writeln!(text, "#include \"lib/decompositions/{file}.glsl\"");
        }
        text
    }
}

/// The matrices as they are worked on: columns contiguous, scaled; and the scales, one a matrix.
struct Work {
    cells: Lease,
    scales: Lease,
}

/// Elements that a workgroup copies, where there are so many.
const PIECE: u64 = 4096;

/// Copies the matrices, transposed where `transposed`.
fn load_matrices(gpu: &Gpu, scheme: Scheme, a: &Matrices, transposed: bool, patience: Patience) -> Result<Work> {
    let cells = scheme.cells(gpu, a.batch * a.rows * a.columns, patience)?;
    let scales = scheme.numbers(gpu, a.batch, patience)?;
    let lease = a.lease()?;
    let threads = if gpu.caps.cpu { 8 } else { 256 };
    let parts = (a.rows * a.columns / PIECE).clamp(1, 64);
    let maxima = scheme.numbers(gpu, a.batch * parts, patience)?;
    let extents = [("rows", a.rows), ("columns", a.columns), ("parts", parts)];
    let largest = Step {
        files: &["largest"],
        scheme: Scheme { lanes: threads, segments: 1, ..scheme },
        coherent: false,
        defines: &[],
        tensor: Some(a.ty),
        reads: &[("tensor", Holds::Tensor(a.ty), &lease)],
        writes: &[("maxima", Holds::Numbers, &maxima)],
        extents: &extents,
        groups: a.batch * parts,
    };
    largest.record(gpu, patience)?;
    Step {
        files: &["load"],
        defines: &[("TRANSPOSED", transposed.into())],
        reads: &[("tensor", Holds::Tensor(a.ty), &lease), ("maxima", Holds::Numbers, &maxima)],
        writes: &[("work", Holds::Cells, &cells), ("scales", Holds::Numbers, &scales)],
        ..largest
    }
    .record(gpu, patience)?;
    Ok(Work { cells, scales })
}

/// A result of `rows` × `columns` a matrix, from `width` columns of `height` elements each.
struct Stored<'a> {
    ty: Type,
    batch: u64,
    rows: u64,
    columns: u64,
    width: u64,
    height: u64,
    cells: &'a Lease,
    /// Elements of at most this magnitude, and of at most rounding errors, become zero.
    zero: f32,
    /// To undo the scaling of the matrices.
    scales: Option<&'a Lease>,
    /// The column of `cells` that comes at each place.
    order: Option<&'a Lease>,
    upper: bool,
    transposed: bool,
}

impl Stored<'_> {
    fn record(&self, gpu: &Gpu, scheme: Scheme, patience: Patience) -> Result<Buffer> {
        let count = self.batch * self.rows * self.columns;
        let lease = gpu.allocate(Kind::Device, count * self.ty.size(), patience)?;
        let mut reads: SmallVec<[_; 3]> = SmallVec::new();
        reads.push(("work", Holds::Cells, self.cells));
        reads.extend(self.scales.map(|scales| ("scales", Holds::Numbers, scales)));
        reads.extend(self.order.map(|order| ("order", Holds::Indices, order)));
        let scheme = scheme.elementwise(gpu);
        Step {
            files: &["store"],
            scheme,
            coherent: false,
            defines: &[
                ("TRANSPOSED", self.transposed.into()),
                ("ORDERED", self.order.is_some().into()),
                ("SCALED", self.scales.is_some().into()),
                ("UPPER", self.upper.into()),
            ],
            tensor: Some(self.ty),
            reads: &reads,
            writes: &[("tensor", Holds::Tensor(self.ty), &lease)],
            extents: &[
                ("count", count),
                ("rows", self.rows),
                ("columns", self.columns),
                ("width", self.width),
                ("height", self.height),
                ("zero", self.zero.to_bits().into()),
            ],
            groups: count.div_ceil(scheme.threads()),
        }
        .record(gpu, patience)?;
        Ok(Buffer::new(count * self.ty.size(), lease))
    }
}

/// Batches of identity matrices, columns contiguous.
fn identity(gpu: &Gpu, scheme: Scheme, [batch, rows, columns]: [u64; 3], patience: Patience) -> Result<Lease> {
    let count = batch * rows * columns;
    let cells = scheme.cells(gpu, count, patience)?;
    let scheme = scheme.elementwise(gpu);
    Step {
        files: &["identity"],
        scheme,
        coherent: false,
        defines: &[],
        tensor: None,
        reads: &[],
        writes: &[("work", Holds::Cells, &cells)],
        extents: &[("count", count), ("rows", rows), ("columns", columns)],
        groups: count.div_ceil(scheme.threads()),
    }
    .record(gpu, patience)?;
    Ok(cells)
}
