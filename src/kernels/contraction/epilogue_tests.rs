//! Contractions with an epilogue, by every method, give the bits of the contraction and of the epilogue on its own.

use super::*;
use crate::device::Capabilities;
use crate::error::Result;
use crate::graph::Operand;
use crate::kernels::fusion::{Epilogue, EpilogueResults};
use crate::memory::Blocking;
use crate::program::epilogue::EpilogueProgram;
use crate::program::{Attribute, Axes, Input, Node, PaddedCoordinate, PaddedView, Program, Source, op};
use crate::tuning::contraction::{EpilogueUse, Method, Strategy, TILES, choose_with_tile, epilogue_use};

pub(super) fn upload(cx: &Context, count: u64, seed: u64) -> Buffer {
    let numbers: Vec<f32> = (seed..seed + count).map(|i| (i * 2_654_435_761 % 61) as f32 / 8.0 - 4.0).collect();
    cx.uncaptured().upload(bytemuck::cast_slice(&numbers), Blocking::Allowed).unwrap()
}

pub(super) fn bits(cx: &Context, buffer: &Buffer) -> Vec<u8> {
    cx.uncaptured().read(buffer, 0, buffer.len()).unwrap().bytes().to_vec()
}

/// Matrices of f32, `[batch, m, n, k]`.
pub(super) fn contraction([a, b]: &[Buffer; 2], [batch, m, n, k]: [u64; 4], ty: Type) -> Contraction<'_> {
    let axis = |dim: u64, [a, b, c]: [u64; 3]| vec![Axis { dim, a: a as i64, b: b as i64, c: c as i64, padded: None }];
    let view = |buffer| OperandView { buffer, ty: Type::F32, offset: 0 };
    Contraction {
        ty,
        a: view(a),
        b: view(b),
        batch: axis(batch, [m * k, k * n, m * n]),
        rows: axis(m, [k, 0, n]),
        columns: axis(n, [0, 1, 1]),
        depth: axis(k, [1, n, 0]),
        padded_axes: vec![],
    }
}

/// `function(element + bias of the column, a number) · another tensor · scale of the row`, in the type `to`; the element is the second of
/// five inputs. The others begin with the element `offset` of their buffers.
fn program([batch, m, n, _]: [u64; 4], ty: Type, function: &str, to: Type, offset: i64) -> Program {
    let view =
        |ty, strides: [i64; 3]| Input { ty, source: Source::View { offset, strides: strides.into_iter().collect() } };
    let (m_, n_) = (m as i64, n as i64);
    let dense = [m_ * n_, n_, 1];
    let element = Input { ty, source: Source::View { offset: 0, strides: dense.into_iter().collect() } };
    let inputs = [
        view(Type::F32, [0, 0, 1]),
        element,
        view(Type::F32, dense),
        Input { ty: Type::F32, source: Source::Scalar },
        view(Type::F32, [m_, 1, 0]),
    ];
    let node = |name: &str, ty, args: &[usize]| {
        let op = op::find(name).unwrap();
        Node { op, ty, args: args[..op.arity].into(), attribute: Attribute::None }
    };
    let nodes = [
        node("add", Type::F32, &[1, 0]),
        node(function, Type::F32, &[5, 3]),
        node("multiply", Type::F32, &[6, 2]),
        node("multiply", Type::F32, &[7, 4]),
        node("as_type", to, &[8]),
    ];
    Program {
        inputs: inputs.into_iter().collect(),
        nodes: nodes.into_iter().collect(),
        shape: [batch, m, n].into_iter().collect(),
        output: None,
    }
}

/// Fails unless the strategy's kernel takes the epilogue, but for a compute-bound one of panels and on a device that compiles long loops
/// in exponential time, and gives the bits of two kernels.
fn check(
    cx: &Context,
    (sizes, ty): ([u64; 4], Type),
    (function, to, keep): (&str, Type, bool),
    offset: u64,
    choose: impl Fn(ContractionShape, &Capabilities) -> Result<Strategy>,
) {
    let name = format!("{sizes:?} {ty:?} {function} {to:?} {offset}");
    let program = program(sizes, ty, function, to, offset as i64);
    check_program(cx, (sizes, ty), (program, keep), (offset, name), choose);
}

