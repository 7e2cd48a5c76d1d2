//! The axes of a contraction, and those as the axes of a batch of matrix products. Geometry alone: extents and strides.

use super::padding::{PaddedAxis, Padding};
use crate::program::layout::is_whole;

/// Elements with a larger stride than this share few of the bytes that memory transfers at once.
const MAX_CLOSE_STRIDE: i64 = 2;

/// An axis: its extent, and its strides in the operands and the result, in elements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Axis {
    /// Number of indices along the axis.
    pub dim: u64,
    /// Elements of the first operand from an index to the next; 0 where the axis is no part of it.
    pub a: i64,
    /// Elements of the second operand from an index to the next; 0 where the axis is no part of it.
    pub b: i64,
    /// Elements of the result from an index to the next; 0 where the axis is summed over.
    pub c: i64,
    /// The padded axis whose coordinate it steps along, by its index in the list, and by how much.
    pub padded: Option<(usize, i64)>,
}

impl Axis {
    /// The stride in a tensor: 'a', 'b' or, for the result, 'c'.
    pub fn stride(&self, tensor: char) -> i64 {
        match tensor {
            'a' => self.a,
            'b' => self.b,
            _ => self.c,
        }
    }

    /// The stride in a tensor, to be changed: 'a', 'b' or, for the result, 'c'.
    pub fn stride_mut(&mut self, tensor: char) -> &mut i64 {
        match tensor {
            'a' => &mut self.a,
            'b' => &mut self.b,
            _ => &mut self.c,
        }
    }

    /// The step of its padded axis' coordinate for a step along it.
    pub fn padded_step(&self) -> i64 {
        self.padded.map_or(0, |(_, step)| step)
    }

    /// Whether a tensor steps through this axis and `inner`, the next one, as through one axis.
    pub fn merges_with(&self, inner: &Axis, tensor: char) -> bool {
        self.stride(tensor) == inner.stride(tensor).wrapping_mul(inner.dim as i64)
    }
}

/// The axes by their groups, merged where that is possible in all tensors. Axes of the result go from its outermost to its
/// innermost.
#[derive(Clone, Debug)]
pub struct AxisGroups {
    pub batch: Vec<Axis>,
    pub m: Vec<Axis>,
    pub n: Vec<Axis>,
    pub k: Vec<Axis>,
    pub padding: Option<Padding>,
}

impl AxisGroups {
    pub fn of([batch, rows, columns, depth]: [&[Axis]; 4], padded_axes: &[PaddedAxis]) -> Self {
        let by_result = |axes: &[Axis]| {
            let mut axes = axes.to_vec();
            axes.sort_by_key(|axis| std::cmp::Reverse(axis.c));
            merge(&axes)
        };
        let (m, n, k) = (by_result(rows), by_result(columns), merge(depth));
        let padding = Padding::of(padded_axes, &m, &n, &k);
        Self { batch: by_result(batch), m, n, k, padding }
    }

    pub fn sizes(&self) -> [u64; 4] {
        [&self.batch, &self.m, &self.n, &self.k].map(|axes| axes.iter().map(|axis| axis.dim).product())
    }

    /// Elements of the result.
    pub fn elements(&self) -> u64 {
        let [batch, m, n, _] = self.sizes();
        batch * m * n
    }

    /// Multiplications and additions of all elements.
    pub fn operations(&self) -> u64 {
        2 * self.sizes().iter().product::<u64>()
    }

    /// Each group with its name and the tensors that it is a part of.
    pub fn named(&self) -> [(&'static str, &'static str, &[Axis]); 4] {
        [("batch", "abc", &self.batch), ("m", "ac", &self.m), ("n", "bc", &self.n), ("k", "ab", &self.k)]
    }

    pub fn axes(&self, group: &str) -> &[Axis] {
        self.named().into_iter().find(|(name, ..)| *name == group).map_or(&[], |(_, _, axes)| axes)
    }

