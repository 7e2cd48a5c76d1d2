//! One pass of a transform: its parameters and its kernel.

use super::plan::Radices;
use super::{Call, Transform};
use crate::error::Attempt;
use crate::graph::{Context, Params};
use crate::kernels::{Kernel, check_indices};
use crate::memory::{Allocation, AllocationHandle};
use crate::program::Type;
use crate::program::emit::{convert, head, load, stored};
use crate::program::types::Compute;

/// Where a pass reads.
#[derive(Clone, Copy)]
pub enum Source<'a> {
    /// The operand, cut or padded; for a convolution multiplied by the chirp.
    Tensor { allocation: &'a AllocationHandle, ty: Type, chirp: bool },
    /// What the pass before wrote.
    Work(&'a AllocationHandle),
    /// The conjugate chirp, around zero.
    Filter,
    /// The conjugate of the product of two transforms.
    Product { spectrum: &'a AllocationHandle, filter: &'a AllocationHandle },
}

/// Where a pass writes.
#[derive(Clone, Copy)]
pub enum Sink<'a> {
    Work(&'a AllocationHandle),
    /// The result; of a convolution, the conjugate is to be multiplied by the chirp first.
    Tensor {
        allocation: &'a AllocationHandle,
        ty: Type,
        chirp: bool,
    },
}

pub struct Pass<'a> {
    pub call: &'a Call<'a>,
    pub radices: &'a Radices,
    /// Points of the whole transform, and what lies outside and inside of its axis.
    pub points: u64,
    pub outer: u64,
    pub inner: u64,
    /// Product of the radices of the passes before, times `inner`.
    pub stride: u64,
    pub source: Source<'a>,
    pub sink: Sink<'a>,
}

/// The type of the values between passes.
pub fn element(double: bool) -> Type {
    if double { Type::C128 } else { Type::C64 }
}

/// The most points of a pass through registers: they share memory with one cell more after every 16.
pub fn most_in_registers(cx: &Context, double: bool) -> u64 {
    let most = u64::from(cx.caps().max_shared) / 17 * 16 / element(double).size();
    1 << most.clamp(2 * EACH, 256 * EACH).ilog2()
}

/// Whether transforms of so many points, and so many in all, go through registers.
pub fn in_registers(points: u64, all: u64) -> bool {
    points.is_power_of_two() && points >= EACH && all >= LARGE
}

/// The most points that a workgroup transforms at once: two copies of them and as many roots of unity share its memory
/// with some indices.
pub fn capacity(cx: &Context, double: bool) -> u64 {
    let most = u64::from(cx.caps().max_shared).saturating_sub(INDICES) / (3 * element(double).size());
    1 << most.max(2).ilog2()
}

/// Most transforms of a workgroup.
const TILES: u64 = 64;
/// Bytes of the indices of their columns.
const INDICES: u64 = 4 * 8 * TILES;
/// Workgroups of at most this many points, for small transforms, leave room for others beside them.
const SMALL: u64 = 256;
/// From this many points in all on, transforms of powers of two run in kernels made for their length.
const LARGE: u64 = 1 << 18;
/// Points that an invocation of such a kernel keeps in registers.
const EACH: u64 = 16;

/// What the kernel's source depends on.
struct Variant {
    source: (u8, Option<Type>),
    sink: (u8, Option<Type>),
    hermitian: bool,
    double: bool,
    wide: bool,
    kernel: Variety,
}

/// Kernels are made for what these hold; the rest are parameters.
#[derive(Debug)]
enum Variety {
    /// Any length (`shaders/lib/fourier/general.glsl`).
    General { capacity: u64 },
    /// A power of two (`shaders/lib/fourier/registers.glsl`).
    Registers { length: u64, tile: u64, span: u64, along_in: bool, along_out: bool },
}

