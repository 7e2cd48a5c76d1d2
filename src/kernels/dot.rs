//! Products of tensors over any axes: `Nx.dot/6`.

use smallvec::SmallVec;
use xxhash_rust::xxh3::xxh3_128;

use super::{Launch, grid};
use crate::device::Gpu;
use crate::error::{Error, Result};
use crate::memory::{Buffer, Kind, Lease, Patience};
use crate::program::emit::{Params, convert, load, prelude, store};
use crate::program::types::Compute;
use crate::program::{Attribute, Axes, Input, Node, Program, Source, Type, dense_strides, op};

/// An operand: a dense tensor and the roles of its axes, in the order in which the other operand's match.
pub struct Operand<'a> {
    pub buffer: &'a Buffer,
    pub ty: Type,
    pub shape: Axes<u64>,
    pub contract: SmallVec<[usize; 4]>,
    pub batch: SmallVec<[usize; 4]>,
}

/// Extents and strides of an operand by the roles of its axes.
struct Roles {
    batch: Group,
    free: Group,
    contract: Group,
}

#[derive(Clone, Default)]
struct Group {
    dims: Axes<u64>,
    strides: Axes<i64>,
}

/// A matrix, or a batch of them, in a block.
struct Matrices {
    lease: std::sync::Arc<Lease>,
    ty: Type,
    batch: i64,
    free: i64,
    contract: i64,
}

/// Products of at most this many multiplications accumulate in double where the device has it, as BinaryBackend does;
/// larger ones in the type itself.
const EXACT: u64 = 1 << 22;

struct Tile {
    rows: u32,
    columns: u32,
    depth: u32,
    thread_rows: u32,
    thread_columns: u32,
}

const SMALL: Tile = Tile { rows: 16, columns: 16, depth: 16, thread_rows: 1, thread_columns: 1 };
const LARGE: Tile = Tile { rows: 64, columns: 64, depth: 16, thread_rows: 4, thread_columns: 4 };

/// The tensor of type `ty` and shape batch ++ free axes of `a` ++ free axes of `b`, summed over the contracted axes.
pub fn run(gpu: &Gpu, ty: Type, a: &Operand, b: &Operand, patience: Patience) -> Result<Buffer> {
    [ty, a.ty, b.ty].iter().try_for_each(|ty| ty.check(&gpu.caps))?;
    let (ra, rb) = (Roles::of(a)?, Roles::of(b)?);
    if ra.batch.dims != rb.batch.dims || ra.contract.dims != rb.contract.dims {
        return Err(Error::SizeMismatch);
    }
    let (batch, m, n, k) = (ra.batch.size(), ra.free.size(), rb.free.size(), ra.contract.size());
    let Some(multiplications) = [batch, m, n, k].iter().try_fold(1u64, |all, &dim| all.checked_mul(dim)) else {
        return Err(Error::SizeMismatch);
    };
    let elements = batch * m * n;
    if elements == 0 || k == 0 {
        return gpu.zeroed(elements * ty.size(), patience);
    }
    let wide = ty.is_float() && ty.bits() <= 32 && gpu.caps.float64;
    if m == 1 || n == 1 {
        return as_reduction(gpu, if wide { Type::F64 } else { ty }, ty, (a, &ra), (b, &rb), patience);
    }
    let accumulator = if wide && multiplications <= EXACT { Compute::Double } else { ty.compute() };
    let a = ra.matrices(gpu, a, ty, patience)?;
    let b = rb.matrices(gpu, b, ty, patience)?;
    let lease = gpu.allocate(Kind::Device, elements * ty.size(), patience)?;
    let large = elements >= 64 * 64 && accumulator.size() == 4 && m > 16 && n > 16;
    let tile = if large { LARGE } else { SMALL };
    let spans = [a.lease.size, b.lease.size, lease.size];
    let wide_index = spans.iter().any(|&bytes| bytes / ty.size() >= 1 << 31);
    let groups = m.div_ceil(tile.rows.into()) * n.div_ceil(tile.columns.into()) * batch;
    let params = |params: &mut Params| {
        params.address(lease.address, ty.storage(), format_args!("c"));
        params.address(a.lease.address, a.ty.storage(), format_args!("a"));
        params.address(b.lease.address, b.ty.storage(), format_args!("b"));
        for (value, name) in [(m, "m"), (n, "n"), (k, "k"), (groups, "groups")] {
            params.extent(value, wide_index, format_args!("{name}"));
        }
        for (matrices, name) in [(&a, "a"), (&b, "b")] {
            params.index(matrices.batch, wide_index, format_args!("{name}_batch"));
            params.index(matrices.free, wide_index, format_args!("{name}_free"));
            params.index(matrices.contract, wide_index, format_args!("{name}_contract"));
        }
    };
    let mut bytes = Params::default();
    params(&mut bytes);
    let shape = Shape { ty, a: &a, b: &b, accumulator, tile: &tile, wide: wide_index };
    let pipeline = gpu.pipelines.kernel(shape.key(), bytes.bytes.len() as u32, patience, || {
        let mut declared = Params::with_declarations();
        params(&mut declared);
        shape.source(gpu, &declared.declarations())
    })?;
    let launch = Launch {
        pipeline: &pipeline,
        params: &bytes.bytes,
        buffered: false,
        groups: grid(gpu, groups)?,
        reads: &[&a.lease, &b.lease],
        writes: &[&lease],
    };
    launch.record(gpu, patience)?;
    Ok(Buffer::new(elements * ty.size(), lease))
}

