//! Matrix products on CPU devices, whose invocations are lanes of vectors, by packed panels. The kernels that pack and multiply are here; the
//! panels' sizes are chosen elsewhere.
//!
//! Such a device loads lane by lane, and scattered elements as fast as contiguous ones: what counts is that few loads
//! serve many multiplications and that they hit the caches. Both operands are first written to panels, in the order of
//! the loads, in the type that is multiplied in and with zeros beyond the edges (K. Goto and R. van de Geijn, "Anatomy of
//! High-Performance Matrix Multiplication", 2008). Then every subgroup computes a tile whose sums stay in registers.

use super::indexing::{self, Indexing};
use super::matmul::multiply_add;
use crate::device::Capabilities;
use crate::error::Attempt;
use crate::graph::{Context, Params};
use crate::kernels::fusion::Destination;
use crate::kernels::{KernelSpec, launch};
use crate::memory::{Allocation, AllocationHandle};
use crate::program::Type;
use crate::program::emit::{
    EPILOGUE_PARAMETERS, EmittedEpilogue, StoredElements, assign, convert, element, head, of_compute, stored,
};
use crate::program::epilogue::EpilogueProgram;
use crate::program::types::Compute;
use crate::tuning::contraction::{AxisGroups, MIN_BUSY_WORKGROUPS, PANEL_STEPS, PanelTile, of_accumulator};

/// A tensor that begins at the element `offset` of an allocation.
#[derive(Clone, Copy)]
pub struct MatmulOperand<'a> {
    pub allocation: &'a Allocation,
    pub ty: Type,
    pub offset: i64,
}

impl MatmulOperand<'_> {
    /// The offset in bytes.
    fn start(&self) -> u64 {
        (self.offset * self.ty.size() as i64) as u64
    }

    fn elements(&self) -> u64 {
        self.allocation.size / self.ty.size()
    }
}

/// What becomes of a product.
#[derive(Clone, Copy)]
pub enum PanelResult<'a> {
    /// Its elements, of this type, are stored.
    Stored { ty: Type, destination: Destination<'a> },
    /// It is subtracted from a matrix.
    Subtracted(MatmulOperand<'a>),
}

/// A product by packed panels.
pub struct Panels<'a> {
    pub groups: &'a AxisGroups,
    pub a: MatmulOperand<'a>,
    pub b: MatmulOperand<'a>,
    /// The type that both operands are multiplied in.
    pub inner: Type,
    pub accumulator: Compute,
    pub tile: PanelTile,
}

impl<'a> Panels<'a> {
    /// The product's panels, where the device is a CPU and the product is large enough.
    pub fn of(
        caps: &Capabilities,
        groups: &'a AxisGroups,
        [a, b]: [MatmulOperand<'a>; 2],
        inner: Type,
        accumulator: Compute,
    ) -> Option<Self> {
        let tile = PanelTile::choose(caps, groups, [a.elements(), b.elements()], inner, accumulator)?;
        Some(Self { groups, a, b, inner, accumulator, tile })
    }

    /// Computes the product, of fewer than 2³¹ elements.
    pub fn run(&self, cx: &Context, result: PanelResult) -> Attempt<()> {
        let [batch, m, n, k] = self.groups.sizes();
        let PanelTile { lanes, rows, panels, steps } = self.tile;
        let depth = k.next_multiple_of(PANEL_STEPS);
        let row_panels = m.div_ceil(panels * rows) * panels;
        let column_panels = n.div_ceil(2 * lanes);
        let _batch = cx.batch();
        let panels_a = self.pack(cx, 'a', self.a, [rows, row_panels, depth, batch])?;
        let panels_b = self.pack(cx, 'b', self.b, [2 * lanes, column_panels, depth, batch])?;
        let (ty, subtract, epilogue) = match result {
            PanelResult::Subtracted(c) => (c.ty, true, None),
            PanelResult::Stored { ty, destination } => (ty, false, destination.epilogue(false)),
        };
        let kernel = PanelKernel {
            elements: self.elements(),
            ty,
            accumulator: self.accumulator,
            rows,
            panels,
            steps,
            subtract,
            pair_stores: self.stores_pairs(result),
            indexing: Indexing::of(self.groups),
            epilogue,
        };
        let workgroups = row_panels / panels * column_panels * batch;
        launch(
            cx,
            &kernel,
            &PanelArgs { result, panels: [&panels_a, &panels_b], groups: self.groups, depth, workgroups },
        )
    }

    fn elements(&self) -> PanelElements {
        PanelElements { compute: self.inner.compute(), lanes: self.tile.lanes }
    }

    /// Whether pairs of the result's columns are aligned words.
    fn stores_pairs(&self, result: PanelResult) -> bool {
        let (ty, start) = match result {
            PanelResult::Subtracted(c) => (c.ty, c.start()),
            PanelResult::Stored { ty, destination: Destination::Buffer(_) } => (ty, 0),
            PanelResult::Stored { .. } => return false,
        };
        let single = [ty, self.inner].iter().all(|&ty| ty == Type::F32) && self.accumulator == Compute::Float;
        single && start.is_multiple_of(8) && self.groups.has_runs('c', "n", 2)
    }

    /// Writes an operand to panels of `width` rows or columns.
    fn pack(
        &self,
        cx: &Context,
        name: char,
        operand: MatmulOperand,
        [width, panels, depth, batch]: [u64; 4],
    ) -> Attempt<AllocationHandle> {
        let [_, m, n, _] = self.groups.sizes();
        let elements = self.elements();
        let out = cx.allocate(batch * panels * depth * width * elements.packed().size())?;
        let (group, size) = if name == 'a' { ("m", m) } else { ("n", n) };
        let tiles = (panels * width).div_ceil(2 * self.tile.lanes);
        let chunks = MIN_BUSY_WORKGROUPS.div_ceil(batch * tiles).min(depth / PANEL_STEPS);
        let chunk = (depth / PANEL_STEPS).div_ceil(chunks) * PANEL_STEPS;
        let kernel = PackKernel {
            elements,
            operand: name,
            group,
            ty: operand.ty,
            inner: self.inner,
            width,
            along_k: self.groups.closer(name, "k", group),
            indexing: Indexing::of(self.groups),
        };
        let groups = self.groups;
        launch(cx, &kernel, &PackArgs { out: &out, operand, groups, size, depth, panels, tiles, chunk })?;
        Ok(out)
    }
}

/// The elements of panels, and the lanes of the subgroups that read and write them.
#[derive(Clone, Copy, Hash)]
struct PanelElements {
    compute: Compute,
    lanes: u64,
}

impl PanelElements {
    /// The type of the panels' elements.
    fn packed(&self) -> Type {
        of_compute(self.compute)
    }

