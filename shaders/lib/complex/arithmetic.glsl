// Owns the four operations, negation, the conjugate, the parts and the sign of complex numbers.
//
// Algorithm: products and quotients by their definitions, a conj(b) / |b|^2. A product that is not finite is computed once
//   more from smaller factors, and the divisor is scaled to [1, 2), which changes no bit of a result in range.
// Domain: all numbers. An infinite factor makes a product infinite, and an infinite dividend a quotient, unless the other
//   operand is zero or NaN; a finite number divided by an infinite one is zero, and a number other than zero divided by zero is
//   infinite.
// Error: sums and differences are rounded once, products of c128 have the bits of c_multiply; see formula.glsl for the others. Of
//   products and quotients each part is, too, within 8 eps of what it changes by when the operands' parts change by eps, where
//   those are between 2^(-REAL_MAX_EXPONENT / 4) and 2^(REAL_MAX_EXPONENT / 4).
// Source: C17, annex G.5.1, whose examples recover the infinities.
#ifndef NX_COMPLEX_ARITHMETIC
#define NX_COMPLEX_ARITHMETIC

#include "lib/complex/formula.glsl"
#include "lib/complex.glsl"
#include "lib/math/divide.glsl"

COMPLEX nx_add(COMPLEX a, COMPLEX b) { precise COMPLEX r = a + b; return r; }
COMPLEX nx_subtract(COMPLEX a, COMPLEX b) { precise COMPLEX r = a - b; return r; }
COMPLEX nx_negate(COMPLEX z) { return COMPLEX(nx_negate(z.x), nx_negate(z.y)); }
COMPLEX nx_conjugate(COMPLEX z) { return COMPLEX(z.x, nx_negate(z.y)); }
REAL nx_real(COMPLEX z) { return z.x; }
REAL nx_imag(COMPLEX z) { return z.y; }

// BinaryBackend's sign of every complex number is 1.
COMPLEX nx_sign(COMPLEX z) { return COMPLEX(1, 0); }

// An infinite number's direction: 1 for an infinite part, zero for others. Of other numbers NaN is replaced by zero.
REAL c_direction(REAL x, bool infinite) {
  REAL v = is_finite(x) && !infinite ? x : (is_infinity(x) ? REAL(1) : REAL(0));
  return fp_copysign(v, x);
}
COMPLEX c_direction(COMPLEX z) {
  bool infinite = is_infinity(z);
  return COMPLEX(c_direction(z.x, infinite), c_direction(z.y, infinite));
}

// The exponent of the larger part, 0 where that is zero or not finite.
int c_exponent(COMPLEX z) {
  REAL larger = c_larger(z);
  return is_zero(larger) || !is_finite(z) ? 0 : fp_exponent(larger);
}

// The exponent by which a dividend is scaled where products with numbers below 2 might leave the range. Its smaller part keeps its
// bits, however small it is.
int c_margin(COMPLEX z) {
  int e = c_exponent(z);
  return e > REAL_MAX_EXPONENT - 8 ? 4 : (e < -REAL_MAX_EXPONENT / 2 ? -REAL_MAX_EXPONENT : 0);
}

COMPLEX nx_multiply(COMPLEX a, COMPLEX b) {
  COMPLEX r = c_multiply(a, b);
  if (is_finite(r)) return r;
  // Below the root of the largest number, where no product overflows.
  REAL down = fp_exp2i(a.x, -REAL_MAX_EXPONENT / 2 - 2), up = fp_exp2i(a.x, REAL_MAX_EXPONENT / 2 + 2);
  bool infinite = is_infinity(a) || is_infinity(b);
  precise COMPLEX s = c_multiply(infinite ? c_direction(a) : down * a, infinite ? c_direction(b) : down * b);
  s = s * (infinite ? REAL_INF : up);
  s = s * up;
  return infinite && !(is_nan(r.x) && is_nan(r.y)) ? r : s;
}

COMPLEX nx_divide(COMPLEX a, COMPLEX b) {
  if (is_zero(b)) { precise COMPLEX r = fp_copysign(REAL_INF, b.x) * a; return r; }
  bool infinite = is_infinity(a) && is_finite(b), vanishes = is_finite(a) && is_infinity(b);
  int m = c_margin(a), n = c_exponent(b);
  COMPLEX u = infinite ? c_direction(a) : c_ldexp(a, -m);
  COMPLEX v = vanishes ? c_direction(b) : c_ldexp(b, -n);
  precise COMPLEX p = COMPLEX(u.x * v.x + u.y * v.y, u.y * v.x - u.x * v.y);
  precise REAL d = v.x * v.x + v.y * v.y;
  precise COMPLEX edge = (infinite ? REAL_INF : REAL(0)) * p;
  return infinite || vanishes ? edge : c_ldexp(COMPLEX(nx_divide(p.x, d), nx_divide(p.y, d)), m - n);
}

#endif
