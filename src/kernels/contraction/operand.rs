//! Operands that are written anew before a product that could not read them well: with the zeros beyond their borders, so
//! that what a thread loads at once lies together, or with rows that go on to a multiple of it.

use std::cmp::Reverse;

use smallvec::SmallVec;

use super::border::Reach;
use super::groups::Groups;
use super::tile::Tile;
use super::{Axis, Border, Contraction, View, vector};
use crate::error::{Attempt, Error};
use crate::graph::Context;
use crate::graph::Operand;
use crate::kernels::{assemble, fusion};
use crate::memory::Buffer;
use crate::program::{Axes, Input, OutputView, Program, Source, Type, dense_strides};

/// Elements that take part in fewer multiplications are not worth a copy, nor are products of fewer.
const EACH: u64 = 1 << 9;
const LEAST: u64 = 1 << 26;

/// A GPU takes about as long to copy a small matrix as to compute this many products. Where there are more, copies with whole
/// rows pay off if each element takes part in so many.
const PRODUCTS: u64 = 1 << 28;
const USES: u64 = 128;

/// Products of fewer are not worth a copy that only puts the depth in another order: that makes a large one 3 to 10 % faster
/// and takes an H200 10 us, a single call 25.
const ORDERED: u64 = 3 << 31;

/// Fewer neighbours than fill a sector of memory are not worth loading side by side.
const NEAR: u64 = 8;

/// What a step along k should be a part of: a multiple of most tiles' depth.
const RUN: u64 = 16;

/// An axis of an operand that is dense: an axis of the contraction, or a border's coordinate. There are zeros where it goes
/// beyond what the old operand has.
struct Coordinate {
    of: Of,
    dim: u64,
    /// Where in the old operand it begins, how far that goes, and its stride there.
    low: i64,
    extent: u64,
    stride: i64,
}

/// By the places in the contraction's lists.
#[derive(Clone, Copy, PartialEq)]
enum Of {
    Axis(usize),
    Border(usize),
}

