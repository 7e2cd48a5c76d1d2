//! Carries out a strategy: copies operands and launches kernels. This module chooses nothing.

use std::sync::Arc;

use smallvec::SmallVec;

use super::few_rows::{FewRowsArgs, FewRowsKernel};
use super::matmul::{MatmulArgs, MatmulKernel};
use super::panels::{MatmulOperand, PanelResult, Panels};
use super::stores::KernelEpilogue;
use crate::error::Attempt;
use crate::graph::{Context, Operand};
use crate::kernels::fusion::{self, Destination, Epilogue, EpilogueLaunch, EpilogueResults, PartialSum, RowSource};
use crate::kernels::{assemble, launch};
use crate::memory::{Allocation, AllocationHandle, Buffer};
use crate::program::epilogue::EpilogueReduction;
use crate::program::types::Compute;
use crate::program::{
    Attribute, Axes, Input, Node, OutputView, PaddedCoordinate, PaddedView, Program, Source, Type, op,
};
use crate::tuning::contraction::{
    Axis, ContractionShape, EpilogueUse, FewRows, Method, OperandCopy, OperandShape, PaddedAxis, PanelTile, Strategy,
    Tiling, epilogue_use, of_accumulator,
};
use crate::tuning::fusion::{epilogue_vectors, reduces_results, takes_two_passes};

/// The dense result of a contraction of these operands by a strategy, or what an epilogue makes of it.
pub fn run(
    cx: &Context,
    strategy: &Strategy,
    operands: [&Arc<AllocationHandle>; 2],
    epilogue: Option<&Epilogue>,
) -> Attempt<EpilogueResults> {
    let _batch = strategy.one_batch.then(|| cx.batch());
    let copies = allocate_copies(cx, strategy)?;
    let mut operands = operands;
    for (copy, to) in strategy.copies.iter().zip(&copies) {
        let operand = &mut operands[usize::from(copy.operand != 'a')];
        write_copy(cx, copy, operand, to)?;
        *operand = to;
    }
    let contraction = OrderedContraction { cx, shape: &strategy.shape, operands };
    let uses = epilogue.map_or(EpilogueUse::Separate, |epilogue| contraction.epilogue_use(strategy.method, epilogue));
    match (epilogue, uses) {
        (None, _) => contraction.by(strategy.method, None),
        (Some(epilogue), EpilogueUse::Separate) => {
            let _batch = cx.batch();
            epilogue.run_on(cx, contraction.by(strategy.method, None)?.result)
        }
        (Some(epilogue), uses) => contraction.by(strategy.method, Some((epilogue, uses == EpilogueUse::Rolled))),
    }
}

/// As [`run`], in a kernel that computes the row that one of the operands is, unless that is slower.
pub fn with_prologue(
    cx: &Context,
    strategy: &Strategy,
    operands: [&Arc<AllocationHandle>; 2],
    (source, position): (RowSource, usize),
    epilogue: Option<&Epilogue>,
) -> Attempt<Option<EpilogueResults>> {
    let Method::Reduction(ty) = strategy.method else { return Ok(None) };
    let contraction = OrderedContraction { cx, shape: &strategy.shape, operands };
    let separate = |epilogue: &Epilogue| contraction.epilogue_use(strategy.method, epilogue) == EpilogueUse::Separate;
    let whole = strategy.shape.operands[position].offset == 0;
    if !strategy.copies.is_empty() || !whole {
        return Ok(None);
    }
    let (program, operands) = contraction.reduction(ty);
    let run = |epilogue: Option<&Epilogue>| {
        fusion::run_with_prologue(cx, &program, &[operands[1 - position]], (source, position), epilogue)
    };
    match epilogue.filter(|epilogue| separate(epilogue)) {
        None => run(epilogue),
        Some(after) => {
            let _batch = cx.batch();
            run(None)?.map(|product| after.run_on(cx, product.result)).transpose()
        }
    }
}

