//! Scatters from windows: `Nx.window_scatter_max/5` and `Nx.window_scatter_min/5`. This module owns their kernels, with
//! `shaders/lib/window.glsl`; which of them run is the choice of `tuning::window`.
//!
//! One kernel chooses an element in every window, a second adds up, for every element, the sources of the windows that
//! chose it. Sums have one order, that of the windows, and nothing is written by two threads. Unrolled kernels have the extents of
//! windows and strides as constants; a thread of the second takes a cell, which is all elements from the start of one window to the
//! start of the next, and where windows do not overlap it also chooses among them.

use std::fmt::Write as _;

use smallvec::SmallVec;

use super::{KernelSpec, Tensor, launch};
use crate::device::Capabilities;
use crate::error::{Attempt, Error, Result};
use crate::graph::{Context, Params};
use crate::memory::{Allocation, Buffer};
use crate::program::emit::{assign, convert, element, head, of_compute};
use crate::program::{MAX_RANK, Type};
use crate::tuning::window::{WindowScatterStrategy, strategy};

/// An axis of the tensor and the windows along it.
#[derive(Clone, Copy, Debug)]
pub struct WindowAxis {
    dim: u64,
    window: u64,
    stride: u64,
    low: i64,
    /// The axis with its padding.
    padded: u64,
    /// How many windows there are.
    count: u64,
}

impl WindowAxis {
    /// `None` where no window fits.
    pub fn new(dim: u64, window: u64, stride: u64, low: i64, high: i64) -> Option<Self> {
        let padded = dim.checked_add_signed(low)?.checked_add_signed(high)?;
        let free = padded.checked_sub(window)?;
        let sound = dim > 0 && window > 0 && stride > 0 && padded.max(low.unsigned_abs()) <= 1 << 48;
        // A stride beyond the last window has no second one either.
        sound.then(|| Self { dim, window, stride: stride.min(padded), low, padded, count: free / stride + 1 })
    }

    /// Whether each element is a window.
    fn is_free(&self) -> bool {
        self.window == 1 && self.stride == 1 && self.low == 0 && self.padded == self.dim
    }

    /// The cell of the first element, where the first window starts with cell 0 and each cell has `stride` elements.
    fn first(&self) -> i64 {
        self.low.div_euclid(self.stride as i64)
    }

    fn cells(&self) -> u64 {
        ((self.low + self.dim as i64 - 1).div_euclid(self.stride as i64) - self.first() + 1) as u64
    }

    /// How many windows an element of a cell may be in: those that start with it and with the ones before.
    fn overlap(&self) -> u64 {
        self.window.div_ceil(self.stride)
    }

    /// Whether no window goes beyond the tensor.
    fn is_inside(&self) -> bool {
        self.low <= 0 && ((self.count - 1) * self.stride + self.window) as i64 - self.low <= self.dim as i64
    }

    /// Whether a window starts with every cell.
    fn is_even(&self) -> bool {
        self.first() >= 0 && self.first() as u64 + self.cells() <= self.count
    }

    /// Whether no cell goes beyond the tensor.
    fn is_whole(&self) -> bool {
        self.low.rem_euclid(self.stride as i64) == 0 && self.cells() * self.stride == self.dim
    }
}

/// Neighbouring axes that no window notices are joined.
fn joined(axes: &[WindowAxis]) -> Vec<WindowAxis> {
    let mut joined: Vec<WindowAxis> = vec![];
    for axis in axes {
        match joined.last_mut() {
            Some(last) if last.is_free() && axis.is_free() => {
                let dim = last.dim * axis.dim;
                *last = WindowAxis { dim, padded: dim, count: dim, ..*last };
            }
            _ => joined.push(*axis),
        }
    }
    joined
}

/// What to scatter, and over which windows.
pub struct WindowScatter<'a> {
    /// Whether the largest element of a window is chosen, or the smallest; the last of equal ones.
    pub max: bool,
    /// The type of the result.
    pub ty: Type,
    /// The tensor whose windows choose elements; the result has its shape.
    pub tensor: Tensor<'a>,
    /// One element a window.
    pub source: Tensor<'a>,
    /// One element: what sums start from, and what stands in the padding.
    pub init: Tensor<'a>,
    /// The axes of the tensor, outermost first, with the windows along them: at most [`MAX_RANK`].
    pub axes: Vec<WindowAxis>,
}

