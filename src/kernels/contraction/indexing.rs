//! How kernels find elements: GLSL that leads from the index within a group of axes to the element's offset in a tensor.
//! Extents and strides are parameters; the text depends on the number of axes and on which of them a tensor steps through as one.

use std::fmt::Write as _;
use std::ops::Range;

use smallvec::SmallVec;

use super::padding::PaddingIndexing;
use crate::graph::Params;
use crate::tuning::contraction::{Axis, AxisGroups};

/// For each axis of a group, whether it merges with the axis before it in a, in b and in the result.
type GroupIndexing = SmallVec<[[bool; 3]; 4]>;

/// What the emitted text depends on.
#[derive(Clone, Hash)]
pub struct Indexing {
    batch: GroupIndexing,
    m: GroupIndexing,
    n: GroupIndexing,
    k: GroupIndexing,
    pub padding: Option<PaddingIndexing>,
}

/// The groups' names and the tensors that they are a part of.
const AXIS_GROUPS: [(&str, &str); 4] = [("batch", "abc"), ("m", "ac"), ("n", "bc"), ("k", "ab")];

impl Indexing {
    pub fn of(groups: &AxisGroups) -> Self {
        let indexing = |axes: &[Axis]| {
            let merges = |i: usize, tensor| i > 0 && axes[i - 1].merges_with(&axes[i], tensor);
            (0..axes.len()).map(|i| ['a', 'b', 'c'].map(|tensor| merges(i, tensor))).collect()
        };
        let AxisGroups { batch, m, n, k, padding } = groups;
        let [batch, m, n, k] = [batch, m, n, k].map(|axes| indexing(axes));
        Self { batch, m, n, k, padding: padding.as_ref().map(PaddingIndexing::of) }
    }

    fn group(&self, name: &str) -> &GroupIndexing {
        match name {
            "batch" => &self.batch,
            "m" => &self.m,
            "n" => &self.n,
            _ => &self.k,
        }
    }

    /// The number of axes of k.
    pub fn depth_axes(&self) -> usize {
        self.k.len()
    }

    /// The axes of a group by their indices, in runs that merge to one axis in a tensor.
    fn spans(&self, tensor: char, group: &str) -> Vec<Range<usize>> {
        let merged = match tensor {
            'a' => 0,
            'b' => 1,
            _ => 2,
        };
        let mut spans: Vec<Range<usize>> = vec![];
        for (i, merges) in self.group(group).iter().enumerate() {
            match spans.last_mut().filter(|_| merges[merged]) {
                Some(span) => span.end = i + 1,
                None => spans.push(i..i + 1),
            }
        }
        spans
    }

    /// Statements that find the indices `at0`, `at1`, … of a group's axes from the index `i`.
    pub fn indices(&self, group: &str) -> String {
        let mut text = String::new();
        for axis in (1..self.group(group).len()).rev() {
            let dim = format!("p.{group}_dim{axis}");
            let _ = writeln!(
                text,
                "  IDX rest{axis} = DIVIDED(i, {dim}, p.{group}_magic{axis}), at{axis} = i - rest{axis} * {dim}; i = rest{axis};"
            );
        }
        text + "  IDX at0 = i;\n"
    }

    /// Whether finding the offset of an index of a group in a tensor takes divisions.
    pub fn divides(&self, tensor: char, group: &str) -> bool {
        self.spans(tensor, group).len() > 1
    }

    /// The offset of the index of a group in a tensor, as GLSL.
    pub fn offset(&self, tensor: char, group: &str, index: &str) -> String {
        match self.spans(tensor, group).as_slice() {
            [] => "IDX(0)".into(),
            [span] => format!("({index}) * p.{tensor}_{group}{}", span.end - 1),
            _ => format!("offset_{tensor}_{group}({index})"),
        }
    }

    /// The functions that find the offsets whose finding takes divisions.
    pub fn offset_functions(&self) -> String {
        let mut text = String::new();
        for (name, tensors) in AXIS_GROUPS {
            for tensor in tensors.chars().filter(|&tensor| self.divides(tensor, name)) {
                let spans = self.spans(tensor, name);
                let _ = writeln!(text, "IDX offset_{tensor}_{name}(IDX i) {{\n  IDX offset = 0;");
                for span in spans[1..].iter().rev() {
                    let dims: Vec<_> = span.clone().map(|axis| format!("p.{name}_dim{axis}")).collect();
                    let (dim, axis) = (dims.join(" * "), span.end - 1);
                    let quotient = match span.len() {
                        1 => format!("DIVIDED(i, {dim}, p.{name}_magic{axis})"),
                        _ => format!("QUOTIENT(i, dim{axis})"),
                    };
                    let _ = writeln!(
                        text,
                        "  IDX dim{axis} = {dim}, rest{axis} = {quotient};\n\
                         \x20 offset += (i - rest{axis} * dim{axis}) * p.{tensor}_{name}{axis}; i = rest{axis};"
                    );
                }
                let _ = writeln!(text, "  return offset + i * p.{tensor}_{name}{};\n}}", spans[0].end - 1);
            }
        }
        text
    }
}

/// The extents and strides that the text names.
pub fn params(groups: &AxisGroups, params: &mut Params, index64: bool) {
    let prefix = |tensor| match tensor {
        'a' => "a_",
        'b' => "b_",
        _ => "c_",
    };
    for (name, tensors, axes) in groups.named() {
        for (i, axis) in axes.iter().enumerate() {
            if i > 0 {
                params.divisor(axis.dim, index64, (name, "_dim", i), (name, "_magic", i));
            }
            for tensor in tensors.chars() {
                params.index(axis.stride(tensor), index64, (prefix(tensor), name, i));
            }
        }
    }
    if let Some(padding) = &groups.padding {
        super::padding::params(padding, groups, params, index64);
    }
}
