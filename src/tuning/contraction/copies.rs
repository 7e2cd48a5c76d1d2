//! Operands that are copied before a contraction that could not read them well: with the zeros that padding stands for, so
//! that what a thread loads at once is contiguous, or with rows that go on to a multiple of it.

use std::cmp::Reverse;

use super::axes::{Axis, AxisGroups};
use super::padding::PaddedAxis;
use super::shape::{ContractionShape, OperandShape};
use super::tile::Tile;
use super::{Chooser, MATRIX_RUN, Strategy, shared_width};
use crate::error::{Error, Result};
use crate::program::{Axes, dense_strides};

/// Multiplications that each element of a copy takes part in: fewer are not worth the copy.
const MIN_ORDERED_USES: u64 = 1 << 9;
/// Multiplications of a contraction: fewer are not worth a copy of an operand in another order.
const MIN_ORDERED_MULTIPLICATIONS: u64 = 1 << 26;

/// A GPU takes about as long to copy a small matrix as for this many multiplications. Where there are more, copies with aligned
/// rows pay off if each element takes part in [`MIN_ALIGNED_USES`].
const MIN_ALIGNED_MULTIPLICATIONS: u64 = 1 << 28;
const MIN_ALIGNED_USES: u64 = 128;

/// Fewer multiplications are not worth a copy that only puts the depth in another order: that makes a large contraction 3 to 10 %
/// faster and takes an H200 10 us, a single call 25.
const MIN_REORDERED_MULTIPLICATIONS: u64 = 3 << 31;

/// Fewer neighbours than fill a sector of memory are not worth loading side by side.
const MIN_SCATTERED_RUN: u64 = 8;

/// The most elements of a copy for each that its operand has where channels are filled up to a multiple of [`MATRIX_RUN`], and the
/// multiplications that pay for one.
const MAX_CHANNEL_GROWTH: u64 = 3;
const MIN_CHANNEL_USES: u64 = 64;

/// A multiple of most tiles' depth: an axis of the depth of a multiple of this many elements has whole steps.
const STEP_MULTIPLE: u64 = 16;

/// An axis of a dense copy: an axis of the contraction, or a padded axis' coordinate. There are zeros where it goes beyond what the
/// operand has.
#[derive(Clone, Debug)]
struct CopiedAxis {
    of: CopiedAxisSource,
    dim: u64,
    /// The operand's coordinate where it begins, the operand's extent, and its stride there.
    low: i64,
    extent: u64,
    stride: i64,
}

impl CopiedAxis {
    /// The first coordinate that the operand has, and the number of those that it has.
    fn existing(&self) -> (i64, u64) {
        let end = (self.low + self.dim as i64).min(self.extent as i64);
        let first = self.low.clamp(0, self.extent as i64);
        (first, (end - first).max(0) as u64)
    }
}

/// By the indices in the contraction's lists.
#[derive(Clone, Copy, Debug, PartialEq)]
enum CopiedAxisSource {
    Axis(usize),
    Padded(usize),
}

/// A copy of an operand, dense over axes of its own order and extents.
#[derive(Debug)]
pub struct OperandCopy {
    /// 'a' or 'b'.
    pub operand: char,
    /// What is copied.
    pub from: OperandShape,
    axes: Vec<CopiedAxis>,
    pub strides: Axes<i64>,
    pub bytes: u64,
}

impl OperandCopy {
    /// Whether the copy has elements that the operand lacks: zeros.
    pub fn has_zeros(&self) -> bool {
        self.axes.iter().any(|axis| axis.existing().1 < axis.dim)
    }

    /// The extents of what is copied.
    pub fn counts(&self) -> Axes<u64> {
        self.axes.iter().map(|axis| axis.existing().1).collect()
    }

    /// The offset of the first element that is copied, and the strides, in the operand.
    pub fn source(&self) -> (i64, Axes<i64>) {
        let offset = self.axes.iter().map(|axis| axis.existing().0 * axis.stride).sum::<i64>();
        (self.from.offset + offset, self.axes.iter().map(|axis| axis.stride).collect())
    }

