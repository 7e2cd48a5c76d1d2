//! The strategies for a table of contractions, on an H200 and on lavapipe, as `strategies.txt` has them.

use super::*;
use crate::program::Type;
use crate::tuning::devices::{h200, lavapipe, packs_elements};

/// Prefix of the lines, then types of the result and the operands, `[batch, m, n, k]`, layout and offset or a convolution's shape.
type Case = (String, ContractionShape);

fn axis(dim: u64, a: u64, b: u64, c: u64) -> Axis {
    Axis { dim, a: a as i64, b: b as i64, c: c as i64, padded: None }
}

fn operand(ty: Type, offset: u64, elements: u64) -> OperandShape {
    OperandShape { ty, offset: offset as i64, elements }
}

/// Matrices stored by rows (`n`) or by columns (`t`), that begin at an offset.
fn matmul([ty, a, b]: [Type; 3], [batch, m, n, k]: [u64; 4], layout: &str, offset: u64) -> Case {
    let [m_a, k_a] = if layout.starts_with('n') { [k, 1] } else { [1, m] };
    let [k_b, n_b] = if layout.ends_with('n') { [n, 1] } else { [1, k] };
    let shape = ContractionShape {
        ty,
        operands: [operand(a, offset, batch * m * k + offset), operand(b, offset, batch * k * n + offset)],
        batch: vec![axis(batch, m * k, k * n, m * n)],
        rows: vec![axis(m, m_a, 0, n)],
        columns: vec![axis(n, 0, n_b, 1)],
        depth: vec![axis(k, k_a, k_b, 0)],
        padded_axes: vec![],
    };
    (format!("{ty:?} {a:?} {b:?} [{batch}, {m}, {n}, {k}] {layout}+{offset}"), shape)
}

/// With k as two axes that are not one in either operand.
fn split_depth(ty: Type, sizes: [u64; 4]) -> Case {
    let (name, mut shape) = matmul([ty; 3], sizes, "nn", 0);
    let k = shape.depth[0];
    shape.depth = vec![Axis { dim: 5, ..k }, Axis { dim: k.dim / 5, a: 5 * k.a, b: 5 * k.b, ..k }];
    (name + ", k split by 5", shape)
}

/// Images, channels, features, height and width, window's height and width, padding, stride, dilation.
fn convolution(ty: Type, numbers: [u64; 10], channels_innermost: bool, channels_outermost: bool) -> Case {
    let [images, channels, features, height, width, window_height, window_width, padding, stride, dilation] = numbers;
    let out = |dim: u64, window: u64| (dim + 2 * padding - (window - 1) * dilation - 1) / stride + 1;
    let (out_height, out_width) = (out(height, window_height), out(width, window_width));
    let (window, spots) = (channels * window_height * window_width, window_height * window_width);
    let [of_feature, of_channel] = if channels_outermost { [spots, features * spots] } else { [window, spots] };
    let size = out_height * out_width;
    let along = |padded, step: u64, axis: Axis| Axis { padded: Some((padded, step as i64)), ..axis };
    let padded = |extent, stride| PaddedAxis { start: -(padding as i64), extent, stride };
    let mut depth = vec![
        axis(channels, of_channel, height * width, 0),
        along(0, dilation, axis(window_height, window_width, dilation * width, 0)),
        along(1, dilation, axis(window_width, 1, dilation, 0)),
    ];
    depth.rotate_left(usize::from(channels_innermost));
    let shape = ContractionShape {
        ty,
        operands: [operand(ty, 0, features * window), operand(ty, 0, images * channels * height * width)],
        batch: vec![],
        rows: vec![axis(features, of_feature, 0, size)],
        columns: vec![
            axis(images, 0, channels * height * width, features * size),
            along(0, stride, axis(out_height, 0, stride * width, out_width)),
            along(1, stride, axis(out_width, 0, stride, 1)),
        ],
        depth,
        padded_axes: vec![padded(height, width as i64), padded(width, 1)],
    };
    let layout = match (channels_innermost, channels_outermost) {
        (true, _) => ", channels innermost in the depth",
        (_, true) => ", channels outermost in the kernel",
        _ => "",
    };
    (format!("{ty:?} convolution {numbers:?}{layout}"), shape)
}

