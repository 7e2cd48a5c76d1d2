//! Sums of products of two strided views: what `Nx.dot/6` and `Nx.conv/3` are made of. This module checks contractions and
//! does what [`crate::tuning::contraction`] chooses for them; it decides nothing by the device itself.
//!
//! Every axis of the iteration space plays one part: batch (in both operands and the result), row (in the first operand
//! and the result), column (in the second and the result) or depth (in both operands, summed over). For each batch that
//! is a matrix product, tiled through shared memory, whose elements are found by the axes' strides. A convolution reads
//! its overlapping windows in place (implicit GEMM; S. Chetlur et al., "cuDNN: Efficient Primitives for Deep Learning",
//! 2014).

mod check;
#[cfg(test)]
mod epilogue_tests;
mod few_rows;
mod indexing;
mod launch;
mod loads;
mod matmul;
mod padding;
mod panels;
#[cfg(test)]
mod partial_sum_tests;
#[cfg(test)]
mod prologue_tests;
mod stores;

use crate::error::Attempt;
use crate::graph::Context;
use crate::kernels::attention::Combination;
use crate::kernels::fusion::{Epilogue, EpilogueResults, Row, RowSource};
use crate::memory::Buffer;
use crate::program::Type;
pub use crate::tuning::contraction::{Axis, PaddedAxis};
use crate::tuning::contraction::{ContractionShape, OperandShape, choose};
pub(super) use loads::{matrix_loads, shared_vector};
pub(super) use matmul::multiply_add;
pub(super) use panels::{MatmulOperand, PanelResult, Panels};

/// A buffer that is read from the element `offset` on.
#[derive(Clone, Copy)]
pub struct OperandView<'a> {
    /// The buffer; its whole length bounds what the axes of a contraction may reach.
    pub buffer: &'a Buffer,
    /// The type of its elements.
    pub ty: Type,
    /// The index of the first element, in elements from the start of the buffer.
    pub offset: i64,
}

/// `c = Σ a·b` over the axes of `depth`; `c` is dense, its axes in the order of their strides. A padded operand has
/// its first element where all its coordinates are zero, and is zero where a coordinate does not exist.
pub struct Contraction<'a> {
    /// The type of the result.
    pub ty: Type,
    /// The first operand.
    pub a: OperandView<'a>,
    /// The second operand.
    pub b: OperandView<'a>,
    /// The axes of both operands and the result.
    pub batch: Vec<Axis>,
    /// The axes of the first operand and the result; their strides in the second operand are 0.
    pub rows: Vec<Axis>,
    /// The axes of the second operand and the result; their strides in the first operand are 0.
    pub columns: Vec<Axis>,
    /// The axes of both operands that are summed over; their strides in the result are 0.
    pub depth: Vec<Axis>,
    /// The padded axes of one operand, each with one row (or column) axis and one depth axis that step along it; empty where
    /// no operand is padded.
    pub padded_axes: Vec<PaddedAxis>,
}

