//! Reduces a program's iteration space to as few axes as its views need.

use smallvec::SmallVec;

use super::{Attribute, Axes, Program, Source, dense_strides, op::Typing};
use crate::error::{Error, Result};

/// How a kernel finds an element of a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pattern {
    /// At the linear index of the iteration space.
    Linear,
    /// At one place.
    Single,
    /// At `offset + Σ index·stride`.
    Strided,
}

/// What is read or written over the collapsed iteration space, and how its place is found.
#[derive(Clone, Debug)]
pub struct View {
    pub pattern: Pattern,
    pub offset: i64,
    pub strides: Axes<i64>,
    /// The input that is read; `None` where the place itself is the value, as in `iota`, and for the output.
    pub input: Option<usize>,
}

/// The collapsed iteration space: kept axes first, then the reduced ones.
#[derive(Clone, Debug)]
pub struct Layout {
    pub dims: Axes<u64>,
    /// How many of `dims` are kept; all of them without a reduction.
    pub kept: usize,
    /// One for each input that is a view, in order, then those of `iota` and `eye` nodes in order, then the program's
    /// output if it has one.
    pub views: Vec<View>,
    /// Whether indices need 64 bits.
    pub wide: bool,
    /// For each input the elements that its buffer must have, and last those that the output's must: 0 where there is no such
    /// buffer.
    pub reaches: SmallVec<[u64; 4]>,
}

impl Layout {
    /// Of a checked program. Fails where a view begins before its buffer or ends beyond any.
    pub fn new(program: &Program) -> Result<Self> {
        let shape = &program.shape;
        let mut views = Vec::with_capacity(program.inputs.len() + 1);
        let mut largest = program.elements();
        // What an index of `gather` or a start chooses from is an axis more, of which every place might be taken.
        let mut reaches: SmallVec<[u64; 4]> = SmallVec::from_elem(0, program.inputs.len() + 1);
        let mut view = |input: Option<usize>, offset, strides: &Axes<i64>, chosen: &[(u64, i64)]| -> Result<View> {
            let steps = shape.iter().copied().zip(strides.iter().copied()).chain(chosen.iter().copied());
            let reach = reach(offset, steps)?;
            let most = &mut reaches[input.unwrap_or(program.inputs.len())];
            *most = reach.max(*most);
            largest = largest.max(reach.saturating_sub(1));
            Ok(View { pattern: Pattern::Strided, offset, strides: Axes::from_slice(strides), input })
        };
        for (index, input) in program.inputs.iter().enumerate() {
            if let Source::View { offset, strides } = &input.source {
                for chosen in program.steps(index) {
                    view(Some(index), *offset, strides, chosen)?;
                }
                views.push(view(Some(index), *offset, strides, &[])?);
            }
        }
        let output = match &program.output {
            Some(place) => {
                let chosen: SmallVec<[_; 4]> = place.starts.iter().map(|start| (start.extent, start.step)).collect();
                Some(view(None, place.offset, &place.strides, &chosen)?)
            }
            None => None,
        };
        for node in &program.nodes {
            let rank = shape.len();
            let unit = |axis: usize| (0..rank).map(|a| i64::from(a == axis)).collect::<Axes<i64>>();
            let mut push = |strides| {
                views.push(View { pattern: Pattern::Strided, offset: 0, strides, input: None });
            };
            match (node.op.typing, &node.attribute) {
                (Typing::Iota, Attribute::Axis(Some(axis))) => push(unit(*axis)),
                (Typing::Iota, _) => push(dense_strides(shape)),
                (Typing::Eye, _) => {
                    push(unit(rank - 2));
                    push(unit(rank - 1));
                }
                _ => {}
            }
        }
        views.extend(output);
        let reduced = program.reduced_axes();
        let mut layout = Self { dims: Axes::new(), kept: 0, views, wide: largest >= 1 << 31, reaches };
        layout.collapse(shape, reduced.as_deref().unwrap_or_default());
        layout.classify(reduced.is_some());
        // A start moves the place itself, whatever the strides are.
        if let Some(view) = layout.views.last_mut().filter(|_| !program.starts().is_empty()) {
            view.pattern = Pattern::Strided;
        }
        Ok(layout)
    }

    /// Elements of the result.
    pub fn outputs(&self) -> u64 {
        self.dims[..self.kept].iter().product()
    }

    /// Elements that go into each element of the result.
    pub fn reduced(&self) -> u64 {
        self.dims[self.kept..].iter().product()
    }

    /// Drops axes of one element and merges neighbours that every view steps through as if they were one.
    fn collapse(&mut self, shape: &[u64], reduced: &[usize]) {
        // For each axis that is left the last of those that it is made of: its strides are that one's.
        let mut lasts: Axes<usize> = Axes::new();
        for group in [false, true] {
            let start = lasts.len();
            for axis in (0..shape.len()).filter(|axis| reduced.contains(axis) == group && shape[*axis] != 1) {
                let mut before = lasts[start..].last_mut().zip(self.dims.last_mut());
                let follows = |last: usize, view: &View| view.strides[last] == view.strides[axis] * shape[axis] as i64;
                match &mut before {
                    Some((last, dim)) if self.views.iter().all(|view| follows(**last, view)) => {
                        (**last, **dim) = (axis, **dim * shape[axis]);
                    }
                    _ => {
                        lasts.push(axis);
                        self.dims.push(shape[axis]);
                    }
                }
            }
            if !group {
                self.kept = lasts.len();
            }
        }
        for view in &mut self.views {
            view.strides = lasts.iter().map(|&last| view.strides[last]).collect();
        }
    }

    fn classify(&mut self, reduces: bool) {
        let dense = dense_strides(&self.dims);
        for view in &mut self.views {
            view.pattern = if view.strides.iter().all(|&stride| stride == 0) {
                Pattern::Single
            } else if !reduces && view.strides == dense && view.offset >= 0 {
                Pattern::Linear
            } else {
                Pattern::Strided
            };
        }
    }
}

/// Fails where a view would leave its buffer of `len` elements. `axes` are extents with their strides.
pub fn check_bounds(offset: i64, axes: impl Iterator<Item = (u64, i64)>, len: u64) -> Result<()> {
    if reach(offset, axes)? > len { Err(Error::SizeMismatch) } else { Ok(()) }
}

/// How many elements a buffer must have for a view; fails where it begins before the buffer, or ends beyond any.
fn reach(offset: i64, axes: impl Iterator<Item = (u64, i64)>) -> Result<u64> {
    let (mut first, mut last) = (offset as i128, offset as i128);
    for (dim, stride) in axes {
        if dim == 0 {
            return Ok(0);
        }
        let step = stride as i128 * (dim as i128 - 1);
        if step < 0 { first += step } else { last += step }
    }
    if first < 0 {
        return Err(Error::SizeMismatch);
    }
    u64::try_from(last + 1).map_err(|_| Error::SizeMismatch)
}
