//! The kernels' texts for programs of each kind, compared with those under `native_tests/golden`.
//!
//! A change of what is emitted shows as a difference of these files. `NX_VULKAN_GOLDEN=write cargo test --release --lib golden` rewrites them.
//! They leave the prelude out, which all kernels share, and the parameters' declarations.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::{env, fs};

use smallvec::SmallVec;

use super::kernel::FusionKernel;
use super::prologue::Prologue;
use super::rows::{Row, RowKernel};
use crate::device::Capabilities;
use crate::kernels::KernelSpec;
use crate::program::emit::Accumulator;
use crate::program::epilogue::EpilogueProgram;
use crate::program::layout::Layout;
use crate::program::op;
use crate::program::rows::{RowOutput, RowProgram};
use crate::program::{
    Attribute, Axes, DynamicOffset, Input, Node, OutputView, PaddedCoordinate, PaddedView, Program, Source, Type,
    dense_strides,
};
use crate::tuning::devices::{h200, lavapipe, packs_elements};
use crate::tuning::fusion::{FusionLaunch, FusionStrategy, choose, choose_with_prologue};
use crate::tuning::rows::{RowProblem, schedule as row_schedule};

/// In place of the parameters' declarations.
const PARAMETERS: &str = "// parameters\n";

fn view(ty: Type, offset: i64, strides: &[i64]) -> Input {
    Input { ty, source: Source::View { offset, strides: strides.into() } }
}

fn dense(ty: Type, shape: &[u64]) -> Input {
    Input { ty, source: Source::View { offset: 0, strides: dense_strides(shape) } }
}

fn scalar(ty: Type) -> Input {
    Input { ty, source: Source::Scalar }
}

fn node(name: &str, ty: Type, args: &[usize]) -> Node {
    with(name, ty, args, Attribute::None)
}

fn with(name: &str, ty: Type, args: &[usize], attribute: Attribute) -> Node {
    Node { op: op::find(name).unwrap(), ty, args: args.into(), attribute }
}

fn program(shape: &[u64], inputs: &[Input], nodes: &[Node]) -> Program {
    Program { inputs: inputs.into(), nodes: nodes.into(), shape: shape.into(), output: None }
}

/// `name` of one dense input.
fn unary(name: &str, ty: Type, shape: &[u64]) -> Program {
    program(shape, &[dense(ty, shape)], &[node(name, ty, &[0])])
}

/// `name` of two inputs.
fn binary(name: &str, ty: Type, shape: &[u64], inputs: [Input; 2]) -> Program {
    program(shape, &inputs, &[node(name, ty, &[0, 1])])
}

/// A reduction of one dense input over `axes`.
fn reduction(name: &str, ty: Type, shape: &[u64], axes: &[usize]) -> Program {
    program(shape, &[dense(ty, shape)], &[with(name, ty, &[0], Attribute::Axes(axes.into()))])
}

fn maps() -> Vec<(&'static str, Program)> {
    use Type::{C64, F16, F32, F64, S64, U8};
    let row = [4096];
    let matrix = [256, 128];
    let select =
        [with("iota", F32, &[], Attribute::Axis(Some(1))), node("less", U8, &[0, 2]), node("select", F32, &[3, 0, 1])];
    let gather =
        with("gather", F32, &[0, 1], Attribute::Steps { steps: SmallVec::from_slice(&[(100, 128)]), check: None });
    vec![
        ("map_vec4", binary("add", F32, &row, [dense(F32, &row), dense(F32, &row)])),
        ("map_vec4_f64", binary("add", F64, &row, [dense(F64, &row), scalar(F64)])),
        ("map_vec4_f16", binary("multiply", F16, &row, [dense(F16, &row), dense(F16, &row)])),
        ("map_vec4_s64", binary("add", S64, &row, [dense(S64, &row), dense(U8, &row)])),
        ("map_compare", binary("less", U8, &row, [dense(F32, &row), dense(F64, &row)])),
        ("map_broadcast", binary("add", F32, &matrix, [view(F32, 4, &[132, 1]), view(F32, 0, &[1, 0])])),
        ("map_unaligned", binary("add", F32, &row, [view(F32, 1, &[1]), dense(F32, &row)])),
        ("map_strided", binary("add", F32, &matrix, [view(F32, 255, &[256, -2]), dense(F32, &matrix)])),
        ("map_index64", binary("add", F32, &[1 << 32], [dense(F32, &[1 << 32]), view(F32, 0, &[0])])),
        ("map_compute_bound", unary("exp", F32, &row)),
        ("map_compute_bound_complex", unary("exp", C64, &row)),
        ("map_select", program(&matrix, &[dense(F32, &matrix), scalar(F32)], &select)),
        ("map_eye", program(&[64, 64], &[], &[node("eye", F32, &[])])),
        ("map_gather", program(&matrix, &[view(F32, 0, &[0, 1]), view(S64, 0, &[1, 0])], &[gather])),
    ]
}

