//! Operands that end within the iteration space, as the input of a padded convolution does: beyond are zeros. This module
//! holds what that means for extents and offsets; kernels find the missing elements by words of bits.

use super::axes::{Axis, AxisGroups};

/// A coordinate of an operand: `start` and the steps of two axes, a kept one (row or column) and one of the depth. Only
/// coordinates from 0 to `extent` exist. `stride` is that of the coordinate, in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PaddedAxis {
    /// The coordinate where the indices along both axes are zero; negative where padding comes before the operand.
    pub start: i64,
    /// Number of coordinates that exist, from 0 on.
    pub extent: u64,
    /// Elements of the operand from a coordinate to the next.
    pub stride: i64,
}

/// The first and last coordinate that the axes lead to along a padded axis.
pub struct CoordinateRange {
    pub first: i64,
    pub last: i64,
    extent: u64,
    /// The elements from the first coordinate to the last.
    pub elements: u64,
}

impl CoordinateRange {
    /// Saturates.
    pub fn of<'a>(padded: &PaddedAxis, index: usize, axes: impl Iterator<Item = &'a Axis>) -> Self {
        let &PaddedAxis { start, extent, stride } = padded;
        let (mut first, mut last) = (start, start);
        for axis in axes {
            if let Some((_, step)) = axis.padded.filter(|(of, _)| *of == index) {
                let steps = step.saturating_mul(axis.dim.saturating_sub(1) as i64);
                if steps < 0 { first = first.saturating_add(steps) } else { last = last.saturating_add(steps) }
            }
        }
        let coordinates = last.saturating_sub(first).unsigned_abs().saturating_add(1).max(extent);
        Self { first, last, extent, elements: coordinates.saturating_mul(stride.unsigned_abs()) }
    }

    /// Whether all its coordinates exist.
    pub fn is_inside(&self) -> bool {
        self.first >= 0 && self.last < self.extent as i64
    }
}

/// The padded axes of an operand and the axes that step along them.
#[derive(Clone, Debug)]
pub struct Padding {
    /// 'a' or 'b'.
    pub operand: char,
    /// For each padded axis, by their indices in their groups: the kept axis and the one along k.
    pub axes: Vec<[usize; 2]>,
    list: Vec<PaddedAxis>,
}

/// Bits of the words by which kernels find missing elements.
const WORD_BITS: u64 = 32;

impl Padding {
    /// `None` where there is none.
    pub fn of(list: &[PaddedAxis], rows: &[Axis], columns: &[Axis], depth: &[Axis]) -> Option<Self> {
        let operand = if rows.iter().any(|axis| axis.padded.is_some()) { 'a' } else { 'b' };
        let kept = if operand == 'a' { rows } else { columns };
        let index =
            |axes: &[Axis], padded| axes.iter().position(|axis| axis.padded.is_some_and(|(of, _)| of == padded));
        let axes = (0..list.len()).map(|padded| Some([index(kept, padded)?, index(depth, padded)?]));
        let axes: Vec<_> = axes.collect::<Option<_>>()?;
        (!list.is_empty()).then(|| Self { operand, axes, list: list.to_vec() })
    }

    /// The group of the kept axes.
    pub fn group(&self) -> &'static str {
        if self.operand == 'a' { "m" } else { "n" }
    }

    /// Each padded axis with the kept axis and the one along k.
    pub fn pairs<'a>(&'a self, groups: &'a AxisGroups) -> impl Iterator<Item = (&'a PaddedAxis, [&'a Axis; 2])> {
        let kept = groups.axes(self.group());
        self.list.iter().zip(&self.axes).map(move |(padded, &[i, k])| (padded, [&kept[i], &groups.k[k]]))
    }

    /// Whether a word has bits for all indices along k of padded axes.
    pub fn fits_word(&self, groups: &AxisGroups) -> bool {
        self.pairs(groups).map(|(_, axes)| axes[1].dim).sum::<u64>() <= WORD_BITS
    }

    /// The offset from an operand's first element of the element where all indices are zero, in elements: it is negative where
    /// coordinates are.
    pub fn start(&self, operand: char) -> i64 {
        let starts = self.list.iter().filter(|_| operand == self.operand);
        starts.fold(0, |sum, padded| sum.wrapping_add(padded.start.wrapping_mul(padded.stride)))
    }
}