const THREADS: u32 = 256;

/// A tensor of type `ty` and the tensor's shape.
pub fn scatter(cx: &Context, scatter: &WindowScatter) -> Attempt<Buffer> {
    let WindowScatter { max, ty, tensor, source, init, axes } = scatter;
    let [elements, windows, padded] = scatter.check(cx.caps())?;
    let axes = joined(axes);
    let low = axes.iter().map(|axis| axis.low.unsigned_abs()).max().unwrap_or(0);
    let index64 = elements.max(windows).max(padded).max(low) >= 1 << 31;
    let cell = axes.iter().try_fold(1u64, |n, axis| n.checked_mul(axis.window.max(axis.stride)));
    let strategy = strategy(elements, cell, axes.iter().any(|axis| axis.overlap() > 1));
    let unrolled = strategy != WindowScatterStrategy::Loops;
    let kernel = |stage| WindowScatterKernel {
        stage,
        max: *max,
        ty: *ty,
        tensor: tensor.ty,
        source: source.ty,
        init: init.ty,
        axes: axes.iter().map(|axis| KernelAxis::new(axis, unrolled)).collect(),
        unrolled,
        index64,
    };
    let out = cx.allocate(elements * ty.size())?;
    let (tensor, source, init) =
        (&*tensor.buffer.allocation()?, &*source.buffer.allocation()?, &*init.buffer.allocation()?);
    let of = if unrolled { WindowAxis::cells } else { |axis: &WindowAxis| axis.dim };
    let threads = axes.iter().map(of).product();
    let args = WindowArgs { axes: &axes, threads, out: &out, tensor, source, init, chosen: None };
    if strategy == WindowScatterStrategy::UnrolledAtOnce {
        launch(cx, &kernel(WindowStage::ChooseAndAdd), &args)?;
    } else {
        let choose = kernel(WindowStage::Choose);
        let chosen = cx.allocate(windows * choose.position_type().size())?;
        let args = WindowArgs { chosen: Some(&chosen), ..args };
        launch(cx, &choose, &WindowArgs { threads: windows, ..args })?;
        launch(cx, &kernel(WindowStage::Add), &args)?;
    }
    Ok(Buffer::new(elements * ty.size(), out))
}

impl WindowScatter<'_> {
    /// How many elements the tensor has, windows and elements with the padding; fails where the operands do not fit.
    fn check(&self, caps: &Capabilities) -> Result<[u64; 3]> {
        let Self { ty, tensor, source, init, axes, .. } = self;
        for ty in [*ty, tensor.ty, source.ty, init.ty] {
            ty.check(caps)?;
            if ty.is_complex() {
                return Err(Error::Argument("complex numbers have no order".into()));
            }
        }
        if axes.len() > MAX_RANK {
            return Err(Error::Argument("tensor: more than 64 axes".into()));
        }
        let product = |extent: fn(&WindowAxis) -> u64| {
            let product = axes.iter().try_fold(1u64, |n, axis| n.checked_mul(extent(axis)));
            product.filter(|&n| n <= 1 << 48).ok_or(Error::SizeMismatch)
        };
        let (elements, windows) = (product(|axis| axis.dim)?, product(|axis| axis.count)?);
        let padded = product(|axis| axis.padded)?;
        for (tensor, len) in [(tensor, elements), (source, windows), (init, 1)] {
            if tensor.elements()? < len {
                return Err(Error::SizeMismatch);
            }
        }
        Ok([elements, windows, padded])
    }
}

/// What one of the kernels does.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum WindowStage {
    /// Chooses an element in each window.
    Choose,
    /// Adds up for each element the sources of the windows that chose it.
    Add,
    ChooseAndAdd,
}

/// What a kernel's source depends on of an axis.
#[derive(Clone, Copy, Hash)]
struct KernelAxis {
    /// Whether no window goes beyond the tensor.
    inside: bool,
    /// The extents that are constants of the kernel: 1 where it has none.
    window: u64,
    stride: u64,
    /// Whether a window starts with every cell, and no cell goes beyond the tensor, where that matters.
    even: bool,
    whole: bool,
}

