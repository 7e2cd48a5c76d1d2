//! Sums of products of two strided views: what `Nx.dot/6` and `Nx.conv/3` are made of.
//!
//! Every axis of the iteration space plays one part: batch (in both operands and the result), row (in the first operand
//! and the result), column (in the second and the result) or depth (in both operands, summed over). For each batch that
//! is a matrix product, tiled through shared memory, whose elements are found by the axes' strides. A convolution reads
//! its overlapping windows in place (implicit GEMM; S. Chetlur et al., "cuDNN: Efficient Primitives for Deep Learning",
//! 2014).

mod border;
mod groups;
mod operand;
mod panels;
mod product;
mod tile;
mod tiled;

use smallvec::SmallVec;

use crate::error::{Attempt, Error, Result};
use crate::graph::Context;
use crate::graph::Operand;
use crate::memory::Buffer;
use crate::program::layout::check_bounds;
use crate::program::types::Compute;
use crate::program::{Attribute, Axes, Input, MAX_RANK, Node, Program, Source, Type, op};
pub use border::Border;
pub(super) use groups::Groups;
pub(super) use panels::{Held, Panels};
pub(super) use product::{multiply_add, vector};
pub(super) use tile::Tile;

/// An axis: its extent, and its strides in the operands and the result, in elements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Axis {
    pub dim: u64,
    pub a: i64,
    pub b: i64,
    pub c: i64,
    /// The border whose coordinate it steps along, by its place in the list, and by how much.
    pub border: Option<(usize, i64)>,
}

/// A buffer that is read from the element `offset` on.
#[derive(Clone, Copy)]
pub struct View<'a> {
    pub buffer: &'a Buffer,
    pub ty: Type,
    pub offset: i64,
}

/// `c = Σ a·b` over the axes of `depth`; `c` is dense, its axes in the order of their strides. An operand with borders has
/// its first element where all their coordinates are zero, and is zero where a coordinate does not exist.
pub struct Contraction<'a> {
    pub ty: Type,
    pub a: View<'a>,
    pub b: View<'a>,
    pub batch: Vec<Axis>,
    pub rows: Vec<Axis>,
    pub columns: Vec<Axis>,
    pub depth: Vec<Axis>,
    pub borders: Vec<Border>,
}

/// Products of at most this many multiplications accumulate in double where the device has it, as BinaryBackend does;
/// larger ones in the type itself.
const EXACT: u64 = 1 << 22;

