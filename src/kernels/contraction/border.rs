//! Operands that end within the iteration space, as the input of a padded convolution does: zeros are beyond.
//!
//! Whether an element exists is found without its coordinates. Each index along k that a coordinate is made of, the
//! window's, has a bit, in a word that holds those of all coordinates. A column knows the bits for which it is outside, a
//! step along k the bits that it needs, and where they meet there is a zero.

use std::fmt::Write as _;

use super::groups::Groups;
use super::{Axis, Contraction};
use crate::error::{Error, Result};
use crate::graph::Params;
use crate::program::MAX_STEP;

/// A coordinate of an operand, of which only those below `extent` exist: `start` and the steps of two axes, a kept one
/// (row or column) and one of the depth. Neighbours are `stride` elements apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Border {
    pub start: i64,
    pub extent: u64,
    pub stride: i64,
}

/// The first and last coordinate along a border that is asked for, and the elements from one to the other.
pub struct Reach {
    pub first: i64,
    pub last: i64,
    extent: u64,
    pub elements: u64,
}

impl Reach {
    pub fn is_inside(&self) -> bool {
        self.first >= 0 && self.last < self.extent as i64
    }
}

/// The borders of an operand and the axes that meet them.
pub struct Borders {
    /// 'a' or 'b'.
    pub tensor: char,
    /// For each border, by their place in their groups: the kept axis and the one along k.
    axes: Vec<[usize; 2]>,
    list: Vec<Border>,
}

/// Bits of a word.
const BITS: u64 = 32;

impl Borders {
    /// `None` where there are none.
    pub fn of(list: &[Border], rows: &[Axis], columns: &[Axis], depth: &[Axis]) -> Option<Self> {
        let tensor = if rows.iter().any(|axis| axis.border.is_some()) { 'a' } else { 'b' };
        let kept = if tensor == 'a' { rows } else { columns };
        let place = |axes: &[Axis], border| axes.iter().position(|axis| axis.border.is_some_and(|(b, _)| b == border));
        let axes = (0..list.len()).map(|border| Some([place(kept, border)?, place(depth, border)?]));
        let axes: Vec<_> = axes.collect::<Option<_>>()?;
        (!list.is_empty()).then(|| Self { tensor, axes, list: list.to_vec() })
    }

    pub fn group(&self) -> &'static str {
        if self.tensor == 'a' { "m" } else { "n" }
    }

    /// Of each border, the kept axis and the one along k.
    fn pairs<'a>(&'a self, groups: &'a Groups) -> impl Iterator<Item = (&'a Border, [&'a Axis; 2])> {
        let kept = groups.axes(self.group());
        self.list.iter().zip(&self.axes).map(move |(border, &[i, k])| (border, [&kept[i], &groups.k[k]]))
    }

    /// Whether a word has bits for all indices.
    pub fn fit(&self, groups: &Groups) -> bool {
        self.pairs(groups).map(|(_, axes)| axes[1].dim).sum::<u64>() <= BITS
    }

    /// How far from a tensor's first element the kernel's places begin, in elements: before it where coordinates are negative.
    pub fn start(&self, tensor: char) -> i64 {
        let starts = self.list.iter().filter(|_| tensor == self.tensor);
        starts.fold(0, |sum, border| sum.wrapping_add(border.start.wrapping_mul(border.stride)))
    }

    pub fn params(&self, groups: &Groups, params: &mut Params, wide: bool) {
        for (i, (border, [kept, depth])) in self.pairs(groups).enumerate() {
            params.index(border.start, wide, ("border_start", i));
            params.extent(border.extent, wide, ("border_extent", i));
            params.index(kept.step(), wide, ("border_step", i));
            params.extent(depth.dim, wide, ("border_bits", i));
            params.index(depth.step(), wide, ("border_bit_step", i));
        }
    }

    /// What the text depends on.
    pub fn key(&self) -> Vec<u8> {
        [self.tensor as u8].into_iter().chain(self.axes.iter().flatten().map(|&axis| axis as u8)).collect()
    }

    /// Statements that set `word` to the bits that are needed at the indices `at{i}` of the axes along k.
    pub fn needed(&self, word: &str, at: &str) -> String {
        let mut text = format!("  {word} = 0;\n  uint bit = 0;\n");
        // Beyond the sum's end an index may be too large, and is not used.
        for (i, [_, axis]) in self.axes.iter().enumerate() {
            let _ =
                writeln!(text, "  {word} |= 1u << ((bit + uint({at}{axis})) & 31u);\n  bit += uint(p.border_bits{i});");
        }
        text
    }

    /// The function `depth_word`, the bits that an index along k needs.
    pub fn of_depth(&self, groups: &Groups) -> String {
        let (indices, needed) = (groups.indices("k"), self.needed("word", "at"));
        format!("uint depth_word(IDX i) {{\n{indices}  uint word;\n{needed}  return word;\n}}")
    }

    /// The function `line_word`, the bits for which a row or column is outside.
    pub fn outside(&self, groups: &Groups) -> String {
        let mut text = format!("uint line_word(IDX i) {{\n{}  uint word = 0, bit = 0;\n", groups.indices(self.group()));
        for (i, [axis, _]) in self.axes.iter().enumerate() {
            let _ = writeln!(
                text,
                "  IDX coordinate{i} = p.border_start{i} + at{axis} * p.border_step{i};\n\
                 \x20 for (IDX e = 0; e < p.border_bits{i}; e++, bit++, coordinate{i} += p.border_bit_step{i}) {{\n\
                 \x20   if (coordinate{i} >= p.border_extent{i}) word |= 1u << bit;\n  }}"
            );
        }
        text + "  return word;\n}\n#define LINE_WORD(i) line_word(i)\n"
    }
}

