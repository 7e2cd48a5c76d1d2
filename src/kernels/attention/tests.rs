//! Attention against means that the host computes, of tiles and updates that devices would not choose here.

use super::*;
use crate::graph::{Operand, Recording};
use crate::kernels::contraction::{Axis, Contraction};
use crate::memory::Blocking;
use crate::program::epilogue::EpilogueProgram;
use crate::program::{Attribute, Axes, Input, Node, Program, Source, dense_strides, op};

/// Numbers between -1 and 1.
fn numbers(count: u64, seed: u64) -> Vec<f32> {
    (seed..seed + count).map(|i| (i * 2_654_435_761 % 1000) as f32 / 500.0 - 1.0).collect()
}

fn upload<T: bytemuck::NoUninit>(cx: &Context, data: &[T]) -> Buffer {
    cx.uncaptured().upload(bytemuck::cast_slice(data), Blocking::Allowed).unwrap()
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
        Self { sizes, buffers: host.each_ref().map(|data| upload(cx, data)), host }
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
            updates: [None, None],
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
        heads.check(cx, &result.unwrap()[0], &chosen.unwrap());
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

fn bits(cx: &Context, buffer: &Buffer) -> Vec<u32> {
    let read = cx.uncaptured().read(buffer, 0, buffer.len()).unwrap();
    bytemuck::allocation::pod_collect_to_vec(read.bytes())
}

/// A key and a value for each batch, one after the other; the elements of small keys are in reverse.
struct NewRows {
    sizes: [u64; 5],
    host: Vec<f32>,
    buffer: Buffer,
}

impl NewRows {
    fn new(cx: &Context, sizes: [u64; 5]) -> Self {
        let [batches, _, _, depth, values] = sizes;
        let host = numbers(batches * (depth + values), 4321);
        Self { sizes, buffer: upload(cx, &host), host }
    }

    /// The first element and the strides, along the batches and a head, of the keys or the values.
    fn view(&self, i: usize) -> (i64, [i64; 2]) {
        let [_, _, _, depth, values] = self.sizes.map(|size| size as i64);
        let batch = depth + values;
        match i {
            0 if depth < 64 => (depth - 1, [batch, -1]),
            0 => (0, [batch, 1]),
            _ => (depth, [batch, 1]),
        }
    }

    /// Puts them into keys or values of the host.
    fn put(&self, i: usize, position: u64, into: &mut [f32]) {
        let [batches, _, keys, depth, values] = self.sizes;
        let (first, [batch_stride, stride]) = self.view(i);
        let len = [depth, values][i];
        for (batch, d) in (0..batches).flat_map(|batch| (0..len).map(move |d| (batch, d))) {
            let from = first + batch as i64 * batch_stride + d as i64 * stride;
            into[((batch * keys + position) * len + d) as usize] = self.host[from as usize];
        }
    }

    fn update<'a>(&'a self, i: usize, position: RowPosition<'a>) -> AttentionUpdate<'a> {
        let (offset, [batch, head]) = self.view(i);
        let row = OperandView { buffer: &self.buffer, ty: Type::F32, offset };
        AttentionUpdate { row, batch: vec![batch], head, position }
    }
}

/// A program that negates scores, of a kernel whose indices have 64 bits.
fn negate_by_long_indices([batches, queries, keys, ..]: [u64; 5]) -> Epilogue<'static> {
    let shape = Axes::from_slice(&[batches, queries, keys]);
    let input = Input { ty: Type::F32, source: Source::View { offset: 0, strides: dense_strides(&shape) } };
    let args = [0].into_iter().collect();
    let node = Node { op: op::find("negate").unwrap(), ty: Type::F32, args, attribute: Attribute::None };
    let (inputs, nodes) = ([input].into_iter().collect(), [node].into_iter().collect());
    let mut program = EpilogueProgram::new(Program { inputs, nodes, shape, output: None }, 0, false).unwrap();
    program.layout.index64 = true;
    Epilogue { program, operands: &[] }
}

