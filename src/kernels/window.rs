//! Scatters from windows: `Nx.window_scatter_max/5` and `Nx.window_scatter_min/5`.
//!
//! One kernel chooses an element in every window, a second adds up, for every element, the sources of the windows that
//! chose it. So sums have one order, that of the windows, and nothing is written by two threads.

use std::fmt::Write as _;

use super::{Kernel, Tensor};
use crate::device::Gpu;
use crate::error::{Error, Result};
use crate::memory::{Block, Buffer, Kind, Patience};
use crate::program::emit::{Params, assign, convert, element, head};
use crate::program::types::Compute;
use crate::program::{MAX_RANK, Type};

/// An axis of the tensor and the windows along it.
#[derive(Clone, Copy, Debug)]
pub struct Axis {
    dim: u64,
    window: u64,
    stride: u64,
    low: i64,
    /// The axis with its padding.
    padded: u64,
    /// How many windows there are.
    count: u64,
}

impl Axis {
    /// `None` where no window fits.
    pub fn new(dim: u64, window: u64, stride: u64, low: i64, high: i64) -> Option<Self> {
        let padded = dim.checked_add_signed(low)?.checked_add_signed(high)?;
        let free = padded.checked_sub(window)?;
        let sound = dim > 0 && window > 0 && stride > 0 && padded <= 1 << 48;
        sound.then(|| Self { dim, window, stride, low, padded, count: free / stride + 1 })
    }
}

/// What to scatter, and over which windows.
pub struct Scatter<'a> {
    /// Whether the largest element of a window is chosen, or the smallest; the last of equal ones.
    pub max: bool,
    pub ty: Type,
    pub tensor: Tensor<'a>,
    /// One element a window.
    pub source: Tensor<'a>,
    /// One element: what sums start from, and what stands in the padding.
    pub init: Tensor<'a>,
    pub axes: Vec<Axis>,
}

const THREADS: u32 = 256;

/// A tensor of type `ty` and the tensor's shape.
pub fn scatter(gpu: &Gpu, scatter: &Scatter, patience: Patience) -> Result<Buffer> {
    let Scatter { ty, tensor, source, init, axes, .. } = scatter;
    for ty in [*ty, tensor.ty, source.ty, init.ty] {
        ty.check(&gpu.caps)?;
        if ty.is_complex() {
            return Err(Error::Argument("complex numbers have no order".into()));
        }
    }
    if axes.len() > MAX_RANK {
        return Err(Error::Argument("tensor: more than 64 axes".into()));
    }
    let product = |extent: fn(&Axis) -> u64| {
        let product = axes.iter().try_fold(1u64, |n, axis| n.checked_mul(extent(axis)));
        product.filter(|&n| n <= 1 << 48).ok_or(Error::SizeMismatch)
    };
    let (elements, windows) = (product(|axis| axis.dim)?, product(|axis| axis.count)?);
    let (within, padded) = (product(|axis| axis.window)?, product(|axis| axis.padded)?);
    for (tensor, len) in [(tensor, elements), (source, windows), (init, 1)] {
        if tensor.elements()? < len {
            return Err(Error::SizeMismatch);
        }
    }
    let wide = elements.max(windows).max(padded) >= 1 << 31;
    let index = if wide { Compute::Uint64 } else { Compute::Uint };
    let out = gpu.allocate(Kind::Device, elements * ty.size(), patience)?;
    let chosen = gpu.allocate(Kind::Device, windows * index.size(), patience)?;
    let (tensor_block, source_block, init_block) =
        (tensor.buffer.lease()?, source.buffer.lease()?, init.buffer.lease()?);

    let kernel = Windows { scatter, gpu, wide, index };
    let choose = |params: &mut Params| {
        params.address(chosen.address, index.glsl(), format_args!("chosen"));
        params.address(tensor_block.address, tensor.ty.storage(), format_args!("tensor"));
        params.address(init_block.address, init.ty.storage(), format_args!("init"));
        params.extents(wide, [("threads", windows), ("within", within)]);
        kernel.axes(params);
    };
    kernel.run("choose", &choose, windows, &[&tensor_block, &init_block], &chosen, patience, || kernel.choose())?;
    let add = |params: &mut Params| {
        params.address(out.address, ty.storage(), format_args!("result"));
        params.address(chosen.address, index.glsl(), format_args!("chosen"));
        params.address(source_block.address, source.ty.storage(), format_args!("source"));
        params.address(init_block.address, init.ty.storage(), format_args!("init"));
        params.extent(elements, wide, format_args!("threads"));
        kernel.axes(params);
    };
    kernel.run("add", &add, elements, &[&chosen, &source_block, &init_block], &out, patience, || kernel.add())?;
    Ok(Buffer::new(elements * ty.size(), out))
}

struct Windows<'a> {
    scatter: &'a Scatter<'a>,
    gpu: &'a Gpu,
    wide: bool,
    index: Compute,
}

