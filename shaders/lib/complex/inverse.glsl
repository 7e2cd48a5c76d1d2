// Owns the inverse trigonometric and hyperbolic functions of complex numbers.
//
// Algorithm, with a = sqrt(1 - z) and b = sqrt(1 + z), whose products below add numbers of one sign:
//   asin z = atan2(Re z, Re(a b)) + i asinh(Im(conj(a) b)),   acos z = 2 atan2(Re a, Re b) - i asinh(Im(conj(a) b)),
//   atanh z = log1p(4 x / ((1 - x)^2 + y^2)) / 4 + i atan2(2 y, (1 - x) (1 + x) - y^2) / 2 for z = x + iy, x >= 0;
//   acosh, asinh and atan are those of iz and -iz.
// Domain: all numbers. On a branch cut the sign of a zero part chooses the side. acosh has no negative real part.
// Error: see formula.glsl.
// Source: W. Kahan, "Branch cuts for complex elementary functions, or much ado about nothing's sign bit" (1987), with the
//   cases of FreeBSD msun's catrig.c for atanh; C17, annex G.6.1 and G.6.2.
#ifndef NX_COMPLEX_INVERSE
#define NX_COMPLEX_INVERSE

#include "lib/complex/abs.glsl"
#include "lib/complex/root.glsl"
#include "lib/complex/trig.glsl"
#include "lib/math/hyperbolic.glsl"

// x = Re z, a, b and the imaginary part of asin z. Next to the largest number all are those of z / 4, whose imaginary part is
// 2 log 2 less. Of infinite z they are those of a finite number of the same direction.
void c_arc(COMPLEX z, out REAL x, out COMPLEX a, out COMPLEX b, out REAL im) {
  bool large = c_larger(z) >= fp_exp2i(z.x, REAL_MAX_EXPONENT - 3);
  REAL unit = large ? REAL(0.25) : REAL(1);
  COMPLEX w = is_infinity(z) ? fp_exp2i(z.x, REAL_MAX_EXPONENT / 2) * c_direction(z) : (large ? unit * z : z);
  w = COMPLEX(is_nan(z.x) ? z.x : w.x, is_nan(z.y) ? z.y : w.y);
  precise COMPLEX below = COMPLEX(unit - w.x, nx_negate(w.y));
  precise COMPLEX above = COMPLEX(unit + w.x, w.y);
  a = nx_sqrt(below);
  b = nx_sqrt(above);
  x = w.x;
  precise REAL t = a.x * b.y - a.y * b.x;
  precise REAL s = nx_asinh(t) + fp_copysign(large ? REAL(2) * REAL_LN2 : REAL(0), z.y);
  im = is_infinity(z) ? fp_copysign(REAL_INF, z.y) : s;
}

COMPLEX nx_asin(COMPLEX z) {
  REAL x, im;
  COMPLEX a, b;
  c_arc(z, x, a, b, im);
  precise REAL cosine = a.x * b.x - a.y * b.y;
  return COMPLEX(is_zero(z.x) ? z.x : nx_atan2(x, cosine), im);
}

COMPLEX nx_acos(COMPLEX z) {
  REAL x, im;
  COMPLEX a, b;
  c_arc(z, x, a, b, im);
  precise REAL re = REAL(2) * nx_atan2(a.x, b.x);
  return COMPLEX(is_zero(z.x) ? REAL_HALF_PI : re, nx_negate(im));
}

COMPLEX nx_asinh(COMPLEX z) { return c_times_i(nx_asin(c_over_i(z))); }

COMPLEX nx_acosh(COMPLEX z) {
  COMPLEX arc = nx_acos(z);
  return COMPLEX(nx_abs(arc.y), fp_copysign(arc.x, z.y));
}

// Where |1 - z| < 2^-POLE its square is not in range: log(2 / |1 - z|) then takes the place of log(4 / |1 - z|^2) / 2.
#ifdef HAS_FLOAT64
#define REAL_POLE 500
#else
#define REAL_POLE 55
#endif
COMPLEX nx_atanh(COMPLEX z) {
  REAL x = nx_abs(z.x), y = nx_abs(z.y);
  precise REAL below = REAL(1) - x;
  precise REAL above = REAL(1) + x;
  REAL h = nx_abs(COMPLEX(below, y));
  bool pole = h < fp_exp2i(h, -REAL_POLE);
  precise REAL ratio = pole ? nx_divide(fp_exp2i(h, -REAL_POLE / 2), h) : REAL(4) * (x / h) / h;
  REAL l = nx_log1p(ratio);
  precise REAL re = pole ? REAL(0.5) * (l + REAL(REAL_POLE / 2 + 1) * REAL_LN2) : REAL(0.25) * l;
  // Both operands of atan2 are divided by the larger part of z where that is above 1.
  int e = clamp(fp_exponent(c_larger(z)), 0, REAL_MAX_EXPONENT - 1);
  REAL unit = fp_exp2i(h, -e);
  precise REAL im = REAL(0.5) * nx_atan2(c_ldexp(y, 1 - e), below * unit * above - unit * y * y);
  re = is_infinity(z) || is_zero(x) ? REAL(0) : (is_nan(z) ? REAL_NAN : re);
  im = is_infinity(z) && !is_nan(y) ? REAL_HALF_PI : (is_nan(z) ? REAL_NAN : im);
  return COMPLEX(fp_copysign(re, z.x), fp_copysign(im, z.y));
}

COMPLEX nx_atan(COMPLEX z) { return c_over_i(nx_atanh(c_times_i(z))); }

#endif
