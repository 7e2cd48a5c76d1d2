//! Reduces a program's iteration space to as few axes as its views need.

use smallvec::SmallVec;

use super::{
    Attribute, Axes, MAX_STEP, OutputView, PaddedCoordinate, PaddedView, Program, Source, dense_strides, op::Typing,
};
use crate::error::{Error, Result};

/// How a kernel finds an element of a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pattern {
    /// At the linear index of the iteration space.
    Linear,
    /// At one index.
    Single,
    /// At `offset + Σ index·stride`.
    Strided,
}

/// What is read or written over the collapsed iteration space, and how its index is found.
#[derive(Clone, Debug, Hash)]
pub struct View {
    /// How its index is found.
    pub pattern: Pattern,
    /// Elements from the start of the buffer to the element where all indices are zero.
    pub offset: i64,
    /// Elements from an index to the next, one stride for each axis of the collapsed iteration space.
    pub strides: Axes<i64>,
    /// The input that is read; `None` where the index itself is the value, as in `iota`, and for the output.
    pub input: Option<usize>,
}

/// A padded view, whose element exists where the index of each of its coordinates is below the extent.
#[derive(Clone, Debug, Hash)]
pub struct PaddedIndices {
    /// The position of the view among all.
    pub view: usize,
    /// The views of its coordinates, whose indices are the coordinates, with the extents along them.
    pub coordinates: SmallVec<[(usize, u64); 2]>,
}

impl View {
    /// The part of the offset that is added to the buffer's address: all of it, where no index is computed.
    pub fn address_offset(&self) -> i64 {
        if self.pattern == Pattern::Strided { 0 } else { self.offset }
    }

    /// Whether the element of each index is the buffer's at that index.
    pub fn is_at_index(&self) -> bool {
        self.pattern == Pattern::Linear && self.offset == 0
    }
}

/// The collapsed iteration space: kept axes first, then the reduced ones.
#[derive(Clone, Debug, Hash)]
pub struct Layout {
    /// Extents of the axes, outermost first.
    pub dims: Axes<u64>,
    /// How many of `dims` are kept; all of them without a reduction.
    pub kept: usize,
    /// One for each input that is a view, in order, then those of `iota` and `eye` nodes in order, then the coordinates of padded views,
    /// then the program's output if it has one.
    pub views: Vec<View>,
    /// The views that are padded.
    pub padded: SmallVec<[PaddedIndices; 1]>,
    /// Whether indices need 64 bits.
    pub index64: bool,
    /// The elements that the buffer of each input must have, and last those that each output's must have; 0 where there is no
    /// buffer.
    pub required_lengths: SmallVec<[u64; 4]>,
}

impl Layout {
    /// Of a checked program. Fails where a view begins before its buffer or ends beyond any.
    pub fn new(program: &Program) -> Result<Self> {
        Self::reducing(program, program.reduced_axes())
    }

    /// As [`Layout::new`], where these axes are reduced.
    pub fn reducing(program: &Program, reduced: Option<Axes<usize>>) -> Result<Self> {
        Self::with_outputs(program, reduced, program.output.as_slice())
    }

