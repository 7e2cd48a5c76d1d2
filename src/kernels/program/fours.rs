//! What threads take four at a time: neighbouring elements at aligned addresses.

use super::Run;
use crate::program::Type;
use crate::program::emit::{Fours, Tile, quad_bytes};
use crate::program::layout::{Pattern, View};

impl Run<'_> {
    /// What a thread gets for four results that it stores at once, where all that it reads and writes four at a time is
    /// aligned: views that are linear or one element, or have neighbours or one element along the last axis.
    pub(super) fn map_in_fours(&self) -> Option<Fours> {
        let quad = |ty: Type| quad_bytes(ty.storage());
        let types = self.program.inputs.iter().map(|input| input.ty).chain([self.program.result()]);
        if self.program.is_long()
            || types.into_iter().any(|ty| ty.compute().is_emulated())
            || !self.result_offset().is_multiple_of(quad(self.program.result()))
        {
            return None;
        }
        let aligned = |view: &View| {
            let Some(input) = view.input else { return true };
            let ty = self.program.inputs[input].ty;
            (view.offset as u64 * ty.size()).is_multiple_of(quad(ty))
        };
        let mut strided = false;
        for view in &self.layout.views {
            match view.pattern {
                Pattern::Single => {}
                Pattern::Linear if aligned(view) => {}
                Pattern::Linear => return None,
                Pattern::Strided => strided = true,
            }
        }
        if !strided {
            return Some(Fours::default());
        }
        let last = self.layout.dims.len().checked_sub(1).filter(|&last| self.layout.dims[last].is_multiple_of(4))?;
        let fours = self.fours(last);
        let taken = |view: &View| {
            view.pattern != Pattern::Strided
                || view.input.is_some_and(|input| input < 32 && (fours.quads | fours.ones) >> input & 1 == 1)
        };
        self.layout.views.iter().all(taken).then_some(fours)
    }

    /// Whether a tile's rows and columns are whole fours of aligned elements. The program stands in the kernel four times.
    pub(super) fn tiles_in_quads(&self, tile: &Tile) -> bool {
        let (across, along) = (usize::from(tile.across), usize::from(tile.along));
        let (dims, result) = (&self.layout.dims, self.program.result());
        let held = |view: &&View| view.input.is_some_and(|input| input < 32 && tile.inputs >> input & 1 == 1);
        tile.inputs != 0
            && !self.program.is_long()
            && (self.program.output.is_none() || self.layout.views.last().is_some_and(|v| v.pattern == Pattern::Linear))
            && dims[across].is_multiple_of(4)
            && dims[along].is_multiple_of(4)
            && self.result_offset().is_multiple_of(quad_bytes(result.storage()))
            && !result.compute().is_emulated()
            && self.layout.views.iter().filter(held).all(|view| matches!(self.quad(view, along), Some((_, 1))))
    }

    /// What a reduction gets for four neighbours along the last axis, which is reduced.
    pub(super) fn fours_along(&self) -> Fours {
        let (dims, kept) = (&self.layout.dims, self.layout.kept);
        let last = dims.len().checked_sub(1).filter(|&axis| axis >= kept);
        // Fours end with a row, or the last of all is taken apart.
        let whole = |&axis: &usize| axis == kept || dims[axis].is_multiple_of(4);
        last.filter(whole).map(|last| self.fours(last)).filter(|fours| fours.quads != 0).unwrap_or_default()
    }

    /// Likewise along the last axis that is kept, whose outputs one thread makes four by four.
    pub(super) fn fours_beside(&self) -> Fours {
        let last = self.layout.kept.checked_sub(1).filter(|&axis| self.layout.dims[axis].is_multiple_of(4));
        last.map(|last| self.fours(last)).filter(|fours| fours.quads != 0).unwrap_or_default()
    }

    /// What a thread gets for four neighbours along an axis.
    fn fours(&self, axis: usize) -> Fours {
        let mut fours = Fours::default();
        if self.program.is_long() {
            return fours;
        }
        for view in &self.layout.views {
            match self.quad(view, axis) {
                Some((input, 1)) => fours.quads |= 1 << input,
                Some((input, _)) => fours.ones |= 1 << input,
                None => {}
            }
        }
        fours
    }

    /// The input of a view that has four neighbours along an axis, the first of each at an aligned address, or one element
    /// for all of them, and its stride.
    fn quad(&self, view: &View, axis: usize) -> Option<(usize, i64)> {
        let input = view.input.filter(|&input| input < 32 && view.pattern == Pattern::Strided)?;
        let (ty, stride) = (self.program.inputs[input].ty, view.strides[axis]);
        let others = (0..view.strides.len()).filter(|&other| other != axis).map(|other| view.strides[other]);
        let aligned = || others.chain([view.offset]).all(|step| step % 4 == 0) && !ty.compute().is_emulated();
        let fits = self.program.steps(input).next().is_none() && (stride == 0 || stride == 1 && aligned());
        fits.then_some((input, stride))
    }
}