    /// The extents of the copy.
    #[cfg(test)]
    pub fn dims(&self) -> Vec<u64> {
        let outer = std::iter::once((self.bytes / self.from.ty.size()) as i64).chain(self.strides.iter().copied());
        outer.zip(&self.strides).map(|(outer, stride)| (outer / stride) as u64).collect()
    }

    /// The offset of that element in the copy.
    pub fn target_offset(&self) -> i64 {
        self.axes.iter().zip(&self.strides).map(|(axis, stride)| (axis.existing().0 - axis.low) * stride).sum()
    }
}

/// Whether it pays off to copy operands so that their rows are aligned. Not those with groups of several axes, or with axes
/// along which all elements are one: a copy may be much larger than what it is made from.
pub fn pays_to_align(groups: &AxisGroups) -> bool {
    let [batch, m, n, k] = groups.sizes();
    let steps = |axis: &Axis, tensors: &str| tensors.chars().all(|tensor| axis.stride(tensor) != 0);
    let single = |(_, tensors, axes): &(_, &str, &[Axis])| match axes {
        [] => true,
        [axis] => steps(axis, tensors),
        _ => false,
    };
    let simple = groups.padding.is_none() && groups.named().iter().all(single);
    simple && m.min(n) >= MIN_ALIGNED_USES && batch * m * n * k >= MIN_ALIGNED_MULTIPLICATIONS
}

