//! How kernels find the elements that a padded operand lacks: GLSL that compares words of bits.
//!
//! Whether an element exists is found without its coordinates. Each index along k that a coordinate depends on, the
//! window's, has a bit in a word for all coordinates. A row's or column's word has the bits for which it is
//! out of bounds, a step's along k the bits that it needs. Where both have a bit in common the element is zero.

use std::fmt::Write as _;

use smallvec::SmallVec;

use super::indexing::Indexing;
use crate::graph::Params;
use crate::tuning::contraction::{AxisGroups, Padding};

/// What the emitted text depends on.
#[derive(Clone, Hash)]
pub struct PaddingIndexing {
    /// 'a' or 'b'.
    pub operand: char,
    group: &'static str,
    /// For each padded axis, by their indices in their groups: the kept axis and the one along k.
    axes: SmallVec<[[usize; 2]; 4]>,
}

impl PaddingIndexing {
    pub fn of(padding: &Padding) -> Self {
        Self { operand: padding.operand, group: padding.group(), axes: SmallVec::from_slice(&padding.axes) }
    }

    /// Statements that set `word` to the bits that are needed at the indices `at{i}` of the axes along k.
    pub fn needed_bits(&self, word: &str, at: &str) -> String {
        let mut text = format!("  {word} = 0;\n  uint bit = 0;\n");
        // Beyond the sum's end an index may be too large, and is not used.
        for (i, [_, axis]) in self.axes.iter().enumerate() {
            let _ =
                writeln!(text, "  {word} |= 1u << ((bit + uint({at}{axis})) & 31u);\n  bit += uint(p.padded_bits{i});");
        }
        text
    }

    /// The function `depth_word`, the bits that an index along k needs.
    pub fn depth_word(&self, indexing: &Indexing) -> String {
        let (indices, needed) = (indexing.indices("k"), self.needed_bits("word", "at"));
        format!("uint depth_word(IDX i) {{\n{indices}  uint word;\n{needed}  return word;\n}}")
    }

    /// The function `line_word`, the bits for which a row or column is out of bounds.
    pub fn line_word(&self, indexing: &Indexing) -> String {
        let mut text = format!("uint line_word(IDX i) {{\n{}  uint word = 0, bit = 0;\n", indexing.indices(self.group));
        for (i, [axis, _]) in self.axes.iter().enumerate() {
            let _ = writeln!(
                text,
                "  IDX coordinate{i} = p.padded_start{i} + at{axis} * p.padded_step{i};\n\
                 \x20 for (IDX e = 0; e < p.padded_bits{i}; e++, bit++, coordinate{i} += p.padded_bit_step{i}) {{\n\
                 \x20   if (coordinate{i} >= p.padded_extent{i}) word |= 1u << bit;\n  }}"
            );
        }
        text + "  return word;\n}\n#define LINE_WORD(i) line_word(i)\n"
    }
}

/// The starts, extents and steps that the text names.
pub fn params(padding: &Padding, groups: &AxisGroups, params: &mut Params, index64: bool) {
    for (i, (padded, [kept, depth])) in padding.pairs(groups).enumerate() {
        params.index(padded.start, index64, ("padded_start", i));
        params.extent(padded.extent, index64, ("padded_extent", i));
        params.index(kept.padded_step(), index64, ("padded_step", i));
        params.extent(depth.dim, index64, ("padded_bits", i));
        params.index(depth.padded_step(), index64, ("padded_bit_step", i));
    }
}
