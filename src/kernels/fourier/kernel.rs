//! One pass of a transform: its kernel, and what a launch of it gives. The kernel's loops are in `shaders/lib/fourier/`, how it
//! loads and stores points in [`super::points`].

use smallvec::SmallVec;

use super::radices::Radices;
use super::{FourierCall, Transform, points};
use crate::device::Capabilities;
use crate::error::Attempt;
use crate::graph::Params;
use crate::kernels::{KernelSpec, launch};
use crate::memory::AllocationHandle;
use crate::program::Type;
use crate::program::emit::head;
use crate::program::types::Compute;
use crate::tuning::fourier::{MAX_TILES, PassKernel, PassShape, THREAD_POINTS, pass_kernel};

/// Where a pass reads.
#[derive(Clone, Copy)]
pub enum PassInput<'a> {
    /// The operand, cut or padded; for a convolution multiplied by the chirp.
    Tensor { allocation: &'a AllocationHandle, ty: Type, chirp: bool },
    /// What the pass before wrote.
    Points(&'a AllocationHandle),
    /// The conjugate chirp, around zero.
    Filter,
    /// The conjugate of the product of two transforms.
    Product { spectrum: &'a AllocationHandle, filter: &'a AllocationHandle },
}

/// Where a pass writes.
#[derive(Clone, Copy)]
pub enum PassOutput<'a> {
    /// Memory between passes.
    Points(&'a AllocationHandle),
    /// The result; of a convolution, the conjugate is to be multiplied by the chirp first.
    Tensor { allocation: &'a AllocationHandle, ty: Type, chirp: bool },
}

/// One pass of all transforms of a call.
pub struct FourierPass<'a> {
    pub call: &'a FourierCall<'a>,
    pub radices: &'a Radices,
    /// Points of the whole transform, and the extents outside and inside of its axis.
    pub points: u64,
    pub outer: u64,
    pub inner: u64,
    /// Product of the radices of the passes before, times `inner`.
    pub stride: u64,
    pub input: PassInput<'a>,
    pub output: PassOutput<'a>,
}

/// The type of the points between passes.
pub fn point_type(in_double: bool) -> Type {
    if in_double { Type::C128 } else { Type::C64 }
}

/// What a kernel loads its points from.
#[derive(Clone, Copy, Hash)]
pub(super) enum PointSource {
    Tensor { ty: Type, chirp: bool },
    Points,
    Filter,
    Product,
}

/// What a kernel stores its points to.
#[derive(Clone, Copy, Hash)]
pub(super) enum PointSink {
    Points,
    Tensor { ty: Type, chirp: bool },
}

/// The kernel of a pass.
#[derive(Hash)]
pub(super) struct FourierKernel {
    pub loads: PointSource,
    pub stores: PointSink,
    /// Whether the operand is the first half of points that are their mirror images' conjugates.
    pub hermitian: bool,
    pub in_double: bool,
    pub index64: bool,
    pub pass: PassKernel,
}

/// What one launch of a pass gives.
pub(super) struct FourierArgs<'a> {
    pass: &'a FourierPass<'a>,
    /// Points that the pass transforms at once, and how many of these transforms a workgroup has.
    length: u64,
    tile: u64,
    groups: u64,
}

