//! Row programs that add up the parts of a product give the bits of the sum's kernel and their own, with a kernel less.

use super::epilogue_tests::{bits, contraction, upload};
use super::*;
use crate::error::{Error, Unfinished};
use crate::graph::{Operand, Recording};
use crate::kernels::fusion::{Epilogue, run, run_rows};
use crate::memory::Blocking;
use crate::program::epilogue::EpilogueProgram;
use crate::program::rows::{RowOutput, RowProgram};
use crate::program::{Attribute, Axes, Input, Node, Program, Source, op};
use crate::tuning::contraction::{TILES, choose_with_tile};

fn node(name: &str, ty: Type, args: &[usize]) -> Node {
    Node { op: op::find(name).unwrap(), ty, args: args.into(), attribute: Attribute::None }
}

fn input(ty: Type, strides: [i64; 2]) -> Input {
    Input { ty, source: Source::View { offset: 0, strides: Axes::from_slice(&strides) } }
}

fn program(inputs: &[Input], nodes: &[Node], shape: [u64; 2]) -> Program {
    Program { inputs: inputs.into(), nodes: nodes.into(), shape: Axes::from_slice(&shape), output: None }
}

/// The sum, the second input, plus a bias of the column, plus a residual.
fn residual(ty: Type, [m, n]: [u64; 2]) -> EpilogueProgram {
    let dense = [n as i64, 1];
    let inputs = [input(Type::F32, [0, 1]), input(ty, dense), input(Type::F32, dense)];
    let nodes = [node("add", Type::F32, &[1, 0]), node("add", ty, &[3, 2])];
    EpilogueProgram::new(program(&inputs, &nodes, [m, n]), 1, false).unwrap()
}

/// `(x - max(x)) · gain / sum(x · x)` of each row, with the gain as the first input, and the sum of squares as a result of its own.
fn norm(ty: Type, [m, n]: [u64; 2]) -> RowProgram {
    let reduce =
        |name: &str, arg| Node { attribute: Attribute::Axes(Axes::from_slice(&[1])), ..node(name, Type::F32, &[arg]) };
    let nodes = [
        node("as_type", Type::F32, &[1]),
        reduce("reduce_max", 2),
        node("multiply", Type::F32, &[2, 2]),
        reduce("sum", 4),
        node("subtract", Type::F32, &[2, 3]),
        node("multiply", Type::F32, &[6, 0]),
        node("divide", Type::F32, &[7, 5]),
        node("as_type", ty, &[8]),
    ];
    let inputs = [input(Type::F32, [0, 1]), input(ty, [n as i64, 1])];
    let outputs = vec![RowOutput { value: 9, of_element: true }, RowOutput { value: 5, of_element: false }];
    RowProgram { program: program(&inputs, &nodes, [m, n]), row_axes: 1, outputs, summed: None }
}

/// What reads the sum besides the row program.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Reader {
    Nothing,
    /// The definition, whose result it is.
    Caller,
    /// Another row program, afterwards.
    Later,
    /// A kernel before the row program.
    Earlier,
    /// The row program once more, as its gain.
    Twice,
}

/// A product of f32 whose k is in several parts.
#[derive(Clone, Copy, Debug)]
struct Split {
    sizes: [u64; 3],
    parts: u64,
    /// Whether the sums of the parts are doubles, where the device has them.
    doubles: bool,
    /// The type of the result.
    ty: Type,
    /// Whether it has an epilogue.
    epilogue: bool,
}