impl Chooser<'_> {
    /// By a copy of the padded operand, with zeros where coordinates do not exist.
    pub(super) fn padded(mut self, shape: &ContractionShape) -> Result<Strategy> {
        let operand = shape.padded_operand();
        let mut axes = axes_with_padding(shape, operand);
        axes.sort_by_key(|axis| Reverse(axis.stride.unsigned_abs()));
        self.one_batch = true;
        let dense = self.copy(shape, operand, axes, 1)?;
        self.choose(dense, [false; 2])
    }

    /// The same contraction by copies of operands that are read as vec4s, and with whole steps along one axis of the depth. `None`
    /// where that does not pay or is so already.
    pub(super) fn ordered(&mut self, shape: &ContractionShape) -> Result<Option<ContractionShape>> {
        let whole = |axis: &Axis| axis.padded.is_none() && axis.dim.is_multiple_of(STEP_MULTIPLE);
        let Some(inner) = shape.depth.iter().rposition(whole) else { return Ok(None) };
        let mut ordered = shape.clone();
        ordered.depth[inner..].rotate_left(1);
        let groups = ordered.groups();
        let [batch, m, n, k] = groups.sizes();
        let multiplications = batch * m * n * k;
        let axes = shape.depth.iter().filter(|axis| axis.dim > 1).count().min(groups.k.len());
        if axes < 2 || multiplications < MIN_ORDERED_MULTIPLICATIONS {
            return Ok(None);
        }
        let pays = |operand| {
            let elements: u64 = copied_axes(&ordered, operand).iter().map(|axis| axis.dim).product();
            elements <= shape.operand(operand).elements && multiplications / elements.max(1) >= MIN_ORDERED_USES
        };
        let [good_a, good_b] = ['a', 'b'].map(|operand| self.is_read_by_vectors(shape, &groups, operand));
        let unordered = shape.groups();
        let is_read_by_vectors_unordered =
            || ['a', 'b'].iter().all(|&operand| self.is_read_by_vectors(shape, &unordered, operand));
        if !(good_a && good_b) && multiplications < MIN_REORDERED_MULTIPLICATIONS && is_read_by_vectors_unordered() {
            return Ok(None);
        }
        let moves = inner + 1 != shape.depth.len() || !good_a || !good_b;
        if !moves || !(good_a || pays('a')) || !(good_b || pays('b')) {
            return Ok(None);
        }
        self.one_batch = true;
        if !good_a {
            ordered = self.copy_for_vec4s(&ordered, 'a', m)?;
        }
        if !good_b {
            ordered = self.copy_for_vec4s(&ordered, 'b', n)?;
        }
        Ok(Some(ordered))
    }

    /// The same convolution by copies of both operands with as many channels as cooperative matrices load at once, or a multiple, and with
    /// the padding: what is added is zero in both. `None` where that does not pay or is so already.
    pub(super) fn with_whole_channels(&mut self, shape: &ContractionShape) -> Result<Option<ContractionShape>> {
        let [batch, m, n, k] = shape.groups().sizes();
        let mut channels = shape.depth.iter().enumerate().filter(|(_, axis)| axis.padded.is_none() && axis.dim > 1);
        let (Some((channel, &Axis { dim, .. })), None) = (channels.next(), channels.next()) else { return Ok(None) };
        let whole = dim.next_multiple_of(MATRIX_RUN);
        let multiplications = batch * m * n * k;
        if shape.padded_axes.is_empty()
            || !shape.has_matrices(self.caps)
            || whole == dim
            || whole > MAX_CHANNEL_GROWTH * dim
            || multiplications < MIN_ORDERED_MULTIPLICATIONS
            || Tile::choose_matrix(self.caps, false, [batch, m, n, k / dim * whole]).is_none()
        {
            return Ok(None);
        }
        let mut filled = shape.clone();
        filled.depth[channel].dim = whole;
        filled.depth[channel..].rotate_left(1);
        let last = filled.axes().count() - 1;
        let copies = ['a', 'b'].map(|operand| {
            let mut axes = axes_with_padding(&filled, operand);
            axes.sort_by_key(|axis| (axis.of == CopiedAxisSource::Axis(last), Reverse(axis.stride.unsigned_abs())));
            if let Some(channels) = axes.last_mut() {
                channels.extent = dim;
            }
            axes
        });
        let elements = copies.iter().map(|axes| axes.iter().map(|axis| axis.dim).product::<u64>()).sum::<u64>();
        if multiplications / elements.max(1) < MIN_CHANNEL_USES {
            return Ok(None);
        }
        self.one_batch = true;
        for (operand, axes) in ['a', 'b'].into_iter().zip(copies) {
            filled = self.copy(&filled, operand, axes, 1)?;
        }
        Ok(Some(filled))
    }

    /// Whether an operand is read as vec4s, or as four elements of neighbouring rows or columns. Cooperative matrices do not read the
    /// latter.
    fn is_read_by_vectors(&self, shape: &ContractionShape, groups: &AxisGroups, operand: char) -> bool {
        let scatters = !shape.has_matrices(self.caps) && shared_width(shape.inner().compute()) == 4;
        let lines = if operand == 'a' { "m" } else { "n" };
        if groups.loads_along_k(operand) {
            return groups.has_runs(operand, "k", 4);
        }
        let has_neighbours = |axis: &Axis| axis.stride(operand).abs() == 1 && axis.dim >= MIN_SCATTERED_RUN;
        let scattered = scatters && groups.axes(lines).last().is_some_and(has_neighbours);
        let padding = groups.padding.as_ref().filter(|padding| padding.operand == operand);
        groups.has_runs(operand, lines, 4) || scattered && padding.is_none_or(|padding| padding.fits_word(groups))
    }

    /// A copy that is contiguous along the operand's `lines` rows or columns, which spares transposing vec4s in shared memory, or
    /// else along the last axis of the depth. Rows or columns that are padded have no vec4s.
    fn copy_for_vec4s(&mut self, shape: &ContractionShape, operand: char, lines: u64) -> Result<ContractionShape> {
        let kept = shape.batch.len()..shape.batch.len() + shape.rows.len() + shape.columns.len();
        let last = kept.end + shape.depth.len() - 1;
        let is_padded = operand == shape.padded_operand() && !shape.padded_axes.is_empty();
        let by_lines = lines.is_multiple_of(4) && !is_padded;
        let mut axes = copied_axes(shape, operand);
        axes.sort_by_key(|axis| {
            let innermost = match axis.of {
                CopiedAxisSource::Axis(index) if by_lines => kept.contains(&index),
                CopiedAxisSource::Axis(index) => index == last,
                CopiedAxisSource::Padded(_) => false,
            };
            (innermost, Reverse(axis.stride.unsigned_abs()))
        });
        self.copy(shape, operand, axes, 1)
    }

    /// By copies of the operands for which `has_runs` is false, in which runs of `run` elements are aligned: along k, with zeros at
    /// its end, or along the other group. The groups are such as [`pays_to_align`] accepts, of rows, columns and depth one axis
    /// each.
    pub(super) fn aligned(
        mut self,
        shape: &ContractionShape,
        groups: &AxisGroups,
        along_k: [bool; 2],
        (has_runs, run): ([bool; 2], u64),
    ) -> Result<Strategy> {
        let AxisGroups { batch, m, n, k, .. } = groups.clone();
        let mut aligned = ContractionShape { batch, rows: m, columns: n, depth: k, ..shape.clone() };
        for i in [0, 1] {
            if has_runs[i] {
                continue;
            }
            let operand = ['a', 'b'][i];
            let mut axes = copied_axes(&aligned, operand);
            let inner = CopiedAxisSource::Axis(groups.batch.len() + if along_k[i] { 2 } else { i });
            axes.sort_by_key(|axis| axis.of == inner);
            if let Some(row) = axes.last_mut().filter(|_| along_k[i]) {
                row.dim = row.dim.next_multiple_of(run);
            }
            aligned = self.copy(&aligned, operand, axes, run)?;
        }
        self.choose(aligned, has_runs.map(|has_runs| !has_runs))
    }

    /// The contraction with an operand that is dense over these axes, except that its rows go on to a multiple of `run` elements.
    fn copy(
        &mut self,
        shape: &ContractionShape,
        operand: char,
        axes: Vec<CopiedAxis>,
        run: u64,
    ) -> Result<ContractionShape> {
        let from = *shape.operand(operand);
        let mut dims: Axes<u64> = axes.iter().map(|axis| axis.dim).collect();
        if let Some(row) = dims.last_mut() {
            *row = row.next_multiple_of(run);
        }
        let bytes = dims.iter().try_fold(from.ty.size(), |n, &dim| n.checked_mul(dim)).ok_or(Error::SizeMismatch)?;
        let strides = dense_strides(&dims);
        let mut dense = shape.clone();
        for axis in dense.axes_mut() {
            *axis.stride_mut(operand) = 0;
        }
        for (copied, &stride) in axes.iter().zip(&strides) {
            match copied.of {
                CopiedAxisSource::Axis(i) => {
                    if let Some(axis) = dense.axes_mut().nth(i) {
                        *axis.stride_mut(operand) = stride;
                    }
                }
                CopiedAxisSource::Padded(i) => {
                    let start = dense.padded_axes[i].start - copied.low;
                    dense.padded_axes[i] = PaddedAxis { start, extent: copied.dim, stride };
                    for axis in dense.axes_mut() {
                        if let Some((_, step)) = axis.padded.filter(|(padded, _)| *padded == i) {
                            *axis.stride_mut(operand) = step * stride;
                        }
                    }
                }
            }
        }
        dense.operands[usize::from(operand != 'a')] =
            OperandShape { ty: from.ty, offset: 0, elements: bytes / from.ty.size() };
        self.copies.push(OperandCopy { operand, from, axes, strides, bytes });
        Ok(dense)
    }
}

