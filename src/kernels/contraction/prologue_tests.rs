//! Contractions of a row that their kernel computes give the bits of two kernels.

use super::*;
use crate::graph::Operand;
use crate::kernels::fusion::run;
use crate::memory::Blocking;
use crate::program::rows::{RowOutput, RowProgram};
use crate::program::{Attribute, Axes, Input, Node, Program, Source, op};
use crate::tuning::contraction::Method;

fn node(name: &str, ty: Type, args: &[usize]) -> Node {
    Node { op: op::find(name).unwrap(), ty, args: args.into(), attribute: Attribute::None }
}

fn dense(ty: Type, strides: &[i64]) -> Input {
    Input { ty, source: Source::View { offset: 0, strides: strides.into() } }
}

/// Multiples of 1/8 in a type that holds them: sums of their squares are exact in double.
fn numbers(cx: &Context, ty: Type, count: u64, seed: u64) -> Buffer {
    let numbers: Vec<f32> = (seed..seed + count).map(|i| (i * 2_654_435_761 % 61) as f32 / 8.0 - 4.0).collect();
    let floats = cx.uncaptured().upload(bytemuck::cast_slice(&numbers), Blocking::Allowed).unwrap();
    let convert = Program {
        inputs: [dense(Type::F32, &[1])].into_iter().collect(),
        nodes: [node("as_type", ty, &[0])].into_iter().collect(),
        shape: [count].into_iter().collect(),
        output: None,
    };
    let allocation = floats.allocation().unwrap();
    run(cx, &convert, &[Operand::Buffer(&allocation, floats.len())]).unwrap()
}

fn bits(cx: &Context, buffer: &Buffer) -> Vec<u8> {
    cx.uncaptured().read(buffer, 0, buffer.len()).unwrap().bytes().to_vec()
}

/// A norm of a row of the type, with a gain: `as_type((x - max(x)) · rsqrt(sum(x · x)) · gain)`.
fn norm(ty: Type, len: u64) -> RowProgram {
    let reduce = |name: &str, arg| Node {
        op: op::find(name).unwrap(),
        ty: Type::F32,
        args: [arg].into_iter().collect(),
        attribute: Attribute::Axes(Axes::from_slice(&[1])),
    };
    let nodes = [
        node("as_type", Type::F32, &[0]),
        reduce("reduce_max", 2),
        node("subtract", Type::F32, &[2, 3]),
        node("multiply", Type::F32, &[2, 2]),
        reduce("sum", 5),
        node("rsqrt", Type::F32, &[6]),
        node("multiply", Type::F32, &[4, 7]),
        node("multiply", Type::F32, &[8, 1]),
        node("as_type", ty, &[9]),
    ];
    let program = Program {
        inputs: [dense(ty, &[len as i64, 1]), dense(Type::F32, &[0, 1])].into_iter().collect(),
        nodes: nodes.into_iter().collect(),
        shape: [1, len].into_iter().collect(),
        output: None,
    };
    RowProgram { program, row_axes: 1, outputs: vec![RowOutput { value: 10, of_element: true }], summed: None }
}

/// A row of `k` numbers, the operand of that position, with a matrix whose neighbours in memory are those along k or the other way.
fn contraction<'a>(
    (ty, position): (Type, usize),
    (row, matrix): (&'a Buffer, &'a Buffer),
    [n, k]: [i64; 2],
    along_k: bool,
) -> Contraction<'a> {
    let axis = |dim: i64, [of_row, of_matrix, c]: [i64; 3]| {
        let [a, b] = if position == 0 { [of_row, of_matrix] } else { [of_matrix, of_row] };
        vec![Axis { dim: dim as u64, a, b, c, padded: None }]
    };
    let [k_step, n_step] = if along_k { [1, k] } else { [n, 1] };
    let view = |buffer| OperandView { buffer, ty, offset: 0 };
    let (outputs, one) = (axis(n, [0, n_step, 1]), vec![]);
    let [(a, rows), (b, columns)] = match position {
        0 => [(view(row), one), (view(matrix), outputs)],
        _ => [(view(matrix), outputs), (view(row), one)],
    };
    let depth = axis(k, [1, k_step, 0]);
    Contraction { ty, a, b, batch: vec![], rows, columns, depth, padded_axes: vec![] }
}

