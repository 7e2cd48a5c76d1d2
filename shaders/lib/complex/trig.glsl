// Owns nx_sin, nx_cos and nx_tan of complex numbers.
//
// Algorithm: sin(x + yi) = sin x cosh y + i cos x sinh y, cos(x + yi) = cos x cosh y - i sin x sinh y, tan = sin / cos.
// Domain: all numbers. Of the numbers that are not finite, only x ± Inf i has a sine and a cosine other than NaN.
// Error and source: see formula.glsl.
#ifndef NX_COMPLEX_TRIG
#define NX_COMPLEX_TRIG

#include "lib/complex/arithmetic.glsl"
#include "lib/math/exp.glsl"
#include "lib/math/hyperbolic.glsl"
#include "lib/math/trig.glsl"

// a·b where b may be infinite: zero stays zero.
REAL times_large(REAL a, REAL b) {
  precise REAL r = a * b;
  return is_zero(a) ? (is_negative(b) ? nx_negate(a) : a) : r;
}

void c_sin_cos(COMPLEX z, out COMPLEX sin_z, out COMPLEX cos_z) {
  precise REAL product = z.x * z.y;
  REAL s = nx_sin(z.x), c = nx_cos(z.x), sh = nx_sinh(z.y), ch = nx_cosh(z.y);
  sin_z = COMPLEX(times_large(s, ch), times_large(c, sh));
  cos_z = COMPLEX(times_large(c, ch), times_large(nx_negate(s), sh));
  if (!is_finite(z)) sin_z = cos_z = COMPLEX(REAL_NAN);
  if (is_finite(z.x) && is_infinity(z.y)) {
    sin_z = COMPLEX(product, z.y);
    cos_z = COMPLEX(REAL_INF, nx_negate(product));
  }
}

COMPLEX nx_sin(COMPLEX z) { COMPLEX s, c; c_sin_cos(z, s, c); return s; }
COMPLEX nx_cos(COMPLEX z) { COMPLEX s, c; c_sin_cos(z, s, c); return c; }

// Where cosh(y)^2 overflows, tan(x + yi) is 4 sin x cos x exp(-2|y|) ± i.
COMPLEX nx_tan(COMPLEX z) {
  COMPLEX s, c;
  if (is_finite(z) && nx_abs(z.y) > REAL(0.5) * REAL_MAX_EXP) {
    precise REAL re = REAL(4) * nx_sin(z.x) * nx_cos(z.x) * nx_exp(REAL(-2) * nx_abs(z.y));
    return COMPLEX(re, fp_copysign(REAL(1), z.y));
  }
  c_sin_cos(z, s, c);
  return nx_divide(s, c);
}

#endif
