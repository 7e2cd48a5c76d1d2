//! Operands that end within the iteration space, as the input of a padded convolution does: zeros are beyond.
//!
//! Whether an element exists is found without its coordinates. Each index along k that a coordinate is made of, the
//! window's, has a bit, in a word that holds those of all coordinates. A column knows the bits for which it is outside, a
//! step along k the bits that it needs, and where they meet there is a zero.

use std::fmt::Write as _;

use super::Axis;
use super::groups::Groups;
use crate::program::emit::Params;

/// A coordinate of an operand, of which only those below `extent` exist: `start` and the steps of two axes, a kept one
/// (row or column) and one of the depth. Neighbours are `stride` elements apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Border {
    pub start: i64,
    pub extent: u64,
    pub stride: i64,
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
            params.index(border.start, wide, format_args!("border_start{i}"));
            params.extent(border.extent, wide, format_args!("border_extent{i}"));
            params.index(kept.step(), wide, format_args!("border_step{i}"));
            params.extent(depth.dim, wide, format_args!("border_bits{i}"));
            params.index(depth.step(), wide, format_args!("border_bit_step{i}"));
        }
    }

    /// What the text depends on.
    pub fn key(&self) -> Vec<u8> {
        [self.tensor as u8].into_iter().chain(self.axes.iter().flatten().map(|&axis| axis as u8)).collect()
    }

    /// Statements that set `word` to the bits that are needed at the indices `at{i}` of the axes along k.
    pub fn needed(&self, word: &str, at: &str) -> String {
        let mut text = format!("  {word} = 0;\n  uint bit = 0;\n");
        for (i, [_, axis]) in self.axes.iter().enumerate() {
            let _ = writeln!(text, "  {word} |= 1u << (bit + uint({at}{axis}));\n  bit += uint(p.border_bits{i});");
        }
        text
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
