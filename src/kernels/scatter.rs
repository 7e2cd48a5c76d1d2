//! Writes and adds at indices: `Nx.indexed_put/4` and `Nx.indexed_add/4`.
//!
//! The rows of updates are sorted by the place that they go to. So of several rows for one place the last wins, and their
//! sum is taken in their order: the result is the same on every run. Sums are accumulated as wide as in reductions.

use std::sync::Arc;

use smallvec::SmallVec;

use super::sort::{self, Sort};
use super::{Kernel, Tensor, assemble};
use crate::device::Gpu;
use crate::error::{Error, Result};
use crate::memory::{Block, Buffer, Kind, Lease, Patience};
use crate::program::emit::{Params, assign, convert, element, head, of_compute, sum_parts};
use crate::program::types::Compute;
use crate::program::{Axes, Input, Program, Source, Type, dense_strides};

/// Whether rows of updates replace what was there or are added to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Put,
    Add,
}

const THREADS: u64 = 256;

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
    gpu: &Gpu,
    mode: Mode,
    ty: Type,
    target: &Tensor,
    indices: &Tensor,
    updates: &Tensor,
    axes: &[usize],
    patience: Patience,
) -> Result<Buffer> {
    let types = [ty, target.ty, indices.ty, updates.ty];
    types.iter().try_for_each(|ty| ty.check(&gpu.caps))?;
    if indices.ty.is_float() || indices.ty.is_complex() {
        return Err(Error::Argument("indices: expected an integer type".into()));
    }
    let rank = target.shape.len();
    if (0..axes.len()).any(|i| axes[i] >= rank || axes[..i].contains(&axes[i])) {
        return Err(Error::Argument("axes: expected distinct axes of the target".into()));
    }
    let elements = target.elements()?;
    let (updated, rows) = (updates.elements()?, updates.shape.first().copied().unwrap_or(0));
    indices.elements()?;
    if updates.shape.is_empty() || indices.shape[..] != [rows, axes.len() as u64] {
        return Err(Error::SizeMismatch);
    }
    let out = copy(gpu, target, ty, patience)?;
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
        return Err(Error::SizeMismatch);
    }
    if targets >= u64::from(u32::MAX) || rows > 1 << 30 {
        return Err(Error::Unsupported(format!("{rows} rows for {targets} slices are more than fit 32 bits")));
    }
    let key_bytes = rows * Type::U32.size();
    let keys = Buffer::new(key_bytes, gpu.allocate(Kind::Device, key_bytes, patience)?);
    let widest = [target.buffer.len(), updates.buffer.len(), indices.buffer.len(), elements * ty.size()];
    let operand = |tensor: &Tensor| Ok(Operand { ty: tensor.ty, block: tensor.buffer.lease()? });
    let mut scatter = Scatter {
        gpu,
        ty,
        target: operand(target)?,
        indices: operand(indices)?,
        updates: operand(updates)?,
        out: out.lease()?,
        targets: keys.lease()?,
        places: None,
        axes: axes.iter().map(|&axis| target.shape[axis]).collect(),
        chosen,
        rest,
        rows,
        width,
        // Bytes bound the number of elements, and that of the threads.
        wide: widest.iter().any(|&bytes| bytes >= 1 << 31),
        parts: sum_parts(ty.compute(), &gpu.caps),
        patience,
    };
    scatter.pass(Stage::Keys, rows, 1, &[])?;
    let keys = Tensor { buffer: &keys, ty: Type::U32, shape: &[rows] };
    let by_target = Sort { rows: keys.along(0)?, descending: false, keep: rows, values: true, places: Some(Type::U32) };
    let sorted = sort::run(gpu, &by_target, patience)?;
    if let (Some(values), Some(places)) = (&sorted.values, &sorted.places) {
        (scatter.targets, scatter.places) = (values.lease()?, Some(places.lease()?));
    }
    if mode == Mode::Put {
        scatter.pass(Stage::Put, rows * width, 1, &[])?;
        return Ok(out);
    }
    // As many rows a thread as threads a target at most: both are walked one after the other.
    let chunk = rows.isqrt().clamp(8, 1 << 12);
    let threads = rows.div_ceil(chunk) * width;
    let saved = |part: &Compute| gpu.allocate(Kind::Device, threads * part.size(), patience);
    let saved: SmallVec<[Lease; 4]> = scatter.parts.iter().chain(&scatter.parts).map(saved).collect::<Result<_>>()?;
    scatter.pass(Stage::Sums, threads, chunk, &saved)?;
    if rows > chunk {
        scatter.pass(Stage::Join, threads, chunk, &saved)?;
    }
    Ok(out)
}

