//! Cumulative sums, products, maxima and minima along an axis. This module owns the kernels around `shaders/lib/scan.glsl` and
//! what they accumulate in; how the work is split is the choice of `tuning::scan`.
//!
//! Sums and products of narrow floats run in double, and sums of doubles compensated, as those of reductions do: they are
//! no less accurate than BinaryBackend's, which round after every step.

use super::{KernelSpec, Rows, launch};
use crate::device::Capabilities;
use crate::error::{Attempt, Error};
use crate::graph::{Context, Params};
use crate::memory::{Allocation, Buffer};
use crate::program::emit::{assign, convert, element, head, of_compute, widened};
use crate::program::types::{Compute, Type};
use crate::tuning::scan::{ScanItems, ScanTile, ScanTiling, tiling, totals_tiling};

/// What prefixes are taken of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScanOperation {
    /// Cumulative sums.
    Sum,
    /// Cumulative products.
    Product,
    /// Cumulative maxima; complex numbers have none.
    Max,
    /// Cumulative minima; complex numbers have none.
    Min,
}

/// What to scan.
pub struct Scan<'a> {
    /// The operation that combines the elements of a prefix.
    pub operation: ScanOperation,
    /// The operand, as rows along the axis that is scanned.
    pub rows: Rows<'a>,
    /// Whether to start at the last element.
    pub reverse: bool,
}

/// The tensor of the prefixes, of the operand's type.
pub fn run(cx: &Context, scan: &Scan) -> Attempt<Buffer> {
    let &Scan { operation, rows, reverse } = scan;
    rows.ty.check(cx.caps())?;
    if rows.ty.is_complex() && matches!(operation, ScanOperation::Max | ScanOperation::Min) {
        return Err(Error::Unsupported("complex numbers have no order".into()).into());
    }
    let bytes = rows.count() * rows.len * rows.ty.size();
    if bytes == 0 {
        return cx.zeroed(0);
    }
    let source = &*rows.buffer.allocation()?;
    let result = cx.allocate(bytes)?;
    let accumulator = ScanAccumulator::new(operation, rows.ty, cx.caps());
    let tiling = tiling(cx.caps(), rows.count(), rows.len, rows.inner);
    let kernel = |stage, tile| ScanKernel {
        operation,
        ty: rows.ty,
        accumulator,
        stage,
        tile,
        contiguous: rows.inner == 1,
        index64: rows.index64(),
    };
    let elements = ScanArgs { source, result: &result, totals: None, rows, reverse, tiling: &tiling };
    if tiling.chunks == 1 {
        launch(cx, &kernel(ScanStage::Prefixes { carry: false }, tiling.tile), &elements)?;
        return Ok(Buffer::new(bytes, result));
    }
    let totals = cx.allocate(rows.count() * tiling.chunks * accumulator.size())?;
    let elements = ScanArgs { totals: Some(&totals), ..elements };
    launch(cx, &kernel(ScanStage::Totals, tiling.tile), &elements)?;
    let of_totals = ScanArgs {
        rows: Rows { len: tiling.chunks, inner: 1, outer: rows.count(), ..rows },
        reverse: false,
        tiling: &totals_tiling(&tiling),
        ..elements
    };
    let carries = ScanKernel { contiguous: true, ..kernel(ScanStage::Carries, of_totals.tiling.tile) };
    launch(cx, &carries, &of_totals)?;
    launch(cx, &kernel(ScanStage::Prefixes { carry: true }, tiling.tile), &elements)?;
    Ok(Buffer::new(bytes, result))
}

/// What a scan accumulates in.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct ScanAccumulator {
    compute: Compute,
    /// Whether it is a sum and, beside it, what rounding dropped from that.
    compensated: bool,
}