impl Pass<'_> {
    pub fn record(&self) -> Attempt<()> {
        let Call { cx, double, .. } = *self.call;
        let length: u64 = self.radices.iter().map(|&radix| u64::from(radix)).product();
        let across = self.points / length * self.inner;
        let columns = self.outer * across;
        let span = self.stride / self.inner * length;
        let (kernel, tile) = if in_registers(length, columns * length) && span.is_power_of_two() {
            let tile = most_in_registers(cx, double) / length;
            let (along_in, along_out) = (across == 1, self.stride == 1);
            (Variety::Registers { length, tile, span, along_in, along_out }, tile)
        } else {
            let most = capacity(cx, double);
            // A small kernel where it holds as much as there is.
            let small = length <= SMALL / 4 && columns * length <= 64 * SMALL;
            let capacity = if small { SMALL.min(most) } else { most };
            let tile = (1 << (capacity / length).ilog2()).min(TILES).min(columns.next_power_of_two());
            (Variety::General { capacity }, tile)
        };
        let groups = columns.div_ceil(tile);
        let wide = self.outer * self.points.max(self.call.given) * self.inner >= 1 << 31 || self.points >= 1 << 27;
        check_indices(cx.caps(), wide)?;
        let variant = Variant {
            source: match self.source {
                Source::Work(_) => (0, None),
                Source::Tensor { ty, chirp, .. } => (1 + u8::from(chirp), Some(ty)),
                Source::Filter => (3, None),
                Source::Product { .. } => (4, None),
            },
            sink: match self.sink {
                Sink::Work(_) => (0, None),
                Sink::Tensor { ty, chirp, .. } => (1 + u8::from(chirp), Some(ty)),
            },
            hermitian: self.call.transform == Transform::Irfft,
            double,
            wide,
            kernel,
        };
        let none: [&Allocation; 0] = [];
        let (one, two): ([&Allocation; 1], [&Allocation; 2]);
        let reads: &[&Allocation] = match self.source {
            Source::Tensor { allocation, .. } | Source::Work(allocation) => {
                one = [allocation];
                &one
            }
            Source::Filter => &none,
            Source::Product { spectrum, filter } => {
                two = [spectrum, filter];
                &two
            }
        };
        let (Sink::Work(written) | Sink::Tensor { allocation: written, .. }) = self.sink;
        let kernel = Kernel {
            key: &variant.key(),
            params: &|params| self.params(params, wide, (length, tile, across, columns, groups)),
            source: &|parameters| variant.emit(cx, parameters),
            groups,
            reads,
            writes: &[written],
        };
        kernel.launch(cx)
    }

    fn params(&self, params: &mut Params, wide: bool, sizes: (u64, u64, u64, u64, u64)) {
        let call = self.call;
        let (length, tile, across, columns, groups) = sizes;
        let work = element(call.double).storage();
        let points = self.points * self.inner;
        let source_span = match self.source {
            Source::Filter => 0,
            Source::Tensor { allocation, ty, .. } => {
                params.legacy(allocation, 0, ty.storage(), "source");
                call.given * self.inner
            }
            Source::Work(allocation) => {
                params.legacy(allocation, 0, work, "source");
                points
            }
            Source::Product { spectrum, filter } => {
                params.legacy(spectrum, 0, work, "source");
                params.legacy(filter, 0, work, "filter_");
                points
            }
        };
        let result_span = match self.sink {
            Sink::Work(allocation) => {
                params.legacy(allocation, 0, work, "result");
                points
            }
            Sink::Tensor { allocation, ty, chirp } => {
                params.legacy(allocation, 0, ty.storage(), "result");
                let inverse = call.inverse().then_some(call.points as f64);
                let scale = 1.0 / (inverse.unwrap_or(1.0) * if chirp { self.points as f64 } else { 1.0 });
                params.bits(&real_bits(scale, call.double), "scale");
                params.bits(&real_bits(call.eps, call.double), "eps");
                call.kept * self.inner
            }
        };
        let extents = [
            ("groups", groups),
            ("columns", columns),
            ("across", across),
            ("stride", self.stride),
            ("inner", self.inner),
            ("span", self.stride / self.inner * length),
            ("source_span", source_span),
            ("result_span", result_span),
            ("points", call.points),
            ("padded", self.points),
            ("inverse", call.inverse().into()),
            ("size", length),
            ("tile", tile),
        ];
        params.extents(wide, extents);
        // Four a word; zeros end the list.
        for word in 0..2 {
            let bytes = std::array::from_fn(|i| self.radices.get(4 * word + i).copied().unwrap_or(0));
            params.extent(u32::from_le_bytes(bytes).into(), wide, ("radices", word));
        }
    }
}