/// As [`check`], of a program like [`program`].
fn check_program(
    cx: &Context,
    (sizes, ty): ([u64; 4], Type),
    (program, keep): (Program, bool),
    (offset, name): (u64, String),
    choose: impl Fn(ContractionShape, &Capabilities) -> Result<Strategy>,
) {
    let [batch, m, n, k] = sizes;
    let factors = [upload(cx, batch * m * k, 1), upload(cx, batch * k * n, 77)];
    let others = [n, batch * m * n, batch * m].map(|count| upload(cx, count + offset, 5));
    let allocations = others.each_ref().map(|buffer| buffer.allocation().unwrap());
    let mut value = [0; 16];
    value[..4].copy_from_slice(&0.5f32.to_ne_bytes());
    let operands = [
        Operand::Buffer(&allocations[0], others[0].len()),
        Operand::Buffer(&allocations[1], others[1].len()),
        Operand::Scalar { index: 4, value },
        Operand::Buffer(&allocations[2], others[2].len()),
    ];
    let program = EpilogueProgram::new(program, 1, keep).unwrap();
    let epilogue = Epilogue { program, operands: &operands };
    let run = |epilogue: Option<&Epilogue>| {
        let [a, b] = factors.each_ref().map(|buffer| buffer.allocation().unwrap());
        let shape = contraction(&factors, sizes, ty).checked_shape(cx).unwrap();
        let strategy = choose(shape, cx.caps()).unwrap();
        if let Some(epilogue) = epilogue {
            let uses = epilogue_use(&strategy.method, &epilogue.program, cx.caps());
            let compute_bound = matches!(strategy.method, Method::Panels(..)) && epilogue.program.is_compute_bound();
            let separate = compute_bound || cx.caps().exponential_loops;
            assert_eq!(uses == EpilogueUse::Separate, separate, "{:?}", strategy.method);
        }
        launch::run(cx, &strategy, [&a, &b], epilogue).unwrap()
    };
    let EpilogueResults { result, elements } = run(Some(&epilogue));
    let alone = run(None).result;
    assert_eq!(elements.is_some(), keep);
    if let Some(elements) = elements {
        assert!(bits(cx, &elements) == bits(cx, &alone), "elements, {name}");
    }
    let separate = epilogue.run_on(cx, alone).unwrap().result;
    assert!(bits(cx, &result) == bits(cx, &separate), "{name}");
}

fn cx() -> Context<'static> {
    Context::new(crate::gpu::gpu().unwrap(), Blocking::Allowed)
}

/// What an epilogue is: cheap or compute-bound, of results of a narrow type or to one, with and without the elements.
const EPILOGUES: [(Type, (&str, Type, bool)); 4] = [
    (Type::F32, ("max", Type::F32, false)),
    (Type::F32, ("tanh", Type::F32, true)),
    (Type::BF16, ("max", Type::F32, true)),
    (Type::F32, ("sigmoid", Type::F16, false)),
];

#[test]
fn tiles_take_epilogues() {
    let cx = &cx();
    // Vectors of four results and single ones; k in one part, and in several whose sum takes the epilogue.
    for (i, (sizes, tile)) in
        [([1, 33, 36, 20], (8, 1)), ([2, 17, 21, 40], (8, 1)), ([1, 20, 24, 300], (11, 3)), ([1, 33, 64, 24], (11, 1))]
            .into_iter()
            .enumerate()
    {
        for (j, (ty, epilogue)) in EPILOGUES.into_iter().enumerate() {
            // Kernels take long to compile: half of them.
            if (i + j) % 2 == 0 {
                let tile = (TILES[tile.0], tile.1);
                check(cx, (sizes, ty), epilogue, 0, |shape, caps| choose_with_tile(shape, caps, tile));
            }
        }
    }
}

#[test]
fn tiles_take_epilogues_of_unaligned_operands() {
    let tile = (TILES[8], 1);
    for offset in 1..=4 {
        check(&cx(), ([1, 33, 36, 20], Type::F32), EPILOGUES[0].1, offset, |shape, caps| {
            choose_with_tile(shape, caps, tile)
        });
    }
}