#[test]
fn an_attention_that_puts_rows_has_the_bits_of_one_that_reads_them() {
    let cx = &Context::new(crate::gpu::gpu().unwrap(), Blocking::Allowed);
    let mut gpu = cx.caps().clone();
    gpu.cpu = false;
    // One query, several and several tiles of them, in one part and in several; vectors and elements; keys, values and both.
    for (sizes, splits, put) in [
        ([2, 1, 130, 64, 64], 1, [true, true]),
        ([3, 3, 200, 16, 64], 3, [true, true]),
        ([1, 9, 70, 7, 70], 2, [true, true]),
        ([2, 1, 50, 12, 8], 1, [true, false]),
        ([2, 1, 50, 12, 8], 1, [false, true]),
    ] {
        let keys = sizes[2];
        let (heads, rows) = (Heads::new(cx, sizes), NewRows::new(cx, sizes));
        let updated: Vec<usize> = [0, 1].into_iter().filter(|&i| put[i]).collect();
        let long = sizes[1] == 3 && cx.caps().int64;
        let programs = || [long.then(|| negate_by_long_indices(sizes)), None];
        // Positions in a buffer may be out of bounds.
        for (position, stored) in [(0, 0), (keys / 2, keys as i64 / 2), (keys - 1, 1 << 40), (0, -5)] {
            let mut host = heads.host.clone();
            updated.iter().for_each(|&i| rows.put(i, position, &mut host[i + 1]));
            let after = Heads { sizes, buffers: host.each_ref().map(|data| upload(cx, data)), host };
            let stored = upload(cx, &[stored]);
            let stored = RowPosition::Stored(&stored, Type::S64);
            for (caps, position) in [(&gpu, RowPosition::Known(position)), (&gpu, stored), (cx.caps(), stored)] {
                let run = |attention: &Attention| {
                    let results = attention.run_by(cx, |problem| {
                        let mut strategy = choose(problem, caps);
                        strategy.chunk = keys.div_ceil(splits).next_multiple_of(strategy.tile.keys.into());
                        strategy.splits = keys.div_ceil(strategy.chunk);
                        strategy
                    });
                    results.unwrap().iter().map(|result| bits(cx, result)).collect::<Vec<_>>()
                };
                let updates = [0, 1].map(|i| put[i].then(|| rows.update(i, position)));
                let mut expected = run(&Attention { programs: programs(), ..after.attention() });
                expected.extend(updated.iter().map(|&i| bits(cx, &after.buffers[i + 1])));
                assert!(
                    run(&Attention { updates, programs: programs(), ..heads.attention() }) == expected,
                    "{sizes:?} {put:?}"
                );
            }
        }
        // What is updated is not written over.
        for (buffer, host) in heads.buffers.iter().zip(&heads.host) {
            assert_eq!(bits(cx, buffer), bits(cx, &upload(cx, host)));
        }
    }
}

