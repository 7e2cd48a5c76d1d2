//! Writes and adds at indices: `Nx.indexed_put/4` and `Nx.indexed_add/4`.
//!
//! The rows of updates are sorted by the place that they go to. So of several rows for one place the last wins, and their
//! sum has one order, that of a tree over them: the result is the same on every run. Sums are accumulated as wide as in
//! reductions.

use std::sync::Arc;

use smallvec::SmallVec;

use super::sort::{self, Sort};
use super::{Kernel, Tensor, assemble, check_indices};
use crate::error::{Attempt, Error, Result};
use crate::graph::{Context, Params};
use crate::memory::{Allocation, AllocationHandle, Buffer};
use crate::program::emit::{assign, convert, element, head, of_compute, sum_parts};
use crate::program::types::Compute;
use crate::program::{Axes, Input, Program, Source, Type, dense_strides};

/// Whether rows of updates replace what was there or are added to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Put,
    Add,
}

const THREADS: u64 = 256;
/// Rows that a thread of a GPU adds up: the first time, and of what was left over. So many follow each other; more of them
/// take fewer passes.
const CHUNK: u64 = 32;
const CHUNK_LEFT: u64 = 64;
/// Rows that a thread of a GPU loads before it uses the first: neither is it known early where they are.
const EACH: u64 = 8;

/// Extents and strides that a flat index is spread over.
type Spread = SmallVec<[(u64, u64); 4]>;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Keys,
    Put,
    Sums,
    Join,
}

/// A copy of `target` as type `ty` in which row `j` of `updates` (rows first, then any axes) is written to, or added to,
/// the slice at the indices in row `j` of `indices`, one for each of `axes`. Where a row of updates has fewer elements
/// than the slice, they go to its first elements in row-major order. Indices out of bounds are clamped.
#[allow(clippy::too_many_arguments, reason = "operands and how they meet")]
pub fn run(
    cx: &Context,
    mode: Mode,
    ty: Type,
    target: &Tensor,
    indices: &Tensor,
    updates: &Tensor,
    axes: &[usize],
) -> Attempt<Buffer> {
    let types = [ty, target.ty, indices.ty, updates.ty];
    types.iter().try_for_each(|ty| ty.check(cx.caps()))?;
    if indices.ty.is_float() || indices.ty.is_complex() {
        return Err(Error::Argument("indices: expected an integer type".into()).into());
    }
    let rank = target.shape.len();
    if (0..axes.len()).any(|i| axes[i] >= rank || axes[..i].contains(&axes[i])) {
        return Err(Error::Argument("axes: expected distinct axes of the target".into()).into());
    }
    let elements = target.elements()?;
    let (updated, rows) = (updates.elements()?, updates.shape.first().copied().unwrap_or(0));
    indices.elements()?;
    if updates.shape.is_empty() || indices.shape[..] != [rows, axes.len() as u64] {
        return Err(Error::SizeMismatch.into());
    }
    let out = copy(cx, target, ty)?;
    if elements == 0 || updated == 0 {
        return Ok(out);
    }
    let strides = dense_strides(target.shape);
    let spread = |axes: &mut dyn Iterator<Item = usize>| {
        joined(axes.map(|axis| (target.shape[axis], strides[axis] as u64)).collect())
    };
    let chosen = spread(&mut axes.iter().copied());
    let rest = spread(&mut (0..rank).filter(|axis| !axes.contains(axis)));
    let (targets, slice, width) = (size(&chosen), size(&rest), updated / rows);
    if width > slice {
        return Err(Error::SizeMismatch.into());
    }
    if targets >= u64::from(u32::MAX) || rows > 1 << 30 {
        return Err(Error::Unsupported(format!("{rows} rows for {targets} slices are more than fit 32 bits")).into());
    }
    let key_bytes = rows * Type::U32.size();
    let keys = Buffer::new(key_bytes, cx.allocate(key_bytes)?);
    let widest = [target.buffer.len(), updates.buffer.len(), indices.buffer.len(), elements * ty.size()];
    let operand = |tensor: &Tensor| -> Result<_> { Ok(Operand { ty: tensor.ty, block: tensor.buffer.allocation()? }) };
    let mut scatter = Scatter {
        cx,
        ty,
        target: operand(target)?,
        indices: operand(indices)?,
        updates: operand(updates)?,
        out: out.allocation()?,
        targets: keys.allocation()?,
        places: None,
        axes: axes.iter().map(|&axis| target.shape[axis]).collect(),
        chosen,
        rest,
        width,
        // Bytes bound the number of elements, and that of the threads.
        wide: widest.iter().any(|&bytes| bytes >= 1 << 31),
        parts: sum_parts(ty.compute(), cx.caps()),
    };
    check_indices(cx.caps(), scatter.wide)?;
    scatter.pass(Stage::Keys, &Pass { threads: rows, rows, chunk: 1, from: None, to: None })?;
    let keys = Tensor { buffer: &keys, ty: Type::U32, shape: &[rows] };
    let by_target = Sort {
        rows: keys.along(0)?,
        bits: 64 - (targets - 1).leading_zeros(),
        descending: false,
        keep: rows,
        values: true,
        places: Some(Type::U32),
    };
    let sorted = sort::run(cx, &by_target)?;
    if let (Some(values), Some(places)) = (&sorted.values, &sorted.places) {
        (scatter.targets, scatter.places) = (values.allocation()?, Some(places.allocation()?));
    }
    if mode == Mode::Put {
        scatter.pass(
            Stage::Put,
            &Pass { threads: rows.div_ceil(scatter.each()) * width, rows, chunk: 1, from: None, to: None },
        )?;
        return Ok(out);
    }
    let mut from: Option<Left> = None;
    loop {
        let (stage, rows) = from.as_ref().map_or((Stage::Sums, rows), |left| (Stage::Join, left.rows));
        let chunk = match stage {
            // As many threads as rows of each.
            _ if cx.caps().cpu => rows.isqrt().clamp(CHUNK_LEFT, 1 << 12),
            Stage::Sums if rows > CHUNK_LEFT => CHUNK,
            _ => CHUNK_LEFT,
        };
        let chunks = rows.div_ceil(chunk);
        // One chunk leaves nothing.
        let to = scatter.left(2 * chunks, if chunks == 1 { 0 } else { width })?;
        scatter.pass(stage, &Pass { threads: chunks * width, rows, chunk, from: from.as_ref(), to: Some(&to) })?;
        if chunks == 1 {
            return Ok(out);
        }
        from = Some(to);
    }
}