fn cases() -> Vec<Case> {
    use Type::*;
    let sizes = [
        [1, 1024, 1024, 1024],
        [1, 4096, 4096, 4096],
        [1, 64, 64, 8192],
        [9, 16, 16, 16],
        [1, 37, 53, 129],
        [1, 2047, 2045, 2046],
        [3, 200, 300, 776],
        [1, 4096, 32, 512],
        [1, 2, 3, 5],
    ];
    let types = [[F32; 3], [F64; 3], [F16; 3], [BF16; 3], [C64; 3], [S32; 3], [F32, BF16, BF16], [S64, U8, S64]];
    let layouts = [("nn", 0), ("tt", 1), ("nt", 4), ("tn", 0), ("nt", 1)];
    let mut cases = vec![];
    for (i, &size) in sizes.iter().enumerate() {
        for (j, &types) in types.iter().enumerate() {
            let (layout, offset) = layouts[(i + 2 * j) % layouts.len()];
            cases.push(matmul(types, size, layout, offset));
        }
    }
    for (layout, offset) in layouts {
        cases.push(matmul([F32; 3], [1, 1024, 512, 256], layout, offset));
        cases.push(matmul([BF16; 3], [1, 1031, 1033, 1037], layout, offset));
    }
    for sizes in [[1, 1, 1000, 1000], [1, 1000, 1, 1000], [3, 7, 0, 5], [2, 3, 4, 0], [1, 1, 1, 100_000]] {
        cases.push(matmul([F32; 3], sizes, "nn", 0));
    }
    cases.push(matmul([F32; 3], [1, 60_000, 50_000, 16], "nn", 0));
    // Rows of a batch of tokens and of a prompt, with the matrices of models.
    for rows in [2, 8, 32, 48, 128] {
        for [n, k] in [[768, 768], [2304, 768], [3072, 768], [768, 3072], [4096, 4096]] {
            cases.push(matmul([BF16; 3], [1, rows, n, k], "nn", 0));
        }
        cases.push(matmul([F16; 3], [1, 4096, rows, 4096], "nt", 0));
    }
    for sizes in [[1, 64, 64, 320], [1, 2048, 2048, 1600], [1, 20, 24, 300]] {
        cases.push(split_depth(F32, sizes));
        cases.push(split_depth(F16, sizes));
    }
    let shapes = [
        [2, 16, 9, 7, 7, 3, 2, 1, 1, 1],
        [2, 32, 6, 6, 9, 2, 3, 2, 2, 2],
        [1, 3, 70, 5, 9, 2, 3, 2, 2, 1],
        [1, 2, 5, 9, 10, 3, 3, 1, 3, 1],
        [2, 2, 5, 24, 22, 22, 20, 1, 1, 1],
        [1, 1, 2, 33, 34, 17, 18, 1, 1, 1],
        [8, 16, 68, 30, 30, 3, 3, 1, 1, 1],
        [32, 64, 64, 56, 56, 3, 3, 1, 1, 1],
        [32, 64, 128, 56, 56, 1, 1, 0, 1, 1],
        [8, 3, 64, 224, 224, 7, 7, 3, 2, 1],
        [2, 4, 1, 9, 9, 3, 3, 1, 1, 1],
        [2, 3, 1, 9, 9, 3, 3, 1, 1, 1],
    ];
    for (i, shape) in shapes.into_iter().enumerate() {
        cases.extend([F32, F16, F64].map(|ty| convolution(ty, shape, i < 2, i == 6)));
    }
    cases
}

/// A load: the direction, the elements at once, and a star where they are scattered.
fn describe_load(load: OperandLoad, lines: &str) -> String {
    let direction = if load.along_k { "k" } else { lines };
    format!("{direction}{}{}", load.width, if load.scattered { "*" } else { "" })
}

fn describe_tiling(tiling: Tiling) -> String {
    let Tiling { tile, accumulator, splits, chunk, ty, index64, loads, affine, vector_stores } = tiling;
    let Tile { method, rows, columns, depth, thread_rows, thread_columns, slices } = tile;
    let flags = [(affine, " affine"), (vector_stores, " vectors"), (index64, " index64")];
    let flags = flags.map(|(is, name)| if is { name } else { "" }).concat();
    let [a, b] = [describe_load(loads[0], "m"), describe_load(loads[1], "n")];
    format!(
        "{method:?} {rows}x{columns}x{depth} {thread_rows}x{thread_columns}x{slices} {splits}x{chunk} {ty:?} {accumulator:?} \
         a{a} b{b}{flags}"
    )
}

fn describe_few_rows(few_rows: FewRows) -> String {
    let FewRows { tile, accumulator, splits, chunk } = few_rows;
    let FewRowsTile { lanes, rows, operand, vectors, columns_along_k } = tile;
    let order = if columns_along_k > 0 { format!("{columns_along_k} along k") } else { "along columns".into() };
    format!("{rows} few rows {operand}, {vectors} vectors {order}, {lanes} lanes {splits}x{chunk} {accumulator:?}")
}

fn describe(strategy: &Strategy) -> String {
    let copies = strategy.copies.iter().map(|copy| format!("copy {} {:?}; ", copy.operand, copy.dims()));
    let method = match strategy.method {
        Method::Zeros => "zeros".into(),
        Method::Reduction(_) => "reduction".into(),
        Method::FewRows(few_rows) => describe_few_rows(few_rows),
        Method::Panels(PanelTile { lanes, rows, panels, steps }, _) => {
            format!("panels {rows} rows x{panels} {lanes} lanes {steps} steps")
        }
        Method::Tiles(tiling) => describe_tiling(tiling),
    };
    copies.collect::<String>() + &method
}

#[test]
fn strategies_are_those_of_the_table() {
    if !packs_elements() {
        return println!("left out: in this process each narrow element has a word");
    }
    let mut expected = include_str!("strategies.txt").lines();
    for (device, caps) in [("h200", h200()), ("lavapipe", lavapipe())] {
        for (name, shape) in cases() {
            let strategy = choose(shape, &caps).unwrap();
            assert_eq!(format!("{device} {name}: {}", describe(&strategy)), expected.next().unwrap_or_default());
        }
    }
    assert_eq!(expected.next(), None);
}

#[test]
fn copies_that_padding_or_order_ask_for_are_submitted_with_the_contraction() {
    let padded = convolution(Type::F32, [2, 4, 1, 9, 9, 3, 3, 1, 1, 1], false, false).1;
    assert!(choose(padded, &lavapipe()).unwrap().one_batch);
    let aligned = choose(matmul([Type::BF16; 3], [1, 1031, 1033, 1037], "nn", 0).1, &h200()).unwrap();
    assert!(!aligned.one_batch && aligned.copies.len() == 2);
}
