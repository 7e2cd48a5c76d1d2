//! Cumulative sums, products, maxima and minima along an axis (`shaders/lib/scan.glsl`).
//!
//! Sums and products of narrow floats run in double, and sums of doubles compensated, as those of reductions do: they are
//! no less accurate than BinaryBackend's, which round after every step.

use super::{Kernel, Rows};
use crate::error::{Attempt, Error};
use crate::graph::{Context, Params};
use crate::memory::{Allocation, AllocationHandle, Buffer};
use crate::program::emit::{assign, convert, element, head, lanes, of_compute, widened};
use crate::program::types::Compute;

/// What prefixes are taken of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Sum,
    Product,
    Max,
    Min,
}

/// What to scan.
pub struct Scan<'a> {
    pub operation: Operation,
    pub rows: Rows<'a>,
    /// Whether to start at the last element.
    pub reverse: bool,
}

/// Consecutive elements of a thread.
const ITEMS: u64 = 4;

/// How the work is spread over workgroups of `across` × `along` threads.
struct Split {
    across: u64,
    along: u64,
    chunks: u64,
    chunk: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The total of each chunk.
    Totals,
    /// The totals become their own prefixes.
    Carries,
    /// The result, of rows in one chunk or on top of the carries.
    Prefixes { carry: bool },
}

/// How a scan accumulates.
#[derive(Clone, Copy)]
struct Accumulator {
    /// The GLSL type.
    ty: &'static str,
    compute: Compute,
    /// Two parts: a sum and what rounding dropped from it.
    compensated: bool,
}

/// The tensor of the prefixes, of the operand's type.
pub fn run(cx: &Context, scan: &Scan) -> Attempt<Buffer> {
    let Scan { operation, rows, .. } = scan;
    rows.ty.check(cx.caps())?;
    if rows.ty.is_complex() && matches!(operation, Operation::Max | Operation::Min) {
        return Err(Error::Unsupported("complex numbers have no order".into()).into());
    }
    let bytes = rows.count() * rows.len * rows.ty.size();
    if bytes == 0 {
        return cx.zeroed(0);
    }
    let source = rows.buffer.allocation()?;
    let result = cx.allocate(bytes)?;
    let split = Split::of(cx, rows);
    let accumulator = scan.accumulator(cx);
    let partial = match split.chunks {
        1 => None,
        chunks => Some(cx.allocate(rows.count() * chunks * accumulator.size())?),
    };
    let run = Run { cx, scan, split: &split, accumulator, source: &source, result: &result };
    if let Some(partial) = &partial {
        run.stage(Stage::Totals, Some(partial))?;
        run.stage(Stage::Carries, Some(partial))?;
    }
    run.stage(Stage::Prefixes { carry: partial.is_some() }, partial.as_ref())?;
    Ok(Buffer::new(bytes, result))
}

impl Scan<'_> {
    fn accumulator(&self, cx: &Context) -> Accumulator {
        let one = |compute: Compute| Accumulator { ty: compute.glsl(), compute, compensated: false };
        let own = self.rows.ty.compute();
        let sum = match self.operation {
            Operation::Max | Operation::Min => return one(own),
            Operation::Sum => true,
            Operation::Product => false,
        };
        match widened(own, cx.caps()) {
            Compute::Float if sum => Accumulator { ty: "vec2", compute: own, compensated: true },
            Compute::Double if sum && own == Compute::Double => {
                Accumulator { ty: "dvec2", compute: own, compensated: true }
            }
            wide => one(wide),
        }
    }
}

impl Accumulator {
    fn size(self) -> u64 {
        if self.compensated { 2 * self.compute.size() } else { self.compute.size() }
    }
}