fn copy(cx: &Context, target: &Tensor, ty: Type) -> Attempt<Buffer> {
    let &Tensor { buffer, ty: from, shape } = target;
    let input = Input { ty: from, source: Source::View { offset: 0, strides: dense_strides(shape) } };
    let (inputs, nodes) = (SmallVec::from_iter([input]), SmallVec::from_iter([assemble::copied(ty)]));
    let program = Program { inputs, nodes, shape: Axes::from_slice(shape), output: None };
    let allocation = buffer.allocation()?;
    super::fusion::run(cx, &program, &[crate::graph::Operand::Buffer(&allocation, buffer.len())])
}

/// Neighbours that are stepped through as one are joined.
fn joined(axes: Spread) -> Spread {
    let mut spread = Spread::new();
    for (dim, stride) in axes.into_iter().filter(|(dim, _)| *dim != 1) {
        match spread.last_mut() {
            Some(last) if last.1 == dim * stride => *last = (last.0 * dim, stride),
            _ => spread.push((dim, stride)),
        }
    }
    spread
}

fn size(spread: &Spread) -> u64 {
    spread.iter().map(|(dim, _)| dim).product()
}

/// What is read of a tensor.
struct Operand {
    ty: Type,
    block: Arc<AllocationHandle>,
}

/// What chunks left over of targets that others of them have rows of too: two sums each.
struct Left {
    rows: u64,
    targets: AllocationHandle,
    sums: SmallVec<[AllocationHandle; 2]>,
}

struct Pass<'a> {
    threads: u64,
    rows: u64,
    chunk: u64,
    from: Option<&'a Left>,
    to: Option<&'a Left>,
}