impl FourierPass<'_> {
    /// Points that the pass transforms at once.
    fn length(&self) -> u64 {
        self.radices.iter().map(|&radix| u64::from(radix)).product()
    }

    /// Columns of `length` points that begin at one index of the outer extent.
    fn outer_columns(&self) -> u64 {
        self.points / self.length() * self.inner
    }

    pub fn record(&self) -> Attempt<()> {
        let FourierCall { cx, in_double, operand_points, transform, .. } = *self.call;
        let length = self.length();
        let shape = PassShape {
            length,
            columns: self.outer * self.outer_columns(),
            span: self.stride / self.inner * length,
            contiguous: [self.outer_columns() == 1, self.stride == 1],
            in_double,
        };
        let (pass, tile) = pass_kernel(cx.caps(), &shape);
        let index64 = self.outer * self.points.max(operand_points) * self.inner >= 1 << 31 || self.points >= 1 << 27;
        let kernel = FourierKernel {
            loads: match self.input {
                PassInput::Tensor { ty, chirp, .. } => PointSource::Tensor { ty, chirp },
                PassInput::Points(_) => PointSource::Points,
                PassInput::Filter => PointSource::Filter,
                PassInput::Product { .. } => PointSource::Product,
            },
            stores: match self.output {
                PassOutput::Points(_) => PointSink::Points,
                PassOutput::Tensor { ty, chirp, .. } => PointSink::Tensor { ty, chirp },
            },
            hermitian: transform == Transform::Irfft,
            in_double,
            index64,
            pass,
        };
        launch(cx, &kernel, &FourierArgs { pass: self, length, tile, groups: shape.columns.div_ceil(tile) })
    }

    /// Gives the operands, and returns the elements that `source` and `result` have for each index of the outer extent.
    fn operands<'a>(&'a self, params: &mut Params<'a>) -> [u64; 2] {
        let call = self.call;
        let storage = point_type(call.in_double).storage();
        let points = self.points * self.inner;
        let source_elements = match self.input {
            PassInput::Filter => 0,
            PassInput::Tensor { allocation, ty, .. } => {
                params.read(allocation, ty.storage(), "source");
                call.operand_points * self.inner
            }
            PassInput::Points(allocation) => {
                params.read(allocation, storage, "source");
                points
            }
            PassInput::Product { spectrum, filter } => {
                params.read(spectrum, storage, "source");
                params.read(filter, storage, "filter_");
                points
            }
        };
        let result_elements = match self.output {
            PassOutput::Points(allocation) => {
                params.write(allocation, storage, "result");
                points
            }
            PassOutput::Tensor { allocation, ty, chirp } => {
                params.write(allocation, ty.storage(), "result");
                let inverse = call.is_inverse().then_some(call.points as f64);
                let scale = 1.0 / (inverse.unwrap_or(1.0) * if chirp { self.points as f64 } else { 1.0 });
                params.bits(&real_bits(scale, call.in_double), "scale");
                params.bits(&real_bits(call.eps, call.in_double), "eps");
                call.result_points * self.inner
            }
        };
        [source_elements, result_elements]
    }
}

impl FourierCall<'_> {
    fn is_inverse(&self) -> bool {
        matches!(self.transform, Transform::Ifft | Transform::Irfft)
    }
}

fn real_bits(value: f64, in_double: bool) -> [u8; 8] {
    if in_double { value.to_le_bytes() } else { u64::from((value as f32).to_bits()).to_le_bytes() }
}

impl KernelSpec for FourierKernel {
    type Args<'a> = FourierArgs<'a>;

    fn source(&self, caps: &Capabilities, parameters: &str) -> String {
        let point = point_type(self.in_double);
        let real = if self.in_double { "double" } else { "float" };
        let tensors = self.tensors();
        let mut computes: SmallVec<[Compute; 4]> = SmallVec::from_slice(&[point.compute()]);
        computes.extend(tensors.iter().flatten().map(|ty| ty.compute()));
        let has_chirp = self.has_chirp();
        if has_chirp && caps.int64 {
            computes.push(Compute::Uint64);
        }
        let mut storages: SmallVec<[&str; 3]> = SmallVec::from_slice(&[point.storage()]);
        storages.extend(tensors.iter().flatten().map(|ty| ty.storage()));
        let (threads, definitions, file) = self.definitions();
        format!(
            "{head}\
             #define R {real}\n#define C {complex}\n{flags}\
             {definitions}#define THREADS {threads}u\n\
             #include \"lib/fourier/{file}.glsl\"\n\
             {load}{store}\
             layout(local_size_x = {threads}) in;\n\
             void main() {{ transform(); }}\n",
            head = head(caps, self.index64, &storages, &computes, parameters),
            complex = point.storage(),
            flags = [(self.in_double, "WORK_DOUBLE"), (has_chirp, "CHIRP")]
                .map(|(on, name)| if on { format!("#define {name}\n") } else { String::new() })
                .concat(),
            load = points::load(self),
            store = points::store(self),
        )
    }