/// The stages of a general kernel, by the radices among the parameters.
const ANY_STAGES: &str = "for (uint s = 0u, ns = TILE; s < 8u; s++) { \
    uint radix = (uint(s < 4u ? p.radices0 : p.radices1) >> (s % 4u * 8u)) & 255u; \
    if (radix == 0u) break; \
    switch (radix) { \
    case 2u: stage_2(ns); break; case 3u: stage_3(ns); break; case 4u: stage_4(ns); break; \
    case 5u: stage_5(ns); break; case 8u: stage_8(ns); break; default: stage_any(ns, radix); } \
    ns *= radix; }";

/// The stages through registers: radix 16, and last what is left of the length.
fn stages(length: u64) -> String {
    let (mut ns, mut text) = (1, String::new());
    while ns < length {
        let radix = EACH.min(length / ns);
        if ns * radix < length {
            let again = if ns > 1 { "barrier(); " } else { "" };
            let to = if ns * radix * EACH < length { "from" } else { "to" };
            text += &format!("stage_{radix}u(from.i, {ns}u); {again}swap({radix}u, {ns}u, from, {to}); ");
        } else {
            text += &format!("stage_{radix}u(to.i, {ns}u); ");
        }
        ns *= radix;
    }
    text
}

impl Call<'_> {
    fn inverse(&self) -> bool {
        matches!(self.transform, Transform::Ifft | Transform::Irfft)
    }
}

fn real_bits(value: f64, double: bool) -> [u8; 8] {
    if double { value.to_le_bytes() } else { u64::from((value as f32).to_bits()).to_le_bytes() }
}

impl Variant {
    fn key(&self) -> Vec<u8> {
        let Self { source, sink, hermitian, double, wide, kernel } = self;
        format!("fourier {source:?} {sink:?} {hermitian} {double} {wide} {kernel:?}").into_bytes()
    }

    fn emit(&self, cx: &Context, parameters: &str) -> String {
        let work = element(self.double);
        let real = if self.double { "double" } else { "float" };
        let chirp = self.source.0 >= 2 || self.sink.0 == 2;
        let mut computes = vec![work.compute()];
        computes.extend([self.source.1, self.sink.1].iter().flatten().map(|ty| ty.compute()));
        if chirp && cx.caps().int64 {
            computes.push(Compute::Uint64);
        }
        let mut storages = vec![work.storage()];
        storages.extend([self.source.1, self.sink.1].iter().flatten().map(|ty| ty.storage()));
        let (threads, sizes, file) = match self.kernel {
            Variety::General { capacity } => (
                // Eight points each: what the largest butterfly takes.
                (capacity / 8).clamp(32, 256),
                format!(
                    "#define LENGTH uint(p.size)\n#define TILE uint(p.tile)\n#define SPAN p.span\n\
                     #define TILES {TILES}\n#define CAPACITY {capacity}u\n\
                     #define STAGES {ANY_STAGES}\n"
                ),
                "general",
            ),
            Variety::Registers { length, tile, span, along_in, along_out } => (
                length * tile / EACH,
                format!(
                    "#define LENGTH {length}\n#define TILE {tile}\n#define SPAN IDX({span}u{long})\n\
                     #define ALONG_IN {along_in}\n#define ALONG_OUT {along_out}\n\
                     #define STAGES {stages}\n",
                    long = if self.wide { "l" } else { "" },
                    stages = stages(length),
                ),
                "registers",
            ),
        };
        format!(
            "{head}\
             #define R {real}\n#define C {complex}\n{flags}\
             {sizes}#define THREADS {threads}u\n\
             #include \"lib/fourier/{file}.glsl\"\n\
             {load}{store}\
             layout(local_size_x = {threads}) in;\n\
             void main() {{ transform(); }}\n",
            head = head(cx.caps(), self.wide, &storages, &computes, parameters),
            complex = work.storage(),
            flags = [(self.double, "WORK_DOUBLE"), (chirp, "CHIRP")]
                .map(|(on, name)| if on { format!("#define {name}\n") } else { String::new() })
                .concat(),
            load = self.load(),
            store = self.store(),
        )
    }

