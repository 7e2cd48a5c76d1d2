// Owns nx_sqrt, nx_rsqrt and nx_cbrt of complex numbers.
//
// Algorithm: sqrt from w = sqrt((|x| + |z|) / 2), scaled by the larger part, and y / 2w; rsqrt = 1 / sqrt; cbrt by polar
//   coordinates.
// Domain: all numbers. sqrt is the root in the right half plane, and on the negative real axis the one in the upper half
//   plane for an imaginary part of either zero. cbrt of infinite numbers has Complex's angles: 5π/4 before division by 3 in
//   the third quadrant, ±π/2 for NaN ± Inf i.
// Error and source: see formula.glsl.
#ifndef NX_COMPLEX_ROOT
#define NX_COMPLEX_ROOT

#include "lib/complex/abs.glsl"
#include "lib/complex/arithmetic.glsl"
#include "lib/math/atan.glsl"
#include "lib/math/pow.glsl"
#include "lib/math/root.glsl"
#include "lib/math/trig.glsl"

COMPLEX nx_sqrt(COMPLEX z) {
  if (is_nan(z)) return COMPLEX(REAL_NAN);
  if (is_infinity(z.y)) return COMPLEX(REAL_INF, z.y);
  if (is_infinity(z.x)) return is_negative(z.x) ? COMPLEX(0, REAL_INF) : COMPLEX(REAL_INF, 0);
  if (is_zero(z)) return z;
  REAL x = nx_abs(z.x), y = nx_abs(z.y);
  bool x_is_larger = x >= y;
  REAL t = x_is_larger ? nx_divide(y, x) : nx_divide(x, y);
  precise REAL q = nx_sqrt(REAL(1) + t * t);
  precise REAL inner = REAL(0.5) * ((x_is_larger ? REAL(1) : t) + q);
  precise REAL w = nx_sqrt(x_is_larger ? x : y) * nx_sqrt(inner);
  if (z.x >= REAL(0)) return COMPLEX(w, nx_divide(z.y, w + w));
  REAL v = z.y >= REAL(0) ? w : nx_negate(w);
  return COMPLEX(nx_divide(z.y, v + v), v);
}

COMPLEX nx_rsqrt(COMPLEX z) { return nx_divide(one(), nx_sqrt(z)); }

COMPLEX nx_cbrt(COMPLEX z) {
  REAL angle = nx_atan2(z.y, is_infinity(z.y) && !is_infinity(z.x) ? REAL(0) : z.x);
  if (is_infinity(z.x) && is_infinity(z.y) && is_negative(z.x) && is_negative(z.y)) angle = REAL(1.25) * REAL_PI;
  angle = nx_divide(angle, REAL(3));
  // Complex takes the cube root of |z| as a power.
  REAL r = nx_pow(nx_abs(z), REAL_THIRD);
  if (is_zero(angle)) return COMPLEX(r, 0);
  return c_multiply(COMPLEX(r, 0), COMPLEX(nx_cos(angle), nx_sin(angle)));
}

#endif
