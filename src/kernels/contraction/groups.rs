//! The axes of a contraction as those of a batch of matrix products, and the places of their elements.

use std::fmt::Write as _;
use std::ops::Range;

use super::border::Borders;
use super::{Axis, Contraction};
use crate::graph::Params;

/// Half of what is read from memory is wanted where elements are so far apart.
const CLOSE: i64 = 2;

/// The axes by their parts, as few as step alike. Axes of the result go from its outermost to its innermost.
pub struct Groups {
    pub batch: Vec<Axis>,
    pub m: Vec<Axis>,
    pub n: Vec<Axis>,
    pub k: Vec<Axis>,
    pub borders: Option<Borders>,
}

impl Groups {
    pub fn of(contraction: &Contraction) -> Self {
        let by_result = |axes: &[Axis]| {
            let mut axes = axes.to_vec();
            axes.sort_by_key(|axis| std::cmp::Reverse(axis.c));
            collapse(&axes)
        };
        let (m, n, k) = (by_result(&contraction.rows), by_result(&contraction.columns), collapse(&contraction.depth));
        let borders = Borders::of(&contraction.borders, &m, &n, &k);
        Self { batch: by_result(&contraction.batch), m, n, k, borders }
    }

    pub fn sizes(&self) -> [u64; 4] {
        [&self.batch, &self.m, &self.n, &self.k].map(|axes| axes.iter().map(|axis| axis.dim).product())
    }

    /// Elements of the result.
    pub fn elements(&self) -> u64 {
        let [batch, m, n, _] = self.sizes();
        batch * m * n
    }

    /// Each group with its name and the tensors that it is a part of.
    pub fn named(&self) -> [(&'static str, &'static str, &[Axis]); 4] {
        [("batch", "abc", &self.batch), ("m", "ac", &self.m), ("n", "bc", &self.n), ("k", "ab", &self.k)]
    }

    pub fn params(&self, params: &mut Params, wide: bool) {
        let prefix = |tensor| match tensor {
            'a' => "a_",
            'b' => "b_",
            _ => "c_",
        };
        for (name, tensors, axes) in self.named() {
            for (i, axis) in axes.iter().enumerate() {
                if i > 0 {
                    params.extent(axis.dim, wide, (name, "_dim", i));
                }
                for tensor in tensors.chars() {
                    params.index(axis.stride(tensor), wide, (prefix(tensor), name, i));
                }
            }
        }
        if let Some(borders) = &self.borders {
            borders.params(self, params, wide);
        }
    }

    pub fn axes(&self, group: &str) -> &[Axis] {
        self.named().into_iter().find(|(name, ..)| *name == group).map_or(&[], |(_, _, axes)| axes)
    }

    /// The axes of a group by their indices, those together that a tensor steps through as if they were one: another
    /// tensor may not.
    fn spans(&self, tensor: char, group: &str) -> Vec<Range<usize>> {
        let axes = self.axes(group);
        let mut spans: Vec<Range<usize>> = vec![];
        for (i, axis) in axes.iter().enumerate() {
            match spans.last_mut().filter(|_| axes[i - 1].is_one_with(axis, tensor)) {
                Some(span) => span.end = i + 1,
                None => spans.push(i..i + 1),
            }
        }
        spans
    }

    /// What the text of the places depends on: of each group the number of axes, and of each axis but the first the
    /// tensors for which it is one with the axis before; then the borders.
    pub fn pattern(&self) -> Vec<u8> {
        let one = |pair: &[Axis], tensor| u8::from(pair[0].is_one_with(&pair[1], tensor));
        let ones = |pair: &[Axis]| "abc".chars().fold(0, |bits, tensor| bits << 1 | one(pair, tensor));
        let group =
            |axes: &[Axis]| [&[axes.len() as u8], axes.windows(2).map(ones).collect::<Vec<_>>().as_slice()].concat();
        let borders = self.borders.iter().flat_map(|borders| borders.key());
        self.named().into_iter().flat_map(|(_, _, axes)| group(axes)).chain(borders).collect()
    }

    /// Whether `depth` elements along k from a multiple of it on differ in the index of the innermost axis alone, which no
    /// border cuts.
    pub fn steps(&self, depth: u32) -> bool {
        let inner = self.k.last().filter(|axis| axis.dim.is_multiple_of(depth.into()) && axis.border.is_none());
        self.k.len() > 1 && inner.is_some()
    }

    /// Whether places in both operands are proportional to the index along k, and grow with every other.
    pub fn are_steady(&self) -> bool {
        let grows = |axis: &Axis| axis.a >= 0 && axis.b >= 0;
        let axes = self.named();
        self.borders.is_none() && self.k.len() == 1 && axes.iter().all(|(_, _, axes)| axes.iter().all(grows))
    }

    /// Statements that find the indices `at0`, `at1`, … of a group's axes from the index `i`.
    pub fn indices(&self, group: &str) -> String {
        let mut text = String::new();
        for axis in (1..self.axes(group).len()).rev() {
            let _ = writeln!(
                text,
                "  IDX rest{axis} = QUOTIENT(i, p.{group}_dim{axis}), at{axis} = i - rest{axis} * p.{group}_dim{axis}; i = rest{axis};"
            );
        }
        text + "  IDX at0 = i;\n"
    }