fn outputs() -> Vec<(&'static str, Program)> {
    let copy = |shape: &[u64], output: OutputView, inputs: &[Input]| {
        let nodes = SmallVec::from_iter([node("as_type", Type::F32, &[0])]);
        Program { inputs: inputs.into(), nodes, shape: shape.into(), output: Some(output) }
    };
    let view_of = |offset, strides: &[i64], starts: &[DynamicOffset]| OutputView {
        offset,
        strides: Axes::from_slice(strides),
        dynamic_offsets: SmallVec::from_slice(starts),
    };
    let shape = [16, 32];
    let start = DynamicOffset { value: 1, extent: 49, step: 64 };
    let moved = [dense(Type::F32, &shape), view(Type::S64, 0, &[0, 0])];
    vec![
        ("output_linear", copy(&shape, view_of(64, &[32, 1], &[]), &moved[..1])),
        ("output_strided", copy(&shape, view_of(3, &[64, 2], &[]), &moved[..1])),
        ("output_dynamic_offset", copy(&shape, view_of(0, &[64, 1], &[start]), &moved)),
        ("output_transposed", copy(&[64, 128], view_of(0, &[1, 64], &[]), &[dense(Type::F32, &[64, 128])])),
    ]
}

fn tiles() -> Vec<(&'static str, Program)> {
    use Type::{F32, F64, U8};
    let transposed = |ty, [rows, columns]: [u64; 2]| {
        program(&[rows, columns], &[view(ty, 0, &[1, rows as i64])], &[node("as_type", ty, &[0])])
    };
    let mixed = [view(F32, 0, &[1, 256, 4096]), dense(F32, &[256, 16, 128]), scalar(F32)];
    let nodes = [node("add", F32, &[0, 1]), node("multiply", F32, &[3, 2])];
    vec![
        ("tile_vec4", transposed(F32, [256, 256])),
        ("tile_scalar", transposed(F32, [255, 129])),
        ("tile_scalar_u8", transposed(U8, [1023, 1023])),
        ("tile_vec4_f64", transposed(F64, [1024, 4096])),
        ("tile_three_axes", program(&[256, 16, 128], &mixed, &nodes)),
    ]
}

