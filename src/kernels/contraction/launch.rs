//! Carries out a strategy: copies operands and launches kernels. This module chooses nothing.

use smallvec::SmallVec;

use super::matmul::{MatmulArgs, MatmulKernel};
use super::panels::{MatmulOperand, Panels};
use crate::error::Attempt;
use crate::graph::{Context, Operand};
use crate::kernels::{assemble, fusion, launch};
use crate::memory::{Allocation, AllocationHandle, Buffer};
use crate::program::types::Compute;
use crate::program::{Attribute, Axes, Input, Node, OutputView, Program, Source, Type, op};
use crate::tuning::contraction::{ContractionShape, Method, OperandCopy, PanelTile, Strategy, Tiling};

/// The dense result of a contraction of these operands by a strategy.
pub fn run(cx: &Context, strategy: &Strategy, operands: [&AllocationHandle; 2]) -> Attempt<Buffer> {
    let _batch = strategy.one_batch.then(|| cx.batch());
    let copies = allocate_copies(cx, strategy)?;
    let mut operands = operands;
    for (copy, to) in strategy.copies.iter().zip(&copies) {
        let operand = &mut operands[usize::from(copy.operand != 'a')];
        write_copy(cx, copy, operand, to)?;
        *operand = to;
    }
    let shape = &strategy.shape;
    match strategy.method {
        Method::Zeros => cx.zeroed(shape.groups().elements() * shape.ty.size()),
        Method::Reduction(ty) => reduce(cx, shape, operands, ty),
        Method::Panels(tile, accumulator) => by_panels(cx, shape, operands, tile, accumulator),
        Method::Tiles(tiling) => by_tiles(cx, shape, operands, &tiling),
    }
}

/// Memory for the copies that a strategy asks for.
fn allocate_copies(cx: &Context, strategy: &Strategy) -> Attempt<SmallVec<[AllocationHandle; 2]>> {
    if strategy.copies.is_empty() {
        return Ok(SmallVec::new());
    }
    let copies = strategy.copies.iter().map(|copy| cx.allocate(copy.bytes)).collect::<Attempt<_>>()?;
    // A caller that may not block and has to wait for the result's memory has recorded nothing in vain.
    drop(cx.allocate(strategy.shape.groups().elements() * strategy.shape.ty.size())?);
    Ok(copies)
}

/// Writes the elements of a copy that exist, and zeros for the others.
fn write_copy(cx: &Context, copy: &OperandCopy, from: &AllocationHandle, to: &AllocationHandle) -> Attempt<()> {
    if copy.has_zeros() {
        cx.zero(to, copy.bytes)?;
    }
    // Elements are copied as bits of their width: floats might change, as NaNs do.
    let ty = copy.from.ty;
    let bits = if ty.is_complex() { ty } else { Type::from_nx("u", ty.bits().max(8)).unwrap_or(ty) };
    let (offset, strides) = copy.source();
    let input = Input { ty: bits, source: Source::View { offset, strides } };
    let view =
        OutputView { offset: copy.target_offset(), strides: copy.strides.clone(), dynamic_offsets: SmallVec::new() };
    let (inputs, nodes) = (SmallVec::from_iter([input]), SmallVec::from_iter([assemble::copied(bits)]));
    let program = Program { inputs, nodes, shape: copy.counts(), output: Some(view) };
    fusion::run_into(cx, &program, &[Operand::Buffer(from, copy.from.elements * ty.size())], (to, copy.bytes))
}

