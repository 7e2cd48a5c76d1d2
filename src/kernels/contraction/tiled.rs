//! Products by tiles: which tile, how the kernel reads the operands and writes the result, and its run.

use std::sync::Arc;

use smallvec::SmallVec;

use super::groups::Groups;
use super::product::{Product, unit, vector};
use super::tile::{Method, Tile};
use super::{Contraction, View, of_accumulator};
use crate::error::{Attempt, Result};
use crate::graph::Operand;
use crate::graph::{Context, Params};
use crate::kernels::{Kernel, check_indices, fusion};
use crate::memory::{AllocationHandle, Buffer};
use crate::program::emit::quad_bytes;
use crate::program::types::Compute;
use crate::program::{Attribute, Axes, Input, Node, Program, Source, Type, op};

/// Elements that cooperative matrices load at once.
const EIGHT: u64 = 8;

/// A contraction with what its tiled kernel finds, whatever the tile.
struct Tiled<'a> {
    contraction: &'a Contraction<'a>,
    groups: &'a Groups,
    accumulator: Compute,
    /// Of which operands the rows are whole, whatever their groups say.
    whole: [bool; 2],
    allocations: [Arc<AllocationHandle>; 2],
    /// How many bytes behind their blocks' starts the operands' elements are whose places are zero; these wrap.
    offsets: [u64; 2],
    /// Whether the operands are loaded along k and along n.
    along: [bool; 2],
}

/// Sums over parts of k, one dense result after the other.
struct Parts {
    ty: Type,
    count: u64,
    /// Elements along k.
    chunk: u64,
    allocation: AllocationHandle,
}

impl Contraction<'_> {
    /// The result by `by`, a tile and into how many parts k is split, or by those that suit the device; `whole` is that of
    /// [`Self::run_by`].
    pub fn by_tiles(
        &self,
        cx: &Context,
        groups: &Groups,
        accumulator: Compute,
        by: Option<(Tile, u64)>,
        whole: [bool; 2],
    ) -> Attempt<Buffer> {
        let tiled = Tiled::of(self, groups, accumulator, whole)?;
        let sizes = groups.sizes();
        let matrix = if by.is_none() && self.matrices(cx) && accumulator == Compute::Float {
            Tile::matrix(cx.caps(), sizes)
        } else {
            None
        };
        let matrix = match matrix.map(|tile| (tile, tiled.runs([EIGHT; 2]))) {
            Some((tile, [true, true])) => Some(tile),
            Some((_, runs)) if Self::pays_to_copy(groups) => {
                let [along_k, along_n] = tiled.along;
                return self.run_copied(cx, None, groups, [along_k, !along_n], (runs, EIGHT));
            }
            _ => None,
        };
        let computes = [self.inner().compute(), accumulator];
        let (tile, splits) =
            by.or(matrix).unwrap_or_else(|| Tile::chosen(cx.caps(), computes, groups.borders.is_some(), sizes));
        if !tiled.meets_borders(&tile) {
            return self.padded(cx, by);
        }
        let parts = tiled.parts(cx, &tile, splits)?;
        tiled.record(cx, tile, &parts)?;
        parts.sum(cx, self.ty, groups.elements())
    }

    /// Whether the device has cooperative matrices of the operands' type.
    pub fn matrices(&self, cx: &Context) -> bool {
        match (self.a.ty, self.b.ty) {
            (Type::F16, Type::F16) => cx.caps().matrices.float16,
            (Type::BF16, Type::BF16) => cx.caps().matrices.bfloat16,
            _ => false,
        }
    }
}

impl<'a> Tiled<'a> {
    fn of(
        contraction: &'a Contraction<'a>,
        groups: &'a Groups,
        accumulator: Compute,
        whole: [bool; 2],
    ) -> Result<Self> {
        let allocations = [contraction.a.buffer.allocation()?, contraction.b.buffer.allocation()?];
        let offset = |view: &View, tensor| {
            let start = groups.borders.as_ref().map_or(0, |borders| borders.start(tensor));
            view.offset.wrapping_add(start).wrapping_mul(view.ty.size() as i64) as u64
        };
        let offsets = [offset(&contraction.a, 'a'), offset(&contraction.b, 'b')];
        let along = [groups.along_k('a'), !groups.along_k('b')];
        Ok(Self { contraction, groups, accumulator, whole, allocations, offsets, along })
    }

    fn types(&self) -> [Type; 2] {
        [self.contraction.a.ty, self.contraction.b.ty]
    }

    /// Of an operand's element whose place is zero.
    fn address(&self, i: usize) -> u64 {
        self.allocations[i].address.wrapping_add(self.offsets[i])
    }

    /// Of which operands runs of so many elements, along the group that they are loaded along, can be loaded at once.
    fn runs(&self, run: [u64; 2]) -> [bool; 2] {
        let [along_k, along_n] = self.along;
        let groups = [if along_k { "k" } else { "m" }, if along_n { "n" } else { "k" }];
        [0, 1].map(|i| {
            let neighbours = self.groups.runs(['a', 'b'][i], groups[i], run[i]);
            self.whole[i] || neighbours && aligned(self.address(i), self.types()[i], run[i])
        })
    }

    /// Whether the kernel finds what lies beyond borders.
    fn meets_borders(&self, tile: &Tile) -> bool {
        let finds = tile.method == Method::Shared || tile.method == Method::Matrix && self.groups.steps(tile.depth);
        self.groups.borders.as_ref().is_none_or(|borders| finds && borders.fit(self.groups))
    }