/// The commands of a recorded product, followed by row programs.
fn commands(cx: &Context, split: Split, reader: Reader) -> usize {
    let Split { sizes: [m, n, k], parts, doubles, ty, epilogue } = split;
    let name = format!("{split:?}, {reader:?}");
    let mut caps = cx.caps().clone();
    caps.float64 &= doubles;
    let factors = [upload(cx, m * k, 1), upload(cx, k * n, 77)];
    let others = [upload(cx, n, 5), upload(cx, m * n, 9)];
    let buffers = factors.iter().chain(&others).collect::<Vec<_>>();
    let allocations = buffers.iter().map(|buffer| buffer.allocation().unwrap()).collect::<Vec<_>>();
    let operands: Vec<_> = allocations
        .iter()
        .zip(&buffers)
        .map(|(allocation, buffer)| Operand::Buffer(allocation, buffer.len()))
        .collect();
    let multiply = |cx: &Context| {
        let program = Epilogue { program: residual(ty, [m, n]), operands: &operands[2..] };
        let shape = contraction(&factors, [1, m, n, k], ty).checked_shape(cx)?;
        let strategy = choose_with_tile(shape, &caps, (TILES[8], parts))?;
        let results = launch::run(cx, &strategy, [&allocations[0], &allocations[1]], epilogue.then_some(&program))?;
        Ok([results.result])
    };
    let normalise = |cx: &Context, sum: &Buffer| {
        let allocation = sum.allocation()?;
        let sum = Operand::Buffer(&allocation, sum.len());
        run_rows(cx, &norm(ty, [m, n]), &[if reader == Reader::Twice { sum } else { operands[2] }, sum])
    };
    let negate = |cx: &Context, sum: &Buffer| {
        let program = program(&[input(ty, [n as i64, 1])], &[node("negate", ty, &[0])], [m, n]);
        let negated: Attempt<Buffer> = run(cx, &program, &[Operand::Buffer(&sum.allocation()?, sum.len())]);
        negated.map(|negated| [negated])
    };
    let [sum] = multiply(cx).unwrap();
    let [negated] = negate(cx, &sum).unwrap();
    let rows = normalise(cx, &sum).unwrap();
    let expected: Vec<&Buffer> = match reader {
        Reader::Nothing | Reader::Twice => rows.iter().collect(),
        Reader::Caller => rows.iter().chain([&sum]).collect(),
        Reader::Later => rows.iter().chain(&rows).collect(),
        Reader::Earlier => rows.iter().chain([&negated]).collect(),
    };

    let (recording, sum) = Recording::new(&operands, &[], true).call(cx, multiply);
    let ([sum], mut recording) = (sum.unwrap(), recording.unwrap());
    let mut call = |call: &dyn Fn(&Context) -> Attempt<Vec<Buffer>>| {
        let (after, results) = std::mem::replace(&mut recording, Recording::new(&[], &[], false)).call(cx, call);
        recording = after.unwrap();
        results.unwrap()
    };
    let before = if reader == Reader::Earlier { call(&|cx| Ok(negate(cx, &sum)?.into())) } else { vec![] };
    let mut results = call(&|cx| normalise(cx, &sum));
    if reader == Reader::Later {
        results.extend(call(&|cx| normalise(cx, &sum)));
    }
    results.extend(before);
    let made: Vec<&Buffer> = results.iter().chain((reader == Reader::Caller).then_some(&sum)).collect();
    let graph = recording.graph(&made).unwrap().0;
    let replayed = graph.replay_all(cx, &operands, |_| Err(Error::Deallocated.into())).unwrap();
    assert_eq!(replayed.len(), expected.len());
    for results in [made, replayed.iter().collect()] {
        assert!(
            results.iter().zip(&expected).all(|(result, expected)| bits(cx, result) == bits(cx, expected)),
            "{name}"
        );
    }
    graph.commands()
}

#[test]
fn row_programs_add_up_the_parts_of_a_product() {
    let cx = &Context::new(crate::gpu::gpu().unwrap(), Blocking::Allowed);
    if cx.caps().exponential_loops {
        // The device has no row programs.
        let refused = run_rows(cx, &norm(Type::F32, [5, 21]), &[]);
        return assert!(matches!(refused, Err(Unfinished::Failed(Error::Unsupported(_)))));
    }
    // Vectors of four neighbours, and single ones.
    for (sizes, doubles) in [([33, 36, 200], true), ([33, 36, 200], false), ([5, 21, 300], true), ([5, 21, 300], false)]
    {
        for (ty, parts) in [(Type::F32, 3), (Type::F32, 13), (Type::BF16, 2), (Type::F16, 5)] {
            let own = usize::from(!cx.caps().float64 || !doubles && ty != Type::F32);
            for epilogue in [false, true] {
                let commands = |reader| commands(cx, Split { sizes, parts, doubles, ty, epilogue }, reader);
                assert_eq!(commands(Reader::Nothing), 2 + own);
                assert_eq!(commands(Reader::Caller), 2 + own);
                // The second row program reads the sum that the first one stores.
                assert_eq!(commands(Reader::Later), 3 + own);
                // The sum has to be there before the row program.
                assert_eq!(commands(Reader::Earlier), 4);
                if ty == Type::F32 {
                    assert_eq!(commands(Reader::Twice), 3);
                }
            }
        }
    }
    // Parts that one workgroup reads for long.
    let long = Split { sizes: [2, 8200, 64], parts: 2, doubles: true, ty: Type::F32, epilogue: true };
    assert_eq!(commands(cx, long, Reader::Nothing), 3);
}