/// Few outputs: a product and a sum over all of the iteration space, which splits long sums over the device.
fn as_reduction(
    gpu: &Gpu,
    inner: Type,
    ty: Type,
    (a, ra): (&Operand, &Roles),
    (b, rb): (&Operand, &Roles),
    patience: Patience,
) -> Result<Buffer> {
    let zeros = |group: &Group| Axes::from_elem(0, group.dims.len());
    let join = |parts: [&Axes<i64>; 4]| parts.into_iter().flatten().copied().collect::<Axes<i64>>();
    let strides_a = join([&ra.batch.strides, &ra.free.strides, &zeros(&rb.free), &ra.contract.strides]);
    let strides_b = join([&rb.batch.strides, &zeros(&ra.free), &rb.free.strides, &rb.contract.strides]);
    let dims = [&ra.batch.dims, &ra.free.dims, &rb.free.dims, &ra.contract.dims];
    let shape: Axes<u64> = dims.into_iter().flatten().copied().collect();
    let kept = shape.len() - ra.contract.dims.len();
    let input = |ty, strides| Input { ty, source: Source::View { offset: 0, strides } };
    let multiply =
        Node { op: operation("multiply"), ty: inner, args: [0, 1].as_slice().into(), attribute: Attribute::None };
    let axes = Attribute::Axes((kept..shape.len()).collect());
    let sum = Node { op: operation("sum"), ty, args: [2].as_slice().into(), attribute: axes };
    let inputs = [input(a.ty, strides_a), input(b.ty, strides_b)];
    let program = Program::new(inputs.into_iter().collect(), [multiply, sum].into_iter().collect(), shape)?;
    let (la, lb) = (a.buffer.lease()?, b.buffer.lease()?);
    let blocks = [Some((&*la, a.buffer.len())), Some((&*lb, b.buffer.len()))];
    super::program::run(gpu, &program, &blocks, patience)
}

fn operation(name: &str) -> &'static op::Op {
    op::find(name).expect("the table of ops holds the ops that this module names")
}

impl Roles {
    fn of(operand: &Operand) -> Result<Self> {
        let rank = operand.shape.len();
        let named: SmallVec<[usize; 8]> = operand.contract.iter().chain(&operand.batch).copied().collect();
        let repeated = (1..named.len()).any(|i| named[..i].contains(&named[i]));
        if repeated || named.iter().any(|&axis| axis >= rank) {
            return Err(Error::Argument("axes: expected distinct axes of the operand".into()));
        }
        let elements = operand.shape.iter().try_fold(1u64, |n, &dim| n.checked_mul(dim)).ok_or(Error::SizeMismatch)?;
        if elements.checked_mul(operand.ty.size()).is_none_or(|bytes| bytes > operand.buffer.len()) {
            return Err(Error::SizeMismatch);
        }
        let strides = dense_strides(&operand.shape);
        let group = |axes: &mut dyn Iterator<Item = usize>| {
            let (dims, strides) = axes.map(|axis| (operand.shape[axis], strides[axis])).unzip();
            Group { dims, strides }
        };
        Ok(Self {
            batch: group(&mut operand.batch.iter().copied()),
            free: group(&mut (0..rank).filter(|axis| !named.contains(axis))),
            contract: group(&mut operand.contract.iter().copied()),
        })
    }

    /// The operand as matrices: in place where each role steps evenly, else as a dense copy of type `ty`.
    fn matrices(&self, gpu: &Gpu, operand: &Operand, ty: Type, patience: Patience) -> Result<Matrices> {
        let steps = [&self.batch, &self.free, &self.contract].map(Group::step);
        if let ([Some(batch), Some(free), Some(contract)], true) = (steps, operand.ty == ty) {
            return Ok(Matrices { lease: operand.buffer.lease()?, ty, batch, free, contract });
        }
        let (batch, free, contract) = (&self.batch, &self.free, &self.contract);
        let join = |f: fn(&Group) -> &Axes<i64>| [batch, free, contract].into_iter().flat_map(f).copied().collect();
        let shape: Axes<u64> = [batch, free, contract].into_iter().flat_map(|group| &group.dims).copied().collect();
        let source = Source::View { offset: 0, strides: join(|group| &group.strides) };
        let copy = Node { op: operation("as_type"), ty, args: [0].as_slice().into(), attribute: Attribute::None };
        let inputs = [Input { ty: operand.ty, source }];
        let program = Program::new(inputs.into_iter().collect(), [copy].into_iter().collect(), shape)?;
        let lease = operand.buffer.lease()?;
        let dense = super::program::run(gpu, &program, &[Some((&*lease, operand.buffer.len()))], patience)?;
        let k = contract.size() as i64;
        Ok(Matrices { lease: dense.lease()?, ty, batch: k * free.size() as i64, free: k, contract: 1 })
    }
}