impl Contraction<'_> {
    /// Computes the dense tensor `c` or, with an epilogue, what that makes of it.
    pub fn run(self, cx: &Context, epilogue: Option<&Epilogue>) -> Attempt<EpilogueResults> {
        self.run_with(cx, None, epilogue)
    }

    /// As [`Self::run`], of a contraction whose operand of that position, `a` or `b`, is a row that is not computed yet, and has memory for it.
    pub fn run_on_row(self, cx: &Context, row: (&Row, usize), epilogue: Option<&Epilogue>) -> Attempt<EpilogueResults> {
        self.run_with(cx, Some(row), epilogue)
    }

    fn run_with(
        self,
        cx: &Context,
        row: Option<(&Row, usize)>,
        epilogue: Option<&Epilogue>,
    ) -> Attempt<EpilogueResults> {
        let memory = [self.a, self.b].map(|operand| operand.buffer);
        let shape = self.checked_shape(cx)?;
        if let Some(epilogue) = epilogue {
            epilogue.check(cx, shape.ty, shape.groups().elements())?;
        }
        let strategy = choose(shape, cx.caps())?;
        let [a, b] = [memory[0].allocation()?, memory[1].allocation()?];
        let produced = [&a, &b].map(|operand| cx.producer::<Combination>(operand));
        let combination = |position: usize| {
            let combination = produced[position].as_deref()?;
            let same = combination.text().ty == strategy.shape.operands[position].ty;
            same.then_some((RowSource::Combination(combination), position))
        };
        let source = match row {
            Some((row, position)) => Some((RowSource::Program(row), position)),
            None => combination(0).or_else(|| combination(1)),
        };
        if let Some(source) = source
            && let Some(results) = launch::with_prologue(cx, &strategy, [&a, &b], source, epilogue)?
        {
            return Ok(results);
        }
        if let Some((row, position)) = row {
            row.write(cx, [&a, &b][position])?;
        }
        launch::run(cx, &strategy, [&a, &b], epilogue)
    }

    /// What the strategy is chosen by; fails where it makes no sense.
    fn checked_shape(self, cx: &Context) -> Attempt<ContractionShape> {
        let Self { ty, a, b, batch, rows, columns, depth, padded_axes } = self;
        let operand =
            |OperandView { buffer, ty, offset }| OperandShape { ty, offset, elements: buffer.len() / ty.size() };
        [ty, a.ty, b.ty].iter().try_for_each(|ty| ty.check_program(cx.caps()))?;
        let operands = [operand(a), operand(b)];
        let shape = ContractionShape { ty, operands, batch, rows, columns, depth, padded_axes };
        check::check(&shape)?;
        Ok(shape)
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::*;
    use crate::device::Capabilities;
    use crate::graph::{Graph, Operand};
    use crate::memory::Blocking;
    use crate::tuning::contraction::{
        Method, Strategy, TILES, Tile, choose_aligned, choose_with_tile, choose_with_whole_channels,
    };

    /// The indices of the smallest tile without slices and with them.
    const SMALLEST: usize = 8;
    const SMALLEST_SLICED: usize = 11;

    /// Small whole numbers, whose sums of products are exact in any order.
    fn numbers(count: u64, seed: u64) -> Vec<f32> {
        (seed..seed + count).map(|i| (i * 2_654_435_761 % 64) as f32 - 31.0).collect()
    }

    /// The result by the strategy that `choose` makes, for other capabilities or with a given tile.
    fn run_by(
        cx: &Context,
        contraction: Contraction,
        choose: impl FnOnce(ContractionShape) -> crate::error::Result<Strategy>,
    ) -> Buffer {
        let [a, b] = [contraction.a.buffer, contraction.b.buffer].map(|buffer| buffer.allocation().unwrap());
        let strategy = choose(contraction.checked_shape(cx).unwrap()).unwrap();
        launch::run(cx, &strategy, [&a, &b], None).unwrap().result
    }

    /// The result by a tile, or by the strategy that suits the device.
    fn run_with_tile(cx: &Context, contraction: Contraction, tile: Option<(Tile, u64)>) -> Buffer {
        run_by(cx, contraction, |shape| match tile {
            Some(tile) => choose_with_tile(shape, cx.caps(), tile),
            None => choose(shape, cx.caps()),
        })
    }

    fn upload(cx: &Context, data: &[f32]) -> Buffer {
        cx.uncaptured().upload(bytemuck::cast_slice(data), Blocking::Allowed).unwrap()
    }

    /// Numbers that bf16 holds.
    fn upload_bf16(cx: &Context, data: &[f32]) -> Buffer {
        let bits: Vec<u16> = data.iter().map(|number| (number.to_bits() >> 16) as u16).collect();
        cx.uncaptured().upload(bytemuck::cast_slice(&bits), Blocking::Allowed).unwrap()
    }

    type Upload = fn(&Context, &[f32]) -> Buffer;

    fn values(cx: &Context, buffer: &Buffer) -> Vec<f32> {
        bytemuck::allocation::pod_collect_to_vec(cx.uncaptured().read(buffer, 0, buffer.len()).unwrap().bytes())
    }

    /// A batch of m×k and k×n matrices, which begin at the element `offset`. A neighbour in memory is the next along k in
    /// `a`, else the next row, and the next column in `b`, else the next along k.
    struct Products {
        sizes: [u64; 4],
        offset: u64,
        /// The strides of m and k in `a`, and of k and n in `b`.
        strides: [[u64; 2]; 2],
        host: [Vec<f32>; 2],
        buffers: [Buffer; 2],
    }

    impl Products {
        fn new(cx: &Context, sizes: [u64; 4], (by_k, by_n): (bool, bool), offset: u64) -> Self {
            let [batch, m, n, k] = sizes;
            let strides = [if by_k { [k, 1] } else { [1, m] }, if by_n { [n, 1] } else { [1, k] }];
            let host = [numbers(batch * m * k + offset, 1), numbers(batch * k * n + offset, 99)];
            let buffers = [upload(cx, &host[0]), upload(cx, &host[1])];
            Self { sizes, offset, strides, host, buffers }
        }

        fn contraction(&self) -> Contraction<'_> {
            let ([batch, m, n, k], [[m_a, k_a], [k_b, n_b]]) = (self.sizes, self.strides);
            let axis =
                |dim: u64, [a, b, c]: [u64; 3]| vec![Axis { dim, a: a as i64, b: b as i64, c: c as i64, padded: None }];
            let [a, b] =
                self.buffers.each_ref().map(|buffer| OperandView { buffer, ty: Type::F32, offset: self.offset as i64 });
            Contraction {
                ty: Type::F32,
                a,
                b,
                batch: axis(batch, [m * k, k * n, m * n]),
                rows: axis(m, [m_a, 0, n]),
                columns: axis(n, [0, n_b, 1]),
                depth: axis(k, [k_a, k_b, 0]),
                padded_axes: vec![],
            }
        }

        /// The result of a replay of the call's graph.
        fn replayed(&self, cx: &Context, call: impl FnOnce(&Context) -> Attempt<Buffer>) -> Buffer {
            let allocations = self.buffers.each_ref().map(|buffer| buffer.allocation().unwrap());
            let operands = [0, 1].map(|i| Operand::Buffer(&allocations[i], self.buffers[i].len()));
            let (_, graph) = Graph::capture(cx, &operands, |cx| Ok([call(cx)?])).unwrap();
            let [result] = graph.unwrap().replay(cx, &operands).unwrap();
            result
        }

        /// Fails where the result is not the products.
        fn check(&self, cx: &Context, c: &Buffer, way: std::fmt::Arguments) {
            let ([batch, m, n, k], [[m_a, k_a], [k_b, n_b]]) = (self.sizes, self.strides);
            let result = values(cx, c);
            assert_eq!(result.len() as u64, batch * m * n, "{way}");
            for (value, (z, i, j, _)) in result.into_iter().zip(every([batch, m, n, 1])) {
                let at_a = |l: u64| self.host[0][(self.offset + z * m * k + i * m_a + l * k_a) as usize];
                let at_b = |l: u64| self.host[1][(self.offset + z * k * n + l * k_b + j * n_b) as usize];
                let sum: f32 = (0..k).map(|l| at_a(l) * at_b(l)).sum();
                assert_eq!(value, sum, "{way}, {m}×{k}×{n}, batch {z}, row {i}, column {j}");
            }
        }
    }

    /// Shapes that differ in all that a tile does: whole and partial tiles in every direction, batches, one step along k and
    /// many, operands that are loaded as vec4s, scattered and one by one, along k and across, from any offset. Each is a batch,
    /// m, n and k, the layouts of `a` and `b`, and the offset.
    const CASES: [([u64; 4], (bool, bool), u64); 5] = [
        ([1, 130, 132, 20], (true, true), 0),
        ([2, 65, 129, 9], (false, false), 1),
        ([3, 33, 36, 300], (true, false), 4),
        ([1, 17, 5, 1], (false, true), 0),
        // Its k is two axes that cannot be merged, longer than the tables of their offsets.
        ([1, 20, 24, 300], (true, true), 0),
    ];

    /// Fails where a tile, or what suits the device, gives a case anything but its products. Sums are of type f32 where
    /// `accumulate_f64` is false.
    fn check_case(cx: &Context, case: usize, tile: Option<(Tile, u64)>, accumulate_f64: bool) {
        let (sizes, layout, offset) = CASES[case];
        let products = Products::new(cx, sizes, layout, offset);
        let mut contraction = products.contraction();
        if case == 4 {
            let k = contraction.depth[0];
            let inner = Axis { dim: k.dim / 5, a: 5 * k.a, b: 5 * k.b, ..k };
            contraction.depth = vec![Axis { dim: 5, ..k }, inner];
        }
        let mut caps = cx.caps().clone();
        caps.float64 &= accumulate_f64;
        let c = run_by(cx, contraction, |shape| match tile {
            Some(tile) => choose_with_tile(shape, &caps, tile),
            None => choose(shape, &caps),
        });
        products.check(cx, &c, format_args!("case {case}, {tile:?}, sums of f64: {accumulate_f64}"));
    }

    // A CPU driver takes seconds to compile a tile's unrolled kernel, hence not every tile meets every case. The smallest tile
    // and the smallest sliced one meet them all, each with k in one part and in several and with sums of both types. Every
    // other tile meets one case, in turn.

    #[test]
    fn smallest_tile_agrees_with_sums_at_all_edges() {
        let cx = &Context::new(crate::gpu::gpu().unwrap(), Blocking::Allowed);
        for case in 0..CASES.len() {
            check_case(cx, case, Some((TILES[SMALLEST], [2, 1, 5, 1, 3][case])), [0, 2].contains(&case));
        }
    }

    #[test]
    fn smallest_sliced_tile_agrees_with_sums_at_all_edges() {
        let cx = &Context::new(crate::gpu::gpu().unwrap(), Blocking::Allowed);
        for case in 0..CASES.len() {
            check_case(cx, case, Some((TILES[SMALLEST_SLICED], [1, 1, 2, 1, 3][case])), [1, 2].contains(&case));
        }
    }

    /// The tiles that are neither of the two, of a part of the table.
    fn check_other_tiles(indices: Range<usize>) {
        let cx = &Context::new(crate::gpu::gpu().unwrap(), Blocking::Allowed);
        let others = (0..TILES.len()).filter(|i| ![SMALLEST, SMALLEST_SLICED].contains(i));
        for (i, tile) in others.enumerate().filter(|(_, tile)| indices.contains(tile)) {
            // Two cases of five have sums of f64, whose kernels take longer to compile.
            check_case(cx, i % CASES.len(), Some((TILES[tile], 1 + i as u64 % 3)), i % CASES.len() >= 3);
        }
    }

    #[test]
    fn large_tiles_agree_with_sums() {
        check_other_tiles(0..4);
    }

    #[test]
    fn smaller_tiles_agree_with_sums() {
        check_other_tiles(4..TILES.len());
    }

    #[test]
    fn what_suits_the_device_agrees_with_sums_at_all_edges() {
        let cx = &Context::new(crate::gpu::gpu().unwrap(), Blocking::Allowed);
        for case in 0..CASES.len() {
            check_case(cx, case, None, true);
        }
    }

    #[test]
    fn few_rows_agree_with_sums_at_all_edges() {
        let cx = &Context::new(crate::gpu::gpu().unwrap(), Blocking::Allowed);
        let by_few_rows = |shape: ContractionShape| {
            let strategy = choose(shape, cx.caps())?;
            let takes = cx.caps().cpu && cx.caps().float64 && cx.caps().int64 && !cx.caps().exponential_loops;
            assert_eq!(takes, matches!(strategy.method, Method::FewRows(_)), "{strategy:?}");
            Ok(strategy)
        };
        // Rows that fill the tile and do not, columns beyond the last whole tile, k beyond the last whole block, and k in parts.
        for (batch, few, columns, k) in
            [(1, 1, 260, 203), (3, 2, 132, 131), (1, 5, 196, 1000), (2, 8, 128, 64), (1, 15, 140, 99)]
        {
            for along_k in [false, true].into_iter().filter(|along_k| !along_k || few <= 8) {
                // Vectors along k are whole.
                let k = if along_k { k / 4 * 4 } else { k };
                let rows_first = Products::new(cx, [batch, few, columns, k], (along_k, !along_k), 4);
                let rows_second = Products::new(cx, [batch, columns, few, k], (along_k, !along_k), 4);
                for products in [rows_first, rows_second] {
                    let c = run_by(cx, products.contraction(), by_few_rows);
                    products.check(cx, &c, format_args!("few rows, along k: {along_k}"));
                }
            }
        }
    }

    /// Images, channels, features, height and width, window's height and width, padding, stride, dilation; 42 and 35 bits in
    /// two windows' indices. With a stride of three elements are loaded along the window.
    const WINDOWS: [[u64; 10]; 8] = [
        [2, 16, 9, 7, 7, 3, 2, 1, 1, 1],
        [2, 32, 6, 6, 9, 2, 3, 2, 2, 2],
        [1, 3, 70, 5, 9, 2, 3, 2, 2, 1],
        [1, 2, 5, 9, 10, 3, 3, 1, 3, 1],
        [2, 2, 5, 24, 22, 22, 20, 1, 1, 1],
        [1, 1, 2, 33, 34, 17, 18, 1, 1, 1],
        [8, 16, 68, 30, 30, 3, 3, 1, 1, 1],
        [3, 6, 64, 61, 47, 5, 6, 2, 1, 1],
    ];

    /// The tiles of a case of windows. The smallest one meets every case, two large ones a case each: kernels take
    /// seconds to compile. No tile with slices is chosen for padded operands.
    fn tiles_of_windows(case: usize) -> &'static [usize] {
        match case {
            0 => &[SMALLEST, 5],
            2 => &[SMALLEST, 1],
            // They take too long in shared memory.
            6.. => &[],
            _ => &[SMALLEST],
        }
    }

    #[test]
    fn tiles_find_windows_with_channels_innermost_and_strides_of_two() {
        check_windows(0..3);
    }

    #[test]
    fn tiles_find_windows_of_many_bits_and_copies() {
        check_windows(3..WINDOWS.len());
    }

    /// Convolutions of padded images, against sums on the host.
    fn check_windows(cases: Range<usize>) {
        let cx = &Context::new(crate::gpu::gpu().unwrap(), Blocking::Allowed);
        for (i, [images, channels, features, height, width, window_height, window_width, padding, stride, dilation]) in
            WINDOWS.into_iter().enumerate().filter(|(i, _)| cases.contains(i))
        {
            let out = |dim: u64, window: u64| (dim + 2 * padding - (window - 1) * dilation - 1) / stride + 1;
            let (out_height, out_width) = (out(height, window_height), out(width, window_width));
            let window = channels * window_height * window_width;
            let (input, kernel) = (numbers(images * channels * height * width, 3), numbers(features * window, 50));
            // The last shape is one of narrow floats with a few channels.
            if i == 7 && !crate::tuning::devices::packs_elements() {
                println!("left out: in this process each narrow element has a word");
                continue;
            }
            let (ty, upload) = if i == 7 { (Type::BF16, upload_bf16 as Upload) } else { (Type::F32, upload as Upload) };
            let (a, b) = (upload(cx, &kernel), upload(cx, &input));
            let axis =
                |dim: u64, a: u64, b: u64, c: u64, padded| Axis { dim, a: a as i64, b: b as i64, c: c as i64, padded };
            // The last kernel has channels outermost, as gradients do: only a copy of it can be read as vec4s.
            let window_size = window_height * window_width;
            let [feature_stride, channel_stride] =
                if i == 6 { [window_size, features * window_size] } else { [window, window_size] };
            let size = out_height * out_width;
            let steps = [stride as i64, dilation as i64];
            let padded = |extent, stride| PaddedAxis { start: -(padding as i64), extent, stride };
            let mut depth = vec![
                axis(channels, channel_stride, height * width, 0, None),
                axis(window_height, window_width, dilation * width, 0, Some((0, steps[1]))),
                axis(window_width, 1, dilation, 0, Some((1, steps[1]))),
            ];
            // With channels innermost whole steps lie in them.
            depth.rotate_left(usize::from(i < 2));
            let contraction = || Contraction {
                ty: Type::F32,
                a: OperandView { buffer: &a, ty, offset: 0 },
                b: OperandView { buffer: &b, ty, offset: 0 },
                batch: vec![],
                rows: vec![axis(features, feature_stride, 0, size, None)],
                columns: vec![
                    axis(images, 0, channels * height * width, features * size, None),
                    axis(out_height, 0, stride * width, out_width, Some((0, steps[0]))),
                    axis(out_width, 0, stride, 1, Some((1, steps[0]))),
                ],
                depth: depth.clone(),
                padded_axes: vec![padded(height, width as i64), padded(width, 1)],
            };
            let mut expected = vec![];
            for (image, feature, y, x) in every([images, features, out_height, out_width]) {
                let mut sum = 0.0;
                for (channel, v, u, _) in every([channels, window_height, window_width, 1]) {
                    let (row, column) = (y * stride + v * dilation, x * stride + u * dilation);
                    let (row, column) = (row.wrapping_sub(padding), column.wrapping_sub(padding));
                    if row < height && column < width {
                        let from = ((image * channels + channel) * height + row) * width + column;
                        let by = feature * feature_stride + channel * channel_stride + v * window_width + u;
                        sum += input[from as usize] * kernel[by as usize];
                    }
                }
                expected.push(sum);
            }
            let ways = tiles_of_windows(i).iter().map(|&tile| Some((TILES[tile], 2))).chain([None]);
            let results = ways.map(|tile| run_with_tile(cx, contraction(), tile));
            // On a GPU the seventh shape is large enough for copies, and its kernel cannot be read well. With cooperative matrices the last is.
            let caps = Capabilities { cpu: false, ..cx.caps().clone() };
            let copied = (i == 6).then(|| {
                run_by(cx, contraction(), |shape| {
                    let strategy = choose(shape, &caps)?;
                    assert!(strategy.copies.iter().any(|copy| copy.operand == 'a'));
                    Ok(strategy)
                })
            });
            let filled = (i == 7).then(|| {
                run_by(cx, contraction(), |shape| {
                    let strategy = choose_with_whole_channels(&shape, cx.caps())?.unwrap();
                    assert_eq!(strategy.copies.len(), 2);
                    Ok(strategy)
                })
            });
            for (way, c) in results.chain(copied).chain(filled).enumerate() {
                assert!(values(cx, &c) == expected, "shape {i}, way {way}");
            }
        }
    }

    #[test]
    fn products_of_copies_agree_with_sums_where_no_row_is_aligned() {
        let cx = &Context::new(crate::gpu::gpu().unwrap(), Blocking::Allowed);
        for (by_k, by_n, runs) in [
            (true, true, [false; 2]),
            (false, false, [false; 2]),
            (true, false, [true, false]),
            (false, true, [false, true]),
        ] {
            let products = Products::new(cx, [2, 35, 45, 77], (by_k, by_n), 1);
            // The copies' memory must not happen to hold zeros.
            for elements in [2 * 35 * 80, 2 * 45 * 80] {
                assert!(values(cx, &upload(cx, &vec![f32::NAN; elements])).iter().all(|value| value.is_nan()));
            }
            let run = |cx: &Context| {
                Ok(run_by(cx, products.contraction(), |shape| {
                    choose_aligned(shape, cx.caps(), (TILES[5], 1), [by_k, !by_n], (runs, 8))
                }))
            };
            for c in [run(cx).unwrap(), products.replayed(cx, run)] {
                products.check(cx, &c, format_args!("{by_k} {by_n} {runs:?}"));
            }
        }
    }

    fn every([a, b, c, d]: [u64; 4]) -> impl Iterator<Item = (u64, u64, u64, u64)> {
        (0..a * b * c * d).map(move |i| (i / (b * c * d), i / (c * d) % b, i / d % c, i % d))
    }
}
