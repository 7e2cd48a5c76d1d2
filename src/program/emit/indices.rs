//! Where views are read and written: `index{v}` is the index of view `v` in its buffer, `at{axis}` the one along an axis.

use std::fmt::Write as _;
use std::ops::Range;

use super::values::immediate;
use super::{Emitter, Pattern, Type, element, vec4_of};
use crate::program::types::Compute;
use crate::program::{Input, Source};

impl Emitter<'_> {
    /// The output's view, where its indices have to be computed.
    pub(super) fn strided_output(&self) -> Option<usize> {
        let v = self.layout.views.len().checked_sub(1).filter(|_| self.program.output.is_some())?;
        (self.layout.views[v].pattern == Pattern::Strided).then_some(v)
    }

    /// The views whose indices the element computes.
    pub(super) fn strided(&self) -> Vec<usize> {
        let is_given = |v: usize| self.layout.views[v].input.is_some_and(|input| self.is_given(input));
        let given = self.with_coordinates((0..self.layout.views.len()).filter(|&v| is_given(v)));
        let strided = |&v: &usize| self.layout.views[v].pattern == Pattern::Strided && !given.contains(&v);
        (0..self.layout.views.len()).filter(strided).collect()
    }

    /// The views, each followed by those of its coordinates.
    pub(super) fn with_coordinates(&self, views: impl Iterator<Item = usize>) -> Vec<usize> {
        let coordinates = |v| self.layout.coordinates(v).iter().map(|&(coordinate, _)| coordinate);
        views.flat_map(|v| [v].into_iter().chain(coordinates(v))).collect()
    }

    /// Whether the element of a view exists at the indices that are declared; empty where all exist.
    pub(super) fn exists(&self, view: usize) -> String {
        let coordinates = self.layout.coordinates(view).iter();
        coordinates.map(|(v, _)| format!("index{v} < p.bound{v}")).collect::<Vec<_>>().join(" && ")
    }

    /// A load of a view's stored element, or of four, that reads what stands for it where it does not exist.
    pub(super) fn or_padding(&self, view: usize, exists: &str, load: String, is_vector: bool) -> String {
        let input = self.layout.views[view].input.map(|input| &self.program.inputs[input]);
        let Some(Input { ty, source: Source::Padded(padded) }) = input else { return load };
        if exists.is_empty() {
            return load;
        }
        let words: Vec<String> = (0..4).map(|word| format!("{}u", (padded.value >> (32 * word)) as u32)).collect();
        let bits = match ty.compute() {
            Compute::ComplexDouble => format!("uvec4({})", words.join(", ")),
            _ => format!("uvec2({})", words[..2].join(", ")),
        };
        let value = match ty.compute() {
            Compute::Int64 if !ty.compute().is_emulated() => format!("int64_t({})", immediate(*ty, &bits)),
            _ => immediate(*ty, &bits),
        };
        let value = if is_vector { format!("{}({})", vec4_of(ty.storage()), [&*value; 4].join(", ")) } else { value };
        format!("({exists} ? {load} : {value})")
    }

    /// Declares the indices of strided views, that of the output moved by its dynamic offsets.
    pub(super) fn declare_indices(&self, text: &mut String) {
        for v in self.strided() {
            let _ = writeln!(text, "  IDX index{v} = p.offset{v};");
        }
        for (s, start) in self.program.dynamic_offsets().iter().enumerate() {
            let v = self.layout.views.len() - 1;
            let (value, _) = element(self.program.inputs[start.value].ty, &format!("input{}", start.value), "IDX(0)");
            let _ = writeln!(text, "  index{v} += clamp_index({value}, p.extent{s}) * p.step{s};");
        }
    }

    /// Adds to the indices of `views` what the collapsed axes contribute for the linear index `linear`.
    pub(super) fn add_axes(&self, text: &mut String, linear: &str, axes: Range<usize>, views: &[usize]) {
        if views.is_empty() || axes.is_empty() {
            return;
        }
        let _ = writeln!(text, "  IDX rest_{linear} = {linear};");
        for axis in axes.clone().rev() {
            if axis > axes.start {
                let (dim, quotient) = if self.window && axis >= self.layout.kept {
                    let dim = format!("IDX({})", self.layout.dims[axis]);
                    (dim.clone(), format!("rest_{linear} / {dim}"))
                } else {
                    (format!("p.dim{axis}"), format!("DIVIDED(rest_{linear}, p.dim{axis}, p.magic{axis})"))
                };
                let _ = writeln!(
                    text,
                    "  IDX rest_{linear}_{axis} = {quotient};\n\
                     \x20 IDX at{axis} = rest_{linear} - rest_{linear}_{axis} * {dim}; rest_{linear} = rest_{linear}_{axis};"
                );
            } else {
                let _ = writeln!(text, "  IDX at{axis} = rest_{linear};");
            }
            self.add_axis(text, axis, views);
        }
    }

    /// Adds to the indices of `views` what the axis contributes, whose index is `at{axis}`.
    pub(super) fn add_axis(&self, text: &mut String, axis: usize, views: &[usize]) {
        for &v in views.iter().filter(|&&v| !self.window || self.layout.views[v].strides[axis] != 0) {
            let vector = self.vector_axis == Some(axis);
            let input = self.layout.views[v].input.filter(|&input| vector && self.is_given(input));
            let _ = match input {
                // Neighbours are one element apart or the same one: a CPU's vectors need not be multiplied.
                Some(input) if self.is_broadcast(input) => Ok(()),
                Some(_) => writeln!(text, "  index{v} += at{axis};"),
                None => writeln!(text, "  index{v} += at{axis} * p.stride{v}_{axis};"),
            };
        }
    }

    /// The index at which view `v` is read, as GLSL.
    pub(super) fn index(&self, v: usize) -> String {
        match self.layout.views[v].pattern {
            Pattern::Linear => "i".into(),
            Pattern::Single => "IDX(0)".into(),
            Pattern::Strided => format!("index{v}"),
        }
    }

    pub(super) fn index_type(&self) -> Type {
        if self.layout.index64 { Type::U64 } else { Type::U32 }
    }

    /// Writes what a reduction reduces, at the output `o` and the index `r` along the reduced axes: all nodes but the
    /// reductions.
    pub(super) fn reduced_element(&self, text: &mut String) {
        self.declare_indices(text);
        let strided = self.strided();
        self.add_axes(text, "o", 0..self.layout.kept, &strided);
        self.add_axes(text, "r", self.layout.kept..self.layout.dims.len(), &strided);
        self.nodes(text, self.program.nodes.len() - self.program.reductions().len());
    }
}