impl Split {
    fn of(cx: &Context, rows: &Rows) -> Self {
        if cx.caps().cpu {
            return Self::on_cpu(lanes(cx.caps()).into(), rows);
        }
        // Few shapes, so that few kernels serve all. Rows that alternate are read side by side.
        let (across, along) = match (rows.inner, rows.len) {
            (1, 0..=ITEMS) => (256, 1),
            (1, 0..=64) => (16, 16),
            (1, _) => (1, 256),
            (2..=8, _) => (4, 64),
            _ if rows.count() >= 1 << 16 => (256, 1),
            _ => (32, 8),
        };
        let tiles = rows.len.div_ceil(along * ITEMS);
        // Chunks where the rows alone do not fill the device, of several tiles each.
        let wanted = if cx.caps().cpu { 16 } else { 2048 };
        let chunks = (wanted / rows.count().div_ceil(across)).min(tiles / 4).max(1);
        let chunk = tiles.div_ceil(chunks) * along * ITEMS;
        Self { across, along, chunk, chunks: rows.len.div_ceil(chunk) }
    }

    /// Where the device is a processor: a chunk is one tile, of which each lane takes a long run.
    fn on_cpu(lanes: u64, rows: &Rows) -> Self {
        let (across, along) = if rows.inner == 1 && rows.len > 64 { (1, lanes) } else { (lanes, 1) };
        let chunks = (32 / rows.count().div_ceil(across)).min(rows.len / 1024).max(1);
        let chunk = rows.len.div_ceil(chunks).next_multiple_of(along);
        Self { across, along, chunk, chunks: rows.len.div_ceil(chunk) }
    }
}

struct Run<'a> {
    cx: &'a Context<'a>,
    scan: &'a Scan<'a>,
    split: &'a Split,
    accumulator: Accumulator,
    source: &'a Allocation,
    result: &'a Allocation,
}