fn reductions() -> Vec<(&'static str, Program)> {
    use Type::{BF16, C64, F32, F64, S8, S32, S64, U8};
    let arg = |axis, last| Attribute::Arg { axis, last };
    let window = |name, ty: Type| {
        let axes = Attribute::Axes(Axes::from_slice(&[2, 3]));
        program(&[300, 300, 3, 3], &[view(ty, 0, &[302, 1, 302, 1])], &[with(name, ty, &[0], axes)])
    };
    let end = |start, extent, stride, steps: &[i64]| PaddedCoordinate { start, extent, stride, steps: steps.into() };
    let padded = |ty, strides: &[i64], axes: [PaddedCoordinate; 2], value| {
        let view = PaddedView { offset: 0, strides: strides.into(), coordinates: axes.into(), value };
        Input { ty, source: Source::Padded(view.into()) }
    };
    // Over images of 28 by 28 whose channels have a kernel each, of 64 channels innermost, and with windows of 7 by 7.
    let ends = [end(-1, 28, 28, &[0, 0, 1, 0, 1, 0]), end(-1, 28, 1, &[0, 0, 0, 1, 0, 1])];
    let image = padded(F32, &[128 * 784, 784, 0, 0, 0, 0], ends, 0);
    let sum = with("sum", F32, &[2], Attribute::Axes(Axes::from_slice(&[4, 5])));
    let inputs = [view(F32, 0, &[0, 9, 0, 0, 3, 1]), image];
    let depthwise = program(&[8, 128, 28, 28, 3, 3], &inputs, &[node("multiply", F64, &[0, 1]), sum]);
    let pooled = |outputs: u64, size: u64, stride, ty, value| {
        let ends = [end(-1, 112, 112 * 64, &[stride, 0, 0, 1, 0]), end(-1, 112, 64, &[0, stride, 0, 0, 1])];
        let largest = with("reduce_max", ty, &[0], Attribute::Axes(Axes::from_slice(&[3, 4])));
        program(&[outputs, outputs, 64, size, size], &[padded(ty, &[0, 0, 1, 0, 0], ends, value)], &[largest])
    };
    let shape = [1000, 512];
    let column = [dense(F32, &shape), view(F32, 0, &[0, 1])];
    let squares = [node("multiply", F32, &[0, 1]), with("sum", F32, &[2], Attribute::Axes(Axes::from_slice(&[1])))];
    let sums = |axes: &[usize]| {
        let sum = |value| with("sum", F32, &[value], Attribute::Axes(Axes::from_slice(axes)));
        [node("multiply", F32, &[0, 1]), sum(2), sum(0)]
    };
    let argument = |name, shape: &[u64], axis, last| {
        program(shape, &[dense(F32, shape)], &[with(name, S64, &[0], arg(axis, last))])
    };
    vec![
        ("reduce_last", reduction("sum", F32, &[4096, 1000], &[1])),
        ("reduce_last_short", reduction("sum", F32, &[100_000, 6], &[1])),
        ("reduce_last_odd", reduction("all", U8, &[512, 999], &[1])),
        ("reduce_last_f64", reduction("sum", F64, &[512, 1000], &[1])),
        ("reduce_leading", reduction("sum", F32, &[1000, 512], &[0])),
        ("reduce_leading_odd", reduction("reduce_max", S8, &[1000, 511], &[0])),
        ("reduce_leading_many", reduction("sum", BF16, &[64, 1 << 17], &[0])),
        ("reduce_all", reduction("sum", F32, &[1 << 22], &[0])),
        ("reduce_all_f64", reduction("sum", F64, &[1 << 22], &[0])),
        ("reduce_all_index64", reduction("sum", S32, &[1 << 32], &[0])),
        ("reduce_both_ends", reduction("sum", F32, &[70, 300, 64], &[0, 2])),
        ("reduce_product_complex", reduction("product", C64, &[64, 64], &[1])),
        ("reduce_window_max", window("reduce_max", F32)),
        ("reduce_window_sum", window("sum", F64)),
        ("reduce_window_padded", depthwise),
        ("reduce_window_padded_vec4", pooled(112, 3, 1, BF16, 0xff80)),
        ("reduce_padded_vec4", pooled(56, 7, 2, F32, 0xff80_0000)),
        ("reduce_fused", program(&shape, &column, &squares)),
        ("reduce_sums", program(&shape, &column, &sums(&[0, 1]))),
        ("reduce_sums_leading", program(&shape, &column, &sums(&[0]))),
        ("reduce_argmax_all", argument("argmax", &[1 << 20], None, false)),
        ("reduce_argmin_axis", argument("argmin", &[512, 100], Some(1), true)),
    ]
}