impl Contraction<'_> {
    /// The dense tensor `c`.
    pub fn run(&self, cx: &Context) -> Attempt<Buffer> {
        self.run_by(cx, None, [false; 2])
    }

    /// By a tile and into how many parts k is split, or by what suits the device. `whole` says of which operands the rows
    /// go on to a multiple of as many elements as are read at once, with zeros along k.
    fn run_by(&self, cx: &Context, by: Option<(Tile, u64)>, whole: [bool; 2]) -> Attempt<Buffer> {
        let Self { ty, a, b, .. } = self;
        [*ty, a.ty, b.ty].iter().try_for_each(|ty| ty.check_program(cx.caps()))?;
        let elements = self.check()?;
        let groups = Groups::of(self);
        let [_, m, n, k] = groups.sizes();
        if elements == 0 || k == 0 {
            return cx.zeroed(elements * ty.size());
        }
        // The tiled kernel uses operators, also on what it loads.
        let reduces = m == 1 || n == 1 || [*ty, a.ty, b.ty].iter().any(|ty| ty.compute().is_emulated());
        if by.is_none()
            && !reduces
            && !cx.caps().cpu
            && let Some(packed) = self.packed(cx)?
        {
            return Ok(packed);
        }
        let bordered = !self.borders.is_empty();
        if bordered && (0..self.borders.len()).all(|border| self.reach(border).is_inside()) {
            return self.unbordered().run_by(cx, by, whole);
        }
        if bordered && (reduces || cx.caps().cpu && by.is_none()) {
            return self.padded(cx, by);
        }
        if reduces {
            return self.as_reduction(cx);
        }
        let accumulator = if elements * k <= EXACT { self.exact(cx) } else { *ty }.compute();
        if by.is_none()
            && let Some(c) = self.by_panels(cx, &groups, accumulator)?
        {
            return Ok(c);
        }
        self.by_tiles(cx, &groups, accumulator, by, whole)
    }

    /// The type in which short sums are formed, and products of few rows or columns.
    fn exact(&self, cx: &Context) -> Type {
        match self.ty {
            Type::C64 if cx.caps().float64 => Type::C128,
            ty if ty.is_float() && cx.caps().float64 => Type::F64,
            ty => ty,
        }
    }

    /// The result by [`Panels`], where they apply.
    fn by_panels(&self, cx: &Context, groups: &Groups, accumulator: Compute) -> Attempt<Option<Buffer>> {
        let allocations = [self.a.buffer.allocation()?, self.b.buffer.allocation()?];
        let held = |view: &View, block| Held { block, ty: view.ty, offset: view.offset };
        let held = [held(&self.a, &allocations[0]), held(&self.b, &allocations[1])];
        let Some(panels) = Panels::of(cx.caps(), groups, held, self.inner(), accumulator) else { return Ok(None) };
        let bytes = groups.elements() * self.ty.size();
        let c = cx.allocate(bytes)?;
        panels.run(cx, Held { block: &c, ty: self.ty, offset: 0 }, false)?;
        Ok(Some(Buffer::new(bytes, c)))
    }

    /// The type that both operands are multiplied in: those of other types may have more digits than a narrow result.
    fn inner(&self) -> Type {
        let ty = self.ty;
        if self.a.ty == ty && self.b.ty == ty { ty } else { of_accumulator(ty.compute(), ty) }
    }

    fn parts(&self) -> [&Vec<Axis>; 4] {
        [&self.batch, &self.rows, &self.columns, &self.depth]
    }

    fn axes(&self) -> impl Iterator<Item = &Axis> {
        self.parts().into_iter().flatten()
    }

    fn axes_mut(&mut self) -> impl Iterator<Item = &mut Axis> {
        [&mut self.batch, &mut self.rows, &mut self.columns, &mut self.depth].into_iter().flatten()
    }

    /// The same contraction of the same views, to be changed.
    fn reborrow(&self) -> Contraction<'_> {
        let [batch, rows, columns, depth] = self.parts().map(Clone::clone);
        Contraction { ty: self.ty, a: self.a, b: self.b, batch, rows, columns, depth, borders: self.borders.clone() }
    }

    /// The axes of the result, outermost first.
    fn kept(&self) -> Vec<Axis> {
        let mut kept: Vec<Axis> = [&self.batch, &self.rows, &self.columns].into_iter().flatten().copied().collect();
        kept.sort_by_key(|axis| std::cmp::Reverse(axis.c));
        kept
    }

    /// Fails where a view leaves its buffer or the result is not dense; the number of elements of the result.
    fn check(&self) -> Result<u64> {
        let unused = self.rows.iter().any(|axis| axis.b != 0)
            || self.columns.iter().any(|axis| axis.a != 0)
            || self.depth.iter().any(|axis| axis.c != 0);
        if unused {
            return Err(Error::Argument("axes: a stride in what the axis is no part of".into()));
        }
        if self.axes().count() > MAX_RANK {
            return Err(Error::Argument("axes: more than 64".into()));
        }
        let product = |n: u64, dim: u64| n.checked_mul(dim).filter(|&n| n <= 1 << 60);
        self.axes().try_fold(1, |n, axis| product(n, axis.dim)).ok_or(Error::SizeMismatch)?;
        self.check_borders()?;
        for (name, view) in [('a', &self.a), ('b', &self.b)] {
            // Of coordinates with borders those that exist, whatever the axes reach.
            let bordered = name == self.bordered();
            let free = self.axes().filter(|axis| !(bordered && axis.border.is_some()));
            let free = free.map(|axis| (axis.dim, axis.stride(name)));
            let own = if bordered { self.borders.as_slice() } else { &[] };
            let own = own.iter().map(|border| (border.extent, border.stride));
            check_bounds(view.offset, free.chain(own), view.buffer.len() / view.ty.size())?;
        }
        let kept = self.kept();
        let elements = kept.iter().map(|axis| axis.dim).product();
        let mut next = 1;
        for axis in kept.iter().rev().filter(|axis| axis.dim != 1 && elements != 0) {
            if axis.c != next {
                return Err(Error::Argument("axes: the result must be dense".into()));
            }
            next *= axis.dim as i64;
        }
        Ok(elements)
    }

    /// Few rows or columns: a product and a sum over all of the iteration space, which splits long sums over the device.
    fn as_reduction(&self, cx: &Context) -> Attempt<Buffer> {
        let kept = self.kept();
        let axes = || kept.iter().chain(&self.depth);
        let shape: Axes<u64> = axes().map(|axis| axis.dim).collect();
        let input = |view: &View, strides| Input { ty: view.ty, source: Source::View { offset: view.offset, strides } };
        let inputs =
            [input(&self.a, axes().map(|axis| axis.a).collect()), input(&self.b, axes().map(|axis| axis.b).collect())];
        let (ty, args) = (self.exact(cx), SmallVec::from_slice(&[0, 1]));
        let multiply = Node { op: op::MULTIPLY, ty, args, attribute: Attribute::None };
        let reduced = Attribute::Axes((kept.len()..shape.len()).collect());
        let sum = Node { op: op::SUM, ty: self.ty, args: SmallVec::from_slice(&[2]), attribute: reduced };
        let (inputs, nodes) = (SmallVec::from_iter(inputs), SmallVec::from_iter([multiply, sum]));
        let program = Program { inputs, nodes, shape, output: None };
        let (a, b) = (self.a.buffer, self.b.buffer);
        let (la, lb) = (a.allocation()?, b.allocation()?);
        let operands = [Operand::Buffer(&la, a.len()), Operand::Buffer(&lb, b.len())];
        super::fusion::run(cx, &program, &operands)
    }
}