    /// As [`Layout::reducing`], with these views of what is written. Lengths and views of outputs come last, in their order.
    pub fn with_outputs(program: &Program, reduced: Option<Axes<usize>>, outputs: &[OutputView]) -> Result<Self> {
        let (shape, inputs) = (&program.shape, program.inputs.len());
        let mut views = Vec::with_capacity(inputs + 1);
        let mut largest = program.elements();
        let mut padded_views: SmallVec<[(usize, &PaddedView); 1]> = SmallVec::new();
        // What an index of `gather` or a dynamic offset chooses from is another axis, any index of which may be taken.
        let mut required_lengths: SmallVec<[u64; 4]> = SmallVec::from_elem(0, inputs + outputs.len().max(1));
        let mut view = |position: usize, offset, strides: &Axes<i64>, chosen: &[(u64, i64)]| -> Result<View> {
            let steps = shape.iter().copied().zip(strides.iter().copied()).chain(chosen.iter().copied());
            let length = required_length(offset, steps)?;
            let most = &mut required_lengths[position];
            *most = length.max(*most);
            largest = largest.max(length.saturating_sub(1));
            let input = (position < inputs).then_some(position);
            Ok(View { pattern: Pattern::Strided, offset, strides: Axes::from_slice(strides), input })
        };
        for (index, input) in program.inputs.iter().enumerate() {
            match &input.source {
                Source::View { offset, strides } => {
                    for chosen in program.steps(index) {
                        view(index, *offset, strides, chosen)?;
                    }
                    views.push(view(index, *offset, strides, &[])?);
                }
                Source::Padded(padded) => {
                    padded_views.push((views.len(), padded));
                    let coordinates: SmallVec<[_; 4]> =
                        padded.coordinates.iter().map(|axis| (axis.extent, axis.stride)).collect();
                    let free = view(index, padded.offset, &padded.strides, &coordinates)?;
                    let (offset, strides) = padded.position()?;
                    views.push(View { offset, strides, ..free });
                }
                Source::Scalar | Source::Constant(_) => {}
            }
        }
        let mut written: SmallVec<[View; 2]> = SmallVec::new();
        for (position, output) in outputs.iter().enumerate() {
            let chosen: SmallVec<[_; 4]> =
                output.dynamic_offsets.iter().map(|start| (start.extent, start.step)).collect();
            written.push(view(inputs + position, output.offset, &output.strides, &chosen)?);
        }
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
        let mut padded = SmallVec::new();
        for (view, source) in padded_views {
            let mut coordinates = SmallVec::new();
            for PaddedCoordinate { start, extent, steps, .. } in &source.coordinates {
                largest = largest.max(*extent).max(furthest(*start, shape.iter().copied().zip(steps.iter().copied()))?);
                coordinates.push((views.len(), *extent));
                views.push(View { pattern: Pattern::Strided, offset: *start, strides: steps.clone(), input: None });
            }
            padded.push(PaddedIndices { view, coordinates });
        }
        views.extend(written);
        let index64 = largest >= 1 << 31;
        let mut layout = Self { dims: Axes::new(), kept: 0, views, padded, index64, required_lengths };
        layout.collapse(shape, reduced.as_deref().unwrap_or_default());
        layout.classify(reduced.is_some());
        // Whether an element exists is found by indices, whatever the strides are.
        for padded in &layout.padded {
            let indices = [padded.view].into_iter().chain(padded.coordinates.iter().map(|&(view, _)| view));
            indices.for_each(|view| layout.views[view].pattern = Pattern::Strided);
        }
        // A dynamic offset is added to the index, whatever the strides are.
        if let Some(view) = layout.views.last_mut().filter(|_| !program.dynamic_offsets().is_empty()) {
            view.pattern = Pattern::Strided;
        }
        Ok(layout)
    }

    /// The layout without what are parameters of a kernel: extents, strides and offsets. Of a window the extents are constants, and so are
    /// short strides between neighbours and within it, and along other axes those of zero.
    pub fn without_parameters(&self, window: bool) -> Self {
        let constant = |axis: usize| window && axis >= self.kept;
        let dims = self.dims.iter().enumerate().map(|(axis, &dim)| if constant(axis) { dim } else { 0 });
        let stride = |(axis, &stride): (usize, &i64)| match axis + 1 >= self.kept {
            true => constant_stride(stride).unwrap_or(LONG_STRIDE),
            false if stride == 0 => 0,
            false => LONG_STRIDE,
        };
        let view = |view: &View| {
            let strides = if window { view.strides.iter().enumerate().map(stride).collect() } else { Axes::new() };
            View { offset: 0, strides, ..*view }
        };
        let padded = |padded: &PaddedIndices| PaddedIndices {
            coordinates: padded.coordinates.iter().map(|&(view, _)| (view, 0)).collect(),
            ..*padded
        };
        Self {
            dims: dims.collect(),
            views: self.views.iter().map(view).collect(),
            padded: self.padded.iter().map(padded).collect(),
            required_lengths: SmallVec::new(),
            ..*self
        }
    }

    /// The views of the coordinates of a view, with the extents along them; none where it is not padded.
    pub fn coordinates(&self, view: usize) -> &[(usize, u64)] {
        self.padded.iter().find(|padded| padded.view == view).map_or(&[], |padded| &padded.coordinates)
    }