fn folds() -> Vec<(&'static str, Program)> {
    use Type::{F32, S32};
    let fold = |first: Input| {
        let nodes = [
            node("accumulator", F32, &[1]),
            node("multiply", F32, &[2, 0]),
            with("fold", F32, &[2, 3], Attribute::Axes(Axes::from_slice(&[1]))),
        ];
        program(&[100, 30], &[dense(F32, &[100, 30]), first], &nodes)
    };
    vec![("fold", fold(scalar(F32))), ("fold_from_buffer", fold(view(S32, 0, &[0, 0])))]
}

/// Products of a row and a matrix, which compute the row, `x · rsqrt(sum(x · x))`, and may have an epilogue.
fn prologues() -> Vec<(&'static str, Program, RowProgram, Option<EpilogueProgram>)> {
    let product = |ty: Type, columns: u64, strides: [i64; 2]| {
        let sum = with("sum", ty, &[2], Attribute::Axes(Axes::from_slice(&[1])));
        let nodes = [node("multiply", Type::F64, &[0, 1]), sum];
        let row = [
            node("as_type", Type::F32, &[0]),
            node("multiply", Type::F32, &[1, 1]),
            with("sum", Type::F32, &[2], Attribute::Axes(Axes::from_slice(&[1]))),
            node("rsqrt", Type::F32, &[3]),
            node("multiply", Type::F32, &[1, 4]),
            node("as_type", ty, &[5]),
        ];
        let row = program(&[1, 768], &[dense(ty, &[1, 768])], &row);
        let inputs = [view(ty, 0, &[0, 1]), view(ty, 0, &strides)];
        (
            program(&[columns, 768], &inputs, &nodes),
            RowProgram {
                program: row,
                row_axes: 1,
                outputs: vec![RowOutput { value: 6, of_element: true }],
                summed: None,
            },
        )
    };
    let [(leading, norm), (last, narrow)] = [product(Type::F32, 1024, [1, 1024]), product(Type::BF16, 512, [768, 1])];
    let (head, last_norm) = product(Type::F32, 50_257, [768, 1]);
    let argmax = program(
        &[50_257],
        &[dense(Type::F32, &[50_257])],
        &[with("argmax", Type::S32, &[0], Attribute::Arg { axis: None, last: false })],
    );
    let argmax = EpilogueProgram::new(argmax, 0, false).unwrap();
    vec![
        ("prologue_leading", leading, norm, None),
        ("prologue_last_bf16", last, narrow, None),
        ("prologue_argmax", head, last_norm, Some(argmax)),
    ]
}

/// Softmax of 8,192 rows of 1,024.
fn softmax() -> RowProgram {
    let over_rows = |name, value| with(name, Type::F32, &[value], Attribute::Axes(Axes::from_slice(&[1])));
    let nodes = [
        over_rows("reduce_max", 0),
        node("subtract", Type::F32, &[0, 1]),
        node("exp", Type::F32, &[2]),
        over_rows("sum", 3),
        node("divide", Type::F32, &[3, 4]),
    ];
    let program = program(&[8192, 1024], &[dense(Type::F32, &[8192, 1024])], &nodes);
    RowProgram { program, row_axes: 1, outputs: vec![RowOutput { value: 5, of_element: true }], summed: None }
}

/// The kernel of a row program.
fn row_kernel(rows: &RowProgram, caps: &Capabilities) -> String {
    let sound = rows.check().unwrap();
    let schedule = row_schedule(RowProblem::new(rows, &sound, caps), caps);
    let text = RowKernel::new(rows, &sound, schedule, caps).source(caps, PARAMETERS);
    text.split_once(PARAMETERS).unwrap().1.to_owned()
}