    /// Memory for the results of `splits` parts of k, or fewer: each takes whole steps.
    fn parts(&self, cx: &Context, tile: &Tile, splits: u64) -> Attempt<Parts> {
        let [.., k] = self.groups.sizes();
        let chunk = k.div_ceil(splits).next_multiple_of(tile.depth.into());
        let count = k.div_ceil(chunk);
        // Parts of sums are added up without rounding them first.
        let ty = self.contraction.ty;
        let ty = if count > 1 { of_accumulator(self.accumulator, ty) } else { ty };
        let allocation = cx.allocate(count * self.groups.elements() * ty.size())?;
        Ok(Parts { ty, count, chunk, allocation })
    }

    fn record(&self, cx: &Context, tile: Tile, parts: &Parts) -> Attempt<()> {
        let &Self { contraction, groups, accumulator, along, .. } = self;
        let wide = self.wide(&tile, parts);
        check_indices(cx.caps(), wide)?;
        let [batch, m, n, k] = groups.sizes();
        let types = self.types();
        let workgroups = tile.groups(m, n) * batch * parts.count;
        let params = |params: &mut Params| {
            params.legacy(&parts.allocation, 0, parts.ty.storage(), "c");
            for (i, name) in ["a", "b"].into_iter().enumerate() {
                params.legacy(&self.allocations[i], self.offsets[i], types[i].storage(), name);
            }
            params.extents(wide, [("m", m), ("n", n), ("k", k), ("groups", workgroups)]);
            let elements = groups.elements();
            params.extents(wide, [("splits", parts.count), ("chunk", parts.chunk), ("elements", elements)]);
            groups.params(params, wide);
        };
        let (units, apart) = self.loads(&tile);
        let product = Product {
            ty: parts.ty,
            inner: contraction.inner(),
            types,
            groups,
            accumulator,
            tile,
            wide,
            along,
            units,
            apart,
            steady: !wide && self.steady(cx, &tile),
            split: parts.count > 1,
            stores: self.stores(&tile, parts),
        };
        let kernel = Kernel {
            key: &product.key(),
            params: &params,
            source: &|parameters| product.source(cx.caps(), parameters),
            groups: workgroups,
            reads: &self.allocations.each_ref().map(|allocation| &***allocation),
            writes: &[&parts.allocation],
        };
        kernel.launch(cx)
    }

    /// Whether indices need 64 bits.
    fn wide(&self, tile: &Tile, parts: &Parts) -> bool {
        let Contraction { a, b, borders, .. } = self.contraction;
        let [.., k] = self.groups.sizes();
        let beyond = (0..borders.len()).map(|border| self.contraction.reach(border).elements).sum();
        let [len_a, len_b] = [a, b].map(|view| view.buffer.len() / view.ty.size());
        let counts = [len_a, len_b, parts.count * self.groups.elements(), k + 2 * u64::from(tile.depth), beyond];
        counts.iter().any(|&count| count >= 1 << 31)
    }

    /// How many elements of each operand are loaded at once, and whether they may be anywhere.
    fn loads(&self, tile: &Tile) -> ([u64; 2], [bool; 2]) {
        let units = self.types().map(|ty| unit(ty.storage()));
        let in_runs = if tile.lanes() { [false; 2] } else { self.runs(units) };
        // Threads have four neighbours of the result where vectors are of four elements.
        let vectors = tile.method == Method::Shared && self.width() == 4;
        let [along_k, along_n] = self.along;
        let apart = [vectors && !in_runs[0] && !along_k, vectors && !in_runs[1] && along_n];
        let units = [0, 1].map(|i| match (in_runs[i], apart[i]) {
            (true, _) => units[i],
            (_, true) => 4,
            _ => 1,
        });
        (units, apart)
    }

    /// Whether neighbours in the result are stored together.
    fn stores(&self, tile: &Tile, parts: &Parts) -> bool {
        let run = if tile.method == Method::Matrix { 4 } else { self.width() };
        let whole = self.groups.elements().is_multiple_of(run) && aligned(parts.allocation.address, parts.ty, run);
        whole && run > 1 && !tile.lanes() && self.groups.runs('c', "n", run)
    }

    /// Whether a thread's places are an offset of 32 bits and what all threads have in common, if indices have no more.
    fn steady(&self, cx: &Context, tile: &Tile) -> bool {
        let Contraction { a, b, .. } = self.contraction;
        let near = [a, b].iter().all(|view| view.buffer.len() < 1 << 32);
        tile.method == Method::Shared && cx.caps().int64 && self.groups.are_steady() && near
    }

    /// How many elements are read from shared memory together.
    fn width(&self) -> u64 {
        vector(self.contraction.inner().compute()).0.into()
    }
}

/// Whether runs of so many elements may begin at an address.
fn aligned(address: u64, ty: Type, run: u64) -> bool {
    address.is_multiple_of(quad_bytes(ty.storage()) / 4 * run)
}

impl Parts {
    /// Their sum, in type `ty`, of so many elements each.
    fn sum(self, cx: &Context, ty: Type, elements: u64) -> Attempt<Buffer> {
        if self.count == 1 {
            return Ok(Buffer::new(elements * ty.size(), self.allocation));
        }
        let shape: Axes<u64> = [self.count, elements].into_iter().collect();
        let strides = [elements as i64, 1].into_iter().collect();
        let parts = Input { ty: self.ty, source: Source::View { offset: 0, strides } };
        let axes = Attribute::Axes([0].into_iter().collect());
        let sum = Node { op: op::SUM, ty, args: SmallVec::from_slice(&[0]), attribute: axes };
        let (inputs, nodes) = (SmallVec::from_iter([parts]), SmallVec::from_iter([sum]));
        let program = Program { inputs, nodes, shape, output: None };
        let bytes = self.count * elements * self.ty.size();
        fusion::run(cx, &program, &[Operand::Buffer(&self.allocation, bytes)])
    }
}
