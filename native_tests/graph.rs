//! Graphs: a captured call is replayed on other operands, and a call that commands do not tell the whole of is not captured.

#![allow(
    missing_docs,
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "no one links a crate of tests, whose helpers may panic as the tests do"
)]

mod support;

use nx_vulkan::error::{Attempt, Error, Retry};
use nx_vulkan::graph::{Context, Graph, Operand, Recording, ResultSource};
use nx_vulkan::kernels::contraction::{Axis, Contraction, OperandView};
use nx_vulkan::kernels::linalg::{Matrices, cholesky};
use nx_vulkan::kernels::{Tensor, fusion};
use nx_vulkan::memory::{Blocking, Buffer};
use nx_vulkan::program::{Attribute, Input, Program, Source, Type};
use nx_vulkan::stream::Copy;
use support::{context, device, download, node, upload, with};

const N: u64 = 300_000;

/// The sum of a vector's products with a scalar: on every device in two passes.
fn scaled_sum(cx: &Context, operands: &[Operand]) -> Attempt<[Buffer; 1]> {
    let view = Input { ty: Type::F32, source: Source::View { offset: 0, strides: [1].into_iter().collect() } };
    let scalar = Input { ty: Type::F32, source: Source::Scalar };
    let sum = with("sum", Type::F32, &[2], Attribute::Axes([0].into_iter().collect()));
    let nodes = [node("multiply", Type::F32, &[0, 1]), sum].into_iter().collect();
    let program =
        Program { inputs: [view, scalar].into_iter().collect(), nodes, shape: [N].into_iter().collect(), output: None };
    Ok([fusion::run(cx, &program, operands)?])
}

fn scalar(index: usize, x: f32) -> Operand<'static> {
    let mut value = [0; 16];
    value[..4].copy_from_slice(&x.to_ne_bytes());
    Operand::Scalar { index, value }
}

#[test]
fn a_graph_is_replayed_on_other_allocations_and_values() {
    let [ones, twos] = [1f32, 2.0].map(|x| upload(&vec![x; N as usize]));
    let allocations = [&ones, &twos].map(|buffer| buffer.allocation().unwrap());
    let operands = [&allocations[0], &allocations[1]].map(|allocation| Operand::Buffer(allocation, 4 * N));
    let captured = [operands[0], scalar(1, 3.0)];
    let ([sum], graph) = Graph::capture(&context(), &captured, |cx| scaled_sum(cx, &captured)).unwrap();
    assert_eq!(download::<f32>(&sum), [3.0 * N as f32]);
    let graph = graph.unwrap();
    for (operand, x, expected) in [(operands[1], 5.0, 10.0), (operands[0], 7.0, 7.0), (operands[1], 0.0, 0.0)] {
        let operands = [operand, scalar(1, x)];
        assert!(graph.fits(&operands));
        let [sum] = graph.replay(&context(), &operands).unwrap();
        assert_eq!(download::<f32>(&sum), [expected * N as f32]);
    }
}

#[test]
fn a_graph_is_for_operands_of_its_sizes() {
    let [exact, longer] = [N, N + 1].map(|n| upload(&vec![1f32; n as usize]));
    let allocations = [&exact, &longer].map(|buffer| buffer.allocation().unwrap());
    let operand = |i: usize, buffer: &Buffer| Operand::Buffer(&allocations[i], buffer.len());
    let operands = [operand(0, &exact), scalar(1, 1.0)];
    let graph = Graph::capture(&context(), &operands, |cx| scaled_sum(cx, &operands)).unwrap().1.unwrap();
    assert!(graph.fits(&operands));
    assert!(!graph.fits(&[operand(1, &longer), scalar(1, 1.0)]));
    assert!(!graph.fits(&operands[..1]));
}

#[test]
fn a_graph_has_the_results_that_were_captured() {
    let ones = upload(&vec![1f32; N as usize]);
    let allocation = ones.allocation().unwrap();
    let operands = [Operand::Buffer(&allocation, 4 * N), scalar(1, 1.0)];
    let graph = Graph::capture(&context(), &operands, |cx| scaled_sum(cx, &operands)).unwrap().1.unwrap();
    assert!(graph.replay::<2>(&context(), &operands).is_err());
}