/// Rows that fill the invocations' steps and do not, of whole vectors and not, longer than a workgroup keeps in registers.
const ROWS: [u64; 5] = [768, 1024, 1000, 77, 4099];

/// So few outputs that any GPU computes the row for each workgroup of them.
const FEW: u64 = 12;

#[test]
fn kernels_that_compute_a_row_give_the_bits_of_two() {
    let cx = &Context::new(crate::gpu::gpu().unwrap(), Blocking::Allowed);
    for (i, k) in ROWS.into_iter().enumerate() {
        for ty in [Type::F32, Type::F16, Type::BF16] {
            for (n, along_k, position) in [(300, i % 2 == 0, 0), (FEW, true, 1), (128, false, 1)] {
                check(cx, (ty, position), [n, k], along_k);
            }
        }
    }
}

fn check(cx: &Context, (ty, position): (Type, usize), [n, k]: [u64; 2], along_k: bool) {
    let name = format!("{ty:?}, {k} by {n}, along k: {along_k}, operand {position}");
    let inputs = [numbers(cx, ty, k, 3), numbers(cx, Type::F32, k, 50)];
    let allocations = inputs.each_ref().map(|buffer| buffer.allocation().unwrap());
    let operands = [0, 1].map(|i| Operand::Buffer(&allocations[i], inputs[i].len()));
    let program = norm(ty, k);
    let row = Row::new(cx, &program, &operands).unwrap();
    let matrix = numbers(cx, ty, n * k, 7);
    let memory = row.allocate(cx).unwrap();
    let contraction = || contraction((ty, position), (&memory, &matrix), [n as i64, k as i64], along_k);

    let strategy = choose(contraction().checked_shape(cx).unwrap(), cx.caps()).unwrap();
    let [row_memory, matrix_memory] = [&memory, &matrix].map(|buffer| buffer.allocation().unwrap());
    let [a, b] = if position == 0 { [&row_memory, &matrix_memory] } else { [&matrix_memory, &row_memory] };
    let one = launch::with_prologue(cx, &strategy, [a, b], (RowSource::Program(&row), position), None).unwrap();
    let takes = matches!(strategy.method, Method::Reduction(_)) && !cx.caps().cpu;
    // Longer rows may be split over workgroups, or keep too much for shared memory.
    assert!(if n == FEW && k <= 1024 { one.is_some() == takes } else { one.is_none() || takes }, "{name}");

    let result = contraction().run_on_row(cx, (&row, position), None).unwrap().result;
    row.write(cx, &row_memory).unwrap();
    let expected = contraction().run(cx, None).unwrap().result;
    assert_eq!(bits(cx, &result), bits(cx, &expected), "{name}");
}

#[test]
fn rows_of_other_lengths_are_refused_or_read_in_part() {
    let cx = &Context::new(crate::gpu::gpu().unwrap(), Blocking::Allowed);
    let inputs = [100, 100].map(|count| numbers(cx, Type::F32, count, 3));
    let allocations = inputs.each_ref().map(|buffer| buffer.allocation().unwrap());
    let operands = [0, 1].map(|i| Operand::Buffer(&allocations[i], inputs[i].len()));
    let program = norm(Type::F32, 100);
    let row = Row::new(cx, &program, &operands).unwrap();
    let (memory, matrix) = (row.allocate(cx).unwrap(), numbers(cx, Type::F32, 200 * 8, 7));
    let of_length = |k| contraction((Type::F32, 0), (&memory, &matrix), [8, k], false);
    assert!(of_length(101).run_on_row(cx, (&row, 0), None).is_err());
    let result = of_length(50).run_on_row(cx, (&row, 0), None).unwrap().result;
    let expected = of_length(50).run(cx, None).unwrap().result;
    assert_eq!(bits(cx, &result), bits(cx, &expected));

    let results = RowProgram { outputs: vec![RowOutput { value: 3, of_element: false }], ..program.clone() };
    assert!(Row::new(cx, &results, &operands).is_err());
    assert!(Row::new(cx, &program, &operands[..1]).is_err());
}