impl KernelAxis {
    fn new(axis: &WindowAxis, unrolled: bool) -> Self {
        let inside = axis.is_inside();
        if !unrolled {
            return Self { inside, window: 1, stride: 1, even: false, whole: false };
        }
        Self { inside, window: axis.window, stride: axis.stride, even: axis.is_even(), whole: axis.is_whole() }
    }

    /// How many windows an element of a cell may be in.
    fn overlap(&self) -> u64 {
        self.window.div_ceil(self.stride)
    }
}

#[derive(Hash)]
struct WindowScatterKernel {
    stage: WindowStage,
    max: bool,
    /// The types of the result and of the operands.
    ty: Type,
    tensor: Type,
    source: Type,
    init: Type,
    axes: SmallVec<[KernelAxis; 4]>,
    /// Whether extents of windows and strides are constants.
    unrolled: bool,
    index64: bool,
}

#[derive(Clone, Copy)]
struct WindowArgs<'a> {
    axes: &'a [WindowAxis],
    threads: u64,
    out: &'a Allocation,
    tensor: &'a Allocation,
    source: &'a Allocation,
    init: &'a Allocation,
    /// The position that each window chose; one in the padding is no element's.
    chosen: Option<&'a Allocation>,
}

impl KernelSpec for WindowScatterKernel {
    type Args<'a> = WindowArgs<'a>;

    fn params<'a>(&self, args: &WindowArgs<'a>, params: &mut Params<'a>) {
        params.read(args.init, self.init.storage(), "init");
        if self.stage != WindowStage::Add {
            params.read(args.tensor, self.tensor.storage(), "tensor");
        }
        if self.stage != WindowStage::Choose {
            params.read(args.source, self.source.storage(), "source");
            params.write(args.out, self.ty.storage(), "result");
        }
        if let Some(chosen) = args.chosen {
            match self.stage {
                WindowStage::Choose => params.write(chosen, self.position_type().storage(), "chosen"),
                _ => params.read(chosen, self.position_type().storage(), "chosen"),
            }
        }
        params.extent(args.threads, self.index64, "threads");
        for (a, axis) in args.axes.iter().enumerate() {
            let all = [("dim", axis.dim as i64), ("count", axis.count as i64), ("low", axis.low)];
            let unrolled = [("cells", axis.cells() as i64), ("first", axis.first())];
            let looped =
                [("window", axis.window as i64), ("stride", axis.stride as i64), ("padded", axis.padded as i64)];
            let extents = all.iter().chain(if self.unrolled { unrolled.as_slice() } else { &looped });
            for &(name, value) in extents {
                params.index(value, self.index64, (name, a));
            }
        }
    }

    fn groups(&self, args: &WindowArgs) -> u64 {
        args.threads.div_ceil(THREADS.into())
    }

    fn source(&self, caps: &Capabilities, parameters: &str) -> String {
        let types = [self.ty, self.tensor, self.source, self.init, self.position_type()];
        let (storages, computes) = (types.map(Type::storage), types.map(Type::compute));
        format!(
            "{head}\
             #define THREADS {THREADS}\n\
             #include \"lib/ops/compare.glsl\"\n\
             layout(local_size_x = {THREADS}) in;\n\
             void run(IDX i) {{\n\
             \x20 IDX rest = i;\n\
             {body}}}\n\
             #include \"lib/window.glsl\"\n",
            head = head(caps, self.index64, &storages, &computes, parameters),
            body = match self.stage {
                WindowStage::Choose => self.choices(),
                WindowStage::Add if !self.unrolled => self.element(),
                WindowStage::Add | WindowStage::ChooseAndAdd => self.cell(),
            },
        )
    }
}

impl WindowScatterKernel {
    /// The type of an element's position in its window.
    fn position_type(&self) -> Type {
        match (self.unrolled, self.index64) {
            (true, _) => Type::U8,
            (false, true) => Type::U64,
            (false, false) => Type::U32,
        }
    }

    /// An axis's extent of windows or stride as GLSL.
    fn extent(&self, name: &str, a: usize, value: u64) -> String {
        if self.unrolled { format!("IDX({value})") } else { format!("p.{name}{a}") }
    }

    fn window(&self, a: usize) -> String {
        self.extent("window", a, self.axes[a].window)
    }

    fn stride(&self, a: usize) -> String {
        self.extent("stride", a, self.axes[a].stride)
    }