/// As [`copied_axes`], with all coordinates of padded axes that the axes of the contraction lead to.
fn axes_with_padding(shape: &ContractionShape, operand: char) -> Vec<CopiedAxis> {
    let mut axes = copied_axes(shape, operand);
    for axis in &mut axes {
        if let CopiedAxisSource::Padded(padded) = axis.of {
            let range = shape.coordinate_range(padded);
            (axis.low, axis.dim) = (range.first, (range.last - range.first) as u64 + 1);
        }
    }
    axes
}

/// The axes that an operand's elements vary along, and its padded axes.
fn copied_axes(shape: &ContractionShape, operand: char) -> Vec<CopiedAxis> {
    let is_padded = operand == shape.padded_operand();
    let free = |axis: &Axis| !(is_padded && axis.padded.is_some()) && axis.stride(operand) != 0;
    let axes = shape
        .axes()
        .enumerate()
        .filter(|(_, axis)| free(axis))
        .map(|(i, axis)| (CopiedAxisSource::Axis(i), axis.dim, axis.stride(operand)));
    let padded = shape.padded_axes.iter().enumerate().filter(|_| is_padded);
    let padded = padded.map(|(i, padded)| (CopiedAxisSource::Padded(i), padded.extent, padded.stride));
    let all = |(of, dim, stride)| CopiedAxis { of, dim, low: 0, extent: dim, stride };
    axes.chain(padded).map(all).collect()
}