#[test]
fn contractions_are_captured() {
    // In one kernel or several, and as a reduction.
    for [m, n, k] in [[3, 5, 7], [70, 66, 200], [2, 3, 90_000], [1, 6, 5000]] {
        let sizes = [m * k, k * n];
        let buffers = [1f32, 2.0].map(|x| sizes.map(|size| upload(&vec![x; size as usize])));
        let axis =
            |dim, a: u64, b: u64, c: u64| vec![Axis { dim, a: a as i64, b: b as i64, c: c as i64, padded: None }];
        let contract = |cx: &Context, [a, b]: [&Buffer; 2]| -> Attempt<[Buffer; 1]> {
            let view = |buffer| OperandView { buffer, ty: Type::F32, offset: 0 };
            let contraction = Contraction {
                ty: Type::F32,
                a: view(a),
                b: view(b),
                batch: vec![],
                rows: axis(m, k, 0, n),
                columns: axis(n, 0, 1, 1),
                depth: axis(k, 1, n, 0),
                padded_axes: vec![],
            };
            Ok([contraction.run(cx, None)?.result])
        };
        let allocations = buffers.each_ref().map(|pair| pair.each_ref().map(|buffer| buffer.allocation().unwrap()));
        let operands = |i: usize| [0, 1].map(|j| Operand::Buffer(&allocations[i][j], 4 * sizes[j]));
        let call = |cx: &Context| contract(cx, buffers[0].each_ref());
        let graph = Graph::capture(&context(), &operands(0), call).unwrap().1.unwrap();
        let [result] = graph.replay(&context(), &operands(1)).unwrap();
        assert_eq!(download::<f32>(&result), vec![4.0 * k as f32; (m * n) as usize], "{m}×{k}×{n}");
    }
}

#[test]
fn linear_algebra_in_many_commands_is_captured() {
    // A diagonal matrix, whose factor has the roots on its diagonal.
    let n = 100;
    let diagonal = |x: f32| (0..n * n).map(|i| if i % (n + 1) == 0 { x } else { 0.0 }).collect::<Vec<_>>();
    let buffers = [4.0, 9.0].map(|x| upload(&diagonal(x)));
    let allocations = buffers.each_ref().map(|buffer| buffer.allocation().unwrap());
    let operands = |i: usize| [Operand::Buffer(&allocations[i], 4 * n * n)];
    let shape = [n, n];
    let tensor = Tensor { buffer: &buffers[0], ty: Type::F32, shape: &shape };
    let matrices = Matrices::of(tensor).unwrap();
    let call = |cx: &Context| Ok([cholesky::run(cx, Type::F32, &matrices)?]);
    let graph = Graph::capture(&context(), &operands(0), call).unwrap().1.unwrap();
    assert!(graph.commands() > 2);
    let [factor] = graph.replay(&context(), &operands(1)).unwrap();
    assert_eq!(download::<f32>(&factor), diagonal(3.0));
}

#[test]
fn copies_and_zeros_are_captured() {
    let buffers = [1f32, 2.0].map(|x| upload(&[x; 64]));
    let allocations = buffers.each_ref().map(|buffer| buffer.allocation().unwrap());
    let call = |cx: &Context| {
        let to = cx.allocate(512)?;
        cx.zero(&to, 512)?;
        let from = &allocations[0];
        cx.copy(&Copy { from, from_offset: 128, to: &to, to_offset: 256, len: 128, to_host: false })?;
        Ok([Buffer::new(512, to)])
    };
    let graph = Graph::capture(&context(), &[Operand::Buffer(&allocations[0], 256)], call).unwrap().1.unwrap();
    let [result] = graph.replay(&context(), &[Operand::Buffer(&allocations[1], 256)]).unwrap();
    let expected: Vec<f32> = (0..128).map(|i| if (64..96).contains(&i) { 2.0 } else { 0.0 }).collect();
    assert_eq!(download::<f32>(&result), expected);
}

#[test]
fn a_long_graph_is_refused_where_the_call_may_not_block() {
    let one = upload(&[1f32; 64]);
    let allocation = one.allocation().unwrap();
    let operands = [Operand::Buffer(&allocation, 256)];
    let call = |cx: &Context| {
        let to = cx.allocate(256)?;
        (0..200).try_for_each(|_| cx.zero(&to, 256))?;
        Ok([Buffer::new(256, to)])
    };
    let graph = Graph::capture(&context(), &operands, call).unwrap().1.unwrap();
    let refused = graph.replay::<1>(&Context::new(device(), Blocking::Refused), &operands).err();
    assert_eq!(refused, Some(Retry::Blocking.into()));
    assert!(graph.replay::<1>(&context(), &operands).is_ok());
}