impl Group {
    fn size(&self) -> u64 {
        self.dims.iter().product()
    }

    /// The one stride that steps through all axes of the group, if there is one.
    fn step(&self) -> Option<i64> {
        let mut axes = self.dims.iter().zip(&self.strides).filter(|(dim, _)| **dim != 1).rev();
        let Some((&dim, &step)) = axes.next() else { return Some(0) };
        let mut next = step * dim as i64;
        for (&dim, &stride) in axes {
            if stride != next {
                return None;
            }
            next *= dim as i64;
        }
        Some(step)
    }
}

/// What the kernel's source depends on.
struct Shape<'a> {
    ty: Type,
    a: &'a Matrices,
    b: &'a Matrices,
    accumulator: Compute,
    tile: &'a Tile,
    wide: bool,
}

impl Shape<'_> {
    fn along(&self) -> (bool, bool) {
        (self.a.contract <= self.a.free, self.b.free <= self.b.contract)
    }

    fn key(&self) -> u128 {
        let (along_k, along_n) = self.along();
        let tile = [self.tile.rows, self.tile.thread_rows].map(|n| n as u8);
        let flags = [along_k, along_n, self.wide].map(u8::from);
        xxh3_128(&[b"matmul", [self.ty as u8, self.accumulator as u8].as_slice(), &tile, &flags].concat())
    }

    fn source(&self, gpu: &Gpu, declarations: &str) -> String {
        let (along_k, along_n) = self.along();
        let (ty, tile) = (self.ty, self.tile);
        let at = |name: &str, place: &str| load(ty, &format!("AT({}, p.{name}, {name}_base + {place})", ty.storage()));
        let converted = convert(("(v)".into(), of_accumulator(self.accumulator, ty)), ty);
        let threads = tile.rows / tile.thread_rows * (tile.columns / tile.thread_columns);
        format!(
            "{prelude}\
             layout(push_constant, scalar) uniform Params {{\n{declarations}}} p;\n\
             #include \"lib/convert.glsl\"\n\
             #define BM {bm}u\n#define BN {bn}u\n#define BK {bk}u\n#define TM {tm}u\n#define TN {tn}u\n\
             #define ELEMENT {element}\n#define ACCUMULATOR {accumulator}\n\
             #define A_ALONG_K {along_k}\n#define B_ALONG_N {along_n}\n\
             IDX a_base, b_base, c_base;\n\
             #define LOAD_A(i, k) {load_a}\n#define LOAD_B(k, j) {load_b}\n\
             #define STORE(i, j, v) AT({storage}, p.c, c_base + (i) * p.n + (j)) = {stored}\n\
             #include \"lib/matmul.glsl\"\n\
             layout(local_size_x = {threads}) in;\n\
             void main() {{\n\
             \x20 IDX group = IDX(gl_WorkGroupID.y) * gl_NumWorkGroups.x + gl_WorkGroupID.x;\n\
             \x20 if (group >= p.groups) return;\n\
             \x20 IDX columns = (p.n + BN - 1) / BN, rows = (p.m + BM - 1) / BM;\n\
             \x20 IDX batch = group / (columns * rows), tile = group % (columns * rows);\n\
             \x20 a_base = batch * p.a_batch;\n\
             \x20 b_base = batch * p.b_batch;\n\
             \x20 c_base = batch * p.m * p.n;\n\
             \x20 matmul(gl_LocalInvocationID.x, tile / columns * BM, tile % columns * BN, p.m, p.n, p.k);\n\
             }}\n",
            prelude = prelude(&gpu.caps, self.wide, &[ty.storage()], &[ty.compute(), self.accumulator]),
            bm = tile.rows,
            bn = tile.columns,
            bk = tile.depth,
            tm = tile.thread_rows,
            tn = tile.thread_columns,
            element = ty.compute().glsl(),
            accumulator = self.accumulator.glsl(),
            load_a = at("a", "(i) * p.a_free + (k) * p.a_contract"),
            load_b = at("b", "(k) * p.b_contract + (j) * p.b_free"),
            storage = ty.storage(),
            stored = store(ty, &converted),
        )
    }
}

/// The element type of what the accumulator holds: the result's own but where it is wider.
fn of_accumulator(accumulator: Compute, ty: Type) -> Type {
    match accumulator {
        Compute::Double => Type::F64,
        Compute::Float if ty.bits() == 16 => Type::F32,
        Compute::Uint if ty.bits() < 32 => Type::U32,
        Compute::Int if ty.bits() < 32 => Type::S32,
        _ => ty,
    }
}