    /// Whether the place of an index of a group takes divisions to find in a tensor.
    pub fn divides(&self, tensor: char, group: &str) -> bool {
        self.spans(tensor, group).len() > 1
    }

    /// Where the index of a group is in a tensor, as GLSL.
    pub fn place(&self, tensor: char, group: &str, index: &str) -> String {
        match self.spans(tensor, group).as_slice() {
            [] => "IDX(0)".into(),
            [span] => format!("({index}) * p.{tensor}_{group}{}", span.end - 1),
            _ => format!("place_{tensor}_{group}({index})"),
        }
    }

    /// The functions that find the places whose finding takes divisions.
    pub fn places(&self) -> String {
        let mut text = String::new();
        for (name, tensors, _) in self.named() {
            for tensor in tensors.chars().filter(|&tensor| self.divides(tensor, name)) {
                let spans = self.spans(tensor, name);
                let _ = writeln!(text, "IDX place_{tensor}_{name}(IDX i) {{\n  IDX place = 0;");
                for span in spans[1..].iter().rev() {
                    let dims: Vec<_> = span.clone().map(|axis| format!("p.{name}_dim{axis}")).collect();
                    let (dim, axis) = (dims.join(" * "), span.end - 1);
                    let _ = writeln!(
                        text,
                        "  IDX dim{axis} = {dim}, rest{axis} = QUOTIENT(i, dim{axis});\n\
                         \x20 place += (i - rest{axis} * dim{axis}) * p.{tensor}_{name}{axis}; i = rest{axis};"
                    );
                }
                let _ = writeln!(text, "  return place + i * p.{tensor}_{name}{};\n}}", spans[0].end - 1);
            }
        }
        text
    }

    /// Whether runs of `run` elements of a tensor along `group` are neighbours in memory and begin at multiples of `run`.
    pub fn runs(&self, tensor: char, group: &str, run: u64) -> bool {
        let cut = self.borders.as_ref().is_some_and(|borders| borders.tensor == tensor);
        self.named().iter().filter(|(_, tensors, _)| tensors.contains(tensor)).all(|(name, _, axes)| {
            // The innermost axes that are one axis of neighbours in this tensor.
            let mut neighbours = 1;
            let inner = |axis: &&Axis| {
                let next = axis.stride(tensor) == neighbours as i64 && !(cut && axis.border.is_some());
                neighbours *= if next { axis.dim } else { 1 };
                next
            };
            let inner = if *name == group { axes.iter().rev().take_while(inner).count() } else { 0 };
            let whole = *name != group || (inner > 0 && neighbours % run == 0);
            whole && axes[..axes.len() - inner].iter().all(|axis| axis.stride(tensor) % run as i64 == 0)
        })
    }

    /// Whether the elements of an operand should be loaded along k: where they lie closer than along its lines, which is
    /// worth little if they are no whole fours and those along the lines lie close as well.
    pub fn along_k(&self, tensor: char) -> bool {
        let lines = if tensor == 'a' { "m" } else { "n" };
        let closer = if tensor == 'a' { self.closer('a', "k", lines) } else { !self.closer('b', lines, "k") };
        closer && (self.step(tensor, lines) > CLOSE || self.runs(tensor, "k", 4))
    }

    /// Whether elements of a tensor lie closer along `first` than along `second`.
    pub fn closer(&self, tensor: char, first: &str, second: &str) -> bool {
        self.step(tensor, first) <= self.step(tensor, second)
    }

    /// How far neighbours along a group are apart in a tensor.
    fn step(&self, tensor: char, group: &str) -> i64 {
        self.axes(group).last().map_or(0, |axis| axis.stride(tensor).abs())
    }
}

impl Axis {
    pub fn stride(&self, tensor: char) -> i64 {
        match tensor {
            'a' => self.a,
            'b' => self.b,
            _ => self.c,
        }
    }

    pub fn stride_mut(&mut self, tensor: char) -> &mut i64 {
        match tensor {
            'a' => &mut self.a,
            'b' => &mut self.b,
            _ => &mut self.c,
        }
    }

    /// By how much it steps along its border's coordinate.
    pub fn step(&self) -> i64 {
        self.border.map_or(0, |(_, step)| step)
    }

    /// Whether a tensor steps through this axis and `inner`, the next one, as if they were one.
    fn is_one_with(&self, inner: &Axis, tensor: char) -> bool {
        self.stride(tensor) == inner.stride(tensor).wrapping_mul(inner.dim as i64)
    }
}

/// Drops axes of one element and merges neighbours that step through all tensors as if they were one, but for those that
/// meet a border.
fn collapse(axes: &[Axis]) -> Vec<Axis> {
    let mut merged: Vec<Axis> = vec![];
    for axis in axes.iter().filter(|axis| axis.dim != 1 || axis.border.is_some()) {
        let free = |axis: &Axis| axis.border.is_none();
        let steps =
            |outer: &Axis| "abc".chars().all(|tensor| outer.is_one_with(axis, tensor)) && free(outer) && free(axis);
        match merged.last_mut().filter(|outer| steps(outer)) {
            Some(outer) => *outer = Axis { dim: outer.dim * axis.dim, ..*axis },
            None => merged.push(*axis),
        }
    }
    merged
}