    /// Bytes from the start of the output's buffer to the address that the kernel gets.
    pub fn result_offset(&self, program: &Program) -> u64 {
        let output = self.views.last().filter(|_| program.output.is_some());
        output.map_or(0, View::address_offset) as u64 * program.result().size()
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
        // The last of the axes that each remaining axis is made of: it has that one's strides.
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

/// Strides that kernels of windows have as constants are at most this: neighbouring outputs share what they load where its position is known.
/// Dilated and strided windows along the innermost axis have them; rows of images would need kernels for each width.
const MAX_CONSTANT_STRIDE: i64 = 8;
/// In place of longer strides in the layout of a kernel.
const LONG_STRIDE: i64 = MAX_CONSTANT_STRIDE + 1;

/// A stride that a kernel of windows has as a constant.
pub fn constant_stride(stride: i64) -> Option<i64> {
    (stride.abs() <= MAX_CONSTANT_STRIDE).then_some(stride)
}

/// The distance from zero of the furthest index. Fails beyond [`MAX_STEP`].
fn furthest(start: i64, axes: impl Iterator<Item = (u64, i64)>) -> Result<u64> {
    let steps: i128 = axes.map(|(dim, step)| step.unsigned_abs() as i128 * dim.saturating_sub(1) as i128).sum();
    let most = start.unsigned_abs() as i128 + steps;
    u64::try_from(most).ok().filter(|&most| most <= MAX_STEP).ok_or(Error::SizeMismatch)
}

/// Whether a stride or an offset is one of whole vectors of `run` elements. Kernels divide the index of an element, which has no sign, for that of its
/// vector: a stride must not be negative.
pub fn is_whole(step: i64, run: u64) -> bool {
    u64::try_from(step).is_ok_and(|step| step.is_multiple_of(run))
}

/// Fails where a view would leave its buffer of `len` elements. `axes` are extents with their strides.
pub fn check_bounds(offset: i64, axes: impl Iterator<Item = (u64, i64)>, len: u64) -> Result<()> {
    if required_length(offset, axes)? > len { Err(Error::SizeMismatch) } else { Ok(()) }
}

/// The elements that a buffer must have for a view. Fails where the view begins before the buffer or ends beyond any.
fn required_length(offset: i64, axes: impl Iterator<Item = (u64, i64)>) -> Result<u64> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::{DynamicOffset, Input, Node, OutputView, Type, op};

    fn view(offset: i64, strides: &[i64]) -> Input {
        Input { ty: Type::F32, source: Source::View { offset, strides: strides.into() } }
    }

    fn program(shape: &[u64], inputs: &[Input]) -> Program {
        Program { inputs: inputs.into(), ..Program::over(shape.into()) }
    }

    fn layout(shape: &[u64], inputs: &[Input]) -> Layout {
        Layout::new(&program(shape, inputs)).unwrap()
    }

    fn node(name: &str, args: &[usize], attribute: Attribute) -> Node {
        Node { op: op::find(name).unwrap(), ty: Type::F32, args: args.into(), attribute }
    }

    fn summed(shape: &[u64], input: Input, axes: &[usize]) -> Layout {
        let mut program = program(shape, &[input]);
        program.nodes.push(node("sum", &[0], Attribute::Axes(axes.into())));
        Layout::new(&program).unwrap()
    }

    fn patterns(layout: &Layout) -> Vec<Pattern> {
        layout.views.iter().map(|view| view.pattern).collect()
    }

    /// The positions that a view takes over dims, the last axis fastest.
    fn positions(dims: &[u64], offset: i64, strides: &[i64]) -> Vec<i64> {
        dims.iter().zip(strides).fold(vec![offset], |before, (&dim, &stride)| {
            before.iter().flat_map(|at| (0..dim as i64).map(move |i| at + i * stride)).collect()
        })
    }

    #[test]
    fn dense_views_collapse_to_one_axis_and_are_linear() {
        let layout = layout(&[2, 3, 4], &[view(0, &[12, 4, 1]), view(7, &[12, 4, 1])]);
        assert_eq!(layout.dims.as_slice(), [24]);
        assert_eq!(patterns(&layout), [Pattern::Linear, Pattern::Linear]);
        assert_eq!((layout.outputs(), layout.reduced()), (24, 1));
    }

    #[test]
    fn axes_of_one_element_fall_out_whatever_their_stride() {
        let layout = layout(&[1, 3, 1], &[view(5, &[-100, 1, 77])]);
        assert_eq!((layout.dims.as_slice(), layout.views[0].pattern), (&[3][..], Pattern::Linear));
        assert_eq!(layout.required_lengths[0], 8);
    }

    #[test]
    fn neighbours_merge_only_where_every_view_steps_as_one() {
        let dense = view(0, &[12, 4, 1]);
        let row = layout(&[2, 3, 4], &[dense.clone(), view(0, &[0, 0, 1])]);
        assert_eq!(row.dims.as_slice(), [6, 4]);
        assert_eq!(patterns(&row), [Pattern::Linear, Pattern::Strided]);
        let transposed = layout(&[2, 3, 4], &[dense, view(0, &[1, 2, 6])]);
        assert_eq!(transposed.dims.as_slice(), [2, 3, 4]);
        assert_eq!(patterns(&transposed), [Pattern::Linear, Pattern::Strided]);
    }

    #[test]
    fn a_view_of_one_element_is_single() {
        let layout = layout(&[2, 3], &[view(4, &[0, 0])]);
        assert_eq!((layout.dims.as_slice(), layout.views[0].pattern), (&[6][..], Pattern::Single));
        assert_eq!(layout.required_lengths[0], 5);
    }

    #[test]
    fn reduced_axes_follow_the_kept_ones() {
        let layout = summed(&[2, 3, 4], view(0, &[12, 4, 1]), &[0, 1]);
        assert_eq!((layout.dims.as_slice(), layout.kept), (&[4, 6][..], 1));
        assert_eq!(layout.views[0].strides.as_slice(), [1, 4]);
        assert_eq!((layout.outputs(), layout.reduced()), (4, 6));
        // The linear index of the kept axes alone is no place in the input.
        assert_eq!(layout.views[0].pattern, Pattern::Strided);
        let middle = summed(&[2, 3, 4], view(0, &[12, 4, 1]), &[1]);
        assert_eq!((middle.dims.as_slice(), middle.kept), (&[2, 4, 3][..], 2));
    }

    #[test]
    fn collapsing_keeps_each_views_positions_and_their_order() {
        let mut random = 1u64;
        let mut below = |n: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % n
        };
        for _ in 0..500 {
            let shape: Axes<u64> = (0..below(6)).map(|_| 1 + below(3)).collect();
            let mut dense = dense_strides(&shape);
            let dense_axes = dense.clone();
            for stride in &mut dense {
                *stride *= [1, 1, 1, 0, -1][below(5) as usize];
            }
            let offset = 1000 + below(5) as i64;
            let axes: Axes<usize> = (0..shape.len()).filter(|_| below(3) == 0).collect();
            let mut program = program(&shape, &[view(offset, &dense), view(0, &dense_axes)]);
            program.nodes.push(node("add", &[0, 1], Attribute::None));
            if !axes.is_empty() {
                program.nodes.push(node("sum", &[2], Attribute::Axes(axes.clone())));
            }
            let layout = Layout::new(&program).unwrap();
            let order: Vec<usize> =
                (0..shape.len()).filter(|axis| !axes.contains(axis)).chain(axes.iter().copied()).collect();
            let dims: Vec<u64> = order.iter().map(|&axis| shape[axis]).collect();
            for (got, (offset, strides)) in layout.views.iter().zip([(offset, &dense), (0, &dense_axes)]) {
                let strides: Vec<i64> = order.iter().map(|&axis| strides[axis]).collect();
                let wanted = positions(&dims, offset, &strides);
                assert_eq!(positions(&layout.dims, got.offset, &got.strides), wanted, "{program:?}");
                match got.pattern {
                    Pattern::Linear => assert!((0..).zip(&wanted).all(|(i, &at)| at == offset + i)),
                    Pattern::Single => assert!(wanted.iter().all(|&at| at == offset)),
                    Pattern::Strided => {}
                }
                if wanted.iter().all(|&at| at == offset) {
                    assert_eq!(got.pattern, Pattern::Single, "{program:?}");
                }
            }
            let highest = |offset, strides: &[i64]| *positions(&shape, offset, strides).iter().max().unwrap() as u64;
            assert_eq!(layout.required_lengths[..2], [highest(offset, &dense) + 1, highest(0, &dense_axes) + 1]);
        }
    }

