//! Discrete Fourier transforms along one axis, of any length: `Nx.fft/2`, `ifft`, `rfft`, `irfft`.
//!
//! Lengths of small primes go through one pass over memory where they fit a workgroup, else through several
//! (`shaders/lib/fourier/`). Others are convolutions of such lengths: L. I. Bluestein, "A linear filtering approach
//! to the computation of discrete Fourier transform" (1970). An inverse transform is the conjugate of the transform of
//! the conjugate, divided by the length.

mod pass;
mod plan;

use crate::error::{Attempt, Error};
use crate::graph::Context;
use crate::kernels::Rows;
use crate::memory::{AllocationHandle, Buffer};
use crate::program::{Type, elements};
use pass::{Pass, Sink, Source};

/// Which transform, by what Nx calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transform {
    Fft,
    Ifft,
    /// The first `length / 2 + 1` results.
    Rfft,
    /// The real parts of an inverse transform whose argument is the first `length / 2 + 1` points and the conjugates of
    /// the others.
    Irfft,
}

/// Transforms of at most this many points in all compute in double where the device has it, as BinaryBackend does;
/// larger ones in the result's type.
const EXACT: u64 = 1 << 16;

/// Longer than this the chirp's squares need 64-bit integers.
const CHIRP_32: u64 = 1 << 16;

/// Everything that the passes of one call share. Tensors are `outer` × points × `inner`.
struct Call<'a> {
    cx: &'a Context<'a>,
    transform: Transform,
    /// Whether to compute in double.
    double: bool,
    outer: u64,
    inner: u64,
    /// Points of the operand, of the transform, and of the result.
    given: u64,
    points: u64,
    kept: u64,
    /// Real and imaginary parts up to this become 0.
    eps: f64,
}

/// The transform, of `length` points, of the operand's rows cut or padded with zeros to that length; parts of the result whose
/// magnitude is at most `eps` become 0. The result has the type `ty`: complex, real for [`Transform::Irfft`].
pub fn run(cx: &Context, transform: Transform, ty: Type, operand: &Rows, length: u64, eps: f64) -> Attempt<Buffer> {
    [ty, operand.ty].iter().try_for_each(|ty| ty.check(cx.caps()))?;
    let Rows { buffer, outer, len: given, inner, .. } = *operand;
    let fits = match transform {
        Transform::Irfft => matches!(ty, Type::F32 | Type::F64),
        _ => ty.is_complex(),
    };
    if !fits {
        return Err(Error::Argument("out_type: expected a complex type, for :irfft f32 or f64".into()).into());
    }
    if length == 0 {
        return Err(Error::Argument("length: expected a positive integer".into()).into());
    }
    let kept = if transform == Transform::Rfft { length / 2 + 1 } else { length };
    // Twice for the rounding up of convolutions, and once more, with 16 bytes an element, for tiles and spans.
    if !elements(&[outer, inner, length, 64]).is_ok_and(|n| n <= 1 << 52) {
        return Err(Error::Unsupported("a Fourier transform of this size".into()).into());
    }
    let bytes = outer * inner * kept * ty.size();
    if bytes == 0 || given == 0 {
        return cx.zeroed(bytes);
    }
    let total = outer * inner * length;
    let double = matches!(ty, Type::F64 | Type::C128) || (cx.caps().float64 && total <= EXACT);
    let call = Call { cx, transform, double, outer, inner, given, points: length, kept, eps };
    let result = cx.allocate(bytes)?;
    let source = buffer.allocation()?;
    call.run((&source, operand.ty), (&result, ty))?;
    Ok(Buffer::new(bytes, result))
}

impl Call<'_> {
    fn run(&self, (operand, ty): (&AllocationHandle, Type), (result, out): (&AllocationHandle, Type)) -> Attempt<()> {
        let Call { outer, inner, points, .. } = *self;
        let sink = |chirp| Sink::Tensor { allocation: result, ty: out, chirp };
        let source = |chirp| Source::Tensor { allocation: operand, ty, chirp };
        if let Some(passes) = self.passes(points) {
            return self.through(&passes, points, (outer, inner), source(false), sink(false));
        }
        if points > CHIRP_32 && !self.cx.caps().int64 {
            return Err(Error::Unsupported(format!("{} has no 64-bit integers", self.cx.caps().name)).into());
        }
        if points >= 1 << 31 {
            return Err(Error::Unsupported(
                "a Fourier transform of 2^31 points or more, with a large prime factor".into(),
            )
            .into());
        }
        // X[k] = w[k] Σ x[j] w[j] conj(w[k - j]) with w[k] = exp(-pi i k² / points): a convolution of `padded` points.
        let padded = plan::convenient(2 * points - 1);
        let passes = self.passes(padded).unwrap_or_default();
        let filter = self.work(padded)?;
        self.through(&passes, padded, (1, 1), Source::Filter, Sink::Work(&filter))?;
        let spectrum = self.work(outer * padded * inner)?;
        self.through(&passes, padded, (outer, inner), source(true), Sink::Work(&spectrum))?;
        let source = Source::Product { spectrum: &spectrum, filter: &filter };
        self.through(&passes, padded, (outer, inner), source, sink(true))
    }

    fn passes(&self, points: u64) -> Option<Vec<plan::Radices>> {
        if pass::in_registers(points, self.outer * points * self.inner) {
            let most = pass::most_in_registers(self.cx, self.double);
            return plan::passes(points, most, most / 8);
        }
        let whole = pass::capacity(self.cx, self.double);
        plan::passes(points, whole, whole / 4)
    }

    fn work(&self, elements: u64) -> Attempt<AllocationHandle> {
        self.cx.allocate(elements * pass::element(self.double).size())
    }

    /// All passes of transforms of `points` points.
    fn through(
        &self,
        passes: &[plan::Radices],
        points: u64,
        (outer, inner): (u64, u64),
        source: Source,
        sink: Sink,
    ) -> Attempt<()> {
        let mut stride = inner;
        let mut before: Option<AllocationHandle> = None;
        for (i, radices) in passes.iter().enumerate() {
            let after = if i + 1 < passes.len() { Some(self.work(outer * points * inner)?) } else { None };
            let pass = Pass {
                call: self,
                radices,
                points,
                outer,
                inner,
                stride,
                source: before.as_ref().map_or(source, Source::Work),
                sink: after.as_ref().map_or(sink, Sink::Work),
            };
            pass.record()?;
            stride *= radices.iter().map(|&radix| u64::from(radix)).product::<u64>();
            before = after;
        }
        Ok(())
    }
}
