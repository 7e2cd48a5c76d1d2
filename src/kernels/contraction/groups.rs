//! The axes of a contraction as those of a batch of matrix products, and the places of their elements.

use std::fmt::Write as _;

use super::{Axis, Contraction};
use crate::program::emit::Params;

/// The axes by their parts, as few as step alike. Axes of the result go from its outermost to its innermost.
pub struct Groups {
    pub batch: Vec<Axis>,
    pub m: Vec<Axis>,
    pub n: Vec<Axis>,
    pub k: Vec<Axis>,
}

impl Groups {
    pub fn of(contraction: &Contraction) -> Self {
        let by_result = |axes: &[Axis]| {
            let mut axes = axes.to_vec();
            axes.sort_by_key(|axis| std::cmp::Reverse(axis.c));
            collapse(&axes)
        };
        Self {
            batch: by_result(&contraction.batch),
            m: by_result(&contraction.rows),
            n: by_result(&contraction.columns),
            k: collapse(&contraction.depth),
        }
    }

    pub fn sizes(&self) -> [u64; 4] {
        [&self.batch, &self.m, &self.n, &self.k].map(|axes| axes.iter().map(|axis| axis.dim).product())
    }

    /// Each group with its name and the tensors that it is a part of.
    pub fn named(&self) -> [(&'static str, &'static str, &[Axis]); 4] {
        [("batch", "abc", &self.batch), ("m", "ac", &self.m), ("n", "bc", &self.n), ("k", "ab", &self.k)]
    }

    pub fn params(&self, params: &mut Params, wide: bool) {
        for (name, tensors, axes) in self.named() {
            for (i, axis) in axes.iter().enumerate() {
                if i > 0 {
                    params.extent(axis.dim, wide, format_args!("{name}_dim{i}"));
                }
                for tensor in tensors.chars() {
                    params.index(axis.stride(tensor), wide, format_args!("{tensor}_{name}{i}"));
                }
            }
        }
    }

    fn rank(&self, group: &str) -> usize {
        self.named().iter().find(|(name, ..)| *name == group).map_or(0, |(_, _, axes)| axes.len())
    }

    /// The number of axes of each group.
    pub fn ranks(&self) -> [u8; 4] {
        self.named().map(|(_, _, axes)| axes.len() as u8)
    }

    /// Where the index of a group is in a tensor, as GLSL.
    pub fn place(&self, tensor: char, group: &str, index: &str) -> String {
        match self.rank(group) {
            0 => "IDX(0)".into(),
            1 => format!("({index}) * p.{tensor}_{group}0"),
            _ => format!("place_{tensor}_{group}({index})"),
        }
    }

    /// The functions that find the places of groups of several axes.
    pub fn places(&self) -> String {
        let mut text = String::new();
        for (name, tensors, axes) in self.named() {
            if axes.len() < 2 {
                continue;
            }
            for tensor in tensors.chars() {
                let _ = writeln!(text, "IDX place_{tensor}_{name}(IDX i) {{\n  IDX place = 0;");
                for axis in (1..axes.len()).rev() {
                    let _ = writeln!(
                        text,
                        "  IDX rest{axis} = QUOTIENT(i, p.{name}_dim{axis});\n\
                         \x20 place += (i - rest{axis} * p.{name}_dim{axis}) * p.{tensor}_{name}{axis}; i = rest{axis};"
                    );
                }
                let _ = writeln!(text, "  return place + i * p.{tensor}_{name}0;\n}}");
            }
        }
        text
    }

    /// Whether runs of `run` elements of a tensor along `group` are neighbours in memory and begin at multiples of `run`.
    pub fn runs(&self, tensor: char, group: &str, run: u64) -> bool {
        self.named().iter().filter(|(_, tensors, _)| tensors.contains(tensor)).all(|(name, _, axes)| {
            // The innermost axes that are one axis of neighbours in this tensor.
            let mut neighbours = 1;
            let inner = |axis: &&Axis| {
                let next = axis.stride(tensor) == neighbours as i64;
                neighbours *= if next { axis.dim } else { 1 };
                next
            };
            let inner = if *name == group { axes.iter().rev().take_while(inner).count() } else { 0 };
            let whole = *name != group || (inner > 0 && neighbours % run == 0);
            whole && axes[..axes.len() - inner].iter().all(|axis| axis.stride(tensor) % run as i64 == 0)
        })
    }

    /// Whether elements of a tensor lie closer along `first` than along `second`.
    pub fn closer(&self, tensor: char, first: &str, second: &str) -> bool {
        let step = |group: &str| {
            let named = self.named();
            let axes = named.iter().find(|(name, ..)| *name == group).map_or(&[] as &[Axis], |(_, _, axes)| axes);
            axes.last().map_or(0, |axis| axis.stride(tensor).abs())
        };
        step(first) <= step(second)
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
}

/// Drops axes of one element and merges neighbours that step through all tensors as if they were one.
fn collapse(axes: &[Axis]) -> Vec<Axis> {
    let mut merged: Vec<Axis> = vec![];
    for axis in axes.iter().filter(|axis| axis.dim != 1) {
        let steps = |outer: &Axis| {
            "abc".chars().all(|tensor| outer.stride(tensor) == axis.stride(tensor).wrapping_mul(axis.dim as i64))
        };
        match merged.last_mut().filter(|outer| steps(outer)) {
            Some(outer) => *outer = Axis { dim: outer.dim * axis.dim, ..*axis },
            None => merged.push(*axis),
        }
    }
    merged
}