fn copy(gpu: &Gpu, target: &Tensor, ty: Type, patience: Patience) -> Result<Buffer> {
    let &Tensor { buffer, ty: from, shape } = target;
    let input = Input { ty: from, source: Source::View { offset: 0, strides: dense_strides(shape) } };
    let (inputs, nodes) = (SmallVec::from_iter([input]), SmallVec::from_iter([assemble::copied(ty)]));
    let program = Program { inputs, nodes, shape: Axes::from_slice(shape), output: None };
    super::program::run(gpu, &program, &[Some((&*buffer.lease()?, buffer.len()))], patience)
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
    block: Arc<Lease>,
}

struct Scatter<'a> {
    gpu: &'a Gpu,
    ty: Type,
    target: Operand,
    indices: Operand,
    updates: Operand,
    out: Arc<Lease>,
    /// The place of each row; once sorted, with the rows in that order.
    targets: Arc<Lease>,
    places: Option<Arc<Lease>>,
    /// Extents that the indices of a row choose from.
    axes: Axes<u64>,
    /// The slices of the target, and the elements within one.
    chosen: Spread,
    rest: Spread,
    rows: u64,
    width: u64,
    wide: bool,
    parts: SmallVec<[Compute; 2]>,
    patience: Patience,
}

impl Scatter<'_> {
    fn pass(&self, stage: Stage, threads: u64, chunk: u64, saved: &[Lease]) -> Result<()> {
        let mut reads: SmallVec<[&Block; 8]> = SmallVec::new();
        let mut writes: SmallVec<[&Block; 4]> = SmallVec::new();
        match stage {
            Stage::Keys => {
                reads.push(&self.indices.block);
                writes.push(&self.targets);
            }
            Stage::Put | Stage::Sums | Stage::Join => {
                reads.extend([&**self.targets, &**self.target.block, &**self.updates.block]);
                reads.extend(self.places.iter().map(|lease| &***lease));
                writes.push(&self.out);
                let saved = saved.iter().map(|lease| &**lease);
                if stage == Stage::Join { reads.extend(saved) } else { writes.extend(saved) }
            }
        }
        let kernel = Kernel {
            key: &self.key(stage),
            params: &|params| self.params(params, stage, threads, chunk, saved),
            source: &|parameters| self.source(stage, parameters),
            groups: threads.div_ceil(THREADS),
            reads: &reads,
            writes: &writes,
        };
        kernel.launch(self.gpu, self.patience)
    }

    fn params(&self, params: &mut Params, stage: Stage, threads: u64, chunk: u64, saved: &[Lease]) {
        let wide = self.wide;
        params.address(self.targets.address, "uint", format_args!("targets"));
        params.extents(wide, [("threads", threads), ("rows", self.rows)]);
        if stage == Stage::Keys {
            params.address(self.indices.block.address, self.indices.ty.storage(), format_args!("indices"));
            for (k, &dim) in self.axes.iter().enumerate() {
                params.extent(dim, wide, format_args!("dim{k}"));
            }
            return;
        }
        let places = self.places.as_ref().map_or(0, |lease| lease.address);
        params.address(places, "uint", format_args!("places"));
        params.address(self.out.address, self.ty.storage(), format_args!("result"));
        params.address(self.updates.block.address, self.updates.ty.storage(), format_args!("updates"));
        if stage != Stage::Put {
            params.address(self.target.block.address, self.target.ty.storage(), format_args!("target"));
            for (i, lease) in saved.iter().enumerate() {
                let (name, part) = (["head", "tail"][i / self.parts.len()], i % self.parts.len());
                params.address(lease.address, self.parts[part].glsl(), format_args!("{name}{part}"));
            }
            params.extent(chunk, wide, format_args!("chunk"));
        }
        params.extent(self.width, wide, format_args!("width"));
        for (spread, name) in [(&self.chosen, "chosen"), (&self.rest, "rest")] {
            for (k, &(dim, stride)) in spread.iter().enumerate() {
                params.extent(dim, wide, format_args!("{name}_dim{k}"));
                params.extent(stride, wide, format_args!("{name}_stride{k}"));
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
             #define THREADS {THREADS}\n#define LAST_WINS false\n\
             #include \"lib/indices.glsl\"\n#include \"lib/reduce.glsl\"\n\
             {complex}{functions}\
             layout(local_size_x = {THREADS}) in;\n\
             #include \"lib/scatter.glsl\"\n",
            head = head(&self.gpu.caps, self.wide, &storages, &computes, parameters),
            stage = stage as u8,
            complex =
                if types.iter().any(|ty| ty.is_complex()) { "#include \"lib/complex/reduce.glsl\"\n" } else { "" },
            functions = match stage {
                Stage::Keys => self.target_of_row(),
                Stage::Put => self.place() + &self.put(),
                Stage::Sums | Stage::Join => self.place() + &self.add(),
            },
        )
    }

    /// Where a row goes: its indices as one.
    fn target_of_row(&self) -> String {
        let count = self.axes.len();
        let mut text = String::from("IDX TARGET(IDX j) {\n  IDX target = 0;\n");
        for k in 0..count {
            let (index, _) = element(self.indices.ty, "indices", &format!("j * {count} + {k}"));
            text += &format!("  target = target * p.dim{k} + clamp_index({index}, p.dim{k});\n");
        }
        text + "  return target;\n}\n"
    }

    /// Where an element of a slice is.
    fn place(&self) -> String {
        let mut text = String::from("IDX PLACE(IDX target, IDX k) {\n  IDX place = 0;\n");
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

    fn update(&self) -> (String, Type) {
        element(self.updates.ty, "updates", "IDX(row) * p.width + (k)")
    }

    fn put(&self) -> String {
        format!("#define WRITE(place, row, k) {}\n", assign(self.ty, "result", "place", self.update()))
    }

    fn add(&self) -> String {
        let sum = of_compute(self.parts[0]);
        let one = sum.compute().glsl();
        // Integers are brought into the result's range first, as in sums.
        let widened = |value: (String, Type)| match self.ty.is_float() || self.ty.is_complex() {
            true => convert(value, sum),
            false => convert((convert(value, self.ty), self.ty), sum),
        };
        let (start, add, save, load_saved, add_saved, result) = match self.parts.len() {
            1 => (
                format!("precise {one} a0 = {one}(0);"),
                "combine_sum(a0, x);".into(),
                format!("AT({one}, p.name##0, place) = a0;"),
                format!("a0 = AT({one}, p.name##0, place);"),
                format!("combine_sum(a0, AT({one}, p.name##0, place));"),
                "a0",
            ),
            _ => (
                format!("precise {one} a0 = {one}(0), a1 = {one}(0);"),
                format!("combine_sum(a0, a1, x, {one}(0));"),
                format!("AT({one}, p.name##0, place) = a0; AT({one}, p.name##1, place) = a1;"),
                format!("a0 = AT({one}, p.name##0, place); a1 = AT({one}, p.name##1, place);"),
                format!("combine_sum(a0, a1, AT({one}, p.name##0, place), AT({one}, p.name##1, place));"),
                "finish_sum(a0, a1)",
            ),
        };
        format!(
            "{one} UPDATE(uint row, IDX k) {{ return {update}; }}\n\
             {one} TARGET(IDX place) {{ return {target}; }}\n\
             #define START {start}\n\
             #define ADD(v) {{ {one} x = v; {add} }}\n\
             #define SAVE(name, place) {save}\n\
             #define LOAD(name, place) {load_saved}\n\
             #define ADD_SAVED(name, place) {add_saved}\n\
             #define FLUSH(at) {{ IDX place = at; ADD(TARGET(place)) {flush}; }}\n",
            update = widened(self.update()),
            target = widened(element(self.target.ty, "target", "place")),
            flush = assign(self.ty, "result", "place", (result.into(), sum)),
        )
    }
}
