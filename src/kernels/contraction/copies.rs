//! Products whose operands cannot be read several elements at once where they lie: of copies that can.

use super::groups::Groups;
use super::{Axis, Contraction, Tile, View};
use crate::device::Gpu;
use crate::error::Result;
use crate::kernels::{assemble, program};
use crate::memory::{Buffer, Kind, Patience};
use crate::program::{Axes, Input, Place, Source};

/// Copies pay off where each element takes part in this many products, and there are this many products in all: it takes
/// a GPU about as long to copy a small matrix as to compute these.
const USES: u64 = 128;
const PRODUCTS: u64 = 1 << 28;

/// An operand, dense but that its rows go on to a multiple of some number of elements, with zeros along k.
struct Copied {
    buffer: Buffer,
    /// Of its batch, its other group and k, in elements.
    strides: [i64; 3],
}

impl Contraction<'_> {
    /// Whether it pays off to copy operands first. Not those with groups of several axes: a copy may be much larger than
    /// what it is made from.
    pub(super) fn pays_to_copy(groups: &Groups) -> bool {
        let [batch, m, n, k] = groups.sizes();
        let single = [&groups.batch, &groups.m, &groups.n, &groups.k].iter().all(|axes| axes.len() <= 1);
        single && groups.borders.is_none() && m.min(n) >= USES && batch * m * n * k >= PRODUCTS
    }

    /// The product of copies of the operands for which `runs` is false, in which runs of `run` elements are whole: along k
    /// or along the other group, as `along_k` says. All groups have one axis at most.
    pub(super) fn run_copied(
        &self,
        gpu: &Gpu,
        by: Option<(Tile, u64)>,
        groups: &Groups,
        along_k: [bool; 2],
        (runs, run): ([bool; 2], u64),
        patience: Patience,
    ) -> Result<Buffer> {
        let copy = |tensor, view, lines, i: usize| {
            let axes = [&groups.batch, lines, &groups.k];
            (!runs[i]).then(|| Copied::of(gpu, (tensor, view), axes, along_k[i], run, patience)).transpose()
        };
        let (a, b) = (copy('a', &self.a, &groups.m, 0)?, copy('b', &self.b, &groups.n, 1)?);
        let mut axes = [&groups.batch, &groups.m, &groups.n, &groups.k].map(Clone::clone);
        for (tensor, copied, group) in [('a', &a, 1), ('b', &b, 2)] {
            let strides = copied.iter().flat_map(|copied| copied.strides);
            for (i, stride) in [0, group, 3].into_iter().zip(strides) {
                if let Some(axis) = axes[i].first_mut() {
                    *axis.stride_mut(tensor) = stride;
                }
            }
        }
        let [batch, rows, columns, depth] = axes;
        let product = Contraction {
            ty: self.ty,
            a: Copied::view(&a, &self.a),
            b: Copied::view(&b, &self.b),
            batch,
            rows,
            columns,
            depth,
            borders: vec![],
        };
        product.run_by(gpu, by, [a.is_some(), b.is_some()], patience)
    }
}

impl Copied {
    /// The copy if there is one.
    fn view<'a>(copied: &'a Option<Self>, view: &View<'a>) -> View<'a> {
        match copied {
            Some(Self { buffer, .. }) => View { buffer, ty: view.ty, offset: 0 },
            None => View { ..*view },
        }
    }

    fn of(
        gpu: &Gpu,
        (tensor, view): (char, &View),
        [batch, lines, k]: [&Vec<Axis>; 3],
        along_k: bool,
        run: u64,
        patience: Patience,
    ) -> Result<Self> {
        let order = if along_k { [batch, lines, k] } else { [batch, k, lines] };
        let shape = order.map(|axes| axes.first().map_or(1, |axis| axis.dim));
        let from = order.map(|axes| axes.first().map_or(0, |axis| axis.stride(tensor)));
        let row = shape[2].next_multiple_of(run);
        let strides = [(shape[1] * row) as i64, row as i64, 1];
        let bytes = shape[0] * shape[1] * row * view.ty.size();
        let buffer = if along_k && row != shape[2] {
            gpu.zeroed(bytes, patience)?
        } else {
            Buffer::new(bytes, gpu.allocate(Kind::Device, bytes, patience)?)
        };
        let source = Source::View { offset: view.offset, strides: from.into_iter().collect() };
        let inputs = [Input { ty: view.ty, source }].into_iter().collect();
        let place = Place { offset: 0, strides: strides.into_iter().collect(), starts: Default::default() };
        let copy = assemble::copy(inputs, view.ty, Axes::from_slice(&shape))?.with_output(place)?;
        let (read, written) = (view.buffer.lease()?, buffer.lease()?);
        program::run_into(gpu, &copy, &[Some((&*read, view.buffer.len()))], (&*written, bytes), patience)?;
        let [batch, outer, inner] = strides;
        Ok(Self { buffer, strides: if along_k { [batch, outer, inner] } else { [batch, inner, outer] } })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::contraction::tile::TILES;
    use crate::program::Type;

    #[test]
    fn products_of_copies_agree_with_sums_where_no_row_is_whole() {
        let gpu = crate::device::gpu().unwrap();
        let [batch, m, n, k] = [2u64, 35, 45, 77];
        let number = |i: u64| (i * 2_654_435_761 % 64) as f32 - 31.0;
        let host = |count: u64, seed: u64| (0..count).map(|i| number(i + seed)).collect::<Vec<f32>>();
        let (host_a, host_b) = (host(1 + batch * m * k, 1), host(1 + batch * k * n, 99));
        let upload = |data: &[f32]| gpu.upload(bytemuck::cast_slice(data), Patience::Patient).unwrap();
        let (a, b) = (upload(&host_a), upload(&host_b));
        for (by_k, by_n, runs) in [
            (true, true, [false; 2]),
            (false, false, [false; 2]),
            (true, false, [true, false]),
            (false, true, [false, true]),
        ] {
            let (m_a, k_a) = if by_k { (k, 1) } else { (1, m) };
            let (k_b, n_b) = if by_n { (n, 1) } else { (1, k) };
            let axis =
                |dim: u64, [a, b, c]: [u64; 3]| vec![Axis { dim, a: a as i64, b: b as i64, c: c as i64, border: None }];
            let view = |buffer| View { buffer, ty: Type::F32, offset: 1 };
            let contraction = Contraction {
                ty: Type::F32,
                a: view(&a),
                b: view(&b),
                batch: axis(batch, [m * k, k * n, m * n]),
                rows: axis(m, [m_a, 0, n]),
                columns: axis(n, [0, n_b, 1]),
                depth: axis(k, [k_a, k_b, 0]),
                borders: vec![],
            };
            let by = Some((TILES[3], 1));
            let groups = Groups::of(&contraction);
            let c = contraction.run_copied(gpu, by, &groups, [by_k, !by_n], (runs, 8), Patience::Patient).unwrap();
            let read = gpu.read(&c, 0, c.len()).unwrap();
            let result: Vec<f32> = bytemuck::allocation::pod_collect_to_vec(read.bytes());
            for (place, &value) in result.iter().enumerate() {
                let place = place as u64;
                let (z, i, j) = (place / (m * n), place / n % m, place % n);
                let at_a = |l: u64| host_a[(1 + z * m * k + i * m_a + l * k_a) as usize];
                let at_b = |l: u64| host_b[(1 + z * k * n + l * k_b + j * n_b) as usize];
                let sum: f32 = (0..k).map(|l| at_a(l) * at_b(l)).sum();
                assert_eq!(value, sum, "{by_k} {by_n}, batch {z}, row {i}, column {j}");
            }
        }
    }
}