impl Windows<'_> {
    fn axes(&self, params: &mut Params) {
        for (a, axis) in self.scatter.axes.iter().enumerate() {
            let extents = [
                ("dim", axis.dim),
                ("window", axis.window),
                ("stride", axis.stride),
                ("padded", axis.padded),
                ("count", axis.count),
            ];
            for (name, value) in extents {
                params.extent(value, self.wide, format_args!("{name}{a}"));
            }
            params.index(axis.low, self.wide, format_args!("low{a}"));
        }
    }

    #[allow(clippy::too_many_arguments, reason = "what differs between the two kernels")]
    fn run(
        &self,
        name: &str,
        params: &dyn Fn(&mut Params),
        threads: u64,
        reads: &[&Block],
        writes: &Block,
        patience: Patience,
        body: impl Fn() -> String,
    ) -> Result<()> {
        let Scatter { max, ty, tensor, source, init, axes } = self.scatter;
        let types = [*ty, tensor.ty, source.ty, init.ty];
        let mut key = format!("window {name} {max} {} {}", axes.len(), self.wide).into_bytes();
        key.extend(types.map(|ty| ty as u8));
        let source = |parameters: &str| {
            let mut storages: Vec<&str> = types.iter().map(|ty| ty.storage()).collect();
            storages.push(self.index.glsl());
            let mut computes: Vec<Compute> = types.iter().map(|ty| ty.compute()).collect();
            computes.push(self.index);
            format!(
                "{}\
                 layout(local_size_x = {THREADS}) in;\n\
                 void main() {{\n\
                 \x20 IDX group = workgroup();\n\
                 \x20 IDX i = group * {THREADS} + INVOCATION, rest = i;\n\
                 \x20 if (group > p.threads / {THREADS} || i >= p.threads) return;\n\
                 {}}}\n",
                head(&self.gpu.caps, self.wide, &storages, &computes, parameters),
                body(),
            )
        };
        let groups = threads.div_ceil(THREADS.into());
        Kernel { key: &key, params, source: &source, groups, reads, writes: &[writes] }.launch(self.gpu, patience)
    }

    /// Chooses the place in the tensor for window `i`; all bits set for one in the padding. The element before is
    /// replaced where the next compares as equal or better, so NaN is chosen only at a window's start.
    fn choose(&self) -> String {
        let Scatter { max, tensor, init, axes, .. } = self.scatter;
        // The padding makes floats of integers where it is one.
        let ty = if init.ty.is_float() && !tensor.ty.is_float() { init.ty } else { tensor.ty };
        let value = ty.compute().glsl();
        let mut text = String::new();
        for a in (0..axes.len()).rev() {
            let _ = writeln!(text, "  IDX at{a} = rest % p.count{a} * p.stride{a} - p.low{a}; rest /= p.count{a};");
        }
        let _ = writeln!(
            text,
            "  {value} best, padding = {};\n\
             \x20 IDX chosen = ~IDX(0);\n\
             \x20 for (IDX w = 0; w < p.within; w++) {{\n\
             \x20   IDX left = w, place = 0, weight = 1, c;\n\
             \x20   bool inside = true;",
            convert(element(init.ty, "init", "IDX(0)"), ty),
        );
        for a in (0..axes.len()).rev() {
            // Before the first element it wraps around to beyond the last.
            let _ = writeln!(
                text,
                "    c = at{a} + left % p.window{a}; left /= p.window{a};\n\
                 \x20   inside = inside && c < p.dim{a}; place += c * weight; weight *= p.dim{a};"
            );
        }
        let _ = writeln!(
            text,
            "    {value} x = padding;\n\
             \x20   if (inside) x = {};\n\
             \x20   if (w == 0 || x {} best) {{ best = x; chosen = inside ? place : ~IDX(0); }}\n\
             \x20 }}\n\
             \x20 AT({}, p.chosen, i) = chosen;",
            convert(element(tensor.ty, "tensor", "place"), ty),
            if *max { ">=" } else { "<=" },
            self.index.glsl(),
        );
        text
    }

    /// Adds up for element `i` the sources of the windows that chose it.
    fn add(&self) -> String {
        let Scatter { ty, source, init, axes, .. } = self.scatter;
        let sum = ty.compute().glsl();
        let mut text = String::new();
        for a in (0..axes.len()).rev() {
            let _ = writeln!(
                text,
                "  IDX c{a} = rest % p.dim{a} + p.low{a}; rest /= p.dim{a};\n\
                 \x20 IDX first{a} = c{a} < p.window{a} ? 0 : (c{a} - p.window{a}) / p.stride{a} + 1;\n\
                 \x20 IDX last{a} = c{a} < p.padded{a} ? min(c{a} / p.stride{a} + 1, p.count{a}) : 0;"
            );
        }
        let _ = writeln!(text, "  precise {sum} sum = {};", convert(element(init.ty, "init", "IDX(0)"), *ty));
        let mut window = String::from("0");
        for a in 0..axes.len() {
            let _ = writeln!(text, "  for (IDX o{a} = first{a}; o{a} < last{a}; o{a}++)");
            window = if a == 0 { "o0".into() } else { format!("({window}) * p.count{a} + o{a}") };
        }
        let _ = writeln!(
            text,
            "  {{\n\
             \x20   IDX w = {window};\n\
             \x20   if (AT({}, p.chosen, w) == i) sum += {};\n\
             \x20 }}\n\
             \x20 {};",
            self.index.glsl(),
            convert(element(source.ty, "source", "w"), *ty),
            assign(*ty, "result", "i", ("sum".into(), *ty)),
        );
        text
    }
}