    /// Whether the result lies row by row, with the rows of one batch after those of another.
    pub fn is_row_major(&self) -> bool {
        let mut elements = 1;
        [&self.n, &self.m, &self.batch].into_iter().flat_map(|axes| axes.iter().rev()).all(|axis| {
            let next = elements;
            elements *= axis.dim as i64;
            axis.c == next
        })
    }

    /// Whether `depth` elements along k from a multiple of it on differ in the index of the innermost of several axes alone,
    /// which is not padded.
    pub fn depth_in_steps(&self, depth: u32) -> bool {
        let inner = self.k.last().filter(|axis| axis.dim.is_multiple_of(depth.into()) && axis.padded.is_none());
        self.k.len() > 1 && inner.is_some()
    }

    /// Whether offsets in both operands are proportional to the index along k, and grow with every other.
    pub fn is_affine(&self) -> bool {
        let grows = |axis: &Axis| axis.a >= 0 && axis.b >= 0;
        let axes = self.named();
        self.padding.is_none() && self.k.len() == 1 && axes.iter().all(|(_, _, axes)| axes.iter().all(grows))
    }

    /// Whether runs of `run` elements of a tensor along `group` are contiguous and begin at multiples of `run`.
    pub fn has_runs(&self, tensor: char, group: &str, run: u64) -> bool {
        let is_padded = self.padding.as_ref().is_some_and(|padding| padding.operand == tensor);
        self.named().iter().filter(|(_, tensors, _)| tensors.contains(tensor)).all(|(name, _, axes)| {
            // The innermost axes that are one contiguous axis in this tensor.
            let mut contiguous = 1;
            let inner = |axis: &&Axis| {
                let next = axis.stride(tensor) == contiguous as i64 && !(is_padded && axis.padded.is_some());
                contiguous *= if next { axis.dim } else { 1 };
                next
            };
            let inner = if *name == group { axes.iter().rev().take_while(inner).count() } else { 0 };
            let whole = *name != group || (inner > 0 && contiguous % run == 0);
            whole && axes[..axes.len() - inner].iter().all(|axis| is_whole(axis.stride(tensor), run))
        })
    }

    /// Whether the elements of an operand should be loaded along k: where they lie closer than along its rows or columns. That is
    /// worth little where they do not form aligned runs of four and those along the rows or columns lie close as well.
    pub fn loads_along_k(&self, operand: char) -> bool {
        let lines = if operand == 'a' { "m" } else { "n" };
        let closer = if operand == 'a' { self.closer('a', "k", lines) } else { !self.closer('b', lines, "k") };
        closer && (self.inner_stride(operand, lines) > MAX_CLOSE_STRIDE || self.has_runs(operand, "k", 4))
    }

    /// Whether elements of a tensor lie closer along `first` than along `second`.
    pub fn closer(&self, tensor: char, first: &str, second: &str) -> bool {
        self.inner_stride(tensor, first) <= self.inner_stride(tensor, second)
    }

    /// The stride of neighbours along a group in a tensor.
    fn inner_stride(&self, tensor: char, group: &str) -> i64 {
        self.axes(group).last().map_or(0, |axis| axis.stride(tensor).abs())
    }
}

/// Drops axes of one element and merges neighbours that step through all tensors as if they were one, unless they are padded.
fn merge(axes: &[Axis]) -> Vec<Axis> {
    let mut merged: Vec<Axis> = vec![];
    for axis in axes.iter().filter(|axis| axis.dim != 1 || axis.padded.is_some()) {
        let free = |axis: &Axis| axis.padded.is_none();
        let merges =
            |outer: &Axis| "abc".chars().all(|tensor| outer.merges_with(axis, tensor)) && free(outer) && free(axis);
        match merged.last_mut().filter(|outer| merges(outer)) {
            Some(outer) => *outer = Axis { dim: outer.dim * axis.dim, ..*axis },
            None => merged.push(*axis),
        }
    }
    merged
}
