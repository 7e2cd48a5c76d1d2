// Owns nx_sqrt, nx_rsqrt and nx_cbrt of complex numbers, and c_scaled_abs.
//
// Algorithm: sqrt from w = sqrt((|x| + |z|) / 2) and |y| / 2w, of z scaled by a power of 4; rsqrt = conj(sqrt) / |sqrt|^2; cbrt by
//   polar coordinates of z scaled by a power of 8.
// Domain: all numbers. sqrt is the root in the right half plane; on the negative real axis the sign of a zero imaginary part
//   chooses between the two. cbrt is the root whose angle is a third of z's.
// Error: see formula.glsl.
// Source: W. Kahan, "Branch cuts for complex elementary functions, or much ado about nothing's sign bit" (1987); C17, annex
//   G.6.4.2.
#ifndef NX_COMPLEX_ROOT
#define NX_COMPLEX_ROOT

#include "lib/complex/arithmetic.glsl"
#include "lib/complex/exp.glsl"
#include "lib/complex/log.glsl"
#include "lib/math/root.glsl"

// |z| for z whose larger part is in [1, 8).
REAL c_scaled_abs(COMPLEX z) {
  precise REAL norm = z.x * z.x + z.y * z.y;
  return nx_sqrt(norm);
}

// The root of infinite z.
COMPLEX c_infinite_sqrt(COMPLEX z) {
  if (is_infinity(z.y)) return COMPLEX(REAL_INF, z.y);
  REAL other = is_nan(z.y) ? z.y : fp_copysign(REAL(0), z.y);
  return is_negative(z.x) ? COMPLEX(nx_abs(other), fp_copysign(REAL_INF, z.y)) : COMPLEX(REAL_INF, other);
}

COMPLEX nx_sqrt(COMPLEX z) {
  REAL x = nx_abs(z.x), y = nx_abs(z.y);
  int half_exponent = fp_exponent(c_larger(z)) >> 1;
  COMPLEX scaled = c_ldexp(COMPLEX(x, y), -2 * half_exponent);
  precise REAL mean = REAL(0.5) * (scaled.x + c_scaled_abs(scaled));
  REAL w = c_ldexp(nx_sqrt(mean), half_exponent), v = nx_divide(y, w + w);
  COMPLEX r = is_negative(z.x) && !is_zero(z.x) ? COMPLEX(v, w) : COMPLEX(w, v);
  r = is_zero(z) ? COMPLEX(0) : (is_nan(z) ? COMPLEX(REAL_NAN) : r);
  return is_infinity(z) ? c_infinite_sqrt(z) : COMPLEX(r.x, fp_copysign(r.y, z.y));
}

// z is scaled up by a power of 4 first: a small part of it would give subnormal intermediate results.
COMPLEX nx_rsqrt(COMPLEX z) {
  if (is_zero(z) || !is_finite(z)) return nx_divide(one(), nx_sqrt(z));
  const int UP = REAL_MAX_EXPONENT / 3;
  int k = (UP - c_exponent(z)) >> 1;
  COMPLEX s = nx_sqrt(c_ldexp(z, 2 * k)), u = c_ldexp(nx_conjugate(s), UP + UP / 2);
  precise REAL d = s.x * s.x + s.y * s.y;
  return c_ldexp(COMPLEX(nx_divide(u.x, d), nx_divide(u.y, d)), k - UP - UP / 2);
}

COMPLEX nx_cbrt(COMPLEX z) {
  REAL larger = c_larger(z);
  int third_exponent = (fp_exponent(larger) + 3000) / 3 - 1000;
  REAL r = nx_cbrt(c_scaled_abs(c_ldexp(z, -3 * third_exponent)));
  r = is_infinity(z) ? REAL_INF : c_ldexp(r, third_exponent);
  COMPLEX cis = c_cis(nx_divide(c_angle(z), REAL(3)));
  precise COMPLEX v = COMPLEX(r * cis.x, is_zero(cis.y) ? cis.y : r * cis.y);
  // The angle of y that is far below x may be subnormal.
  REAL small = nx_divide(z.y, REAL(3) * r * r);
  bool is_flat = z.x > REAL(0) && nx_abs(z.y) < c_ldexp(larger, -REAL_DIGITS) && is_finite(larger);
  return COMPLEX(v.x, is_flat ? small : v.y);
}

#endif
