//! Products on devices whose invocations are the lanes of a processor's vectors.
//!
//! Such a device loads lane by lane, and from apart as fast as from neighbouring places: what counts is that few loads
//! serve many multiplications and that they hit the caches. Both operands are first written to panels, as they will be
//! read, in the type that is multiplied in and with zeros beyond the edges (K. Goto and R. van de Geijn, "Anatomy of
//! High-Performance Matrix Multiplication", 2008). Then every subgroup computes a tile whose sums stay in registers.

use super::groups::Groups;
use super::of_accumulator;
use super::product::multiply_add;
use crate::device::Capabilities;
use crate::error::Attempt;
use crate::graph::{Context, Params};
use crate::kernels::Kernel;
use crate::memory::{Allocation, AllocationHandle};
use crate::program::Type;
use crate::program::emit::{assign, convert, element, head, of_compute};
use crate::program::types::Compute;

/// Panels of more bytes would weigh more than the operands do: a convolution's windows overlap.
const MOST: u64 = 256 << 20;
/// Fewer multiplications than these are not worth two more kernels.
const LEAST: u64 = 1 << 15;
/// Steps along k that a loop's turn takes: panels are as deep as a multiple of it.
const STEPS: u64 = 16;
/// Workgroups that keep a processor's cores busy.
const BUSY: u64 = 32;

/// A tensor that begins at the element `offset` of a block.
#[derive(Clone, Copy)]
pub struct Held<'a> {
    pub block: &'a Allocation,
    pub ty: Type,
    pub offset: i64,
}

impl Held<'_> {
    /// Bytes behind the block's start.
    fn start(&self) -> u64 {
        (self.offset * self.ty.size() as i64) as u64
    }

    fn elements(&self) -> u64 {
        self.block.size / self.ty.size()
    }
}

/// What becomes of a product: the result's type, whether it is subtracted from what is there, and whether pairs of columns are
/// words.
#[derive(Clone, Copy)]
struct Way {
    ty: Type,
    subtract: bool,
    whole: bool,
}

/// A product in panels: a subgroup computes `panels` of `rows`, and two columns for each of `lanes`.
pub struct Panels<'a> {
    groups: &'a Groups,
    a: Held<'a>,
    b: Held<'a>,
    /// That both operands are multiplied in.
    inner: Type,
    accumulator: Compute,
    lanes: u64,
    rows: u64,
    panels: u64,
}

/// Rows whose sums, two vectors of `lanes` each, take three quarters of the processor's registers.
fn most_rows(lanes: u64, accumulator: Compute) -> u64 {
    #[cfg(target_arch = "x86_64")]
    let (registers, bytes) = match std::arch::is_x86_feature_detected!("avx512vl") {
        true => (32, 64),
        false => (16, 32),
    };
    #[cfg(not(target_arch = "x86_64"))]
    let (registers, bytes) = (32, 16);
    let parts = if matches!(accumulator, Compute::Complex | Compute::ComplexDouble) { 2 } else { 1 };
    let vector = parts * (lanes * accumulator.size() / parts).div_ceil(bytes);
    (registers * 3 / 4 / (2 * vector) / 2 * 2).max(2)
}