struct Scatter<'a> {
    cx: &'a Context<'a>,
    ty: Type,
    target: Operand,
    indices: Operand,
    updates: Operand,
    out: Arc<AllocationHandle>,
    /// The place of each row; once sorted, with the rows in that order.
    targets: Arc<AllocationHandle>,
    places: Option<Arc<AllocationHandle>>,
    /// Extents that the indices of a row choose from.
    axes: Axes<u64>,
    /// The slices of the target, and the elements within one.
    chosen: Spread,
    rest: Spread,
    width: u64,
    wide: bool,
    parts: SmallVec<[Compute; 2]>,
}

impl Scatter<'_> {
    /// Rows that a thread loads at once.
    fn each(&self) -> u64 {
        if self.cx.caps().cpu { 1 } else { EACH }
    }

    fn left(&self, rows: u64, width: u64) -> Attempt<Left> {
        let allocate = |len: u64| self.cx.allocate(len);
        let sums = self.parts.iter().map(|part| allocate(rows * width * part.size())).collect::<Attempt<_>>()?;
        Ok(Left { rows, targets: allocate(rows * Type::U32.size())?, sums })
    }

    fn pass<'p>(&'p self, stage: Stage, pass: &Pass<'p>) -> Attempt<()> {
        let blocks = |left: &'p Left| left.sums.iter().chain([&left.targets]).map(|allocation| &**allocation);
        let mut reads: SmallVec<[&Allocation; 8]> = SmallVec::new();
        let mut writes: SmallVec<[&Allocation; 4]> = SmallVec::new();
        match stage {
            Stage::Keys => {
                reads.push(&self.indices.block);
                writes.push(&self.targets);
            }
            Stage::Put | Stage::Sums | Stage::Join => {
                reads.extend([&**self.targets, &**self.target.block, &**self.updates.block]);
                reads.extend(self.places.iter().map(|allocation| &***allocation));
                reads.extend(pass.from.into_iter().flat_map(blocks));
                writes.push(&self.out);
                writes.extend(pass.to.into_iter().flat_map(blocks));
            }
        }
        let kernel = Kernel {
            key: &self.key(stage),
            params: &|params| self.params(params, stage, pass),
            source: &|parameters| self.source(stage, parameters),
            groups: pass.threads.div_ceil(THREADS),
            reads: &reads,
            writes: &writes,
        };
        kernel.launch(self.cx)
    }

    fn params(&self, params: &mut Params, stage: Stage, pass: &Pass) {
        let wide = self.wide;
        let targets = pass.from.map_or(&**self.targets, |left| &left.targets);
        params.legacy(targets, 0, "uint", "targets");
        params.extents(wide, [("threads", pass.threads), ("rows", pass.rows)]);
        if stage == Stage::Keys {
            params.legacy(&self.indices.block, 0, self.indices.ty.storage(), "indices");
            for (k, &dim) in self.axes.iter().enumerate() {
                params.extent(dim, wide, ("dim", k));
            }
            return;
        }
        params.legacy(&self.out, 0, self.ty.storage(), "result");
        if stage != Stage::Join {
            match &self.places {
                Some(places) => params.legacy(places, 0, "uint", "places"),
                None => params.absent("uint", "places"),
            }
            params.legacy(&self.updates.block, 0, self.updates.ty.storage(), "updates");
        }
        if stage != Stage::Put {
            params.legacy(&self.target.block, 0, self.target.ty.storage(), "target");
        }
        for (left, name) in [(pass.from, "from"), (pass.to, "to")] {
            for (i, allocation) in left.iter().flat_map(|left| &left.sums).enumerate() {
                params.legacy(allocation, 0, self.parts[i].glsl(), (name, i));
            }
        }
        if let Some(to) = pass.to {
            params.legacy(&to.targets, 0, "uint", "left");
        }
        params.extents(wide, [("width", self.width), ("chunk", pass.chunk)]);
        for (spread, name) in [(&self.chosen, "chosen"), (&self.rest, "rest")] {
            for (k, &(dim, stride)) in spread.iter().enumerate() {
                params.extent(dim, wide, (name, "_dim", k));
                params.extent(stride, wide, (name, "_stride", k));
            }
        }
    }

    /// Everything that the source depends on.
    fn key(&self, stage: Stage) -> Vec<u8> {
        let types = [self.ty, self.target.ty, self.indices.ty, self.updates.ty].map(|ty| ty as u8);
        let ranks = [self.axes.len(), self.chosen.len(), self.rest.len()].map(|n| n as u8);
        [b"scatter".as_slice(), &[stage as u8, self.wide.into()], &types, &ranks].concat()
    }

    fn source(&self, stage: Stage, parameters: &str) -> String {
        let types = [self.ty, self.target.ty, self.indices.ty, self.updates.ty];
        let mut storages: SmallVec<[&str; 8]> = types.iter().map(|ty| ty.storage()).collect();
        storages.push("uint");
        storages.extend(self.parts.iter().map(|part| part.glsl()));
        let mut computes: SmallVec<[Compute; 8]> = types.iter().map(|ty| ty.compute()).collect();
        computes.extend_from_slice(&self.parts);
        format!(
            "{head}\
             #define KEYS 0\n#define PUT 1\n#define SUMS 2\n#define JOIN 3\n#define STAGE {stage}\n\
             #define THREADS {THREADS}\n#define EACH {each}u\n#define LAST_WINS false\n\
             #include \"lib/indices.glsl\"\n#include \"lib/reduce.glsl\"\n\
             {complex}{functions}\
             layout(local_size_x = {THREADS}) in;\n\
             #include \"lib/scatter.glsl\"\n",
            head = head(self.cx.caps(), self.wide, &storages, &computes, parameters),
            stage = stage as u8,
            each = self.each(),
            complex =
                if types.iter().any(|ty| ty.is_complex()) { "#include \"lib/complex/reduce.glsl\"\n" } else { "" },
            functions = match stage {
                Stage::Keys => self.target_of_row(),
                Stage::Put | Stage::Sums | Stage::Join => self.place() + &self.values(stage),
            },
        )
    }

    /// Where a row goes: its indices as one.
    fn target_of_row(&self) -> String {
        let count = self.axes.len();
        let mut text = String::from("IDX target_of(IDX j) {\n  IDX target = 0;\n");
        for k in 0..count {
            let (index, _) = element(self.indices.ty, "indices", &format!("j * {count} + {k}"));
            text += &format!("  target = target * p.dim{k} + clamp_index({index}, p.dim{k});\n");
        }
        text + "  return target;\n}\n"
    }

    /// Where an element of a slice is.
    fn place(&self) -> String {
        let mut text = String::from("IDX place_of(IDX target, IDX k) {\n  IDX place = 0;\n");
        for (spread, name, flat) in [(&self.chosen, "chosen", "target"), (&self.rest, "rest", "k")] {
            for k in (0..spread.len()).rev() {
                let (dim, stride) = (format!("p.{name}_dim{k}"), format!("p.{name}_stride{k}"));
                text += &match k {
                    0 => format!("  place += {flat} * {stride};\n"),
                    _ => format!("  place += {flat} % {dim} * {stride};\n  {flat} /= {dim};\n"),
                };
            }
        }
        text + "  return place;\n}\n"
    }

    /// The type VALUE that elements are handled in, how they are read and written, and of what sums are made.
    fn values(&self, stage: Stage) -> String {
        let ty = if stage == Stage::Put { self.updates.ty } else { of_compute(self.parts[0]) };
        let glsl = ty.compute().glsl();
        // Integers are brought into the result's range before they are added, as in sums.
        let narrows = stage != Stage::Put && !self.ty.is_float() && !self.ty.is_complex();
        let value = |read: (String, Type)| {
            let read = if narrows { (convert(read, self.ty), self.ty) } else { read };
            convert(read, ty)
        };
        let mut text = format!(
            "#define VALUE {glsl}\nvoid write(IDX place, VALUE x) {{ {}; }}\n",
            assign(self.ty, "result", "place", ("x".into(), ty)),
        );
        if stage != Stage::Join {
            let update = value(element(self.updates.ty, "updates", "IDX(row) * p.width + k"));
            text += &format!("VALUE update_of(uint row, IDX k) {{ return {update}; }}\n");
        }
        if stage != Stage::Put {
            text += &format!(
                "#define PARTS {parts}\n#define PART(b, i) AT({glsl}, b, i)\n#define ZERO {zero}\n\
                 VALUE element_of(IDX place) {{ return {element}; }}\n",
                parts = self.parts.len(),
                zero = ty.compute().literal(0),
                element = value(element(self.target.ty, "target", "place")),
            );
        }
        text
    }
}