    /// The defines that both kernels begin with.
    fn defines(&self) -> String {
        let bits = match self.compute {
            Compute::Float => {
                "#define PAIRS 1\n#define BITS(x) floatBitsToUint(x)\n#define OF_BITS(x) uintBitsToFloat(x)\n"
            }
            Compute::Int | Compute::Uint => "#define PAIRS 1\n#define BITS(x) uint(x)\n#define OF_BITS(x) ELEMENT(x)\n",
            _ => "#define PAIRS 0\n",
        };
        format!(
            "#define ELEMENT {}\n#define STORAGE {}\n#define SIZE {}ul\n#define LANES {}u\n\
             {bits}#include \"lib/panels.glsl\"\n",
            self.compute.glsl(),
            self.packed().storage(),
            self.packed().size(),
            self.lanes,
        )
    }
}

/// Writes an operand to panels: `lib/panels_pack.glsl`.
#[derive(Hash)]
struct PackKernel {
    elements: PanelElements,
    /// 'a' or 'b', and the group of its rows or columns.
    operand: char,
    group: &'static str,
    ty: Type,
    /// The type that both operands are multiplied in.
    inner: Type,
    /// Rows or columns of a panel.
    width: u64,
    /// Whether the operand's elements lie closer along k.
    along_k: bool,
    indexing: Indexing,
}

struct PackArgs<'a> {
    out: &'a Allocation,
    operand: MatmulOperand<'a>,
    groups: &'a AxisGroups,
    /// Rows or columns of the operand.
    size: u64,
    depth: u64,
    panels: u64,
    /// Workgroups along the rows or columns.
    tiles: u64,
    /// Elements along k for a workgroup.
    chunk: u64,
}

impl KernelSpec for PackKernel {
    type Args<'a> = PackArgs<'a>;

    fn params<'a>(&self, args: &PackArgs<'a>, params: &mut Params<'a>) {
        let &PackArgs { out, operand, groups, size, depth, panels, tiles, chunk } = args;
        let [batches, _, _, k] = groups.sizes();
        params.write(out, self.elements.packed().storage(), "panels_out");
        params.read_at(operand.allocation, operand.start(), self.ty.storage(), "operand");
        let extents = [("size", size), ("k", k), ("depth", depth), ("panels", panels), ("batches", batches)];
        params.extents(false, extents);
        params.extents(false, [("tiles", tiles), ("chunk", chunk), ("chunks", depth.div_ceil(chunk))]);
        indexing::params(groups, params, false);
    }

    fn groups(&self, args: &PackArgs<'_>) -> u64 {
        let [batches, ..] = args.groups.sizes();
        batches * args.tiles * args.depth.div_ceil(args.chunk)
    }

    fn source(&self, caps: &Capabilities, parameters: &str) -> String {
        let packed = self.elements.packed();
        let computes = [self.ty.compute(), self.elements.compute];
        let offset = |group, index| self.indexing.offset(self.operand, group, index);
        format!(
            "{head}{defines}{functions}\
             #define WIDTH {width}u\n\
             #define ALONG_K {along_k}\n\
             #define ELEMENT_AT(offset) ELEMENT({value})\n\
             #define OUTER_OFFSET(i) {batch} + {outer}\n\
             #define DEPTH_OFFSET(k) {depth}\n\
             #include \"lib/panels_pack.glsl\"\n",
            head = head(caps, false, &[packed.storage(), self.ty.storage()], &computes, parameters),
            defines = self.elements.defines(),
            functions = self.indexing.offset_functions(),
            width = self.width,
            along_k = u8::from(self.along_k),
            value = convert(element(self.ty, "operand", "(offset)"), self.inner),
            batch = offset("batch", "batch"),
            outer = offset(self.group, "i"),
            depth = offset("k", "k"),
        )
    }
}