    fn params<'a>(&self, args: &FourierArgs<'a>, params: &mut Params<'a>) {
        let &FourierArgs { pass, length, tile, groups } = args;
        let [source_elements, result_elements] = pass.operands(params);
        let extents = [
            ("groups", groups),
            ("columns", pass.outer * pass.outer_columns()),
            ("outer_columns", pass.outer_columns()),
            ("stride", pass.stride),
            ("inner", pass.inner),
            ("span", pass.stride / pass.inner * length),
            ("source_elements", source_elements),
            ("result_elements", result_elements),
            ("points", pass.call.points),
            ("padded", pass.points),
            ("inverse", pass.call.is_inverse().into()),
            ("size", length),
            ("tile", tile),
        ];
        params.extents(self.index64, extents);
        // Four a word; zeros end the list.
        for word in 0..2 {
            let bytes = std::array::from_fn(|i| pass.radices.get(4 * word + i).copied().unwrap_or(0));
            params.extent(u32::from_le_bytes(bytes).into(), self.index64, ("radices", word));
        }
    }

    fn groups(&self, args: &FourierArgs) -> u64 {
        args.groups
    }
}

/// The stages of a general kernel, by the radices among the parameters.
const GENERAL_STAGES: &str = "for (uint s = 0u, ns = TILE; s < 8u; s++) { \
    uint radix = (uint(s < 4u ? p.radices0 : p.radices1) >> (s % 4u * 8u)) & 255u; \
    if (radix == 0u) break; \
    switch (radix) { \
    case 2u: stage_2(ns); break; case 3u: stage_3(ns); break; case 4u: stage_4(ns); break; \
    case 5u: stage_5(ns); break; case 8u: stage_8(ns); break; default: stage_any(ns, radix); } \
    ns *= radix; }";

/// The stages through registers: radix 16, and last what is left of the length.
fn register_stages(length: u64) -> String {
    let (mut ns, mut text) = (1, String::new());
    while ns < length {
        let radix = THREAD_POINTS.min(length / ns);
        if ns * radix < length {
            let again = if ns > 1 { "barrier(); " } else { "" };
            let to = if ns * radix * THREAD_POINTS < length { "from" } else { "to" };
            text += &format!("stage_{radix}u(from.i, {ns}u); {again}swap({radix}u, {ns}u, from, {to}); ");
        } else {
            text += &format!("stage_{radix}u(to.i, {ns}u); ");
        }
        ns *= radix;
    }
    text
}

impl FourierKernel {
    /// The types of the tensors that are loaded and stored.
    fn tensors(&self) -> [Option<Type>; 2] {
        let loaded = if let PointSource::Tensor { ty, .. } = self.loads { Some(ty) } else { None };
        let stored = if let PointSink::Tensor { ty, .. } = self.stores { Some(ty) } else { None };
        [loaded, stored]
    }

    fn has_chirp(&self) -> bool {
        matches!(self.loads, PointSource::Tensor { chirp: true, .. } | PointSource::Filter | PointSource::Product)
            || matches!(self.stores, PointSink::Tensor { chirp: true, .. })
    }

    /// The invocations of a workgroup, what the kernel's file asks for, and the file.
    fn definitions(&self) -> (u64, String, &'static str) {
        match self.pass {
            PassKernel::General { capacity } => (
                // Eight points each: what the largest butterfly takes.
                (capacity / 8).clamp(32, 256),
                format!(
                    "#define LENGTH uint(p.size)\n#define TILE uint(p.tile)\n#define SPAN p.span\n\
                     #define TILES {MAX_TILES}\n#define CAPACITY {capacity}u\n\
                     #define STAGES {GENERAL_STAGES}\n"
                ),
                "general",
            ),
            PassKernel::Registers { length, tile, span, contiguous_in, contiguous_out } => (
                length * tile / THREAD_POINTS,
                format!(
                    "#define LENGTH {length}\n#define TILE {tile}\n#define SPAN IDX({span}u{long})\n\
                     #define CONTIGUOUS_IN {contiguous_in}\n#define CONTIGUOUS_OUT {contiguous_out}\n\
                     #define STAGES {stages}\n",
                    long = if self.index64 { "l" } else { "" },
                    stages = register_stages(length),
                ),
                "registers",
            ),
        }
    }
}