/// Products of the result of an attention, as one row, with a matrix, in recordings: the number of commands where the parts of the keys must be combined
/// by a kernel of their own, and where the product's kernel may do that.
fn products_of_parts(cx: &Context, ty: Type, sizes: [u64; 5], splits: u64, along_k: bool) -> [usize; 2] {
    let heads = Heads::new(cx, sizes);
    let len = sizes[0] * sizes[1] * sizes[4];
    let outputs = 12;
    let narrow = |x: &f32| (x.to_bits() >> 16) as u16;
    let numbers = numbers(len * outputs, 5);
    let matrix = match ty {
        Type::F32 => upload(cx, &numbers),
        _ => upload(cx, &numbers.iter().map(narrow).collect::<Vec<_>>()),
    };
    let mut caps = cx.caps().clone();
    caps.cpu = false;
    let attend = |cx: &Context| {
        let attention = Attention { ty, ..heads.attention() };
        attention.run_by(cx, |problem| {
            let mut strategy = choose(problem, &caps);
            strategy.chunk = sizes[2].div_ceil(splits).next_multiple_of(strategy.tile.keys.into());
            strategy.splits = sizes[2].div_ceil(strategy.chunk);
            strategy
        })
    };
    let [k_step, n_step] = if along_k { [1, len as i64] } else { [outputs as i64, 1] };
    let axis = |dim, [a, b, c]: [i64; 3]| vec![Axis { dim, a, b, c, padded: None }];
    let multiply = |cx: &Context, row: &Buffer| {
        let view = |buffer| OperandView { buffer, ty, offset: 0 };
        let (columns, depth) = (axis(outputs, [0, n_step, 1]), axis(len, [1, k_step, 0]));
        let (a, b) = (view(row), view(&matrix));
        let product = Contraction { ty, a, b, batch: vec![], rows: vec![], columns, depth, padded_axes: vec![] };
        Ok([product.run(cx, None)?.result])
    };
    let operands = heads.buffers.each_ref().map(|buffer| (buffer.allocation().unwrap(), buffer.len()));
    let given = matrix.allocation().unwrap();
    let inputs: Vec<_> = operands.iter().map(|(allocation, len)| Operand::Buffer(allocation, *len)).collect();
    let inputs = [inputs, vec![Operand::Buffer(&given, matrix.len())]].concat();
    let expected = {
        let row = &attend(cx).unwrap()[0];
        let [product] = multiply(cx, row).unwrap();
        (bits(cx, row), bits(cx, &product))
    };
    let record = |keeps_row: bool| {
        let (recording, row) = Recording::new(&inputs, &[], true).call(cx, attend);
        let row = &row.unwrap()[0];
        let (recording, product) = recording.unwrap().call(cx, |cx| multiply(cx, row));
        let product = &product.unwrap()[0];
        let results = if keeps_row { vec![product, row] } else { vec![product] };
        let graph = recording.unwrap().graph(&results).unwrap().0;
        let replayed = graph.replay_all(cx, &inputs, |_| Err(Error::Deallocated.into())).unwrap();
        for (result, expected) in [product].into_iter().chain(&replayed).zip([&expected.1, &expected.1, &expected.0]) {
            assert!(bits(cx, result) == *expected, "{ty:?} {sizes:?} in {splits} parts, along k: {along_k}");
        }
        graph.commands()
    };
    [record(true), record(false)]
}

#[test]
fn products_combine_the_parts_of_keys_to_the_same_bits() {
    let cx = &Context::new(crate::gpu::gpu().unwrap(), Blocking::Allowed);
    for (sizes, splits) in [([3, 1, 200, 16, 8], 3), ([2, 1, 900, 8, 64], 12), ([4, 2, 90, 12, 4], 2)] {
        for (ty, along_k) in [(Type::F32, true), (Type::F32, false), (Type::BF16, true)] {
            let [with_row, without] = products_of_parts(cx, ty, sizes, splits, along_k);
            assert_eq!(without, with_row - usize::from(!cx.caps().cpu), "{ty:?} {sizes:?}");
        }
    }
    // Rows of other vectors, and of values that are not in their order, are read.
    let [with_row, without] = products_of_parts(cx, Type::F32, [3, 1, 200, 16, 6], 3, true);
    assert_eq!(without, with_row);
}

#[test]
fn updates_that_do_not_fit_are_refused() {
    let cx = &Context::new(crate::gpu::gpu().unwrap(), Blocking::Allowed);
    let heads = Heads::new(cx, [2, 1, 4, 5, 6]);
    let row = upload(cx, &numbers(12, 1));
    let small = upload(cx, &[0.0f32]);
    let view = |ty, offset| OperandView { buffer: &row, ty, offset };
    let valid =
        || AttentionUpdate { row: view(Type::F32, 0), batch: vec![6], head: 1, position: RowPosition::Known(3) };
    let run = |update| Attention { updates: [None, Some(update)], ..heads.attention() }.run(cx);
    assert_eq!(run(valid()).unwrap().len(), 2);
    for update in [
        AttentionUpdate { row: view(Type::F16, 0), ..valid() },
        AttentionUpdate { row: view(Type::F32, 1), ..valid() },
        AttentionUpdate { row: view(Type::F32, -1), ..valid() },
        AttentionUpdate { batch: vec![], ..valid() },
        AttentionUpdate { batch: vec![7], ..valid() },
        AttentionUpdate { head: 2, ..valid() },
        AttentionUpdate { position: RowPosition::Known(4), ..valid() },
        AttentionUpdate { position: RowPosition::Stored(&small, Type::F32), ..valid() },
        AttentionUpdate { position: RowPosition::Stored(&small, Type::S64), ..valid() },
    ] {
        assert!(run(update).is_err());
    }
}