impl Contraction<'_> {
    /// The result, by way of an operand without anything beyond its borders.
    pub fn padded(&self, cx: &Context, by: Option<(Tile, u64)>) -> Attempt<Buffer> {
        let mut coordinates = self.coordinates(self.bordered());
        for coordinate in &mut coordinates {
            if let Of::Border(border) = coordinate.of {
                let Reach { first, last, .. } = self.reach(border);
                (coordinate.low, coordinate.dim) = (first, (last - first) as u64 + 1);
            }
        }
        coordinates.sort_by_key(|coordinate| Reverse(coordinate.stride.unsigned_abs()));
        let run = |dense: &Contraction| dense.run_by(cx, by, [false; 2]);
        let _together = cx.batch();
        self.with_dense(cx, self.bordered(), &coordinates, 1, &run)
    }

    /// The result, by way of operands that are read in fours, and with whole steps along one axis of the depth. `None` where
    /// that does not pay or is so already.
    pub fn packed(&self, cx: &Context) -> Attempt<Option<Buffer>> {
        let whole = |axis: &Axis| axis.border.is_none() && axis.dim.is_multiple_of(RUN);
        let Some(inner) = self.depth.iter().rposition(whole) else { return Ok(None) };
        let mut ordered = self.reborrow();
        ordered.depth[inner..].rotate_left(1);
        let groups = Groups::of(&ordered);
        let [batch, m, n, k] = groups.sizes();
        let products = batch * m * n * k;
        let axes = self.depth.iter().filter(|axis| axis.dim > 1).count().min(groups.k.len());
        if axes < 2 || products < LEAST {
            return Ok(None);
        }
        // Neighbours that are no whole fours are read one by one, but not by cooperative matrices.
        let anywhere = !self.matrices(cx) && vector(self.inner().compute()).0 == 4;
        let good = |groups: &Groups, tensor| {
            let lines = if tensor == 'a' { "m" } else { "n" };
            if groups.along_k(tensor) {
                return groups.runs(tensor, "k", 4);
            }
            let near = |axis: &Axis| axis.stride(tensor).abs() == 1 && axis.dim >= NEAR;
            let apart = anywhere && groups.axes(lines).last().is_some_and(near);
            let cut = groups.borders.as_ref().filter(|borders| borders.tensor == tensor);
            groups.runs(tensor, lines, 4) || apart && cut.is_none_or(|borders| borders.fit(groups))
        };
        let pays = |tensor, view: &View| {
            let elements: u64 = ordered.coordinates(tensor).iter().map(|coordinate| coordinate.dim).product();
            elements <= view.buffer.len() / view.ty.size() && products / elements.max(1) >= EACH
        };
        let [good_a, good_b] = ['a', 'b'].map(|tensor| good(&groups, tensor));
        let as_they_are = Groups::of(self);
        if !(good_a && good_b) && products < ORDERED && ['a', 'b'].iter().all(|&tensor| good(&as_they_are, tensor)) {
            return Ok(None);
        }
        let moves = inner + 1 != self.depth.len() || !good_a || !good_b;
        if !moves || !(good_a || pays('a', &self.a)) || !(good_b || pays('b', &self.b)) {
            return Ok(None);
        }
        // Rows or columns innermost spare turning fours in shared memory, but those with borders have no fours.
        let pack = |contraction: &Contraction, tensor, lines: u64, then: &dyn Fn(&Contraction) -> Attempt<Buffer>| {
            let mut coordinates = contraction.coordinates(tensor);
            let [batch, rows, columns, depth] = contraction.parts().map(|axes| axes.len());
            let kept = batch..batch + rows + columns;
            let last = kept.end + depth - 1;
            let by_lines =
                lines.is_multiple_of(4) && (tensor != contraction.bordered() || contraction.borders.is_empty());
            coordinates.sort_by_key(|coordinate| {
                let innermost = match coordinate.of {
                    Of::Axis(axis) => {
                        if by_lines {
                            kept.contains(&axis)
                        } else {
                            axis == last
                        }
                    }
                    Of::Border(_) => false,
                };
                (innermost, Reverse(coordinate.stride.unsigned_abs()))
            });
            contraction.with_dense(cx, tensor, &coordinates, 1, then)
        };
        let run = |contraction: &Contraction| contraction.run_by(cx, None, [false; 2]);
        let pack_b =
            |contraction: &Contraction| if good_b { run(contraction) } else { pack(contraction, 'b', n, &run) };
        let _together = cx.batch();
        if good_a { pack_b(&ordered) } else { pack(&ordered, 'a', m, &pack_b) }.map(Some)
    }

    /// Whether it pays off to copy operands so that their rows are whole. Not those with groups of several axes, or with axes
    /// along which all elements are one: a copy may be much larger than what it is made from.
    pub fn pays_to_copy(groups: &Groups) -> bool {
        let [batch, m, n, k] = groups.sizes();
        let steps = |axis: &Axis, tensors: &str| tensors.chars().all(|tensor| axis.stride(tensor) != 0);
        let single = |(_, tensors, axes): &(_, &str, &[Axis])| match axes {
            [] => true,
            [axis] => steps(axis, tensors),
            _ => false,
        };
        let simple = groups.borders.is_none() && groups.named().iter().all(single);
        simple && m.min(n) >= USES && batch * m * n * k >= PRODUCTS
    }

    /// The result, by way of copies of the operands for which `runs` is false, in which runs of `run` elements are whole:
    /// along k, with zeros at its end, or along the other group, as `along_k` says. The groups are such as
    /// [`Self::pays_to_copy`] takes, of rows, columns and depth one axis each.
    pub fn run_copied(
        &self,
        cx: &Context,
        by: Option<(Tile, u64)>,
        groups: &Groups,
        along_k: [bool; 2],
        (runs, run): ([bool; 2], u64),
    ) -> Attempt<Buffer> {
        let Groups { batch, m, n, k, .. } = groups;
        let [batch, rows, columns, depth] = [batch, m, n, k].map(Clone::clone);
        let single = Contraction { batch, rows, columns, depth, ..self.reborrow() };
        let copy = |contraction: &Contraction, i: usize, then: &dyn Fn(&Contraction) -> Attempt<Buffer>| {
            if runs[i] {
                return then(contraction);
            }
            let tensor = ['a', 'b'][i];
            let mut coordinates = contraction.coordinates(tensor);
            let inner = Of::Axis(groups.batch.len() + if along_k[i] { 2 } else { i });
            coordinates.sort_by_key(|coordinate| coordinate.of == inner);
            if let Some(row) = coordinates.last_mut().filter(|_| along_k[i]) {
                row.dim = row.dim.next_multiple_of(run);
            }
            contraction.with_dense(cx, tensor, &coordinates, run, then)
        };
        let product = |copied: &Contraction| copied.run_by(cx, by, runs.map(|whole| !whole));
        // Not held back to be submitted together: small products would wait for what is recorded, 4 to 10 % on an H200.
        copy(&single, 0, &|copied: &Contraction| copy(copied, 1, &product))
    }

    /// Where an operand's elements lie: the axes that it varies along, those with borders as their coordinates.
    fn coordinates(&self, tensor: char) -> Vec<Coordinate> {
        let bordered = tensor == self.bordered();
        let free = |axis: &Axis| !(bordered && axis.border.is_some()) && axis.stride(tensor) != 0;
        let axes = self
            .axes()
            .enumerate()
            .filter(|(_, axis)| free(axis))
            .map(|(i, axis)| (Of::Axis(i), axis.dim, axis.stride(tensor)));
        let borders = self.borders.iter().enumerate().filter(|_| bordered);
        let borders = borders.map(|(i, border)| (Of::Border(i), border.extent, border.stride));
        let all = |(of, dim, stride)| Coordinate { of, dim, low: 0, extent: dim, stride };
        axes.chain(borders).map(all).collect()
    }

    /// What `then` gives for an operand that is dense over the coordinates, but that its rows go on to a multiple of `run`
    /// elements.
    fn with_dense(
        &self,
        cx: &Context,
        tensor: char,
        coordinates: &[Coordinate],
        run: u64,
        then: &dyn Fn(&Contraction) -> Attempt<Buffer>,
    ) -> Attempt<Buffer> {
        let view = if tensor == 'a' { &self.a } else { &self.b };
        let mut dims: Axes<u64> = coordinates.iter().map(|coordinate| coordinate.dim).collect();
        if let Some(row) = dims.last_mut() {
            *row = row.next_multiple_of(run);
        }
        let bytes = dims.iter().try_fold(view.ty.size(), |n, &dim| n.checked_mul(dim)).ok_or(Error::SizeMismatch)?;
        let strides = dense_strides(&dims);
        let buffer = Buffer::new(bytes, cx.allocate(bytes)?);
        // A prompt caller that has to wait for the result's memory has recorded nothing in vain.
        let result = self.kept().iter().map(|axis| axis.dim).product::<u64>();
        drop(cx.allocate(result * self.ty.size())?);
        write(cx, view, coordinates, &strides, &buffer)?;

        let mut dense = self.reborrow();
        for axis in dense.axes_mut() {
            *axis.stride_mut(tensor) = 0;
        }
        for (coordinate, &stride) in coordinates.iter().zip(&strides) {
            match coordinate.of {
                Of::Axis(i) => {
                    if let Some(axis) = dense.axes_mut().nth(i) {
                        *axis.stride_mut(tensor) = stride;
                    }
                }
                Of::Border(i) => {
                    let start = dense.borders[i].start - coordinate.low;
                    dense.borders[i] = Border { start, extent: coordinate.dim, stride };
                    for axis in dense.axes_mut() {
                        if let Some((_, step)) = axis.border.filter(|(border, _)| *border == i) {
                            *axis.stride_mut(tensor) = step * stride;
                        }
                    }
                }
            }
        }
        let moved = View { buffer: &buffer, ty: view.ty, offset: 0 };
        if tensor == 'a' {
            dense.a = moved
        } else {
            dense.b = moved
        }
        then(&dense)
    }
}