impl ScanAccumulator {
    fn new(operation: ScanOperation, ty: Type, caps: &Capabilities) -> Self {
        let element = ty.compute();
        if matches!(operation, ScanOperation::Max | ScanOperation::Min) {
            return Self { compute: element, compensated: false };
        }
        let compute = widened(element, caps);
        let sum = operation == ScanOperation::Sum;
        Self { compute, compensated: sum && compute == element && matches!(element, Compute::Float | Compute::Double) }
    }

    fn glsl(self) -> &'static str {
        match (self.compensated, self.compute) {
            (true, Compute::Float) => "vec2",
            (true, _) => "dvec2",
            (false, compute) => compute.glsl(),
        }
    }

    fn size(self) -> u64 {
        if self.compensated { 2 * self.compute.size() } else { self.compute.size() }
    }
}

/// What one of the kernels of a scan does.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum ScanStage {
    /// The total of each chunk.
    Totals,
    /// The totals become their own prefixes.
    Carries,
    /// The result, of rows of one chunk or on top of the carries.
    Prefixes { carry: bool },
}

#[derive(Hash)]
struct ScanKernel {
    operation: ScanOperation,
    ty: Type,
    accumulator: ScanAccumulator,
    stage: ScanStage,
    tile: ScanTile,
    /// Whether the elements of a row are neighbours.
    contiguous: bool,
    index64: bool,
}

#[derive(Clone, Copy)]
struct ScanArgs<'a> {
    source: &'a Allocation,
    result: &'a Allocation,
    totals: Option<&'a Allocation>,
    rows: Rows<'a>,
    reverse: bool,
    tiling: &'a ScanTiling,
}

impl KernelSpec for ScanKernel {
    type Args<'a> = ScanArgs<'a>;

    fn params<'a>(&self, args: &ScanArgs<'a>, params: &mut Params<'a>) {
        let Rows { len, inner, .. } = args.rows;
        let (stored, acc) = (self.ty.storage(), self.accumulator.glsl());
        if self.stage != ScanStage::Carries {
            params.read(args.source, stored, "source");
        }
        if let Some(totals) = args.totals {
            match self.stage {
                ScanStage::Totals => params.write(totals, acc, "totals"),
                ScanStage::Carries => params.update(totals, acc, "totals"),
                ScanStage::Prefixes { .. } => params.read(totals, acc, "totals"),
            }
        }
        if matches!(self.stage, ScanStage::Prefixes { .. }) {
            params.write(args.result, stored, "result");
        }
        let extents = [
            ("groups", self.groups(args)),
            ("rows", args.rows.count()),
            ("n", len),
            ("inner", inner),
            ("chunks", args.tiling.chunks),
            ("chunk", args.tiling.chunk),
            ("first", if args.reverse { (len - 1) * inner } else { 0 }),
        ];
        params.extents(self.index64, extents);
        params.index(if args.reverse { -(inner as i64) } else { inner as i64 }, self.index64, "stride");
    }

    fn groups(&self, args: &ScanArgs) -> u64 {
        args.rows.count().div_ceil(self.tile.rows.into()) * args.tiling.chunks
    }

    fn source(&self, caps: &Capabilities, parameters: &str) -> String {
        let Self { tile, accumulator, contiguous, .. } = *self;
        let (acc, value) = (accumulator.glsl(), accumulator.compute.glsl());
        // Two doubles are named so by the type of complex numbers.
        let computes = [self.ty.compute(), accumulator.compute];
        let items = match tile.items {
            ScanItems::Registers(items) => format!("#define ITEMS {items}u"),
            ScanItems::Reloaded => "#define RELOAD\n#define ITEMS (p.chunk / ROW_THREADS)".into(),
        };
        format!(
            "{head}\
             #include \"lib/complex.glsl\"\n\
             #define LAST_WINS false\n#include \"lib/reduce.glsl\"\n\
             layout(local_size_x = {threads}) in;\n\
             #define ACC {acc}\n#define GROUP_ROWS {rows}u\n#define ROW_THREADS {row_threads}u\n{items}\n\
             #define CONTIGUOUS {contiguous}\n{stage}\
             ACC identity() {{ return {identity}; }}\n\
             ACC join(ACC a, ACC b) {{ {join} }}\n\
             {value} finish(ACC a) {{ return {finish}; }}\n\
             #define TOTAL(i) AT({acc}, p.totals, i)\n\
             {accesses}\
             #include \"lib/scan.glsl\"\n",
            head = head(caps, self.index64, &[self.ty.storage(), acc], &computes, parameters),
            threads = tile.group_threads(),
            rows = tile.rows,
            row_threads = tile.threads,
            stage = match self.stage {
                ScanStage::Totals => "#define TOTALS\n",
                ScanStage::Carries | ScanStage::Prefixes { carry: false } => "#define PREFIXES\n",
                ScanStage::Prefixes { carry: true } => "#define PREFIXES\n#define CARRY\n",
            },
            identity = self.identity(),
            join = self.join(),
            finish = if accumulator.compensated { "finish_sum(a.x, a.y)" } else { "a" },
            accesses = self.accesses(),
        )
    }
}