/// The element type of what the accumulator holds: the result's own but where it is wider.
fn of_accumulator(accumulator: Compute, ty: Type) -> Type {
    match accumulator {
        Compute::Double => Type::F64,
        Compute::ComplexDouble => Type::C128,
        Compute::Float if ty.bits() < 32 => Type::F32,
        Compute::Uint if ty.bits() < 32 => Type::U32,
        Compute::Int if ty.bits() < 32 => Type::S32,
        _ => ty,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Graph;
    use crate::memory::Blocking;

    /// Small whole numbers, whose sums of products are exact in any order.
    fn numbers(count: u64, seed: u64) -> Vec<f32> {
        (seed..seed + count).map(|i| (i * 2_654_435_761 % 64) as f32 - 31.0).collect()
    }

    pub fn upload(cx: &Context, data: &[f32]) -> Buffer {
        cx.uncaptured().upload(bytemuck::cast_slice(data), Blocking::Allowed).unwrap()
    }

    pub fn values(cx: &Context, buffer: &Buffer) -> Vec<f32> {
        bytemuck::allocation::pod_collect_to_vec(cx.uncaptured().read(buffer, 0, buffer.len()).unwrap().bytes())
    }

    /// A batch of m×k and k×n matrices, which begin at the element `offset`. A neighbour in memory is the next along k in
    /// `a`, else the next row, and the next column in `b`, else the next along k.
    pub struct Products {
        sizes: [u64; 4],
        offset: u64,
        /// Of m and k in `a`, and of k and n in `b`.
        strides: [[u64; 2]; 2],
        host: [Vec<f32>; 2],
        buffers: [Buffer; 2],
    }

    impl Products {
        pub fn new(cx: &Context, sizes: [u64; 4], (by_k, by_n): (bool, bool), offset: u64) -> Self {
            let [batch, m, n, k] = sizes;
            let strides = [if by_k { [k, 1] } else { [1, m] }, if by_n { [n, 1] } else { [1, k] }];
            let host = [numbers(batch * m * k + offset, 1), numbers(batch * k * n + offset, 99)];
            let buffers = [upload(cx, &host[0]), upload(cx, &host[1])];
            Self { sizes, offset, strides, host, buffers }
        }

        pub fn contraction(&self) -> Contraction<'_> {
            let ([batch, m, n, k], [[m_a, k_a], [k_b, n_b]]) = (self.sizes, self.strides);
            let axis =
                |dim: u64, [a, b, c]: [u64; 3]| vec![Axis { dim, a: a as i64, b: b as i64, c: c as i64, border: None }];
            let [a, b] =
                self.buffers.each_ref().map(|buffer| View { buffer, ty: Type::F32, offset: self.offset as i64 });
            Contraction {
                ty: Type::F32,
                a,
                b,
                batch: axis(batch, [m * k, k * n, m * n]),
                rows: axis(m, [m_a, 0, n]),
                columns: axis(n, [0, n_b, 1]),
                depth: axis(k, [k_a, k_b, 0]),
                borders: vec![],
            }
        }

        /// The result of a replay of the call's graph.
        pub fn replayed(&self, cx: &Context, call: impl FnOnce(&Context) -> Attempt<Buffer>) -> Buffer {
            let allocations = self.buffers.each_ref().map(|buffer| buffer.allocation().unwrap());
            let operands = [0, 1].map(|i| Operand::Buffer(&allocations[i], self.buffers[i].len()));
            let (_, graph) = Graph::capture(cx, &operands, |cx| Ok([call(cx)?])).unwrap();
            let [result] = graph.unwrap().replay(cx, &operands).unwrap();
            result
        }

        /// Fails where the result is not the products.
        pub fn check(&self, cx: &Context, c: &Buffer, way: std::fmt::Arguments) {
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

    #[test]
    fn tiles_agree_with_sums_at_all_borders() {
        let cx = &Context::new(crate::gpu::gpu().unwrap(), Blocking::Allowed);
        let shapes = [[1, 130, 132, 20], [2, 65, 129, 9], [3, 33, 36, 300], [1, 17, 5, 1], [1, 20, 24, 300]];
        let layouts = [(true, true, 0), (false, false, 1), (true, false, 4), (false, true, 0), (true, true, 0)];
        // And by what suits the device.
        let ways = tile::TILES.into_iter().zip([1, 1, 1, 2, 3, 2, 2, 3, 2, 1, 5, 2]).map(Some).chain([None]);
        for (i, by) in ways.enumerate() {
            let cases = shapes.into_iter().zip(layouts).cycle().skip(i).take(3);
            for (sizes, (by_k, by_n, offset)) in cases {
                let products = Products::new(cx, sizes, (by_k, by_n), offset);
                let mut contraction = products.contraction();
                if sizes[1] == 20 {
                    // Two axes that are not one.
                    let k = contraction.depth[0];
                    let inner = Axis { dim: k.dim / 5, a: 5 * k.a, b: 5 * k.b, ..k };
                    contraction.depth = vec![Axis { dim: 5, ..k }, inner];
                }
                let c = contraction.run_by(cx, by, [false; 2]).unwrap();
                products.check(cx, &c, format_args!("{by:?}"));
            }
        }
    }

    /// A convolution of images that are padded, by hand.
    #[test]
    fn tiles_find_windows_and_end_at_borders() {
        let cx = &Context::new(crate::gpu::gpu().unwrap(), Blocking::Allowed);
        let tiles = [tile::TILES[1], tile::TILES[5]];
        // Images, channels, features, height and width, window's height and width, padding, stride, dilation; 42 and
        // 35 bits in two windows' indices. With a stride of three elements are loaded along the window.
        let shapes = [
            [2, 16, 9, 7, 7, 3, 2, 1, 1, 1],
            [2, 32, 6, 6, 9, 2, 3, 2, 2, 2],
            [1, 3, 70, 5, 9, 2, 3, 2, 2, 1],
            [1, 2, 5, 9, 10, 3, 3, 1, 3, 1],
            [2, 2, 5, 24, 22, 22, 20, 1, 1, 1],
            [1, 1, 2, 33, 34, 17, 18, 1, 1, 1],
            [8, 16, 68, 30, 30, 3, 3, 1, 1, 1],
        ];
        for (i, [images, channels, features, height, width, window_height, window_width, padding, stride, dilation]) in
            shapes.into_iter().enumerate()
        {
            let out = |dim: u64, window: u64| (dim + 2 * padding - (window - 1) * dilation - 1) / stride + 1;
            let (out_height, out_width) = (out(height, window_height), out(width, window_width));
            let window = channels * window_height * window_width;
            let (input, kernel) = (numbers(images * channels * height * width, 3), numbers(features * window, 50));
            let (a, b) = (upload(cx, &kernel), upload(cx, &input));
            let axis =
                |dim: u64, a: u64, b: u64, c: u64, border| Axis { dim, a: a as i64, b: b as i64, c: c as i64, border };
            // The last kernel has channels outermost, as gradients do, and is read in fours of a copy alone.
            let spots = window_height * window_width;
            let [of_feature, of_channel] = if i == 6 { [spots, features * spots] } else { [window, spots] };
            let size = out_height * out_width;
            let steps = [stride as i64, dilation as i64];
            let border = |extent, stride| Border { start: -(padding as i64), extent, stride };
            let mut depth = vec![
                axis(channels, of_channel, height * width, 0, None),
                axis(window_height, window_width, dilation * width, 0, Some((0, steps[1]))),
                axis(window_width, 1, dilation, 0, Some((1, steps[1]))),
            ];
            // With channels innermost whole steps lie in them.
            depth.rotate_left(usize::from(i < 2));
            let contraction = Contraction {
                ty: Type::F32,
                a: View { buffer: &a, ty: Type::F32, offset: 0 },
                b: View { buffer: &b, ty: Type::F32, offset: 0 },
                batch: vec![],
                rows: vec![axis(features, of_feature, 0, size, None)],
                columns: vec![
                    axis(images, 0, channels * height * width, features * size, None),
                    axis(out_height, 0, stride * width, out_width, Some((0, steps[0]))),
                    axis(out_width, 0, stride, 1, Some((1, steps[0]))),
                ],
                depth,
                borders: vec![border(height, width as i64), border(width, 1)],
            };
            let mut expected = vec![];
            for (image, feature, y, x) in every([images, features, out_height, out_width]) {
                let mut sum = 0.0;
                for (channel, v, u, _) in every([channels, window_height, window_width, 1]) {
                    let (row, column) = (y * stride + v * dilation, x * stride + u * dilation);
                    let (row, column) = (row.wrapping_sub(padding), column.wrapping_sub(padding));
                    if row < height && column < width {
                        let from = ((image * channels + channel) * height + row) * width + column;
                        let by = feature * of_feature + channel * of_channel + v * window_width + u;
                        sum += input[from as usize] * kernel[by as usize];
                    }
                }
                expected.push(sum);
            }
            // The largest one takes too long in shared memory.
            let tiles = tiles.iter().filter(|_| i != 6).map(|&tile| Some((tile, 2)));
            let ways = tiles.chain([None]);
            let results = ways.map(|by| contraction.run_by(cx, by, [false; 2]).unwrap());
            let packed = contraction.packed(cx).unwrap();
            assert_eq!(
                packed.is_some(),
                i == 6,
                "only the last shape is large enough, and its kernel cannot be read well"
            );
            for (way, c) in results.chain(packed).enumerate() {
                assert!(values(cx, &c) == expected, "shape {i}, way {way}");
            }
        }
    }

    fn every([a, b, c, d]: [u64; 4]) -> impl Iterator<Item = (u64, u64, u64, u64)> {
        (0..a * b * c * d).map(move |i| (i / (b * c * d), i / (c * d) % b, i / d % c, i % d))
    }
}