    #[test]
    fn a_buffer_must_hold_what_is_read_backwards_and_by_index() {
        assert_eq!(layout(&[3, 4], &[view(11, &[-4, -1])]).required_lengths[0], 12);
        assert_eq!(layout(&[0, 4], &[view(11, &[-4, -1])]).required_lengths[0], 0);
        assert!(Layout::new(&program(&[3, 4], &[view(10, &[-4, -1])])).is_err());
        assert!(Layout::new(&program(&[u64::MAX], &[view(0, &[i64::MAX])])).is_err());

        // The rows that an index may choose from, beyond the view itself.
        let mut gather = program(&[2], &[view(0, &[1]), view(0, &[1])]);
        gather.nodes.push(node(
            "gather",
            &[0, 1],
            Attribute::Steps { steps: SmallVec::from_slice(&[(5, 2)]), check: None },
        ));
        let layout = Layout::new(&gather).unwrap();
        assert_eq!(layout.required_lengths.as_slice(), [10, 2, 0]);
    }

    #[test]
    fn padded_views_have_indices_of_their_coordinates() {
        let coordinate = PaddedCoordinate { start: -2, extent: 5, stride: 10, steps: SmallVec::from_slice(&[3, 1]) };
        let coordinates = SmallVec::from_iter([coordinate]);
        let padded = PaddedView { offset: 7, strides: SmallVec::from_slice(&[0, 0]), coordinates, value: 0 };
        let input = Input { ty: Type::F32, source: Source::Padded(padded.into()) };
        // They merge no axes that have other coordinates, and the elements that exist are in bounds.
        let layout = layout(&[4, 3], &[input]);
        assert_eq!((layout.dims.as_slice(), layout.required_lengths[0]), (&[12][..], 48));
        let [view, coordinate] = &layout.views[..] else { panic!("{layout:?}") };
        assert_eq!((view.offset, view.strides.as_slice()), (-13, &[10][..]));
        assert_eq!((coordinate.offset, coordinate.strides.as_slice()), (-2, &[1][..]));
        assert_eq!((layout.coordinates(0), layout.coordinates(1)), (&[(1, 5)][..], &[][..]));
        assert_eq!(patterns(&layout), [Pattern::Strided, Pattern::Strided]);
    }

