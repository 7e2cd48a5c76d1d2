//! Whether a contraction makes sense: its views are in bounds, its result is dense and its padded axes belong to it.

use crate::error::{Error, Result};
use crate::program::layout::check_bounds;
use crate::program::{MAX_RANK, MAX_STEP};
use crate::tuning::contraction::{Axis, ContractionShape, CoordinateRange};

/// Fails where a view leaves its buffer or the result is not dense.
pub fn check(shape: &ContractionShape) -> Result<()> {
    let unused = shape.rows.iter().any(|axis| axis.b != 0)
        || shape.columns.iter().any(|axis| axis.a != 0)
        || shape.depth.iter().any(|axis| axis.c != 0);
    if unused {
        return Err(Error::Argument("axes: a stride in what the axis is no part of".into()));
    }
    if shape.axes().count() > MAX_RANK {
        return Err(Error::Argument("axes: more than 64".into()));
    }
    let product = |n: u64, dim: u64| n.checked_mul(dim).filter(|&n| n <= 1 << 60);
    shape.axes().try_fold(1, |n, axis| product(n, axis.dim)).ok_or(Error::SizeMismatch)?;
    check_padded_axes(shape)?;
    for operand in ['a', 'b'] {
        // Padded axes count by the coordinates that exist, whatever indices the axes have.
        let is_padded = operand == shape.padded_operand();
        let free = shape.axes().filter(|axis| !(is_padded && axis.padded.is_some()));
        let free = free.map(|axis| (axis.dim, axis.stride(operand)));
        let padded = if is_padded { shape.padded_axes.as_slice() } else { &[] };
        let padded = padded.iter().map(|padded| (padded.extent, padded.stride));
        let view = shape.operand(operand);
        check_bounds(view.offset, free.chain(padded), view.elements)?;
    }
    let kept = shape.result_axes();
    let elements: u64 = kept.iter().map(|axis| axis.dim).product();
    let mut next = 1;
    for axis in kept.iter().rev().filter(|axis| axis.dim != 1 && elements != 0) {
        if axis.c != next {
            return Err(Error::Argument("axes: the result must be dense".into()));
        }
        next *= axis.dim as i64;
    }
    Ok(())
}

/// Fails where a padded axis does not belong to one kept axis of one operand and to one of the depth, or strides differ.
fn check_padded_axes(shape: &ContractionShape) -> Result<()> {
    let operand = shape.padded_operand();
    let kept = if operand == 'a' { &shape.rows } else { &shape.columns };
    let count = shape.padded_axes.len();
    let count_axes =
        |axes: &[Axis], padded| axes.iter().filter(|axis| axis.padded.is_some_and(|(of, _)| of == padded)).count();
    let has_both = |padded| count_axes(kept, padded) == 1 && count_axes(&shape.depth, padded) == 1;
    let padded_count = shape.axes().filter(|axis| axis.padded.is_some()).count();
    let steps = |axis: &Axis| {
        axis.padded.is_none_or(|(padded, step)| {
            let stride = shape.padded_axes.get(padded).and_then(|padded| padded.stride.checked_mul(step));
            stride == Some(axis.stride(operand))
        })
    };
    if !(0..count).all(has_both) || padded_count != 2 * count || !shape.axes().all(steps) {
        return Err(Error::Argument(
            "axes: a padded axis needs a row or column and an axis of the depth with its strides".into(),
        ));
    }
    let exceeds = |padded| {
        let CoordinateRange { first, last, elements, .. } = shape.coordinate_range(padded);
        first.unsigned_abs().max(last.unsigned_abs()).max(elements) > MAX_STEP
    };
    if (0..count).any(exceeds) { Err(Error::SizeMismatch) } else { Ok(()) }
}
