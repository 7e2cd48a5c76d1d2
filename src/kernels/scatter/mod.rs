//! Writes and adds at indices: `Nx.indexed_put/4` and `Nx.indexed_add/4`. This module owns the kernels around
//! `shaders/lib/scatter.glsl` and the order of their passes; how rows are spread over threads is the choice of `tuning::scatter`.
//!
//! The rows of updates are sorted by the slice that they go to. Of several rows for one slice the last wins, and their
//! sum has one order, that of a tree over them: the result is the same on every run. Sums are accumulated in the types of
//! reductions.

use std::sync::Arc;

use smallvec::SmallVec;

mod keys;
mod rows;

use keys::{KeyArgs, ScatterKeyKernel};
use rows::{ScatterArgs, ScatterKernel, ScatterStage};

use super::sort::{self, Sort};
use super::{Tensor, assemble, launch};
use crate::device::Capabilities;
use crate::error::{Attempt, Error, Result};
use crate::graph::Context;
use crate::memory::{AllocationHandle, Buffer, CheckedIndices};
use crate::program::emit::sum_parts;
use crate::program::types::Compute;
use crate::program::{Axes, Type, dense_strides};
use crate::tuning::scatter::{MAX_COLUMNS, rows_in_flight, scatter_columns, sum_chunk};

/// Whether rows of updates replace what was there or are added to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScatterMode {
    /// Rows of updates replace elements of the target.
    Put,
    /// Rows of updates are added to elements of the target.
    Add,
}

/// What to scatter: row `j` of `updates` (rows first, then any axes) goes to the slice of `target` at the indices in row `j` of `indices`,
/// one for each of `axes`. Where a row of updates has fewer elements than the slice, they go to its first elements in row-major order.
/// Indices out of bounds are clamped.
pub struct Scatter<'a> {
    /// Whether elements are replaced or added to.
    pub mode: ScatterMode,
    /// The type of the result.
    pub ty: Type,
    /// The tensor whose copy the updates go to.
    pub target: Tensor<'a>,
    /// The indices of slices: one row for each row of updates, in it one index for each of `axes`.
    pub indices: Tensor<'a>,
    /// The rows of updates, along the first axis.
    pub updates: Tensor<'a>,
    /// The axes of the target that the indices point along, distinct.
    pub axes: &'a [usize],
    /// What the error says where indices that are out of bounds are reported. `None` where they are only clamped.
    pub check: Option<&'a Arc<CheckedIndices>>,
}

/// The extents and strides of axes that a flat index runs over.
type FlatAxes = SmallVec<[(u64, u64); 4]>;

/// A copy of the target in which the updates are written, or to which they are added.
pub fn run(cx: &Context, scatter: &Scatter) -> Attempt<Buffer> {
    let elements = scatter.check(cx.caps())?;
    let &Scatter { mode, ty, target, indices, updates, axes, check } = scatter;
    let (updated, rows) = (updates.elements()?, updates.shape[0]);
    if elements == 0 || updated == 0 {
        return assemble::copy(cx, &target, ty);
    }
    let shape = scatter.shape(elements, rows, updated / rows)?;
    let spec = |stage| scatter.kernel(cx.caps(), &shape, stage);
    let (given, updates) = (&*indices.buffer.allocation()?, &*updates.buffer.allocation()?);
    let bytes = rows * Type::U32.size();
    let keys = Buffer::new(bytes, cx.allocate(bytes)?);
    let of_keys = KeyArgs { shape: &shape, indices: given, targets: &*keys.allocation()?, check };
    let (axes, checked) = (axes.len(), check.is_some());
    launch(cx, &ScatterKeyKernel { indices: indices.ty, axes, checked, index64: shape.index64 }, &of_keys)?;
    let keys = Tensor { buffer: &keys, ty: Type::U32, shape: &[rows] };
    let sorted = sort_rows(cx, &keys, shape.targets)?;
    // It runs beside the sort's last pass, which has few workgroups and takes longest.
    let out = assemble::copy(cx, &target, ty)?;
    let (result, source) = (&*out.allocation()?, &*target.buffer.allocation()?);
    // The copy where it has the same elements: the target may be gone then.
    let source = if target.ty == ty { result } else { source };
    let args = ScatterArgs {
        shape: &shape,
        rows,
        targets: &*sorted.0.allocation()?,
        order: &*sorted.1.allocation()?,
        updates,
        target: source,
        result,
        chunk: 1,
        from: None,
        to: None,
    };
    match mode {
        ScatterMode::Put => launch(cx, &spec(ScatterStage::Put), &args)?,
        ScatterMode::Add => add(cx, spec, &args)?,
    }
    Ok(out)
}

/// The sums in passes: each leaves the open sums of its chunks to the next, until one chunk is all.
fn add(cx: &Context, spec: impl Fn(ScatterStage) -> ScatterKernel, args: &ScatterArgs) -> Attempt<()> {
    let mut from: Option<OpenSums> = None;
    loop {
        let rows = from.as_ref().map_or(args.rows, |open| open.rows);
        let kernel = spec(if from.is_none() { ScatterStage::Sums } else { ScatterStage::Join });
        let chunk = sum_chunk(cx.caps(), rows);
        let chunks = rows.div_ceil(chunk);
        // One chunk leaves nothing.
        let to = OpenSums::new(cx, &kernel.parts, 2 * chunks, if chunks == 1 { 0 } else { args.shape.width })?;
        launch(cx, &kernel, &ScatterArgs { rows, chunk, from: from.as_ref(), to: Some(&to), ..*args })?;
        if chunks == 1 {
            return Ok(());
        }
        from = Some(to);
    }
}