impl Contraction<'_> {
    /// The operand that has the borders.
    pub fn bordered(&self) -> char {
        if self.rows.iter().any(|axis| axis.border.is_some()) { 'a' } else { 'b' }
    }

    /// Fails where a border does not belong to one kept axis of one operand and to one of the depth, or strides differ.
    pub fn check_borders(&self) -> Result<()> {
        let tensor = self.bordered();
        let kept = if tensor == 'a' { &self.rows } else { &self.columns };
        let meets = |axes: &[Axis], border| {
            axes.iter().filter(|axis| axis.border.is_some_and(|(place, _)| place == border)).count()
        };
        let of_two = |border| meets(kept, border) == 1 && meets(&self.depth, border) == 1;
        let all = self.axes().filter(|axis| axis.border.is_some()).count();
        let steps = |axis: &Axis| {
            axis.border.is_none_or(|(border, step)| {
                let stride = self.borders.get(border).and_then(|border| border.stride.checked_mul(step));
                stride == Some(axis.stride(tensor))
            })
        };
        if !(0..self.borders.len()).all(of_two) || all != 2 * self.borders.len() || !self.axes().all(steps) {
            return Err(Error::Argument(
                "axes: a border needs a row or column and an axis of the depth with its strides".into(),
            ));
        }
        let far = |border| {
            let Reach { first, last, elements, .. } = self.reach(border);
            first.unsigned_abs().max(last.unsigned_abs()).max(elements) > MAX_STEP
        };
        if (0..self.borders.len()).any(far) { Err(Error::SizeMismatch) } else { Ok(()) }
    }

    /// What the axes reach of a border's coordinate. Saturates.
    pub fn reach(&self, border: usize) -> Reach {
        let Border { start, extent, stride } = self.borders[border];
        let (mut first, mut last) = (start, start);
        for axis in self.axes() {
            if let Some((_, step)) = axis.border.filter(|(of, _)| *of == border) {
                let steps = step.saturating_mul(axis.dim.saturating_sub(1) as i64);
                if steps < 0 { first = first.saturating_add(steps) } else { last = last.saturating_add(steps) }
            }
        }
        let coordinates = last.saturating_sub(first).unsigned_abs().saturating_add(1).max(extent);
        Reach { first, last, extent, elements: coordinates.saturating_mul(stride.unsigned_abs()) }
    }

    /// The same contraction where nothing beyond the borders is asked for.
    pub fn unbordered(&self) -> Contraction<'_> {
        let mut free = self.reborrow();
        let view = if self.bordered() == 'a' { &mut free.a } else { &mut free.b };
        view.offset += self.borders.iter().map(|border| border.start * border.stride).sum::<i64>();
        free.axes_mut().for_each(|axis| axis.border = None);
        free.borders.clear();
        free
    }
}