#[test]
fn what_commands_do_not_tell_the_whole_of_has_no_graph() {
    let ones = upload(&vec![1f32; N as usize]);
    let allocation = ones.allocation().unwrap();
    let operands = [Operand::Buffer(&allocation, 4 * N), scalar(1, 1.0)];
    let has_graph = |operands: &[Operand], call: &dyn Fn(&Context) -> Attempt<[Buffer; 1]>| {
        Graph::capture(&context(), operands, call).unwrap().1.is_some()
    };
    assert!(has_graph(&operands, &|cx| scaled_sum(cx, &operands)));
    // Kernels that read what is no operand, or another value.
    assert!(!has_graph(&operands[1..], &|cx| scaled_sum(cx, &operands)));
    assert!(!has_graph(&[operands[0], scalar(1, 2.0)], &|cx| scaled_sum(cx, &operands)));
    // Commands past the context, and a result that no command wrote.
    let uploads = |cx: &Context| {
        cx.uncaptured().upload(&[1; 4], Blocking::Allowed)?;
        scaled_sum(cx, &operands)
    };
    assert!(!has_graph(&operands, &uploads));
    assert!(!has_graph(&operands, &|cx| Ok([Buffer::new(4, cx.allocate(4)?)])));
    // A call that fails.
    let failed = Graph::capture::<1>(&context(), &operands, |_| Err(Error::SizeMismatch.into()));
    assert!(failed.is_err());
}

/// Two passes; the products have a kernel of their own where loops take long to build.
fn commands_of_scaled_sum() -> usize {
    2 + usize::from(device().caps.exponential_loops)
}

/// A recording of two calls: the sums of a vector's products with 3 and of another's with 5.
fn record(a: &Buffer, b: &Buffer) -> (Recording, [Buffer; 2]) {
    let allocations = [a, b].map(|buffer| buffer.allocation().unwrap());
    let operands = [0, 1].map(|i| Operand::Buffer(&allocations[i], 4 * N));
    let recording = Recording::new(&operands, &[], true);
    let first = [operands[0], scalar(1, 3.0)];
    let (recording, first) = recording.call(&context(), |cx| scaled_sum(cx, &first));
    // What is to be repeated is captured once.
    let refused = |cx: &Context| {
        scaled_sum(cx, &[operands[1], scalar(1, 1.0)])?;
        Err::<[Buffer; 1], _>(Retry::Blocking.into())
    };
    let (recording, repeated) = recording.unwrap().call(&context(), refused);
    assert!(repeated.is_err());
    let second = [operands[1], scalar(1, 5.0)];
    let (recording, second) = recording.unwrap().call(&context(), |cx| scaled_sum(cx, &second));
    let ([first], [second]) = (first.unwrap(), second.unwrap());
    (recording.unwrap(), [first, second])
}

#[test]
fn recorded_calls_are_one_graph() {
    let buffers = [1f32, 2.0, 4.0].map(|x| upload(&vec![x; N as usize]));
    let (recording, [first, second]) = record(&buffers[0], &buffers[1]);
    let (graph, sources) = recording.graph(&[&second, &buffers[1], &second, &first]).unwrap();
    use ResultSource::{Input, Made};
    assert_eq!(sources, [Made(0), Input(1), Made(0), Made(1)]);
    assert_eq!(graph.commands(), 2 * commands_of_scaled_sum());
    let allocations = buffers.each_ref().map(|buffer| buffer.allocation().unwrap());
    let operands = [2, 0].map(|i: usize| Operand::Buffer(&allocations[i], 4 * N));
    assert!(graph.fits(&operands));
    let results = graph.replay_all(&context(), &operands, |_| Err(Error::Deallocated.into())).unwrap();
    let expected = [5.0, 12.0].map(|x| vec![x * N as f32]);
    assert_eq!([0, 1].map(|i: usize| download::<f32>(&results[i])), expected);
}

#[test]
fn what_nothing_reads_is_left_out() {
    let [a, b] = [1f32, 2.0].map(|x| upload(&vec![x; N as usize]));
    for (result, expected) in [(0, 12.0), (1, 5.0)] {
        let (recording, sums) = record(&a, &b);
        let graph = recording.graph(&[&sums[result]]).unwrap().0;
        assert_eq!(graph.commands(), commands_of_scaled_sum());
        let other = upload(&vec![4f32; N as usize]);
        let allocations = [&other, &a].map(|buffer| buffer.allocation().unwrap());
        let operands = [0, 1].map(|i: usize| Operand::Buffer(&allocations[i], 4 * N));
        let results = graph.replay_all(&context(), &operands, |_| Err(Error::Deallocated.into())).unwrap();
        assert_eq!(download::<f32>(&results[0]), [expected * N as f32]);
    }
    assert_eq!(record(&a, &b).0.graph(&[&a]).unwrap().0.commands(), 0);
}

