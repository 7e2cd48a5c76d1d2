//! Scatters from windows: `Nx.window_scatter_max/5` and `Nx.window_scatter_min/5`.
//!
//! One kernel chooses an element in every window, a second adds up, for every element, the sources of the windows that
//! chose it. So sums have one order, that of the windows, and nothing is written by two threads. Of small windows kernels
//! have the extents and strides as constants; a thread of the second takes all elements from the start of one window to the
//! start of the next, and where windows do not overlap it also chooses among them.

use std::fmt::Write as _;

use super::{Kernel, STRAIGHT, Tensor, check_indices};
use crate::error::{Attempt, Error};
use crate::graph::{Context, Params};
use crate::memory::{Allocation, AllocationHandle, Buffer};
use crate::program::emit::{assign, convert, element, head};
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
        let sound = dim > 0 && window > 0 && stride > 0 && padded.max(low.unsigned_abs()) <= 1 << 48;
        // A stride beyond the last window has no second one either.
        sound.then(|| Self { dim, window, stride: stride.min(padded), low, padded, count: free / stride + 1 })
    }

    /// Whether each element is a window.
    fn is_free(&self) -> bool {
        self.window == 1 && self.stride == 1 && self.low == 0 && self.padded == self.dim
    }

    /// The cell of the first element, where the first window starts with cell 0 and each has as many elements as the stride.
    fn first(&self) -> i64 {
        self.low.div_euclid(self.stride as i64)
    }

    fn cells(&self) -> u64 {
        ((self.low + self.dim as i64 - 1).div_euclid(self.stride as i64) - self.first() + 1) as u64
    }

    /// How many windows an element of a cell may be in: those that start with it and with the ones before.
    fn reach(&self) -> u64 {
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
fn joined(axes: &[Axis]) -> Vec<Axis> {
    let mut joined: Vec<Axis> = vec![];
    for axis in axes {
        match joined.last_mut() {
            Some(last) if last.is_free() && axis.is_free() => {
                let dim = last.dim * axis.dim;
                *last = Axis { dim, padded: dim, count: dim, ..*last };
            }
            _ => joined.push(*axis),
        }
    }
    joined
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
/// The fewest elements of a tensor for which [`STRAIGHT`] code pays off. With 2×2 or 3×3 windows of so many it saves lavapipe 0.6
/// to 0.8 ms a call and takes 50 to 160 ms to build.
const ENOUGH_ELEMENTS: u64 = 1 << 14;

/// A tensor of type `ty` and the tensor's shape.
pub fn scatter(cx: &Context, scatter: &Scatter) -> Attempt<Buffer> {
    let Scatter { ty, tensor, source, init, axes, .. } = scatter;
    for ty in [*ty, tensor.ty, source.ty, init.ty] {
        ty.check(cx.caps())?;
        if ty.is_complex() {
            return Err(Error::Argument("complex numbers have no order".into()).into());
        }
    }
    if axes.len() > MAX_RANK {
        return Err(Error::Argument("tensor: more than 64 axes".into()).into());
    }
    let product = |extent: fn(&Axis) -> u64| {
        let product = axes.iter().try_fold(1u64, |n, axis| n.checked_mul(extent(axis)));
        product.filter(|&n| n <= 1 << 48).ok_or(Error::SizeMismatch)
    };
    let (elements, windows) = (product(|axis| axis.dim)?, product(|axis| axis.count)?);
    let padded = product(|axis| axis.padded)?;
    for (tensor, len) in [(tensor, elements), (source, windows), (init, 1)] {
        if tensor.elements()? < len {
            return Err(Error::SizeMismatch.into());
        }
    }
    let axes = joined(axes);
    let low = axes.iter().map(|axis| axis.low.unsigned_abs()).max().unwrap_or(0);
    let wide = elements.max(windows).max(padded).max(low) >= 1 << 31;
    check_indices(cx.caps(), wide)?;
    // Of a window, or from the start of one to the next.
    let cell = product(|axis| axis.window.max(axis.stride));
    let small = elements >= ENOUGH_ELEMENTS && cell.is_ok_and(|elements| elements <= STRAIGHT);
    let apart = small && axes.iter().all(|axis| axis.reach() == 1);
    let place = match (small, wide) {
        (true, _) => Type::U8,
        (false, true) => Type::U64,
        (false, false) => Type::U32,
    };
    let out = cx.allocate(elements * ty.size())?;
    let (tensor, source, init) = (tensor.buffer.allocation()?, source.buffer.allocation()?, init.buffer.allocation()?);
    let chosen = if apart { None } else { Some(cx.allocate(windows * place.size())?) };
    let windowed = Windows {
        scatter,
        cx,
        axes,
        wide,
        small,
        place,
        out: &out,
        tensor: &tensor,
        source: &source,
        init: &init,
        chosen: chosen.as_ref(),
    };
    let threads = windowed.axes.iter().map(if small { Axis::cells } else { |axis: &Axis| axis.dim }).product();
    if !apart {
        windowed.run(Stage::Choose, windows)?;
    }
    windowed.run(if apart { Stage::Both } else { Stage::Add }, threads)?;
    Ok(Buffer::new(elements * ty.size(), out))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Choose,
    Add,
    Both,
}

struct Windows<'a> {
    scatter: &'a Scatter<'a>,
    cx: &'a Context<'a>,
    axes: Vec<Axis>,
    wide: bool,
    /// Whether extents of windows and strides are constants.
    small: bool,
    /// The type of an element's place in its window.
    place: Type,
    out: &'a Allocation,
    tensor: &'a Allocation,
    source: &'a Allocation,
    init: &'a Allocation,
    /// The place that each window chose; a place in the padding is no element's.
    chosen: Option<&'a AllocationHandle>,
}

impl Windows<'_> {
    fn run(&self, stage: Stage, threads: u64) -> Attempt<()> {
        let Scatter { max, ty, tensor, source, init, .. } = self.scatter;
        let types = [*ty, tensor.ty, source.ty, init.ty];
        let mut key =
            format!("window {} {max} {} {} {}", stage as u8, self.axes.len(), self.wide, self.small).into_bytes();
        key.extend(types.map(|ty| ty as u8));
        for axis in &self.axes {
            if self.small {
                key.extend([axis.window as u8, axis.stride as u8, axis.is_even().into(), axis.is_whole().into()]);
            }
            key.push(axis.is_inside().into());
        }
        let params = |params: &mut Params| {
            let (reads, writes) = (stage != Stage::Add, stage != Stage::Choose);
            params.legacy(self.init, 0, init.ty.storage(), "init");
            if reads {
                params.legacy(self.tensor, 0, tensor.ty.storage(), "tensor");
            }
            if writes {
                params.legacy(self.source, 0, source.ty.storage(), "source");
                params.legacy(self.out, 0, ty.storage(), "result");
            }
            if let Some(chosen) = self.chosen {
                params.legacy(chosen, 0, self.place.storage(), "chosen");
            }
            params.extent(threads, self.wide, "threads");
            self.extents(params);
        };
        let source = |parameters: &str| {
            let storages: Vec<&str> = types.iter().chain([&self.place]).map(|ty| ty.storage()).collect();
            let computes: Vec<Compute> = types.iter().chain([&self.place]).map(|ty| ty.compute()).collect();
            format!(
                "{}\
                 layout(local_size_x = {THREADS}) in;\n\
                 void main() {{\n\
                 \x20 IDX group = workgroup();\n\
                 \x20 IDX i = group * {THREADS} + INVOCATION, rest = i;\n\
                 \x20 if (group > p.threads / {THREADS} || i >= p.threads) return;\n\
                 {}}}\n",
                head(self.cx.caps(), self.wide, &storages, &computes, parameters),
                match stage {
                    Stage::Choose => self.choices(),
                    Stage::Add if !self.small => self.element(),
                    Stage::Add | Stage::Both => self.cell(),
                },
            )
        };
        let chosen = self.chosen.map(|allocation| &**allocation);
        let reads: Vec<&Allocation> = match stage {
            Stage::Choose => vec![self.tensor, self.init],
            Stage::Add => [self.source, self.init].into_iter().chain(chosen).collect(),
            Stage::Both => vec![self.tensor, self.source, self.init],
        };
        let writes: Vec<&Allocation> =
            if stage == Stage::Choose { chosen.into_iter().collect() } else { vec![self.out] };
        let groups = threads.div_ceil(THREADS.into());
        Kernel { key: &key, params: &params, source: &source, groups, reads: &reads, writes: &writes }.launch(self.cx)
    }

    fn extents(&self, params: &mut Params) {
        for (a, axis) in self.axes.iter().enumerate() {
            let whole = [("dim", axis.dim as i64), ("count", axis.count as i64), ("low", axis.low)];
            let small = [("cells", axis.cells() as i64), ("first", axis.first())];
            let large =
                [("window", axis.window as i64), ("stride", axis.stride as i64), ("padded", axis.padded as i64)];
            let extents = whole.iter().chain(if self.small { small.as_slice() } else { &large });
            for &(name, value) in extents {
                params.index(value, self.wide, (name, a));
            }
        }
    }

    /// An axis's extent of windows or stride as GLSL.
    fn extent(&self, name: &str, a: usize, value: u64) -> String {
        if self.small { format!("IDX({value})") } else { format!("p.{name}{a}") }
    }

    fn window(&self, a: usize) -> String {
        self.extent("window", a, self.axes[a].window)
    }

    fn stride(&self, a: usize) -> String {
        self.extent("stride", a, self.axes[a].stride)
    }

    /// Declares `{name}{a}`, the places along the axes of thread `i` among so many along each.
    fn spread(&self, name: &str, extent: &str) -> String {
        let spread = |a| match a {
            0 => format!("  IDX {name}0 = rest;\n"),
            _ => format!("  IDX {name}{a} = rest % p.{extent}{a}; rest /= p.{extent}{a};\n"),
        };
        (0..self.axes.len()).rev().map(spread).collect()
    }

    /// The place of what is at `at(a)` along each axis, among so many.
    fn place_of(&self, at: impl Fn(usize) -> String, extent: impl Fn(usize) -> String) -> String {
        let step = |place: String, a| if a == 0 { at(0) } else { format!("({place}) * {} + {}", extent(a), at(a)) };
        (0..self.axes.len()).fold("IDX(0)".into(), step)
    }

    /// A test of each axis for which it may fail.
    fn all(&self, sure: impl Fn(&Axis) -> bool, test: impl Fn(usize) -> String) -> String {
        let tests: Vec<_> = (0..self.axes.len()).filter(|&a| !sure(&self.axes[a])).map(test).collect();
        if tests.is_empty() { "true".into() } else { tests.join(" && ") }
    }

    fn init(&self, ty: Type) -> String {
        convert(element(self.scatter.init.ty, "init", "IDX(0)"), ty)
    }

    /// Chooses the place for window `i`.
    fn choices(&self) -> String {
        let mut text = self.spread("o", "count");
        for a in 0..self.axes.len() {
            let _ = writeln!(text, "  IDX at{a} = o{a} * {} - p.low{a};", self.stride(a));
        }
        let chosen = ("chosen".into(), self.place);
        format!("{text}{}  {};\n", self.choose("chosen"), assign(self.place, "chosen", "i", chosen))
    }

    /// Declares as `name` the place chosen in the window that starts at `at{a}`. The element before is replaced where the
    /// next compares as equal or better, so NaN is chosen only at a window's start.
    fn choose(&self, name: &str) -> String {
        let Scatter { max, tensor, init, .. } = self.scatter;
        // The padding makes floats of integers where it is one.
        let ty = if init.ty.is_float() && !tensor.ty.is_float() { init.ty } else { tensor.ty };
        let (value, place) = (ty.compute().glsl(), self.place.compute().glsl());
        let mut text = format!("  {value} best, padding = {};\n  {place} {name} = 0, w = 0;\n", self.init(ty));
        for a in 0..self.axes.len() {
            let unroll = if self.small { "[[unroll]] " } else { "" };
            let _ = writeln!(text, "  {unroll}for (IDX w{a} = 0; w{a} < {}; w{a}++)", self.window(a));
        }
        // Before the first element it wraps around to beyond the last.
        let _ = writeln!(
            text,
            "  {{\n\
             \x20   {value} x = padding;\n\
             \x20   if ({inside}) x = {x};\n\
             \x20   if (w == 0 || x {beats} best) {{ best = x; {name} = w; }}\n\
             \x20   w++;\n\
             \x20 }}",
            inside = self.all(Axis::is_inside, |a| format!("at{a} + w{a} < p.dim{a}")),
            x = convert(
                element(tensor.ty, "tensor", &self.place_of(|a| format!("(at{a} + w{a})"), |a| format!("p.dim{a}"))),
                ty
            ),
            beats = if *max { ">=" } else { "<=" },
        );
        text
    }

    /// Adds up for element `i` the sources of the windows that chose it.
    fn element(&self) -> String {
        let Scatter { ty, source, .. } = self.scatter;
        let mut text = self.spread("x", "dim");
        for a in 0..self.axes.len() {
            let _ = writeln!(
                text,
                "  IDX c{a} = x{a} + p.low{a};\n\
                 \x20 IDX first{a} = c{a} < p.window{a} ? 0 : (c{a} - p.window{a}) / p.stride{a} + 1;\n\
                 \x20 IDX last{a} = c{a} < p.padded{a} ? min(c{a} / p.stride{a} + 1, p.count{a}) : 0;"
            );
        }
        let _ = writeln!(text, "  precise {} sum = {};", ty.compute().glsl(), self.init(*ty));
        for a in 0..self.axes.len() {
            let _ = writeln!(text, "  for (IDX o{a} = first{a}; o{a} < last{a}; o{a}++)");
        }
        let _ = writeln!(
            text,
            "  {{\n\
             \x20   IDX w = {window};\n\
             \x20   if ({chosen} == {place}) sum += {term};\n\
             \x20 }}\n\
             \x20 {};",
            assign(*ty, "result", "i", ("sum".into(), *ty)),
            window = self.place_of(|a| format!("o{a}"), |a| format!("p.count{a}")),
            chosen = element(self.place, "chosen", "w").0,
            place = self.place_of(|a| format!("(c{a} - o{a} * p.stride{a})"), |a| self.window(a)),
            term = convert(element(source.ty, "source", "w"), *ty),
        );
        text
    }

    /// Adds up for the elements of cell `i` the sources of the windows that chose them, each of which is loaded once.
    fn cell(&self) -> String {
        let Scatter { ty, source, .. } = self.scatter;
        let (rank, sum) = (self.axes.len(), ty.compute().glsl());
        let mut text = self.spread("cell", "cells");
        for (a, axis) in self.axes.iter().enumerate() {
            let _ =
                writeln!(text, "  IDX o{a} = cell{a} + p.first{a}, at{a} = o{a} * IDX({}) - p.low{a};", axis.stride);
        }
        let _ = writeln!(text, "  {sum} start = {};", self.init(*ty));
        // The last window along an axis starts with the cell.
        let windows = places(&self.axes, Axis::reach);
        for (v, window) in windows.iter().enumerate() {
            let back = |a: usize| self.axes[a].reach() - 1 - window[a];
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
                exists = self
                    .all(|axis| axis.reach() == 1 && axis.is_even(), |a| format!("o{a} - {} < p.count{a}", back(a))),
                window = self.place_of(|a| format!("(o{a} - {})", back(a)), |a| format!("p.count{a}")),
                term = convert(element(source.ty, "source", "window"), *ty),
                choose = if self.chosen.is_none() { self.choose("chosen") } else { String::new() },
                chosen = match self.chosen {
                    None => "chosen".into(),
                    Some(_) => element(self.place, "chosen", "window").0,
                },
            );
        }
        for at in places(&self.axes, |axis| axis.stride) {
            let mut add = String::new();
            for (v, window) in windows.iter().enumerate() {
                let within = |a: usize| at[a] + (self.axes[a].reach() - 1 - window[a]) * self.axes[a].stride;
                if (0..rank).all(|a| within(a) < self.axes[a].window) {
                    let place = (0..rank).fold(0, |place, a| place * self.axes[a].window + within(a));
                    let _ = write!(add, " if (chosen{v} == {place}u) sum += term{v};");
                }
            }
            let _ = writeln!(
                text,
                "  if ({inside}) {{\n\
                 \x20   precise {sum} sum = start;\n\
                 \x20  {add}\n\
                 \x20   {result};\n\
                 \x20 }}",
                inside = self.all(Axis::is_whole, |a| format!("at{a} + {} < p.dim{a}", at[a])),
                result = assign(
                    *ty,
                    "result",
                    &self.place_of(|a| format!("(at{a} + {})", at[a]), |a| format!("p.dim{a}")),
                    ("sum".into(), *ty)
                ),
            );
        }
        text
    }
}

/// All places along axes of such extents, in order.
fn places(axes: &[Axis], extent: impl Fn(&Axis) -> u64) -> Vec<Vec<u64>> {
    axes.iter().fold(vec![vec![]], |places, axis| {
        let along =
            |place: &Vec<u64>| (0..extent(axis)).map(|at| [place.as_slice(), &[at]].concat()).collect::<Vec<_>>();
        places.iter().flat_map(along).collect()
    })
}