impl<'a> Panels<'a> {
    /// Where the device is a processor and the product large enough.
    pub fn of(
        caps: &Capabilities,
        groups: &'a Groups,
        [a, b]: [Held<'a>; 2],
        inner: Type,
        accumulator: Compute,
    ) -> Option<Self> {
        use Compute::{Complex, ComplexDouble, Double, Float, Int, Uint};
        let [batch, m, n, k] = groups.sizes();
        let lanes = u64::from(caps.subgroup);
        let types = [Float, Double, Int, Uint, Complex, ComplexDouble];
        let fits = caps.cpu && caps.int64 && (4..=16).contains(&lanes) && lanes.is_power_of_two();
        if !fits || !types.contains(&inner.compute()) || !types.contains(&accumulator) {
            return None;
        }
        let most = most_rows(lanes, accumulator);
        // Two panels of A share what is loaded of B, if that leaves every core its part.
        let panels = if m.div_ceil(2 * most) * n.div_ceil(2 * lanes) * batch < BUSY { 1 } else { 2 };
        // Panels are of one size, and pairs of rows are in one panel.
        let rows = m.div_ceil(m.div_ceil(panels * most)).div_ceil(panels).next_multiple_of(2);
        let lines = m.next_multiple_of(panels * rows) + n.next_multiple_of(2 * lanes);
        let elements = batch * lines * k.next_multiple_of(STEPS);
        let largest = elements.max(batch * m * n).max(a.elements()).max(b.elements());
        let pays = batch * m * n * k >= LEAST && elements * inner.compute().size() <= MOST && largest < 1 << 31;
        pays.then_some(Self { groups, a, b, inner, accumulator, lanes, rows, panels })
    }

    /// Writes the product to `c`, of fewer than 2³¹ elements, or subtracts it from what is there.
    pub fn run(&self, cx: &Context, c: Held, subtract: bool) -> Attempt<()> {
        let [batch, m, n, k] = self.groups.sizes();
        let depth = k.next_multiple_of(STEPS);
        let row_panels = m.div_ceil(self.panels * self.rows) * self.panels;
        let column_panels = n.div_ceil(2 * self.lanes);
        let _together = cx.batch();
        let pack = |name, held, width, panels| self.pack(cx, name, held, [width, panels, depth, batch]);
        let panels_a = pack('a', self.a, self.rows, row_panels)?;
        let panels_b = pack('b', self.b, 2 * self.lanes, column_panels)?;
        let workgroups = row_panels / self.panels * column_panels * batch;
        let way = Way { ty: c.ty, subtract, whole: self.whole(&c) };
        let params = |params: &mut Params| {
            let packed = self.packed().storage();
            params.legacy(c.block, c.start(), c.ty.storage(), "c");
            params.legacy(&panels_a, 0, packed, "a");
            params.legacy(&panels_b, 0, packed, "b");
            let extents = [("m", m), ("n", n), ("depth", depth), ("groups", workgroups), ("none", 0)];
            params.extents(false, extents);
            self.groups.params(params, false);
        };
        let kernel = Kernel {
            key: &self.key('c', c.ty, u8::from(subtract) | u8::from(way.whole) << 1),
            params: &params,
            source: &|parameters| self.source(cx.caps(), parameters, way),
            groups: workgroups,
            reads: &[&panels_a, &panels_b],
            writes: &[c.block],
        };
        kernel.launch(cx)
    }

    /// Whether pairs of the result's columns are aligned words.
    fn whole(&self, c: &Held) -> bool {
        let single = [c.ty, self.inner].iter().all(|&ty| ty == Type::F32) && self.accumulator == Compute::Float;
        single && c.start().is_multiple_of(8) && self.groups.runs('c', "n", 2)
    }

    /// The type of the panels' elements.
    fn packed(&self) -> Type {
        of_compute(self.inner.compute())
    }

    fn key(&self, part: char, ty: Type, way: u8) -> Vec<u8> {
        let types = [ty, self.inner].map(|ty| ty as u8);
        let tile = [self.lanes, self.rows, self.panels].map(|number| number as u8);
        let numbers = [part as u8, way, self.accumulator as u8];
        [b"panels", numbers.as_slice(), &tile, &types, &self.groups.pattern()].concat()
    }

    /// Writes an operand to panels of `width` rows or columns.
    fn pack(
        &self,
        cx: &Context,
        name: char,
        held: Held,
        [width, panels, depth, batch]: [u64; 4],
    ) -> Attempt<AllocationHandle> {
        let [_, m, n, k] = self.groups.sizes();
        let packed = self.packed();
        let out = cx.allocate(batch * panels * depth * width * packed.size())?;
        let (group, size) = if name == 'a' { ("m", m) } else { ("n", n) };
        let along_k = self.groups.closer(name, "k", group);
        let tiles = (panels * width).div_ceil(2 * self.lanes);
        let chunks = BUSY.div_ceil(batch * tiles).min(depth / STEPS);
        let chunk = (depth / STEPS).div_ceil(chunks) * STEPS;
        let chunks = depth.div_ceil(chunk);
        let params = |params: &mut Params| {
            params.legacy(&out, 0, packed.storage(), "panels_out");
            params.legacy(held.block, held.start(), held.ty.storage(), "operand");
            let extents = [("size", size), ("k", k), ("depth", depth), ("panels", panels), ("batches", batch)];
            params.extents(false, extents);
            params.extents(false, [("tiles", tiles), ("chunk", chunk), ("chunks", chunks)]);
            self.groups.params(params, false);
        };
        let block: &Allocation = &out;
        let kernel = Kernel {
            key: &self.key(name, held.ty, along_k.into()),
            params: &params,
            source: &|parameters| self.pack_source(cx.caps(), parameters, (name, group), held.ty, (width, along_k)),
            groups: batch * tiles * chunks,
            reads: &[held.block],
            writes: &[block],
        };
        kernel.launch(cx)?;
        Ok(out)
    }

    /// What both kernels begin with.
    fn defines(&self) -> String {
        let bits = match self.inner.compute() {
            Compute::Float => {
                "#define PAIRS 1\n#define BITS(x) floatBitsToUint(x)\n#define OF_BITS(x) uintBitsToFloat(x)\n"
            }
            Compute::Int | Compute::Uint => "#define PAIRS 1\n#define BITS(x) uint(x)\n#define OF_BITS(x) ELEMENT(x)\n",
            _ => "#define PAIRS 0\n",
        };
        format!(
            "#define ELEMENT {}\n#define STORAGE {}\n#define SIZE {}ul\n#define LANES {}u\n\
             {bits}#include \"lib/panels.glsl\"\n",
            self.inner.compute().glsl(),
            self.packed().storage(),
            self.packed().size(),
            self.lanes,
        )
    }

    fn pack_source(
        &self,
        caps: &Capabilities,
        parameters: &str,
        (name, group): (char, &str),
        ty: Type,
        (width, along_k): (u64, bool),
    ) -> String {
        let place = |group, index| self.groups.place(name, group, index);
        format!(
            "{head}{defines}{places}\
             #define WIDTH {width}u\n\
             #define ALONG_K {along_k}\n\
             #define ELEMENT_AT(place) ELEMENT({value})\n\
             #define OUTER_PLACE(i) {batch} + {outer}\n\
             #define DEPTH_PLACE(k) {depth}\n\
             #include \"lib/panels_pack.glsl\"\n",
            head = head(caps, false, &[self.packed().storage(), ty.storage()], &self.computes(ty), parameters),
            defines = self.defines(),
            places = self.groups.places(),
            along_k = u8::from(along_k),
            value = convert(element(ty, "operand", "(place)"), self.inner),
            batch = place("batch", "batch"),
            outer = place(group, "i"),
            depth = place("k", "k"),
        )
    }

    fn source(&self, caps: &Capabilities, parameters: &str, Way { ty, subtract, whole }: Way) -> String {
        let place = |group, index| self.groups.place('c', group, index);
        let target = format!("{} + {} + {}", place("batch", "batch"), place("m", "i"), place("n", "j"));
        let held = of_accumulator(self.accumulator, ty);
        let value = if subtract {
            format!("{} - (v)", convert(element(ty, "c", &format!("({target})")), held))
        } else {
            "(v)".into()
        };
        format!(
            "{head}#include \"lib/complex.glsl\"\n{defines}{places}\
             #define ACCUMULATOR {accumulator}\n\
             #define BM {rows}u\n\
             #define PANELS {panels}u\n\
             #define APART {apart}\n\
             #define WHOLE {whole}\n\
             #define PLACE(i, j) {target}\n\
             #define RESULT(v, old) {result}\n\
             #define STEPS {STEPS}u\n\
             #define MULTIPLY_ADD(a, b, c) {multiply_add}\n\
             #define STORE(i, j, v) {store}\n\
             #include \"lib/matmul_panels.glsl\"\n",
            head = head(caps, false, &[ty.storage(), self.packed().storage()], &self.computes(ty), parameters),
            defines = self.defines(),
            places = self.groups.places(),
            accumulator = self.accumulator.glsl(),
            rows = self.rows,
            panels = self.panels,
            whole = u8::from(whole),
            result = if subtract { "(old) - (v)" } else { "(v)" },
            // Where vectors of addresses, 64 bits a lane, are of 512 bits and those of sums are not.
            apart = u8::from(self.lanes * self.accumulator.size() <= 32),
            multiply_add = multiply_add(caps, self.accumulator),
            store = assign(ty, "c", &target, (value, held)),
        )
    }

    fn computes(&self, ty: Type) -> [Compute; 3] {
        [ty.compute(), self.inner.compute(), self.accumulator]
    }
}