    #[test]
    fn the_output_must_hold_every_dynamic_offset() {
        let dynamic_offsets = SmallVec::from_slice(&[DynamicOffset { value: 0, extent: 6, step: 10 }]);
        let mut program = program(&[4], &[view(0, &[1])]);
        program.output = Some(OutputView { offset: 3, strides: SmallVec::from_slice(&[1]), dynamic_offsets });
        let layout = Layout::new(&program).unwrap();
        assert_eq!(layout.required_lengths.as_slice(), [4, 57]);
        // The offset moves it: its elements are not at the linear index.
        assert_eq!(patterns(&layout), [Pattern::Linear, Pattern::Strided]);
    }

    #[test]
    fn indices_have_64_bits_from_2_to_the_31_on() {
        assert!(!layout(&[(1 << 31) - 1], &[view(0, &[1])]).index64);
        assert!(layout(&[1 << 31], &[view(0, &[1])]).index64);
        assert!(layout(&[2], &[view(1 << 31, &[1])]).index64);
    }

    #[test]
    fn bounds_are_exact() {
        let axes = || [(3, 4), (4, 1)].into_iter();
        assert!(check_bounds(0, axes(), 12).is_ok());
        assert!(check_bounds(0, axes(), 11).is_err());
        assert!(check_bounds(-1, axes(), 12).is_err());
        assert!(check_bounds(1, axes(), 12).is_err());
        assert!(check_bounds(i64::MAX, [(2, i64::MAX)].into_iter(), u64::MAX).is_ok());
        assert!(check_bounds(0, [(u64::MAX, i64::MAX)].into_iter(), u64::MAX).is_err());
    }
}