    fn load(&self) -> String {
        let work = element(self.double);
        let body = match self.source {
            (0, _) => format!("return AT({}, p.source, outer * p.source_span + at);", work.storage()),
            (3, _) => {
                "IDX k = min(at, p.padded - at); return k < p.points ? c_conjugate(chirp(k, p.points)) : C(0);".into()
            }
            (4, _) => format!(
                "C v = AT({0}, p.source, outer * p.source_span + at); \
                 return c_conjugate(c_multiply(v, AT({0}, p.filter_, at / p.inner)));",
                work.storage()
            ),
            (kind, ty) => {
                // Without branches: a thread's reads should not wait for each other.
                let ty = ty.unwrap_or(work);
                let loaded = load(ty, &format!("AT({}, p.source, outer * p.source_span + at)", ty.storage()));
                let part = |value: &str, from: Type| {
                    let to = if self.double { Type::F64 } else { Type::F32 };
                    convert((value.into(), from), to)
                };
                let value = match ty {
                    Type::C64 => format!("C({}, {})", part("z.x", Type::F32), part("z.y", Type::F32)),
                    Type::C128 => format!("C({}, {})", part("z.x", Type::F64), part("z.y", Type::F64)),
                    _ => format!("C({}, 0)", part("z", ty)),
                };
                let place = "IDX k = at / p.inner; ";
                let outside = if kind == 2 { "k < p.points && " } else { "" };
                let mirror = if self.hermitian {
                    "bool mirrored = k > p.points / 2; \
                     if (mirrored) at = (p.points - k) * p.inner + (at - k * p.inner); "
                } else {
                    "const bool mirrored = false; "
                };
                let chirped = if kind == 2 { "v = c_multiply(v, chirp(k, p.points)); " } else { "" };
                format!(
                    "{}{mirror}bool inside = {outside}at < p.source_span; at = min(at, p.source_span - 1); \
                     {} z = {loaded}; C v = {value}; \
                     if (mirrored != (p.inverse != 0)) v = c_conjugate(v); {chirped}return inside ? v : C(0);",
                    if kind == 2 || self.hermitian { place } else { "" },
                    ty.compute().glsl(),
                )
            }
        };
        format!("C load_point(IDX outer, IDX at) {{ {body} }}\n")
    }

    fn store(&self) -> String {
        let work = element(self.double);
        let body = match self.sink {
            (kind, Some(ty)) => {
                let real = if self.double { Type::F64 } else { Type::F32 };
                let part = |value: &str, to: Type| stored(to, (value.into(), real));
                let stored = match ty {
                    Type::C64 => format!("vec2({}, {})", part("v.x", Type::F32), part("v.y", Type::F32)),
                    Type::C128 => format!("dvec2({}, {})", part("v.x", Type::F64), part("v.y", Type::F64)),
                    _ => part("v.x", ty),
                };
                let number = |name| {
                    if self.double { format!("packDouble2x32({name})") } else { format!("uintBitsToFloat({name}.x)") }
                };
                let chirped =
                    if kind == 2 { "v = c_multiply(c_conjugate(v), chirp(at / p.inner, p.points)); " } else { "" };
                format!(
                    "if (at >= p.result_span) return; {chirped}v *= {scale}; \
                     if (p.inverse != 0) v = c_conjugate(v); \
                     R eps = {eps}; \
                     if (abs(v.x) <= eps) v.x = R(0); if (abs(v.y) <= eps) v.y = R(0); \
                     AT({storage}, p.result, outer * p.result_span + at) = {stored};",
                    scale = number("p.scale"),
                    eps = number("p.eps"),
                    storage = ty.storage(),
                )
            }
            _ => format!("AT({}, p.result, outer * p.result_span + at) = v;", work.storage()),
        };
        format!("void store_point(IDX outer, IDX at, C v) {{ {body} }}\n")
    }
}
