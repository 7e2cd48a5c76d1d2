// Owns nx_abs of complex numbers.
//
// Algorithm: |z| = l sqrt(1 + t^2), where l is the larger part's magnitude and |t| <= 1 the quotient of the parts.
// Domain: all numbers. Infinite where a part is infinite, otherwise NaN where a part is NaN.
// Error and source: see formula.glsl.
#ifndef NX_COMPLEX_ABS
#define NX_COMPLEX_ABS

#include "lib/complex/formula.glsl"
#include "lib/math/divide.glsl"
#include "lib/math/root.glsl"

REAL nx_abs(COMPLEX z) {
  if (is_infinity(z)) return REAL_INF;
  if (is_nan(z)) return REAL_NAN;
  REAL x = nx_abs(z.x), y = nx_abs(z.y);
  if (is_zero(x)) return y;
  if (is_zero(y)) return x;
  REAL larger = nx_max(x, y), t = nx_divide(nx_min(x, y), larger);
  precise REAL s = REAL(1) + t * t;
  precise REAL r = fp_significand(larger) * nx_sqrt(s);
  return c_ldexp(r, fp_exponent(larger));
}

#endif
