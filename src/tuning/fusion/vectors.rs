//! What threads read as vectors: four neighbouring elements at aligned addresses.

use super::FusionProblem;
use crate::program::Type;
use crate::program::emit::{TransposeTile, VectorInputs, vec4_bytes};
use crate::program::layout::{Pattern, View};

impl FusionProblem<'_> {
    /// What a thread reads for four results that it stores at once, where all that it reads and writes as vectors is
    /// aligned: views that are linear or one element, or have neighbours or one element along the last axis.
    pub(super) fn map_vectors(&self) -> Option<VectorInputs> {
        let type_bytes = |ty: Type| vec4_bytes(ty.storage());
        let types = self.program.inputs.iter().map(|input| input.ty).chain([self.program.result()]);
        if self.program.stands_once()
            || types.into_iter().any(|ty| ty.compute().is_emulated())
            || !self.layout.result_offset(self.program).is_multiple_of(type_bytes(self.program.result()))
        {
            return None;
        }
        if !self.linear_views_are_aligned() {
            return None;
        }
        if self.layout.views.iter().all(|view| view.pattern != Pattern::Strided) {
            return Some(VectorInputs::default());
        }
        let vectors = self.vectors(self.last_axis_in_vectors()?);
        let taken = |view: &View| {
            view.pattern != Pattern::Strided
                || view.input.is_some_and(|input| input < 32 && (vectors.vec4 | vectors.broadcast) >> input & 1 == 1)
        };
        self.layout.views.iter().all(taken).then_some(vectors)
    }

    /// What a thread reads for four results that another kernel's epilogue stores at once. `None` where it reads unaligned elements for them.
    pub(super) fn epilogue_vectors(&self) -> Option<VectorInputs> {
        let vectors = || self.last_axis_in_vectors().map(|last| self.vectors(last)).unwrap_or_default();
        self.linear_views_are_aligned().then(vectors)
    }

    /// Whether linear views have each vector of four elements at an aligned address.
    fn linear_views_are_aligned(&self) -> bool {
        let linear = self.layout.views.iter().filter(|view| view.pattern == Pattern::Linear);
        linear
            .filter_map(|view| Some((view, self.program.inputs[view.input?].ty)))
            .all(|(view, ty)| (view.offset as u64 * ty.size()).is_multiple_of(vec4_bytes(ty.storage())))
    }

    /// The last axis, if it is of whole vectors.
    fn last_axis_in_vectors(&self) -> Option<usize> {
        self.layout.dims.len().checked_sub(1).filter(|&last| self.layout.dims[last].is_multiple_of(4))
    }

    /// Whether a tile's rows and columns are whole vectors of aligned elements. The program stands in the kernel four times.
    pub(super) fn tile_in_vectors(&self, tile: &TransposeTile) -> bool {
        let (output_axis, input_axis) = (usize::from(tile.output_axis), usize::from(tile.input_axis));
        let (dims, result) = (&self.layout.dims, self.program.result());
        let transposed = |view: &&View| view.input.is_some_and(|input| input < 32 && tile.inputs >> input & 1 == 1);
        let mut transposed = self.layout.views.iter().filter(transposed);
        tile.inputs != 0
            && !self.program.stands_once()
            && (self.program.output.is_none() || self.layout.views.last().is_some_and(|v| v.pattern == Pattern::Linear))
            && dims[output_axis].is_multiple_of(4)
            && dims[input_axis].is_multiple_of(4)
            && self.layout.result_offset(self.program).is_multiple_of(vec4_bytes(result.storage()))
            && !result.compute().is_emulated()
            && transposed.all(|view| matches!(self.vector(view, input_axis), Some((_, 1))))
    }

    /// What a reduction reads for four neighbours along the last axis, where that is reduced.
    pub(super) fn reduced_vectors(&self) -> VectorInputs {
        let (dims, kept) = (&self.layout.dims, self.layout.kept);
        let last = dims.len().checked_sub(1).filter(|&axis| axis >= kept);
        // Vectors end with a row, or scalars are left over after the last of all.
        let whole = |&axis: &usize| axis == kept || dims[axis].is_multiple_of(4);
        last.filter(whole).map(|last| self.vectors(last)).filter(|vectors| vectors.vec4 != 0).unwrap_or_default()
    }

    /// What a reduction reads for four neighbours along the last kept axis, whose outputs one thread makes four by four.
    pub(super) fn output_vectors(&self) -> VectorInputs {
        let last = self.layout.kept.checked_sub(1).filter(|&axis| self.layout.dims[axis].is_multiple_of(4));
        last.map(|last| self.vectors(last)).filter(|vectors| vectors.vec4 != 0).unwrap_or_default()
    }

    /// What a thread reads for four neighbours along an axis.
    fn vectors(&self, axis: usize) -> VectorInputs {
        let mut vectors = VectorInputs::default();
        if self.program.stands_once() {
            return vectors;
        }
        let ends = |&(coordinate, _): &(usize, u64)| self.layout.views[coordinate].strides[axis] != 0;
        // Neighbours along a padded axis need not exist together.
        let is_padded = |v: usize| self.layout.coordinates(v).iter().any(ends);
        for (_, view) in self.layout.views.iter().enumerate().filter(|&(v, _)| !is_padded(v)) {
            match self.vector(view, axis) {
                Some((input, 1)) => vectors.vec4 |= 1 << input,
                Some((input, _)) => vectors.broadcast |= 1 << input,
                None => {}
            }
        }
        vectors
    }

    /// The input of a view that has four neighbours along an axis, the first of each at an aligned address, or one element
    /// for all of them, and its stride.
    fn vector(&self, view: &View, axis: usize) -> Option<(usize, i64)> {
        let input = view.input.filter(|&input| input < 32 && view.pattern == Pattern::Strided)?;
        let (ty, stride) = (self.program.inputs[input].ty, view.strides[axis]);
        let others = (0..view.strides.len()).filter(|&other| other != axis).map(|other| view.strides[other]);
        let aligned = || others.chain([view.offset]).all(|step| step % 4 == 0) && !ty.compute().is_emulated();
        let fits = self.program.steps(input).next().is_none() && (stride == 0 || stride == 1 && aligned());
        fits.then_some((input, stride))
    }
}
