//! Attention: the softmax of scaled and masked products of queries and keys, times values. This module owns the kernels around
//! `shaders/lib/attention.glsl` and `attention_matrix.glsl`; tiles and the split along the keys are the choice of `tuning::attention`, and where in an expression
//! attention is, the compiler's.

mod kernel;

use super::contraction::OperandView;
use super::fusion::Epilogue;
use super::launch;
use crate::error::{Attempt, Error};
use crate::graph::Context;
use crate::memory::Buffer;
use crate::program::layout::check_bounds;
use crate::program::types::Compute;
use crate::program::{MAX_RANK, Type, elements};
use crate::tuning::attention::{AttentionProblem, AttentionStrategy, KeyLoads, choose};
use kernel::{AttentionArgs, AttentionKernel};

/// The most elements of a key and of a value: workgroups hold whole ones.
pub const MAX_HEAD_ELEMENTS: u64 = 256;

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
}

impl Attention<'_> {
    /// Computes the dense result.
    pub fn run(&self, cx: &Context) -> Attempt<Buffer> {
        self.run_by(cx, |problem| choose(problem, cx.caps()))
    }

    fn run_by(&self, cx: &Context, choose: impl FnOnce(AttentionProblem) -> AttentionStrategy) -> Attempt<Buffer> {
        let caps = cx.caps();
        let problem = self.checked_problem(cx)?;
        let AttentionProblem { batches, queries, values, .. } = problem;
        let bytes = elements(&[batches, queries, values])? * self.ty.size();
        if bytes == 0 {
            return cx.zeroed(0);
        }
        let strategy = choose(problem);
        let [q, k, v] = self.operands.each_ref().map(|operand| operand.buffer.allocation());
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
        Ok(Buffer::new(bytes, result))
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
        if keys == 0 || !(1..=MAX_HEAD_ELEMENTS).contains(&depth) || values > MAX_HEAD_ELEMENTS {
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
        if !self.writes_all_once() {
            return argument("attention: expected strides of a dense result");
        }
        for program in self.programs.iter().flatten() {
            program.check(cx, Type::F32, scores)?;
            if program.program.program.result() != Type::F32 {
                return argument("attention: expected programs of f32");
            }
        }
        let [ty, ..] = self.operands.each_ref().map(|operand| operand.ty);
        let all = self.operands.iter().enumerate().all(|(i, operand)| operand.ty == ty && self.has_runs(i, 8));
        let whole = all && self.ty == ty;
        Ok(AttentionProblem { batches, queries, keys, depth, values, matrix_type: Some(ty).filter(|_| whole) })
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
        let lengths = self.operands.each_ref().map(|operand| operand.buffer.len() / operand.ty.size());
        let written = (batches * queries).saturating_mul((values + 3) * strategy.splits);
        let scores = (batches * queries).saturating_mul(keys.saturating_add(strategy.tile.keys.into()));
        let programs = self.programs.iter().flatten();
        let index64 = lengths.iter().chain([&written, &scores]).any(|&count| count >= 1 << 31)
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
        let aligned = |step: i64| step % run as i64 == 0;
        along.dim.is_multiple_of(run)
            && along.strides[i] == 1
            && aligned(offset)
            && others.into_iter().all(|axis| axis.dim == 1 || aligned(axis.strides[i]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Blocking;

    /// Numbers between -1 and 1.
    fn numbers(count: u64, seed: u64) -> Vec<f32> {
        (seed..seed + count).map(|i| (i * 2_654_435_761 % 1000) as f32 / 500.0 - 1.0).collect()
    }

    /// Attention of dense tensors: batches, queries, keys, elements of a key and of a value.
    struct Heads {
        sizes: [u64; 5],
        host: [Vec<f32>; 3],
        buffers: [Buffer; 3],
    }

    impl Heads {
        fn new(cx: &Context, sizes: [u64; 5]) -> Self {
            let [batches, queries, keys, depth, values] = sizes;
            let counts = [queries * depth, keys * depth, keys * values];
            let host = [0, 1, 2].map(|i| numbers(batches * counts[i], i as u64 * 77));
            let upload =
                |data: &Vec<f32>| cx.uncaptured().upload(bytemuck::cast_slice(data), Blocking::Allowed).unwrap();
            Self { sizes, buffers: host.each_ref().map(upload), host }
        }

        fn attention(&self) -> Attention<'_> {
            let [batches, queries, keys, depth, values] = self.sizes.map(|size| size as i64);
            let axis = |dim: i64, strides| AttentionAxis { dim: dim as u64, strides };
            Attention {
                ty: Type::F32,
                operands: self.buffers.each_ref().map(|buffer| OperandView { buffer, ty: Type::F32, offset: 0 }),
                batch: vec![axis(batches, [queries * depth, keys * depth, keys * values, queries * values])],
                rows: vec![axis(queries, [depth, 0, 0, values])],
                depth: axis(depth, [1, 1, 0, 0]),
                keys: axis(keys, [0, depth, values, 0]),
                columns: axis(values, [0, 0, 1, 1]),
                programs: [None, None],
            }
        }

        /// Fails where the result is off by more than some ulps of the largest value.
        fn check(&self, cx: &Context, result: &Buffer, strategy: &AttentionStrategy) {
            let [batches, queries, keys, depth, values] = self.sizes.map(|size| size as usize);
            let read = cx.uncaptured().read(result, 0, result.len()).unwrap();
            let result: Vec<f32> = bytemuck::allocation::pod_collect_to_vec(read.bytes());
            assert_eq!(result.len(), batches * queries * values);
            for (row, results) in result.chunks(values).enumerate() {
                let batch = row / queries;
                let query = &self.host[0][row * depth..][..depth];
                let weight = |key: usize| -> f64 {
                    let key = &self.host[1][(batch * keys + key) * depth..][..depth];
                    query.iter().zip(key).map(|(&q, &k)| f64::from(q) * f64::from(k)).sum::<f64>().exp()
                };
                let weights: Vec<f64> = (0..keys).map(weight).collect();
                for (column, &value) in results.iter().enumerate() {
                    let of_key = |key: usize| f64::from(self.host[2][(batch * keys + key) * values + column]);
                    let sum: f64 = weights.iter().enumerate().map(|(key, weight)| weight * of_key(key)).sum();
                    let mean = sum / weights.iter().sum::<f64>();
                    assert!(
                        (f64::from(value) - mean).abs() < 1e-6,
                        "{strategy:?}, row {row}, column {column}: {value} {mean}"
                    );
                }
            }
        }
    }

    #[test]
    fn tiles_of_gpus_and_parts_of_the_keys_agree_with_means() {
        let cx = &Context::new(crate::gpu::gpu().unwrap(), Blocking::Allowed);
        let mut caps = cx.caps().clone();
        caps.cpu = false;
        // Whole and partial tiles, heads of whole vectors and others, and values narrower than a tile has threads.
        for (sizes, splits) in
            [([2, 20, 50, 12, 8], 1), ([1, 9, 70, 7, 70], 2), ([3, 1, 200, 16, 6], 3), ([1, 3, 90, 5, 64], 1)]
        {
            let heads = Heads::new(cx, sizes);
            let mut chosen = None;
            let result = heads.attention().run_by(cx, |problem| {
                let mut strategy = choose(problem, &caps);
                strategy.chunk = sizes[2].div_ceil(splits).next_multiple_of(strategy.tile.keys.into());
                strategy.splits = sizes[2].div_ceil(strategy.chunk);
                *chosen.insert(strategy)
            });
            heads.check(cx, &result.unwrap(), &chosen.unwrap());
        }
    }

    #[test]
    fn operands_that_are_too_small_are_refused() {
        let cx = &Context::new(crate::gpu::gpu().unwrap(), Blocking::Allowed);
        let heads = Heads::new(cx, [2, 3, 4, 5, 6]);
        for change in [
            |attention: &mut Attention| attention.keys.dim = 5,
            |attention: &mut Attention| attention.batch[0].strides[0] = 16,
            |attention: &mut Attention| attention.columns.strides[3] = 2,
            |attention: &mut Attention| attention.operands[2].offset = 1,
            |attention: &mut Attention| attention.depth.dim = 0,
            |attention: &mut Attention| attention.ty = Type::F64,
        ] {
            let mut attention = heads.attention();
            change(&mut attention);
            assert!(attention.run(cx).is_err());
        }
    }
}
