//! Attention: the softmax of scaled and masked products of queries and keys, times values. This module owns the kernels around
//! `shaders/lib/attention.glsl` and `attention_matrix.glsl`; tiles and the split along the keys are the choice of `tuning::attention`, and where in an expression
//! attention is, the compiler's.

mod combination;
mod kernel;
#[cfg(test)]
mod tests;
mod update;

use super::contraction::OperandView;
use super::fusion::Epilogue;
use super::launch;
use crate::error::{Attempt, Error};
use crate::graph::Context;
use crate::memory::Buffer;
use crate::program::layout::{check_bounds, is_whole};
use crate::program::types::Compute;
use crate::program::{MAX_RANK, Type, elements};
use crate::tuning::attention::{AttentionProblem, AttentionStrategy, KeyLoads, choose};
pub use combination::{Combination, CombinationText};
use kernel::{AttentionArgs, AttentionKernel};
use update::UpdateMemory;
pub use update::{AttentionUpdate, RowPosition};

/// An axis with its strides in the queries, the keys, the values and the result, in elements.
#[derive(Clone, Copy, Debug)]
pub struct AttentionAxis {
    /// The extent.
    pub dim: u64,
    /// Strides in the queries, the keys, the values and the result.
    pub strides: [i64; 4],
}

/// `softmax(score(q·k)) · v`: scores go along the keys, and the softmax is of each row of them.
pub struct Attention<'a> {
    /// The type of the result.
    pub ty: Type,
    /// Queries, keys and values.
    pub operands: [OperandView<'a>; 3],
    /// The axes that queries, keys, values and the result have; any of them may have stride 0 in an operand.
    pub batch: Vec<AttentionAxis>,
    /// The axes of the queries and the result alone.
    pub rows: Vec<AttentionAxis>,
    /// The axis that queries and keys are multiplied along.
    pub depth: AttentionAxis,
    /// The axis of the keys and values alone.
    pub keys: AttentionAxis,
    /// The axis of the values and the result alone.
    pub columns: AttentionAxis,
    /// What makes of each product of type f32 the score, and of each weight of type f32 that of the value, in proportion; both are over the
    /// batch axes, the rows and the keys, in this order.
    pub programs: [Option<Epilogue<'a>>; 2],
    /// What is put into the keys and into the values before they are read.
    pub updates: [Option<AttentionUpdate<'a>>; 2],
}

impl Attention<'_> {
    /// Computes the dense result, and gives it and the updated keys and values, where they are.
    pub fn run(&self, cx: &Context) -> Attempt<Vec<Buffer>> {
        self.run_by(cx, |problem| choose(problem, cx.caps()))
    }

    fn run_by(&self, cx: &Context, choose: impl FnOnce(AttentionProblem) -> AttentionStrategy) -> Attempt<Vec<Buffer>> {
        let caps = cx.caps();
        let problem = self.checked_problem(cx)?;
        let AttentionProblem { batches, queries, values, .. } = problem;
        let bytes = elements(&[batches, queries, values])? * self.ty.size();
        if bytes == 0 {
            return match self.updates {
                [None, None] => Ok(vec![cx.zeroed(0)?]),
                _ => Err(Error::Argument("updates: expected attention with a result".into()).into()),
            };
        }
        let strategy = choose(problem);
        let mut memory = [None, None];
        for (i, update) in self.updates.iter().enumerate() {
            if let Some(update) = update {
                memory[i] = Some(UpdateMemory::new(cx, update, &self.operands[i + 1])?);
            }
        }
        let updated = |i: usize| memory.get(i)?.as_ref().map(|memory| &memory.updated);
        let operand = |i: usize| i.checked_sub(1).and_then(updated).unwrap_or(self.operands[i].buffer);
        let [q, k, v] = [0, 1, 2].map(|i| operand(i).allocation());
        let result = cx.allocate(bytes)?;
        let splits = strategy.splits;
        let doubles = caps.float64 && strategy.tile.loads != KeyLoads::Matrices;
        let total = if doubles { Compute::Double } else { Compute::Float };
        let partial = |count: u64, size| cx.allocate(splits * batches * queries * count * size);
        let vectors = values.next_multiple_of(4);
        let partials = if splits > 1 {
            Some([partial(vectors, strategy.accumulator.size())?, partial(1, 4)?, partial(1, total.size())?])
        } else {
            None
        };
        let args = AttentionArgs {
            attention: self,
            operands: [&*q?, &*k?, &*v?],
            updates: memory.each_ref().map(Option::as_ref),
            result: &result,
            partials: partials.as_ref().map(|partials| partials.each_ref().map(|partial| &**partial)),
            problem,
            strategy,
        };
        let _batch = (splits > 1).then(|| cx.batch());
        launch(cx, &self.kernel(&problem, &strategy, total, false), &args)?;
        if splits > 1 {
            launch(cx, &self.kernel(&problem, &strategy, total, true), &args)?;
        }
        if let Some(partials) = partials
            && self.is_in_order(&problem)
        {
            let (ty, accumulator, queries) = (self.ty, strategy.accumulator, batches * queries);
            let text = CombinationText { ty, accumulator, total, splits, queries, values };
            cx.set_producer(&result, Combination { partials, text });
        }
        let result = Buffer::new(bytes, result);
        let updated = memory.into_iter().flatten().map(|memory| memory.updated);
        Ok([result].into_iter().chain(updated).collect())
    }

    /// What the strategy is chosen by; fails where it makes no sense or an operand is too small.
    fn checked_problem(&self, cx: &Context) -> Attempt<AttentionProblem> {
        let argument = |text: &'static str| Err(Error::Argument(text.into()).into());
        let types = self.operands.iter().map(|operand| operand.ty).chain([self.ty]);
        types.clone().try_for_each(|ty| ty.check_program(cx.caps()))?;
        if !types.into_iter().all(|ty| ty.is_float() && ty != Type::F64) {
            return argument("attention: expected floats of at most 32 bits");
        }
        if self.batch.len() + self.rows.len() > MAX_RANK {
            return argument("attention: more than 64 axes");
        }
        let count = |axes: &[AttentionAxis]| elements(&axes.iter().map(|axis| axis.dim).collect::<Vec<_>>());
        let (batches, queries, keys) = (count(&self.batch)?, count(&self.rows)?, self.keys.dim);
        let (depth, values) = (self.depth.dim, self.columns.dim);
        let problem = AttentionProblem { batches, queries, keys, depth, values, matrix_type: None };
        if !problem.is_sound() {
            return argument("attention: expected keys, and heads of 1 to 256 elements");
        }
        elements(&[batches, queries, values])?;
        let scores = elements(&[batches, queries, keys])?;
        for (i, others) in
            [[&self.depth].as_slice(), &[&self.depth, &self.keys], &[&self.keys, &self.columns]].iter().enumerate()
        {
            let rows = self.rows.iter().filter(|_| i == 0);
            let axes = self.batch.iter().chain(rows).chain(others.iter().copied());
            let OperandView { buffer, ty, offset } = self.operands[i];
            check_bounds(offset, axes.map(|axis| (axis.dim, axis.strides[i])), buffer.len() / ty.size())?;
        }
        update::check(cx, self)?;
        if !self.writes_all_once() {
            return argument("attention: expected strides of a dense result");
        }
        for program in self.programs.iter().flatten() {
            program.check(cx, Type::F32, scores)?;
            if program.program.program.result() != Type::F32 || program.program.reduction.is_some() {
                return argument("attention: expected element-wise programs of f32");
            }
        }
        let [ty, ..] = self.operands.each_ref().map(|operand| operand.ty);
        let all = self.operands.iter().enumerate().all(|(i, operand)| operand.ty == ty && self.has_runs(i, 8));
        // Cooperative matrices are loaded from one buffer.
        let whole = all && self.ty == ty && self.updates.iter().all(Option::is_none);
        Ok(AttentionProblem { matrix_type: Some(ty).filter(|_| whole), ..problem })
    }

    /// Whether the strides of the result are those of a dense tensor with its axes in some order.
    fn writes_all_once(&self) -> bool {
        let axes = self.batch.iter().chain(&self.rows).chain([&self.columns]);
        let mut axes: Vec<(i64, u64)> =
            axes.filter(|axis| axis.dim != 1).map(|axis| (axis.strides[3], axis.dim)).collect();
        axes.sort_unstable();
        let mut expected = 1;
        axes.iter().all(|&(stride, dim)| {
            let fits = stride == expected;
            expected = expected.saturating_mul(dim as i64);
            fits
        })
    }

    fn kernel(
        &self,
        problem: &AttentionProblem,
        strategy: &AttentionStrategy,
        total: Compute,
        combine: bool,
    ) -> AttentionKernel {
        let &AttentionProblem { batches, queries, keys, depth, values, .. } = problem;
        let lengths = self.operands.iter().map(|operand| operand.buffer.len() / operand.ty.size());
        let lengths = lengths.chain(self.updates.iter().flatten().map(AttentionUpdate::len));
        let written = (batches * queries).saturating_mul((values + 3) * strategy.splits);
        let scores = (batches * queries).saturating_mul(keys.saturating_add(strategy.tile.keys.into()));
        let programs = self.programs.iter().flatten();
        let index64 = lengths.chain([written, scores]).any(|count| count >= 1 << 31)
            || programs.into_iter().any(|program| program.program.layout.index64);
        AttentionKernel {
            types: [self.operands[0].ty, self.operands[1].ty, self.operands[2].ty, self.ty],
            vectors: [0, 1, 2, 3].map(|i| self.has_runs(i, 4)),
            axes: [self.batch.len(), self.rows.len()],
            sizes: [depth, values],
            tile: strategy.tile,
            accumulator: strategy.accumulator,
            total,
            split: strategy.splits > 1,
            combine: combine.then_some(strategy.splits),
            ends_in_keys: self.programs.each_ref().map(|program| {
                let dims = program.as_ref().map(|program| &program.program.layout.dims);
                dims.is_some_and(|dims| dims.last() == Some(&keys))
            }),
            programs: self.programs.each_ref().map(|program| {
                let program = program.as_ref().filter(|_| !combine)?;
                let mut program = program.program.without_parameters();
                program.layout.index64 = index64;
                Some(program)
            }),
            updates: self
                .updates
                .each_ref()
                .map(|update| update.as_ref().filter(|_| !combine).map(AttentionUpdate::kernel)),
            index64,
        }
    }

    /// Whether runs of neighbours along a head are contiguous and aligned in an operand or, as the fourth, in the result.
    fn has_runs(&self, i: usize, run: u64) -> bool {
        let (along, rows, key) = match i {
            0 => (&self.depth, true, None),
            1 => (&self.depth, false, Some(&self.keys)),
            2 => (&self.columns, false, Some(&self.keys)),
            _ => (&self.columns, true, None),
        };
        let others = self.batch.iter().chain(self.rows.iter().filter(|_| rows)).chain(key);
        let offset = self.operands.get(i).map_or(0, |operand| operand.offset);
        let update = i.checked_sub(1).and_then(|i| self.updates.get(i)?.as_ref());
        along.dim.is_multiple_of(run)
            && update.is_none_or(|update| update.has_runs(&self.batch, run))
            && along.strides[i] == 1
            && is_whole(offset, run)
            && others.into_iter().all(|axis| axis.dim == 1 || is_whole(axis.strides[i], run))
    }
}