impl Run<'_> {
    fn stage(&self, stage: Stage, partial: Option<&AllocationHandle>) -> Attempt<()> {
        let (cx, Scan { operation, rows, reverse }) = (self.cx, self.scan);
        // The carries are rows of one accumulator for each chunk, and one chunk themselves.
        let carries = match cx.caps().cpu {
            true => Split { chunks: 1, chunk: self.split.chunks.next_multiple_of(self.split.along), ..*self.split },
            false => Split { across: 1, along: 256, chunks: 1, chunk: self.split.chunks },
        };
        let (split, n, inner, reverse) = match stage {
            Stage::Carries => (&carries, self.split.chunks, 1, false),
            _ => (self.split, rows.len, rows.inner, *reverse),
        };
        let groups = rows.count().div_ceil(split.across) * split.chunks;
        let wide = rows.wide();
        let params = |params: &mut Params| {
            if stage != Stage::Carries {
                params.legacy(self.source, 0, rows.ty.storage(), "source");
            }
            if matches!(stage, Stage::Prefixes { .. }) {
                params.legacy(self.result, 0, rows.ty.storage(), "result");
            }
            if let Some(partial) = partial {
                params.legacy(partial, 0, self.accumulator.ty, "partial");
            }
            let extents = [
                ("groups", groups),
                ("rows", rows.count()),
                ("n", n),
                ("inner", inner),
                ("chunks", split.chunks),
                ("chunk", split.chunk),
                ("start", if reverse { (n - 1) * inner } else { 0 }),
            ];
            params.extents(wide, extents);
            params.index(if reverse { -(inner as i64) } else { inner as i64 }, wide, "step");
        };
        let along_first = inner == 1;
        let shape = [split.across.ilog2() as u8, split.along.ilog2() as u8, along_first.into(), wide.into()];
        let role = match stage {
            Stage::Totals => 0,
            Stage::Carries => 1,
            Stage::Prefixes { carry } => 2 + u8::from(carry),
        };
        let partial = partial.map(|allocation| &**allocation);
        let (reads, writes): (Vec<&Allocation>, Vec<&Allocation>) = match stage {
            Stage::Totals => (vec![self.source], partial.into_iter().collect()),
            Stage::Carries => (vec![], partial.into_iter().collect()),
            Stage::Prefixes { .. } => (partial.into_iter().chain([self.source]).collect(), vec![self.result]),
        };
        let kernel = Kernel {
            key: &[b"scan", [*operation as u8, rows.ty as u8, role].as_slice(), &shape].concat(),
            params: &params,
            source: &|parameters| self.source(stage, split, along_first, parameters),
            groups,
            reads: &reads,
            writes: &writes,
        };
        kernel.launch(cx)
    }

    fn source(&self, stage: Stage, split: &Split, along_first: bool, parameters: &str) -> String {
        let Accumulator { ty: acc, compute, compensated } = self.accumulator;
        let ty = self.scan.rows.ty;
        let combine = match self.scan.operation {
            Operation::Sum => "sum",
            Operation::Product => "product",
            Operation::Max => "max",
            Operation::Min => "min",
        };
        let value = compute.glsl();
        let items = match self.cx.caps().cpu {
            true => "#define RELOADS\n#define ITEMS (p.chunk / ALONG)".into(),
            false => format!("#define ITEMS {ITEMS}u"),
        };
        let identity = match self.scan.operation {
            // The zero that leaves a sum of negative zeros what it is.
            Operation::Sum if compensated => format!("{acc}(-0.0, 0.0)"),
            Operation::Sum if ty.is_float() || ty.is_complex() => format!("{acc}(-0.0)"),
            Operation::Sum => format!("{acc}(0)"),
            Operation::Product if ty.is_complex() => format!("{acc}(1, 0)"),
            Operation::Product => format!("{acc}(1)"),
            Operation::Max => format!("lowest_{value}()"),
            Operation::Min => format!("highest_{value}()"),
        };
        let join = match (compensated, self.scan.operation, ty.is_complex()) {
            (true, ..) => "combine_sum(a.x, a.y, b.x, b.y); return a;".into(),
            (_, Operation::Sum, true) => format!("precise {acc} r = a + b; return r;"),
            (_, Operation::Product, true) => "return c_multiply(a, b);".into(),
            _ => format!("combine_{combine}(a, b); return a;"),
        };
        let loaded = element(ty, "source", "at");
        let widest = of_compute(compute);
        // A value of the compute type, not of a narrow type: nothing to convert where they agree.
        let lifted = if ty.compute() == compute { loaded.0 } else { convert(loaded, widest) };
        let lifted = if compensated { format!("{acc}({lifted}, 0)") } else { lifted };
        let finish = if compensated { "finish_sum(a.x, a.y)" } else { "a" };
        let (load, write, role) = match stage {
            Stage::Totals => (lifted, String::new(), "#define TOTALS\n"),
            Stage::Carries => (
                format!("AT({acc}, p.partial, at)"),
                format!("AT({acc}, p.partial, at) = (scanned)"),
                "#define PREFIXES\n",
            ),
            Stage::Prefixes { carry } => (
                lifted,
                assign(ty, "result", "at", ("finish(scanned)".into(), widest)),
                if carry { "#define PREFIXES\n#define CARRY\n" } else { "#define PREFIXES\n" },
            ),
        };
        format!(
            "{head}\
             #include \"lib/complex.glsl\"\n\
             #define LAST_WINS false\n#include \"lib/reduce.glsl\"\n\
             layout(local_size_x = {threads}) in;\n\
             #define ACC {acc}\n#define ACROSS {across}u\n#define ALONG {along}u\n{items}\n\
             #define ALONG_FIRST {along_first}\n{role}\
             ACC identity() {{ return {identity}; }}\n\
             ACC join(ACC a, ACC b) {{ {join} }}\n\
             {value} finish(ACC a) {{ return {finish}; }}\n\
             #define PARTIAL(at) AT({acc}, p.partial, at)\n\
             #define LOAD(at) {load}\n#define STORE(at, scanned) {write}\n\
             #include \"lib/scan.glsl\"\n",
            head = head(
                self.cx.caps(),
                self.scan.rows.wide(),
                &[ty.storage(), acc],
                // Two doubles are named so by the type of complex numbers.
                &[ty.compute(), compute],
                parameters,
            ),
            threads = split.across * split.along,
            across = split.across,
            along = split.along,
        )
    }
}