/// The targets of rows in their order, and which row each is.
fn sort_rows(cx: &Context, keys: &Tensor, targets: u64) -> Attempt<(Buffer, Buffer)> {
    let rows = keys.along(0)?;
    let by_target = Sort {
        rows,
        bits: 64 - (targets - 1).leading_zeros(),
        descending: false,
        keep: rows.len,
        values: true,
        indices: Some(Type::U32),
    };
    let sorted = sort::run(cx, &by_target)?;
    let missing = || Error::DispatchFailed("a sort without its results".into());
    Ok((sorted.values.ok_or_else(missing)?, sorted.indices.ok_or_else(missing)?))
}

/// Neighbours that are stepped through as one are joined.
fn joined(axes: FlatAxes) -> FlatAxes {
    let mut joined = FlatAxes::new();
    for (dim, stride) in axes.into_iter().filter(|(dim, _)| *dim != 1) {
        match joined.last_mut() {
            Some(last) if last.1 == dim * stride => *last = (last.0 * dim, stride),
            _ => joined.push((dim, stride)),
        }
    }
    joined
}

fn size(axes: &FlatAxes) -> u64 {
    axes.iter().map(|(dim, _)| dim).product()
}

/// The extents of a scatter.
struct ScatterShape {
    /// Extents that the indices of a row choose from.
    dims: Axes<u64>,
    /// How many slices of the target there are, and their axes.
    targets: u64,
    indexed: FlatAxes,
    /// The axes within a slice.
    slice: FlatAxes,
    rows: u64,
    /// Elements of a row of updates.
    width: u64,
    index64: bool,
}

impl Scatter<'_> {
    /// The elements of the target; fails where the operands do not fit each other or the device.
    fn check(&self, caps: &Capabilities) -> Result<u64> {
        let Self { ty, target, indices, updates, axes, .. } = self;
        [*ty, target.ty, indices.ty, updates.ty].iter().try_for_each(|ty| ty.check(caps))?;
        if indices.ty.is_float() || indices.ty.is_complex() {
            return Err(Error::Argument("indices: expected an integer type".into()));
        }
        let rank = target.shape.len();
        if (0..axes.len()).any(|i| axes[i] >= rank || axes[..i].contains(&axes[i])) {
            return Err(Error::Argument("axes: expected distinct axes of the target".into()));
        }
        let elements = target.elements()?;
        updates.elements()?;
        indices.elements()?;
        match updates.shape.first() {
            Some(&rows) if indices.shape == [rows, axes.len() as u64] => Ok(elements),
            _ => Err(Error::SizeMismatch),
        }
    }

    fn shape(&self, elements: u64, rows: u64, width: u64) -> Result<ScatterShape> {
        let Self { ty, target, indices, updates, axes, .. } = self;
        let strides = dense_strides(target.shape);
        let flat = |axes: &mut dyn Iterator<Item = usize>| {
            joined(axes.map(|axis| (target.shape[axis], strides[axis] as u64)).collect())
        };
        let indexed = flat(&mut axes.iter().copied());
        let slice = flat(&mut (0..target.shape.len()).filter(|axis| !axes.contains(axis)));
        let targets = size(&indexed);
        if width > size(&slice) {
            return Err(Error::SizeMismatch);
        }
        if targets >= u64::from(u32::MAX) || rows > 1 << 30 {
            return Err(Error::Unsupported(format!("{rows} rows for {targets} slices are more than fit 32 bits")));
        }
        // Bytes bound the number of elements, and that of the threads.
        let bytes = [target.buffer.len(), updates.buffer.len(), indices.buffer.len(), elements * ty.size()];
        let index64 = bytes.iter().any(|&bytes| bytes >= 1 << 31);
        let dims = axes.iter().map(|&axis| target.shape[axis]).collect();
        Ok(ScatterShape { dims, targets, indexed, slice, rows, width, index64 })
    }

    /// Neighbours in a row that a thread takes: a vector where all of them are neighbours in the slice, too.
    fn columns(&self, caps: &Capabilities, shape: &ScatterShape, stage: ScatterStage) -> u64 {
        let (&last, others) = match shape.slice.split_last() {
            Some((last, others)) => (last, others),
            None => return 1,
        };
        let vectors = |count: &u64| count.is_multiple_of(MAX_COLUMNS);
        let strides = shape.indexed.iter().chain(others).map(|(_, stride)| stride);
        let neighbours = last.1 == 1 && [shape.width, last.0].iter().chain(strides).all(vectors);
        let bytes = [self.ty, self.target.ty, self.updates.ty].into_iter().map(Type::size).max().unwrap_or_default();
        if stage == ScatterStage::Join || !neighbours { 1 } else { scatter_columns(caps, bytes) }
    }

    fn kernel(&self, caps: &Capabilities, shape: &ScatterShape, stage: ScatterStage) -> ScatterKernel {
        ScatterKernel {
            stage,
            ty: self.ty,
            target: self.target.ty,
            updates: self.updates.ty,
            columns: self.columns(caps, shape, stage),
            indexed_rank: shape.indexed.len(),
            slice_rank: shape.slice.len(),
            in_flight: rows_in_flight(caps),
            parts: sum_parts(self.ty.compute(), caps),
            index64: shape.index64,
        }
    }
}

/// The sums that chunks leave open, as other chunks have rows of their targets, too: two of each.
struct OpenSums {
    rows: u64,
    targets: AllocationHandle,
    sums: SmallVec<[AllocationHandle; 2]>,
}

impl OpenSums {
    fn new(cx: &Context, parts: &[Compute], rows: u64, width: u64) -> Attempt<Self> {
        let sums = parts.iter().map(|part| cx.allocate(rows * width * part.size())).collect::<Attempt<_>>()?;
        Ok(Self { rows, targets: cx.allocate(rows * Type::U32.size())?, sums })
    }
}