/// A product in type `ty` and a sum, for few rows or columns.
fn reduce(cx: &Context, shape: &ContractionShape, operands: [&AllocationHandle; 2], ty: Type) -> Attempt<Buffer> {
    let kept = shape.result_axes();
    let axes = || kept.iter().chain(&shape.depth);
    let extents: Axes<u64> = axes().map(|axis| axis.dim).collect();
    let input = |i: usize, strides| {
        let operand = shape.operands[i];
        Input { ty: operand.ty, source: Source::View { offset: operand.offset, strides } }
    };
    let inputs = [input(0, axes().map(|axis| axis.a).collect()), input(1, axes().map(|axis| axis.b).collect())];
    let args = SmallVec::from_slice(&[0, 1]);
    let multiply = Node { op: op::MULTIPLY, ty, args, attribute: Attribute::None };
    let reduced = Attribute::Axes((kept.len()..extents.len()).collect());
    let sum = Node { op: op::SUM, ty: shape.ty, args: SmallVec::from_slice(&[2]), attribute: reduced };
    let (inputs, nodes) = (SmallVec::from_iter(inputs), SmallVec::from_iter([multiply, sum]));
    let program = Program { inputs, nodes, shape: extents, output: None };
    let bytes = shape.operands.map(|operand| operand.elements * operand.ty.size());
    fusion::run(cx, &program, &[0, 1].map(|i| Operand::Buffer(operands[i], bytes[i])))
}

fn by_panels(
    cx: &Context,
    shape: &ContractionShape,
    operands: [&AllocationHandle; 2],
    tile: PanelTile,
    accumulator: Compute,
) -> Attempt<Buffer> {
    let groups = &shape.groups();
    let operand = |i: usize| {
        let operand = shape.operands[i];
        MatmulOperand { allocation: operands[i], ty: operand.ty, offset: operand.offset }
    };
    let bytes = groups.elements() * shape.ty.size();
    let c = cx.allocate(bytes)?;
    let panels = Panels { groups, a: operand(0), b: operand(1), inner: shape.inner(), accumulator, tile };
    panels.run(cx, MatmulOperand { allocation: &c, ty: shape.ty, offset: 0 }, false)?;
    Ok(Buffer::new(bytes, c))
}

fn by_tiles(
    cx: &Context,
    shape: &ContractionShape,
    operands: [&AllocationHandle; 2],
    tiling: &Tiling,
) -> Attempt<Buffer> {
    let &Tiling { splits, chunk, ty, .. } = tiling;
    let groups = &shape.groups();
    let operand = |(i, name): (usize, char)| {
        let (operand, allocation): (_, &Allocation) = (shape.operands[i], operands[i]);
        let padding = groups.padding.as_ref().map_or(0, |padding| padding.start(name));
        let bytes = operand.offset.wrapping_add(padding).wrapping_mul(operand.ty.size() as i64) as u64;
        (allocation, bytes)
    };
    let bytes = splits * groups.elements() * ty.size();
    let c = cx.allocate(bytes)?;
    let kernel = MatmulKernel::new(tiling, groups, shape.operands.map(|operand| operand.ty), shape.inner());
    launch(cx, &kernel, &MatmulArgs { c: &c, operands: [(0, 'a'), (1, 'b')].map(operand), groups, splits, chunk })?;
    if splits == 1 {
        return Ok(Buffer::new(bytes, c));
    }
    sum_splits(cx, shape.ty, (ty, [splits, groups.elements()]), &c)
}

/// The sum, in type `ty`, of the partial sums of the splits of k, of type `partial`.
fn sum_splits(
    cx: &Context,
    ty: Type,
    (partial, [splits, elements]): (Type, [u64; 2]),
    partial_sums: &AllocationHandle,
) -> Attempt<Buffer> {
    let shape: Axes<u64> = [splits, elements].into_iter().collect();
    let strides = [elements as i64, 1].into_iter().collect();
    let input = Input { ty: partial, source: Source::View { offset: 0, strides } };
    let axes = Attribute::Axes([0].into_iter().collect());
    let sum = Node { op: op::SUM, ty, args: SmallVec::from_slice(&[0]), attribute: axes };
    let (inputs, nodes) = (SmallVec::from_iter([input]), SmallVec::from_iter([sum]));
    let program = Program { inputs, nodes, shape, output: None };
    fusion::run(cx, &program, &[Operand::Buffer(partial_sums, splits * elements * partial.size())])
}
