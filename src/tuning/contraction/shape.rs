//! What is known of a contraction without its operands' contents and addresses.

use super::axes::{Axis, AxisGroups};
use super::of_accumulator;
use super::padding::{CoordinateRange, PaddedAxis};
use crate::device::Capabilities;
use crate::program::Type;
use crate::program::types::Compute;
use crate::tuning::has_matrices;

/// An operand: the allocation has `elements` elements of the type, and the first of the operand is at `offset`. Allocations are
/// aligned for any run of elements.
#[derive(Clone, Copy, Debug)]
pub struct OperandShape {
    pub ty: Type,
    pub offset: i64,
    pub elements: u64,
}

/// The types and axes of a contraction.
#[derive(Clone, Debug)]
pub struct ContractionShape {
    pub ty: Type,
    pub operands: [OperandShape; 2],
    pub batch: Vec<Axis>,
    pub rows: Vec<Axis>,
    pub columns: Vec<Axis>,
    pub depth: Vec<Axis>,
    pub padded_axes: Vec<PaddedAxis>,
}

impl ContractionShape {
    pub fn groups(&self) -> AxisGroups {
        AxisGroups::of([&self.batch, &self.rows, &self.columns, &self.depth], &self.padded_axes)
    }

    pub fn axes(&self) -> impl Iterator<Item = &Axis> {
        [&self.batch, &self.rows, &self.columns, &self.depth].into_iter().flatten()
    }

    pub(super) fn axes_mut(&mut self) -> impl Iterator<Item = &mut Axis> {
        [&mut self.batch, &mut self.rows, &mut self.columns, &mut self.depth].into_iter().flatten()
    }

    /// The axes of the result, outermost first.
    pub fn result_axes(&self) -> Vec<Axis> {
        let mut kept: Vec<Axis> = [&self.batch, &self.rows, &self.columns].into_iter().flatten().copied().collect();
        kept.sort_by_key(|axis| std::cmp::Reverse(axis.c));
        kept
    }

    pub fn operand(&self, operand: char) -> &OperandShape {
        &self.operands[usize::from(operand != 'a')]
    }

    /// The operand that has the padded axes.
    pub fn padded_operand(&self) -> char {
        if self.rows.iter().any(|axis| axis.padded.is_some()) { 'a' } else { 'b' }
    }

    /// The coordinates that the axes lead to along a padded axis.
    pub fn coordinate_range(&self, padded: usize) -> CoordinateRange {
        CoordinateRange::of(&self.padded_axes[padded], padded, self.axes())
    }

    /// The same contraction where no coordinate is missing.
    pub(super) fn without_padding(mut self) -> Self {
        let starts = self.padded_axes.iter().map(|padded| padded.start * padded.stride).sum::<i64>();
        let operand = usize::from(self.padded_operand() != 'a');
        self.operands[operand].offset += starts;
        self.axes_mut().for_each(|axis| axis.padded = None);
        self.padded_axes.clear();
        self
    }

    /// The type that contractions with one row or column are multiplied in before they are summed. Products of narrow numbers have at most 24
    /// digits: f32 holds them, and a sum in doubles converts each once in place of both factors. Those of bf16 may exceed f32, as they do in the
    /// tiles of large contractions: by other types, small ones are in doubles, and by each other, their sums are in f32, too.
    pub(super) fn products(&self, caps: &Capabilities, is_small: bool) -> Type {
        let types = self.operands.map(|operand| operand.ty);
        let is_narrow = |ty: Type| ty.is_narrow_float() || ty.bits() <= 8;
        let is_in_range = !is_small || types == [Type::BF16; 2] || !types.contains(&Type::BF16);
        match self.exact(caps) {
            Type::F64 if self.ty != Type::F64 && types.into_iter().all(is_narrow) && is_in_range => Type::F32,
            exact => exact,
        }
    }

    /// The type in which contractions of several rows and columns are added up. Sums of products of bf16 are in f32, whatever their number: of
    /// 20,480 of 768 to 8,192 products an H200 gives 0 to 14 that are not the nearest bf16, and doubles take several times as long.
    pub(super) fn accumulator(&self, caps: &Capabilities, is_small: bool) -> Compute {
        let is_bf16 = self.ty == Type::BF16 && self.operands.iter().all(|operand| operand.ty == Type::BF16);
        if is_small && !is_bf16 { self.exact(caps) } else { self.ty }.compute()
    }

    /// The type in which short sums are formed.
    pub(super) fn exact(&self, caps: &Capabilities) -> Type {
        match self.ty {
            Type::C64 if caps.float64 => Type::C128,
            ty if ty.is_float() && caps.float64 => Type::F64,
            // Products of narrow floats are exact in 32 bits.
            ty if ty.is_float() && ty != Type::F64 => Type::F32,
            ty => ty,
        }
    }

    /// The type that both operands are multiplied in: those of other types may have more digits than a narrow result.
    pub fn inner(&self) -> Type {
        let ty = self.ty;
        if self.operands.iter().all(|operand| operand.ty == ty) { ty } else { of_accumulator(ty.compute(), ty) }
    }

    /// Whether the device has cooperative matrices of the operands' type. Integers of 8 bits become 16-bit floats on the way to shared memory.
    pub(super) fn has_matrices(&self, caps: &Capabilities) -> bool {
        let [a, b] = self.operands.map(|operand| operand.ty);
        let is_converted = |ty: Type| matches!(ty, Type::S8 | Type::U8);
        let ty = if is_converted(a) { b } else { a };
        (a == b || is_converted(a) || is_converted(b)) && has_matrices(caps, ty)
    }
}