impl ScanKernel {
    /// What leaves every element as it is, as GLSL. Sums of negative zeros are negative zeros.
    fn identity(&self) -> String {
        let (acc, value) = (self.accumulator.glsl(), self.accumulator.compute.glsl());
        match self.operation {
            ScanOperation::Sum if self.accumulator.compensated => format!("{acc}(-0.0, 0.0)"),
            ScanOperation::Sum if self.ty.is_float() || self.ty.is_complex() => format!("{acc}(-0.0)"),
            ScanOperation::Sum => format!("{acc}(0)"),
            ScanOperation::Product if self.ty.is_complex() => format!("{acc}(1, 0)"),
            ScanOperation::Product => format!("{acc}(1)"),
            ScanOperation::Max => format!("lowest_{value}()"),
            ScanOperation::Min => format!("highest_{value}()"),
        }
    }

    /// The statements that join two accumulators, `a` first.
    fn join(&self) -> String {
        let (acc, complex) = (self.accumulator.glsl(), self.ty.is_complex());
        match self.operation {
            ScanOperation::Sum if self.accumulator.compensated => "combine_sum(a.x, a.y, b.x, b.y); return a;".into(),
            ScanOperation::Sum if complex => format!("precise {acc} r = a + b; return r;"),
            ScanOperation::Sum => "combine_sum(a, b); return a;".into(),
            ScanOperation::Product if complex => "return c_multiply(a, b);".into(),
            ScanOperation::Product => "combine_product(a, b); return a;".into(),
            ScanOperation::Max => "combine_max(a, b); return a;".into(),
            ScanOperation::Min => "combine_min(a, b); return a;".into(),
        }
    }

    /// `LOAD` and `STORE`: of elements, or of the chunks' totals.
    fn accesses(&self) -> String {
        let ScanAccumulator { compute, compensated } = self.accumulator;
        let (acc, widest) = (self.accumulator.glsl(), of_compute(compute));
        if self.stage == ScanStage::Carries {
            return "#define LOAD(i) TOTAL(i)\n#define STORE(i, prefix) TOTAL(i) = (prefix)\n".into();
        }
        let loaded = element(self.ty, "source", "i");
        // A value of the compute type, not of a narrow type: nothing to convert where they agree.
        let lifted = if self.ty.compute() == compute { loaded.0 } else { convert(loaded, widest) };
        let lifted = if compensated { format!("{acc}({lifted}, 0)") } else { lifted };
        let stored = match self.stage {
            ScanStage::Prefixes { .. } => assign(self.ty, "result", "i", ("finish(prefix)".into(), widest)),
            ScanStage::Totals | ScanStage::Carries => String::new(),
        };
        format!("#define LOAD(i) {lifted}\n#define STORE(i, prefix) {stored}\n")
    }
}
