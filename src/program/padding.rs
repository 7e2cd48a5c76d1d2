//! Views that go beyond their buffer along some axes, as windows over a padded tensor do: beyond, elements are a given value. This module owns
//! what such a view is and which elements exist; [`layout`](super::layout) finds their indices.

use smallvec::SmallVec;

use super::{Axes, Program, Source, step_in_bounds};
use crate::error::{Error, Result};

/// A buffer read at `offset + Σ index·stride + Σ coordinate·stride`, in elements, over the axes of the iteration space and its own.
#[derive(Clone, Debug, PartialEq, Hash)]
pub struct PaddedView {
    /// Elements from the start of the buffer to the element where all indices and coordinates are zero.
    pub offset: i64,
    /// Elements from an index to the next, one stride for each axis of the iteration space, besides those of coordinates.
    pub strides: Axes<i64>,
    /// The coordinates along axes of the buffer that end within the iteration space.
    pub coordinates: SmallVec<[PaddedCoordinate; 2]>,
    /// What an element is that does not exist: its bits as they are stored.
    pub value: u128,
}

/// A coordinate along an axis of a buffer: `start + Σ index·step` over the axes of the iteration space. Those from 0 to `extent` exist.
#[derive(Clone, Debug, PartialEq, Hash)]
pub struct PaddedCoordinate {
    /// The coordinate where all indices are zero; negative where padding comes before the buffer.
    pub start: i64,
    /// Number of coordinates that exist, from 0 on.
    pub extent: u64,
    /// Elements of the buffer from a coordinate to the next.
    pub stride: i64,
    /// Coordinates from an index to the next, one step for each axis of the iteration space.
    pub steps: Axes<i64>,
}

impl PaddedView {
    /// Whether it has a stride and steps for each axis of an iteration space.
    pub(super) fn has_rank(&self, rank: usize) -> bool {
        self.strides.len() == rank && self.coordinates.iter().all(|coordinate| coordinate.steps.len() == rank)
    }

    /// The view without what are parameters of its kernel.
    pub(super) fn without_parameters(&self) -> Self {
        Self { offset: 0, strides: Axes::new(), coordinates: SmallVec::new(), value: self.value }
    }

    /// The offset and the strides over the iteration space, coordinates included. The offset is that of an element which need not exist.
    /// Fails where they are larger than any buffer.
    pub(super) fn position(&self) -> Result<(i64, Axes<i64>)> {
        let sum = |own: i64, part: &dyn Fn(&PaddedCoordinate) -> i64| {
            let add = |sum: i64, coordinate: &PaddedCoordinate| {
                sum.checked_add(part(coordinate).checked_mul(coordinate.stride)?)
            };
            self.coordinates.iter().try_fold(own, add).filter(|&sum| step_in_bounds(sum)).ok_or(Error::SizeMismatch)
        };
        let strides =
            self.strides.iter().enumerate().map(|(index, &own)| sum(own, &|coordinate| coordinate.steps[index]));
        Ok((sum(self.offset, &|coordinate| coordinate.start)?, strides.collect::<Result<_>>()?))
    }
}

impl Program {
    /// Fails where an input is a padded view, for kernels that do not read those.
    pub(super) fn check_unpadded(&self) -> Result<()> {
        match self.inputs.iter().any(|input| matches!(input.source, Source::Padded(_))) {
            true => Err(Error::Unsupported("a padded view in this kernel".into())),
            false => Ok(()),
        }
    }
}