/// Writes what exists of the coordinates, and zeros where not all do.
fn write(cx: &Context, view: &View, coordinates: &[Coordinate], strides: &[i64], out: &Buffer) -> Attempt<()> {
    let exists = |coordinate: &Coordinate| {
        let end = (coordinate.low + coordinate.dim as i64).min(coordinate.extent as i64);
        let first = coordinate.low.clamp(0, coordinate.extent as i64);
        (first, (end - first).max(0) as u64)
    };
    let allocation = out.allocation()?;
    if coordinates.iter().any(|coordinate| exists(coordinate).1 < coordinate.dim) {
        cx.zero(&allocation, out.len())?;
    }
    let counts: Axes<u64> = coordinates.iter().map(|coordinate| exists(coordinate).1).collect();
    let firsts = || coordinates.iter().map(|coordinate| exists(coordinate).0);
    let from = coordinates.iter().zip(firsts()).map(|(coordinate, first)| first * coordinate.stride).sum::<i64>();
    let to = coordinates.iter().zip(firsts()).zip(strides).map(|((c, first), stride)| (first - c.low) * stride).sum();
    // Only the width counts: as numbers elements might change.
    let ty = if view.ty.is_complex() { view.ty } else { Type::from_nx("u", view.ty.bits().max(8)).unwrap_or(view.ty) };
    let steps = coordinates.iter().map(|coordinate| coordinate.stride).collect();
    let input = Input { ty, source: Source::View { offset: view.offset + from, strides: steps } };
    let place = OutputView { offset: to, strides: strides.iter().copied().collect(), dynamic_offsets: SmallVec::new() };
    let (inputs, nodes) = (SmallVec::from_iter([input]), SmallVec::from_iter([assemble::copied(ty)]));
    let copy = Program { inputs, nodes, shape: counts, output: Some(place) };
    let source = view.buffer.allocation()?;
    fusion::run_into(cx, &copy, &[Operand::Buffer(&source, view.buffer.len())], (&allocation, out.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::contraction::tests::{Products, upload, values};
    use crate::kernels::contraction::tile::TILES;

    #[test]
    fn products_of_copies_agree_with_sums_where_no_row_is_whole() {
        let cx = &Context::new(crate::gpu::gpu().unwrap(), crate::memory::Blocking::Allowed);
        for (by_k, by_n, runs) in [
            (true, true, [false; 2]),
            (false, false, [false; 2]),
            (true, false, [true, false]),
            (false, true, [false, true]),
        ] {
            let products = Products::new(cx, [2, 35, 45, 77], (by_k, by_n), 1);
            // So that the copies' memory does not happen to hold zeros.
            for elements in [2 * 35 * 80, 2 * 45 * 80] {
                assert!(values(cx, &upload(cx, &vec![f32::NAN; elements])).iter().all(|value| value.is_nan()));
            }
            let contraction = products.contraction();
            let (by, groups) = (Some((TILES[5], 1)), Groups::of(&contraction));
            let run = |cx: &Context| contraction.run_copied(cx, by, &groups, [by_k, !by_n], (runs, 8));
            for c in [run(cx).unwrap(), products.replayed(cx, run)] {
                products.check(cx, &c, format_args!("{by_k} {by_n} {runs:?}"));
            }
        }
    }
}