/// What kernels a program runs: how many workgroups, the chunk, and the text. They compute the first input where it is a row of that program, and
/// that is faster.
fn kernels(
    program: &Program,
    (row, epilogue): (Option<&RowProgram>, Option<&EpilogueProgram>),
    caps: &Capabilities,
) -> String {
    match program.reductions() {
        sums @ [_, _, ..] => program.check_sums(sums.len()).unwrap(),
        _ => program.check().unwrap(),
    }
    let layout = Layout::new(program).unwrap();
    let with_prologue = row.and_then(|_| choose_with_prologue(program, &layout, epilogue.is_some(), caps));
    let launches = match with_prologue.map_or_else(|| choose(program, &layout, caps), FusionStrategy::OnePass) {
        FusionStrategy::OnePass(one) => vec![one],
        FusionStrategy::TwoPasses { partial, combining, .. } => vec![partial, combining],
        FusionStrategy::ComputedFirst => panic!("no kernel of its own"),
    };
    let text = |launch: &FusionLaunch| {
        let prologue = row.and_then(|rows| {
            let (sound, accumulator) = (rows.check().unwrap(), Accumulator::of(program, &layout, caps)?);
            let shared = launch.shared_bytes(accumulator.bytes(), 8)?;
            Row { rows, sound, operands: &[] }.prologue(&layout, (launch, shared), caps)
        });
        let kernel = FusionKernel::new(
            program,
            &layout,
            launch.schedule,
            prologue.map(|rows| (0, Prologue::Program(rows.into()))),
            epilogue.map(EpilogueProgram::without_parameters),
        );
        let text = kernel.source(caps, PARAMETERS);
        let (_, text) = text.split_once(PARAMETERS).unwrap();
        format!("// {} workgroups, chunk {}\n{text}", launch.groups, launch.chunk)
    };
    launches.iter().map(text).collect()
}

#[test]
fn kernels_are_those_of_the_golden_files() {
    if !packs_elements() {
        return println!("left out: in this process each narrow element has a word");
    }
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("native_tests/golden");
    let rewrites = env::var("NX_VULKAN_GOLDEN").is_ok_and(|value| value == "write");
    let mut expected: BTreeMap<String, String> = BTreeMap::new();
    let alone = [maps(), outputs(), tiles(), reductions(), folds()].into_iter().flatten();
    let alone = alone.map(|(name, program)| (name, program, None, None));
    let with_rows = prologues().into_iter().map(|(name, program, row, epilogue)| (name, program, Some(row), epilogue));
    let devices = [("h200", h200()), ("lavapipe", lavapipe())];
    for (name, program, row, epilogue) in alone.chain(with_rows) {
        for (device, caps) in &devices {
            let text = kernels(&program, (row.as_ref(), epilogue.as_ref()), caps);
            expected.insert(format!("{name}.{device}.glsl"), text);
        }
    }
    for (device, caps) in &devices {
        expected.insert(format!("rows_softmax.{device}.glsl"), row_kernel(&softmax(), caps));
    }
    if rewrites {
        fs::remove_dir_all(&folder).ok();
        fs::create_dir_all(&folder).unwrap();
        expected.iter().for_each(|(name, text)| fs::write(folder.join(name), text).unwrap());
    }
    let differences: String = expected
        .iter()
        .filter_map(|(name, text)| difference(name, &fs::read_to_string(folder.join(name)).ok()?, text))
        .collect();
    assert!(differences.is_empty(), "NX_VULKAN_GOLDEN=write rewrites native_tests/golden\n{differences}");
    let files = fs::read_dir(&folder).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
    assert_eq!(files.collect::<BTreeSet<_>>(), expected.into_keys().collect());
}

/// The lines between the first and the last that differ.
fn difference(name: &str, before: &str, after: &str) -> Option<String> {
    let [mut old, mut new] = [before, after].map(|text| text.lines().collect::<VecDeque<_>>());
    if old == new {
        return None;
    }
    while old.front() == new.front() && old.pop_front().is_some() {
        new.pop_front();
    }
    while old.back() == new.back() && old.pop_back().is_some() {
        new.pop_back();
    }
    let lines =
        |sign: char, lines: VecDeque<&str>| lines.iter().map(|line| format!("{sign} {line}\n")).collect::<String>();
    Some(format!("{name}\n{}{}", lines('-', old), lines('+', new)))
}