/// Multiplies panels: `lib/matmul_panels.glsl`.
#[derive(Hash)]
struct PanelKernel {
    elements: PanelElements,
    /// The type of the result.
    ty: Type,
    accumulator: Compute,
    rows: u64,
    panels: u64,
    steps: u64,
    /// Whether the product is subtracted from what is there.
    subtract: bool,
    /// Whether pairs of the result's columns are words.
    pair_stores: bool,
    indexing: Indexing,
    epilogue: Option<EpilogueProgram>,
}

struct PanelArgs<'a> {
    result: PanelResult<'a>,
    panels: [&'a Allocation; 2],
    groups: &'a AxisGroups,
    depth: u64,
    workgroups: u64,
}

impl KernelSpec for PanelKernel {
    type Args<'a> = PanelArgs<'a>;

    fn params<'a>(&self, args: &PanelArgs<'a>, params: &mut Params<'a>) {
        let &PanelArgs { result, panels: [a, b], groups, depth, workgroups } = args;
        let [_, m, n, _] = groups.sizes();
        params.operations(groups.operations());
        let packed = self.elements.packed().storage();
        let storage = self.ty.storage();
        match result {
            PanelResult::Subtracted(c) => params.update_at(c.allocation, c.start(), storage, "c"),
            PanelResult::Stored { ty, destination } => destination.operands(ty, "c", params),
        }
        params.read(a, packed, "a");
        params.read(b, packed, "b");
        params.extents(false, [("m", m), ("n", n), ("depth", depth), ("groups", workgroups), ("none", 0)]);
        indexing::params(groups, params, false);
        if let PanelResult::Stored { destination, .. } = result {
            destination.indices(false, params);
        }
    }

    fn groups(&self, args: &PanelArgs<'_>) -> u64 {
        args.workgroups
    }

    fn source(&self, caps: &Capabilities, parameters: &str) -> String {
        let ty = self.ty;
        let offset = |group, index| self.indexing.offset('c', group, index);
        let target = format!("{} + {} + {}", offset("batch", "batch"), offset("m", "i"), offset("n", "j"));
        let sum = of_accumulator(self.accumulator, ty);
        let value = if self.subtract {
            format!("{} - (v)", convert(element(ty, "c", &format!("({target})")), sum))
        } else {
            "(v)".into()
        };
        let epilogue =
            self.epilogue.as_ref().map(|epilogue| EmittedEpilogue::new(epilogue, "c", StoredElements::default(), caps));
        let mut storages = vec![ty.storage(), self.elements.packed().storage()];
        let mut computes = vec![ty.compute(), self.elements.compute, self.accumulator];
        let (store, keep) = match (&epilogue, &self.epilogue) {
            (Some(emitted), Some(epilogue)) => {
                storages.extend_from_slice(&emitted.storages);
                computes.extend_from_slice(&emitted.computes);
                let result = epilogue.program.result().storage();
                (
                    format!("store_element({target}, {})", stored(ty, (value, sum))),
                    format!("AT({result}, p.{EPILOGUE_PARAMETERS}result, k) = {result}(v)"),
                )
            }
            _ => (assign(ty, "c", &target, (value, sum)), "STORE(k, batch, v)".into()),
        };
        format!(
            "{head}#include \"lib/complex.glsl\"\n{epilogue}{defines}{functions}\
             #define ACCUMULATOR {accumulator}\n\
             #define BM {rows}u\n\
             #define PANELS {panels}u\n\
             #define SEPARATE_LOADS {separate_loads}\n\
             #define PAIR_STORES {pair_stores}\n\
             #define C_OFFSET(i, j) {target}\n\
             #define RESULT(v, old) {result}\n\
             #define STEPS {steps}u\n\
             #define MULTIPLY_ADD(a, b, c) {multiply_add}\n\
             #define STORE(i, j, v) {store}\n\
             #define KEEP(k, v) {keep}\n\
             #include \"lib/matmul_panels.glsl\"\n",
            head = head(caps, false, &storages, &computes, parameters),
            epilogue = epilogue.map(|epilogue| epilogue.includes(&[]) + &epilogue.functions).unwrap_or_default(),
            defines = self.elements.defines(),
            functions = self.indexing.offset_functions(),
            accumulator = self.accumulator.glsl(),
            rows = self.rows,
            panels = self.panels,
            steps = self.steps,
            pair_stores = u8::from(self.pair_stores),
            result = if self.subtract { "(old) - (v)" } else { "(v)" },
            // True where vectors of addresses, 64 bits a lane, have 512 bits and vectors of sums have fewer.
            separate_loads = u8::from(self.elements.lanes * self.accumulator.size() <= 32),
            multiply_add = multiply_add(caps, self.accumulator),
        )
    }
}