#[test]
fn tiles_take_epilogues_that_read_beyond_their_operands() {
    let sizes @ [_, m, n, _] = [1, 33, 36, 20];
    let mut program = program(sizes, Type::F32, "max", Type::F32, 0);
    // Of the other tensor the first row does not exist, nor what would be its last one.
    let rows = PaddedCoordinate { start: -1, extent: m - 2, stride: n as i64, steps: Axes::from_slice(&[0, 1, 0]) };
    program.inputs[2].source = Source::Padded(
        PaddedView {
            offset: 0,
            strides: Axes::from_slice(&[0, 0, 1]),
            coordinates: [rows].into_iter().collect(),
            value: 2.5f32.to_bits().into(),
        }
        .into(),
    );
    let tile = (TILES[8], 1);
    check_program(&cx(), (sizes, Type::F32), (program, false), (0, "padded".into()), |shape, caps| {
        choose_with_tile(shape, caps, tile)
    });
}

#[test]
fn what_suits_the_device_takes_epilogues() {
    let cx = &cx();
    // A row, a column, one element, few of all, and what has panels on a CPU device. There, too, three rows with k in one part and in
    // several, and a column whose matrix is loaded along k.
    for sizes in [
        [1, 1, 40, 1000],
        [3, 5, 1, 64],
        [1, 1, 1, 5],
        [2, 4, 3, 8],
        [1, 50, 70, 30],
        [4, 3, 260, 72],
        [1, 3, 132, 400],
        [2, 130, 1, 132],
    ] {
        for (ty, epilogue) in EPILOGUES {
            check(cx, (sizes, ty), epilogue, 0, choose);
        }
    }
}

#[test]
fn rows_and_columns_take_reductions_of_their_results() {
    let cx = &cx();
    let axes = || Attribute::Axes([0, 1, 2].into_iter().collect());
    let arg = |last| Attribute::Arg { axis: None, last };
    // More results than one pass reduces, of matrices whose neighbours lie along the results and along k, and few. Many results are equal.
    for sizes in [[1, 1, 40_001, 64], [1, 36_000, 1, 64], [1, 1, 300, 5], [2, 3, 70, 30]] {
        for (reduction, to, attribute, keep) in [
            ("argmax", Type::S32, arg(false), false),
            ("argmin", Type::U8, arg(true), true),
            ("reduce_max", Type::F32, axes(), true),
            ("all", Type::U8, axes(), false),
        ] {
            for (ty, (function, ..)) in EPILOGUES {
                let mut program = program(sizes, ty, function, Type::BF16, 0);
                let op = op::find(reduction).unwrap();
                let args = [program.inputs.len() + program.nodes.len() - 1].into_iter().collect();
                program.nodes.push(Node { op, ty: to, args, attribute: attribute.clone() });
                let name = format!("{sizes:?} {ty:?} {function} {reduction}");
                check_program(cx, (sizes, ty), (program, keep), (0, name), choose);
            }
        }
    }
}

#[test]
fn an_epilogue_of_another_shape_or_type_is_refused() {
    let cx = &cx();
    let sizes = [1, 4, 6, 3];
    let factors = [upload(cx, 12, 1), upload(cx, 18, 7)];
    let buffer = upload(cx, 24, 3);
    let allocation = buffer.allocation().unwrap();
    let operand = Operand::Buffer(&allocation, buffer.len());
    let refuses = |sizes_of, ty, operands: &[Operand]| {
        let program = EpilogueProgram::new(program(sizes_of, ty, "max", Type::F32, 0), 1, false).unwrap();
        contraction(&factors, sizes, Type::F32).run(cx, Some(&Epilogue { program, operands })).is_err()
    };
    let scalar = Operand::Scalar { index: 4, value: [0; 16] };
    assert!(!refuses(sizes, Type::F32, &[operand, operand, scalar, operand]));
    assert!(refuses(sizes, Type::F32, &[operand, operand, scalar]));
    assert!(refuses(sizes, Type::F32, &[operand, Operand::Buffer(&allocation, 92), scalar, operand]));
    assert!(refuses(sizes, Type::F16, &[operand, operand, scalar, operand]));
    assert!(refuses([1, 4, 5, 3], Type::F32, &[operand, operand, scalar, operand]));
}
