//! Discrete Fourier transforms along one axis, of any length: `Nx.fft/2`, `ifft`, `rfft`, `irfft`. This module owns the passes
//! of a transform and the memory between them; a pass is [`kernel`]'s, its length [`radices`]' and `tuning`'s.
//!
//! Lengths of small primes go through one pass over memory where they fit a workgroup, else through several
//! (`shaders/lib/fourier/`). Others are convolutions of such lengths: L. I. Bluestein, "A linear filtering approach
//! to the computation of discrete Fourier transform" (1970). An inverse transform is the conjugate of the transform of
//! the conjugate, divided by the length.

mod kernel;
mod points;
mod radices;

use crate::error::{Attempt, Error, Result};
use crate::graph::Context;
use crate::kernels::Rows;
use crate::memory::{AllocationHandle, Buffer};
use crate::program::{Type, elements};
use crate::tuning::fourier::{in_double, max_lengths};
use kernel::{FourierPass, PassInput, PassOutput, point_type};

/// Which transform, by what Nx calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transform {
    /// The transform of all points.
    Fft,
    /// The inverse transform of all points, divided by their number.
    Ifft,
    /// The first `length / 2 + 1` results.
    Rfft,
    /// The real parts of an inverse transform whose argument is the first `length / 2 + 1` points and the conjugates of
    /// the others.
    Irfft,
}

/// What the passes of one call share. Tensors are `outer` × points × `inner`.
struct FourierCall<'a> {
    cx: &'a Context<'a>,
    transform: Transform,
    in_double: bool,
    outer: u64,
    inner: u64,
    /// Points of the operand, of the transform, and of the result.
    operand_points: u64,
    points: u64,
    result_points: u64,
    /// Real and imaginary parts up to this become 0.
    eps: f64,
}

/// The transform, of `length` points, of the operand's rows cut or padded with zeros to that length; parts of the result whose
/// magnitude is at most `eps` become 0. The result has the type `ty`: complex, real for [`Transform::Irfft`].
pub fn run(cx: &Context, transform: Transform, ty: Type, operand: &Rows, length: u64, eps: f64) -> Attempt<Buffer> {
    [ty, operand.ty].iter().try_for_each(|ty| ty.check(cx.caps()))?;
    let Rows { buffer, outer, len: operand_points, inner, .. } = *operand;
    check_arguments(transform, ty, [outer, inner, length])?;
    let result_points = if transform == Transform::Rfft { length / 2 + 1 } else { length };
    let bytes = outer * inner * result_points * ty.size();
    if bytes == 0 || operand_points == 0 {
        return cx.zeroed(bytes);
    }
    let in_double = in_double(cx.caps(), matches!(ty, Type::F64 | Type::C128), outer * inner * length);
    let call =
        FourierCall { cx, transform, in_double, outer, inner, operand_points, points: length, result_points, eps };
    let result = cx.allocate(bytes)?;
    let source = buffer.allocation()?;
    call.run((&source, operand.ty), (&result, ty))?;
    Ok(Buffer::new(bytes, result))
}

/// Fails where the transform has no such result, or more points than can be indexed.
fn check_arguments(transform: Transform, ty: Type, [outer, inner, length]: [u64; 3]) -> Result<()> {
    let fits = match transform {
        Transform::Irfft => matches!(ty, Type::F32 | Type::F64),
        _ => ty.is_complex(),
    };
    if !fits {
        return Err(Error::Argument("out_type: expected a complex type, for :irfft f32 or f64".into()));
    }
    if length == 0 {
        return Err(Error::Argument("length: expected a positive integer".into()));
    }
    // Twice for the rounding up of convolutions, and once more, with 16 bytes an element, for tiles and spans.
    if !elements(&[outer, inner, length, 64]).is_ok_and(|n| n <= 1 << 52) {
        return Err(Error::Unsupported("a Fourier transform of this size".into()));
    }
    Ok(())
}

impl FourierCall<'_> {
    fn run(&self, (operand, ty): (&AllocationHandle, Type), (result, out): (&AllocationHandle, Type)) -> Attempt<()> {
        let FourierCall { outer, inner, points, .. } = *self;
        let output = |chirp| PassOutput::Tensor { allocation: result, ty: out, chirp };
        let input = |chirp| PassInput::Tensor { allocation: operand, ty, chirp };
        if let Some(passes) = self.passes(points) {
            return self.through(&passes, points, (outer, inner), input(false), output(false));
        }
        if points >= 1 << 31 {
            return Err(Error::Unsupported(
                "a Fourier transform of 2^31 points or more, with a large prime factor".into(),
            )
            .into());
        }
        // X[k] = w[k] Σ x[j] w[j] conj(w[k - j]) with w[k] = exp(-pi i k² / points): a convolution of `padded` points.
        let padded = radices::convenient(2 * points - 1);
        let passes = self.passes(padded).unwrap_or_default();
        let filter = self.allocate(padded)?;
        self.through(&passes, padded, (1, 1), PassInput::Filter, PassOutput::Points(&filter))?;
        let spectrum = self.allocate(outer * padded * inner)?;
        self.through(&passes, padded, (outer, inner), input(true), PassOutput::Points(&spectrum))?;
        let product = PassInput::Product { spectrum: &spectrum, filter: &filter };
        self.through(&passes, padded, (outer, inner), product, output(true))
    }

    /// The radices of each pass of transforms of this many points; `None` where they have a large prime factor.
    fn passes(&self, points: u64) -> Option<Vec<radices::Radices>> {
        let [whole, part] = max_lengths(self.cx.caps(), points, self.outer * points * self.inner, self.in_double);
        radices::passes(points, whole, part)
    }

    /// Memory for this many points between passes.
    fn allocate(&self, points: u64) -> Attempt<AllocationHandle> {
        self.cx.allocate(points * point_type(self.in_double).size())
    }

    /// All passes of transforms of `points` points.
    fn through(
        &self,
        passes: &[radices::Radices],
        points: u64,
        (outer, inner): (u64, u64),
        input: PassInput,
        output: PassOutput,
    ) -> Attempt<()> {
        let mut stride = inner;
        let mut before: Option<AllocationHandle> = None;
        for (i, radices) in passes.iter().enumerate() {
            let after = if i + 1 < passes.len() { Some(self.allocate(outer * points * inner)?) } else { None };
            let pass = FourierPass {
                call: self,
                radices,
                points,
                outer,
                inner,
                stride,
                input: before.as_ref().map_or(input, PassInput::Points),
                output: after.as_ref().map_or(output, PassOutput::Points),
            };
            pass.record()?;
            stride *= radices.iter().map(|&radix| u64::from(radix)).product::<u64>();
            before = after;
        }
        Ok(())
    }
}