/// Memory for the copies that a strategy asks for.
fn allocate_copies(cx: &Context, strategy: &Strategy) -> Attempt<SmallVec<[Arc<AllocationHandle>; 2]>> {
    if strategy.copies.is_empty() {
        return Ok(SmallVec::new());
    }
    let copies = strategy.copies.iter().map(|copy| Ok(Arc::new(cx.allocate(copy.bytes)?))).collect::<Attempt<_>>()?;
    // A caller that may not block and has to wait for the result's memory has recorded nothing in vain.
    drop(cx.allocate(strategy.shape.groups().elements() * strategy.shape.ty.size())?);
    Ok(copies)
}

/// Writes the elements of a copy that exist, and zeros for the others.
fn write_copy(cx: &Context, copy: &OperandCopy, from: &Arc<AllocationHandle>, to: &AllocationHandle) -> Attempt<()> {
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

/// A contraction whose operands are read as they are.
struct OrderedContraction<'a> {
    cx: &'a Context<'a>,
    shape: &'a ContractionShape,
    operands: [&'a Arc<AllocationHandle>; 2],
}

/// An epilogue, and whether a kernel holds it once.
type TakenEpilogue<'a> = Option<(&'a Epilogue<'a>, bool)>;

impl OrderedContraction<'_> {
    fn by(&self, method: Method, epilogue: TakenEpilogue) -> Attempt<EpilogueResults> {
        match method {
            Method::Zeros => Ok(self.cx.zeroed(self.shape.groups().elements() * self.shape.ty.size())?.into()),
            Method::Reduction(ty) => self.reduce(ty, epilogue),
            Method::FewRows(few_rows) => self.by_few_rows(few_rows, epilogue),
            Method::Panels(tile, accumulator) => self.by_panels(tile, accumulator, epilogue),
            Method::Tiles(tiling) => self.by_tiles(&tiling, epilogue),
        }
    }

    /// How the kernel that ends the contraction takes an epilogue.
    fn epilogue_use(&self, method: Method, epilogue: &Epilogue) -> EpilogueUse {
        let (caps, epilogue) = (self.cx.caps(), &epilogue.program);
        let reduced = |reduction: &EpilogueReduction| match method {
            Method::Reduction(ty) => reduces_results(&self.reduction(ty).0, reduction, caps),
            Method::FewRows(few_rows) => few_rows.is_one_row(&self.shape.groups()),
            Method::Zeros | Method::Tiles(_) | Method::Panels(..) => false,
        };
        // A product's kernel has no functions that reduce complex numbers, which an epilogue may make of real ones.
        let complex = epilogue.program.result().is_complex();
        match &epilogue.reduction {
            Some(reduction) if complex || !takes_two_passes(reduction, caps) || !reduced(reduction) => {
                EpilogueUse::Separate
            }
            _ => epilogue_use(&method, epilogue, caps),
        }
    }

    /// A product in type `ty` and a sum, for few rows or columns.
    fn reduce(&self, ty: Type, epilogue: TakenEpilogue) -> Attempt<EpilogueResults> {
        let (program, operands) = self.reduction(ty);
        run_reduction(self.cx, &program, &operands, epilogue)
    }

    /// The program of a product in type `ty` and a sum, and its operands.
    fn reduction(&self, ty: Type) -> (Program, [Operand<'_>; 2]) {
        let shape = self.shape;
        let kept = shape.result_axes();
        let axes = || kept.iter().chain(&shape.depth);
        let extents: Axes<u64> = axes().map(|axis| axis.dim).collect();
        let input = |i: usize, strides: Axes<i64>| {
            let OperandShape { ty, offset, .. } = shape.operands[i];
            let is_padded = !shape.padded_axes.is_empty() && shape.padded_operand() == ['a', 'b'][i];
            let source = match is_padded {
                true => Source::Padded(padded_view(shape, offset, axes().zip(strides)).into()),
                false => Source::View { offset, strides },
            };
            Input { ty, source }
        };
        let inputs = [input(0, axes().map(|axis| axis.a).collect()), input(1, axes().map(|axis| axis.b).collect())];
        let args = SmallVec::from_slice(&[0, 1]);
        let multiply = Node { op: op::MULTIPLY, ty, args, attribute: Attribute::None };
        let reduced = Attribute::Axes((kept.len()..extents.len()).collect());
        let sum = Node { op: op::SUM, ty: shape.ty, args: SmallVec::from_slice(&[2]), attribute: reduced };
        let (inputs, nodes) = (SmallVec::from_iter(inputs), SmallVec::from_iter([multiply, sum]));
        let program = Program { inputs, nodes, shape: extents, output: None };
        let bytes = shape.operands.map(|operand| operand.elements * operand.ty.size());
        (program, [0, 1].map(|i| Operand::Buffer(self.operands[i], bytes[i])))
    }

    fn by_panels(&self, tile: PanelTile, accumulator: Compute, epilogue: TakenEpilogue) -> Attempt<EpilogueResults> {
        let &Self { cx, shape, operands } = self;
        let groups = &shape.groups();
        let operand = |i: usize| {
            let operand = shape.operands[i];
            MatmulOperand { allocation: operands[i], ty: operand.ty, offset: operand.offset }
        };
        let panels = Panels { groups, a: operand(0), b: operand(1), inner: shape.inner(), accumulator, tile };
        self.store(epilogue, 0, |destination, _rolled| {
            panels.run(cx, PanelResult::Stored { ty: shape.ty, destination })
        })
    }

    fn by_few_rows(&self, few_rows: FewRows, epilogue: TakenEpilogue) -> Attempt<EpilogueResults> {
        let &Self { cx, shape, .. } = self;
        let groups = &shape.groups();
        let partial = of_accumulator(few_rows.accumulator, shape.ty);
        let ty = if few_rows.splits > 1 { partial } else { shape.ty };
        let partial_results = few_rows.tile.workgroups(groups);
        self.store_parts((ty, few_rows.splits), epilogue, partial_results, |c: Destination, rolled: bool| {
            let epilogue =
                c.epilogue(false).map(|program| KernelEpilogue { program, rolled, vectors: None, columns: false });
            let kernel = FewRowsKernel::new(&few_rows, groups, shape, ty, epilogue);
            launch(
                cx,
                &kernel,
                &FewRowsArgs { c, operands: [0, 1].map(|i| self.start(i)), groups, few_rows: &few_rows },
            )
        })
    }

    fn by_tiles(&self, tiling: &Tiling, epilogue: TakenEpilogue) -> Attempt<EpilogueResults> {
        let &Self { cx, shape, .. } = self;
        let &Tiling { splits, chunk, ty, index64, .. } = tiling;
        let groups = &shape.groups();
        self.store_parts((ty, splits), epilogue, 0, |c: Destination, rolled: bool| {
            let program = epilogue.map(|(epilogue, _)| &epilogue.program);
            let vectors = program.and_then(|program| epilogue_vectors(program, cx.caps()));
            let ends_in_columns = program.is_some_and(|program| program.layout.dims.last() == Some(&groups.sizes()[2]));
            let columns = ends_in_columns && groups.is_row_major();
            let program = c.epilogue(index64);
            let epilogue = program.map(|program| KernelEpilogue { program, rolled, vectors, columns });
            let types = shape.operands.map(|operand| operand.ty);
            let kernel = MatmulKernel::new(tiling, groups, types, shape.inner(), epilogue);
            let operands = [0, 1].map(|i| self.start(i));
            launch(cx, &kernel, &MatmulArgs { c, operands, groups, splits, chunk })
        })
    }

    /// The allocation of an operand, and the byte at which the operand starts; padded ones start before the allocation.
    fn start(&self, i: usize) -> (&Allocation, u64) {
        let (operand, allocation): (_, &Allocation) = (self.shape.operands[i], self.operands[i]);
        let padding = self.shape.groups().padding.as_ref().map_or(0, |padding| padding.start(['a', 'b'][i]));
        let bytes = operand.offset.wrapping_add(padding).wrapping_mul(operand.ty.size() as i64) as u64;
        (allocation, bytes)
    }

    /// Has a kernel store the results or, in type `ty`, the sums of several parts of k, which are added up then. See [`Self::store`].
    fn store_parts(
        &self,
        (ty, splits): (Type, u64),
        epilogue: TakenEpilogue,
        partial_results: u64,
        kernel: impl FnOnce(Destination, bool) -> Attempt<()>,
    ) -> Attempt<EpilogueResults> {
        if splits == 1 {
            return self.store(epilogue, partial_results, kernel);
        }
        let elements = self.shape.groups().elements();
        let partial_sums = Arc::new(self.cx.allocate(splits * elements * ty.size())?);
        kernel(Destination::Buffer(&partial_sums), false)?;
        sum_splits(self.cx, self.shape.ty, (ty, [splits, elements]), &partial_sums, epilogue)
    }

    /// Has a kernel store to the memory of the results. It is told whether it holds the epilogue once, and leaves so many partial results of an
    /// epilogue's reduction; 0 where it takes none.
    fn store(
        &self,
        epilogue: TakenEpilogue,
        partial_results: u64,
        kernel: impl FnOnce(Destination, bool) -> Attempt<()>,
    ) -> Attempt<EpilogueResults> {
        if let Some((epilogue, rolled)) = epilogue {
            let launched = EpilogueLaunch::new(self.cx, epilogue, (partial_results, false))?;
            let _batch = self.cx.batch();
            kernel(Destination::Epilogue(&launched), rolled)?;
            return launched.finish(self.cx);
        }
        let bytes = self.shape.groups().elements() * self.shape.ty.size();
        let c = self.cx.allocate(bytes)?;
        kernel(Destination::Buffer(&c), false)?;
        Ok(Buffer::new(bytes, c).into())
    }
}

/// The padded operand of a contraction, over these axes with their strides in it: zero where it has no elements.
fn padded_view<'a>(
    shape: &ContractionShape,
    offset: i64,
    axes: impl Iterator<Item = (&'a Axis, i64)> + Clone,
) -> PaddedView {
    let free = |(axis, stride): (&Axis, i64)| if axis.padded.is_some() { 0 } else { stride };
    let steps = |along: usize| {
        let step =
            move |(axis, _): (&Axis, i64)| axis.padded.filter(|(of, _)| *of == along).map_or(0, |(_, step)| step);
        axes.clone().map(step).collect()
    };
    let padded = shape.padded_axes.iter().enumerate();
    let padded = padded.map(|(i, &PaddedAxis { start, extent, stride })| PaddedCoordinate {
        start,
        extent,
        stride,
        steps: steps(i),
    });
    PaddedView { offset, strides: axes.clone().map(free).collect(), coordinates: padded.collect(), value: 0 }
}

/// The sum, in type `ty`, of the partial sums of the splits of k, of type `partial`.
fn sum_splits(
    cx: &Context,
    ty: Type,
    (partial, [splits, elements]): (Type, [u64; 2]),
    partial_sums: &Arc<AllocationHandle>,
    epilogue: TakenEpilogue,
) -> Attempt<EpilogueResults> {
    let shape: Axes<u64> = [splits, elements].into_iter().collect();
    let strides = [elements as i64, 1].into_iter().collect();
    let input = Input { ty: partial, source: Source::View { offset: 0, strides } };
    let axes = Attribute::Axes([0].into_iter().collect());
    let sum = Node { op: op::SUM, ty, args: SmallVec::from_slice(&[0]), attribute: axes };
    let (inputs, nodes) = (SmallVec::from_iter([input]), SmallVec::from_iter([sum]));
    let program = Program { inputs, nodes, shape, output: None };
    let operand = Operand::Buffer(partial_sums, splits * elements * partial.size());
    let results = run_reduction(cx, &program, &[operand], epilogue)?;
    let epilogue = epilogue.map(|(epilogue, _)| epilogue);
    if cx.is_captured()
        && let Some(sum) = PartialSum::of(ty, (partial, [splits, elements]), partial_sums, epilogue, cx.caps())
    {
        cx.set_producer(&*results.result.allocation()?, sum);
    }
    Ok(results)
}

fn run_reduction(
    cx: &Context,
    program: &Program,
    operands: &[Operand],
    epilogue: TakenEpilogue,
) -> Attempt<EpilogueResults> {
    match epilogue {
        Some((epilogue, _)) => fusion::run_with_epilogue(cx, program, operands, epilogue),
        None => Ok(fusion::run(cx, program, operands)?.into()),
    }
}