#[test]
fn a_recording_of_one_buffer_twice_is_for_one_buffer_twice() {
    let [a, b] = [1f32, 2.0].map(|x| upload(&vec![x; N as usize]));
    let allocations = [&a, &b].map(|buffer| buffer.allocation().unwrap());
    let operands = |i: usize, j: usize| [i, j].map(|i| Operand::Buffer(&allocations[i], 4 * N));
    let (recording, [sum, _]) = record(&a, &a);
    let graph = recording.graph(&[&sum]).unwrap().0;
    assert!(graph.fits(&operands(1, 1)) && !graph.fits(&operands(0, 1)));
    let (recording, [sum, _]) = record(&a, &b);
    let graph = recording.graph(&[&sum]).unwrap().0;
    assert!(graph.fits(&operands(1, 0)) && graph.fits(&operands(1, 1)));
}

#[test]
fn constants_are_kept_and_what_is_unknown_is_not_recorded() {
    let ones = upload(&vec![1f32; N as usize]);
    let allocation = ones.allocation().unwrap();
    let operands = [Operand::Buffer(&allocation, 4 * N), scalar(1, 2.0)];
    let (recording, _) = Recording::new(&[], &[], false).call(&context(), |cx| scaled_sum(cx, &operands));
    assert!(recording.is_none());
    let mut recording = Recording::new(&[], &[], false);
    recording.constant(allocation.clone());
    let (recording, sum) = recording.call(&context(), |cx| scaled_sum(cx, &operands));
    let graph = recording.unwrap().graph(&[&sum.unwrap()[0]]).unwrap().0;
    drop(allocation);
    ones.free();
    // Other memory is not that of the constant.
    let _others: Vec<_> = (0..3).map(|_| upload(&vec![7f32; N as usize])).collect();
    let results = graph.replay_all(&context(), &[], |_| Err(Error::Deallocated.into())).unwrap();
    assert_eq!(download::<f32>(&results[0]), [2.0 * N as f32]);
    // The result must be made by the calls.
    let other = upload(&[1f32]);
    assert!(Recording::new(&[], &[], false).graph(&[&other]).is_none());
}

#[test]
fn what_is_computed_of_constants_alone_is_computed_once() {
    let [ones, inputs] = [1f32, 2.0].map(|x| upload(&vec![x; N as usize]));
    let [constant, input] = [&ones, &inputs].map(|buffer| buffer.allocation().unwrap());
    let operands = [Operand::Buffer(&constant, 4 * N), scalar(1, 2.0)];
    let record = |folding| {
        let mut recording = Recording::new(&[Operand::Buffer(&input, 4 * N)], &[], folding);
        recording.constant(constant.clone());
        let (recording, sum) = recording.call(&context(), |cx| scaled_sum(cx, &operands));
        let [sum] = sum.unwrap();
        let sums = sum.allocation().unwrap();
        let beside_input = |cx: &Context| {
            let to = cx.allocate(8)?;
            for (from, to_offset) in [(&sums, 0), (&input, 4)] {
                cx.copy(&Copy { from, from_offset: 0, to: &to, to_offset, len: 4, to_host: false })?;
            }
            Ok([Buffer::new(8, to)])
        };
        let (recording, both) = recording.unwrap().call(&context(), beside_input);
        (recording.unwrap(), sum, both.unwrap())
    };
    for (folding, commands) in [(true, 2), (false, 2 + commands_of_scaled_sum())] {
        let (recording, _, [both]) = record(folding);
        assert_eq!(recording.folded(), folding);
        let graph = recording.graph(&[&both]).unwrap().0;
        assert_eq!(graph.commands(), commands);
        let other = upload(&vec![5f32; N as usize]);
        let results = graph
            .replay_all(&context(), &[Operand::Buffer(&other.allocation().unwrap(), 4 * N)], |_| {
                Err(Error::Deallocated.into())
            })
            .unwrap();
        assert_eq!(download::<f32>(&results[0]), [2.0 * N as f32, 5.0]);
    }
    // A result has memory of its own.
    assert!([true, false].map(record).map(|(recording, sum, _)| recording.graph(&[&sum]).is_none()) == [true, false]);
}