    /// Declares `{name}{a}`, the indices along the axes of thread `i`, whose extents are the parameters `{extent}{a}`.
    fn unflattened(&self, name: &str, extent: &str) -> String {
        let axis = |a| match a {
            0 => format!("  IDX {name}0 = rest;\n"),
            _ => format!("  IDX {name}{a} = rest % p.{extent}{a}; rest /= p.{extent}{a};\n"),
        };
        (0..self.axes.len()).rev().map(axis).collect()
    }

    /// The flat index of what is at `at(a)` along each axis of `extent(a)`.
    fn flat_index(&self, at: impl Fn(usize) -> String, extent: impl Fn(usize) -> String) -> String {
        let step = |flat: String, a| if a == 0 { at(0) } else { format!("({flat}) * {} + {}", extent(a), at(a)) };
        (0..self.axes.len()).fold("IDX(0)".into(), step)
    }

    /// A test of each axis for which it may fail.
    fn all(&self, sure: impl Fn(&KernelAxis) -> bool, test: impl Fn(usize) -> String) -> String {
        let tests: Vec<_> = (0..self.axes.len()).filter(|&a| !sure(&self.axes[a])).map(test).collect();
        if tests.is_empty() { "true".into() } else { tests.join(" && ") }
    }

    fn init_value(&self, ty: Type) -> String {
        convert(element(self.init, "init", "IDX(0)"), ty)
    }

    /// Chooses the element of window `i`.
    fn choices(&self) -> String {
        let mut text = self.unflattened("o", "count");
        for a in 0..self.axes.len() {
            let _ = writeln!(text, "  IDX at{a} = o{a} * {} - p.low{a};", self.stride(a));
        }
        let position = self.position_type();
        let chosen = ("chosen".into(), position);
        format!("{text}{}  {};\n", self.choose("chosen"), assign(position, "chosen", "i", chosen))
    }

    /// Declares as `name` the position chosen in the window that starts at `at{a}`. The element before is replaced where the
    /// next compares as equal or better, so NaN is chosen only at a window's start.
    fn choose(&self, name: &str) -> String {
        // The padding makes floats of integers where it is one.
        let ty = if self.init.is_float() && !self.tensor.is_float() { self.init } else { self.tensor };
        let (value, position) = (ty.compute().glsl(), self.position_type().compute().glsl());
        let mut text = format!("  {value} best, padding = {};\n  {position} {name} = 0, w = 0;\n", self.init_value(ty));
        for a in 0..self.axes.len() {
            let unroll = if self.unrolled { "[[unroll]] " } else { "" };
            let _ = writeln!(text, "  {unroll}for (IDX w{a} = 0; w{a} < {}; w{a}++)", self.window(a));
        }
        // Before the first element it wraps around to beyond the last.
        let _ = writeln!(
            text,
            "  {{\n\
             \x20   {value} x = padding;\n\
             \x20   if ({inside}) x = {x};\n\
             \x20   if (w == 0 || {beats}(x, best)) {{ best = x; {name} = w; }}\n\
             \x20   w++;\n\
             \x20 }}",
            inside = self.all(|axis| axis.inside, |a| format!("at{a} + w{a} < p.dim{a}")),
            x = convert(
                element(
                    self.tensor,
                    "tensor",
                    &self.flat_index(|a| format!("(at{a} + w{a})"), |a| format!("p.dim{a}"))
                ),
                ty
            ),
            beats = if self.max { "nx_greater_equal" } else { "nx_less_equal" },
        );
        text
    }

    /// Adds up for element `i` the sources of the windows that chose it.
    fn element(&self) -> String {
        let mut text = self.unflattened("x", "dim");
        for a in 0..self.axes.len() {
            let _ = writeln!(
                text,
                "  IDX c{a} = x{a} + p.low{a};\n\
                 \x20 IDX first{a} = c{a} < p.window{a} ? 0 : (c{a} - p.window{a}) / p.stride{a} + 1;\n\
                 \x20 IDX last{a} = c{a} < p.padded{a} ? min(c{a} / p.stride{a} + 1, p.count{a}) : 0;"
            );
        }
        let _ = writeln!(text, "  precise {} sum = {};", self.ty.compute().glsl(), self.init_value(self.ty));
        for a in 0..self.axes.len() {
            let _ = writeln!(text, "  for (IDX o{a} = first{a}; o{a} < last{a}; o{a}++)");
        }
        let _ = writeln!(
            text,
            "  {{\n\
             \x20   IDX w = {window};\n\
             \x20   if ({chosen} == {position}) sum += {term};\n\
             \x20 }}\n\
             \x20 {};",
            assign(self.ty, "result", "i", ("sum".into(), of_compute(self.ty.compute()))),
            window = self.flat_index(|a| format!("o{a}"), |a| format!("p.count{a}")),
            chosen = element(self.position_type(), "chosen", "w").0,
            position = self.flat_index(|a| format!("(c{a} - o{a} * p.stride{a})"), |a| self.window(a)),
            term = convert(element(self.source, "source", "w"), self.ty),
        );
        text
    }

    /// Adds up for the elements of cell `i` the sources of the windows that chose them, each of which is loaded once.
    fn cell(&self) -> String {
        let (rank, sum) = (self.axes.len(), self.ty.compute().glsl());
        let mut text = self.unflattened("cell", "cells");
        for (a, axis) in self.axes.iter().enumerate() {
            let _ =
                writeln!(text, "  IDX o{a} = cell{a} + p.first{a}, at{a} = o{a} * IDX({}) - p.low{a};", axis.stride);
        }
        let _ = writeln!(text, "  {sum} start = {};", self.init_value(self.ty));
        // The last window along an axis starts with the cell.
        let windows = all_indices(&self.axes, KernelAxis::overlap);
        for (v, window) in windows.iter().enumerate() {
            let back = |a: usize| self.axes[a].overlap() - 1 - window[a];
            let _ = writeln!(
                text,
                "  uint chosen{v} = ~0u;\n\
                 \x20 {sum} term{v};\n\
                 \x20 if ({exists}) {{\n\
                 \x20   IDX window = {window};\n\
                 \x20   term{v} = {term};\n\
                 {choose}\
                 \x20   chosen{v} = {chosen};\n\
                 \x20 }}",
                exists =
                    self.all(|axis| axis.overlap() == 1 && axis.even, |a| format!("o{a} - {} < p.count{a}", back(a))),
                window = self.flat_index(|a| format!("(o{a} - {})", back(a)), |a| format!("p.count{a}")),
                term = convert(element(self.source, "source", "window"), self.ty),
                choose = if self.stage == WindowStage::ChooseAndAdd { self.choose("chosen") } else { String::new() },
                chosen = match self.stage {
                    WindowStage::ChooseAndAdd => "chosen".into(),
                    _ => element(self.position_type(), "chosen", "window").0,
                },
            );
        }
        for at in all_indices(&self.axes, |axis| axis.stride) {
            let mut add = String::new();
            for (v, window) in windows.iter().enumerate() {
                let within = |a: usize| at[a] + (self.axes[a].overlap() - 1 - window[a]) * self.axes[a].stride;
                if (0..rank).all(|a| within(a) < self.axes[a].window) {
                    let position = (0..rank).fold(0, |flat, a| flat * self.axes[a].window + within(a));
                    let _ = write!(add, " if (chosen{v} == {position}u) sum += term{v};");
                }
            }
            let _ = writeln!(
                text,
                "  if ({inside}) {{\n\
                 \x20   precise {sum} sum = start;\n\
                 \x20  {add}\n\
                 \x20   {result};\n\
                 \x20 }}",
                inside = self.all(|axis| axis.whole, |a| format!("at{a} + {} < p.dim{a}", at[a])),
                result = assign(
                    self.ty,
                    "result",
                    &self.flat_index(|a| format!("(at{a} + {})", at[a]), |a| format!("p.dim{a}")),
                    ("sum".into(), of_compute(self.ty.compute()))
                ),
            );
        }
        text
    }
}

/// All indices along axes of these extents, in row-major order.
fn all_indices(axes: &[KernelAxis], extent: impl Fn(&KernelAxis) -> u64) -> Vec<Vec<u64>> {
    axes.iter().fold(vec![vec![]], |indices, axis| {
        let along =
            |index: &Vec<u64>| (0..extent(axis)).map(|at| [index.as_slice(), &[at]].concat()).collect::<Vec<_>>();
        indices.iter().flat_map(along).collect()
    })
}
