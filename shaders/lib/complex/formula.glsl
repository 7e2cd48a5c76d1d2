// Owns the types, constants and predicates that the formulas of complex numbers, the files of complex/, are written in:
// COMPLEX, REAL and DOUBLE_WORD, and c_ldexp. They are double where the device has it, for c64 too, whose results are then
// rounded once.
//
// Algorithm: each formula is one that neither overflows nor cancels in between: the files name it.
// Domain: all numbers. Branch cuts, signed zeros, infinities and NaN are those of C, where C has the function. On a device
//   that takes subnormal floats for zeros in arithmetic, sums and products of complex numbers do, other functions do not;
//   a part of a result that is less than 2^4 times the least normal number may be lost.
// Error: at most 8 eps of |f(z)| for every z, and of each part of f(z) where that part is conditioned to have it: a part
//   whose own change, when the parts of z change by eps, is larger may be off by 8 of those. eps is 2^-23 (c64), 2^-52 (c128).
//   native_tests/complex compares all of them with 256 bits.
// Source: C17 (ISO/IEC 9899:2018), annex G, for the values at the edges.
#ifndef NX_COMPLEX_FORMULA
#define NX_COMPLEX_FORMULA

#include "lib/float_bits.glsl"
#include "lib/math/dd.glsl"
#include "lib/ops/extrema.glsl"

#ifdef HAS_FLOAT64
#define COMPLEX dvec2
#define REAL double
#define DOUBLE_WORD dvec2
#define REAL_INF F64_INF
#define REAL_NAN F64_NAN
#define REAL_HALF_PI 1.5707963267948966lf
#define REAL_LN2 0.69314718055994529lf
#define REAL_MAX_EXPONENT 1023
#define REAL_DIGITS 53
#else
#define COMPLEX vec2
#define REAL float
#define DOUBLE_WORD vec2
#define REAL_INF F32_INF
#define REAL_NAN F32_NAN
#define REAL_HALF_PI 1.57079637f
#define REAL_LN2 0.693147182f
#define REAL_MAX_EXPONENT 127
#define REAL_DIGITS 24
#endif

// 1 + 0i, whose imaginary part is 0 because grids have two axes. A compiler that knew it to be 0 would take x + 0 for x and
// 0 - x for -x, as lavapipe does; both are wrong for zeros.
COMPLEX one() { return COMPLEX(1, gl_WorkGroupID.z); }

bool is_finite(COMPLEX z) { return is_finite(z.x) && is_finite(z.y); }
bool is_nan(COMPLEX z) { return is_nan(z.x) || is_nan(z.y); }
bool is_infinity(COMPLEX z) { return is_infinity(z.x) || is_infinity(z.y); }

// The larger magnitude of the parts.
REAL c_larger(COMPLEX z) { return nx_max(nx_abs(z.x), nx_abs(z.y)); }

// z 2^n for every n.
#ifdef HAS_FLOAT64
// In three factors of one sign: 2^n itself may be out of range.
COMPLEX c_ldexp(COMPLEX z, int n) {
  const int most = 2 * REAL_MAX_EXPONENT + 2 * REAL_DIGITS;
  int m = clamp(n, -most, most), third = m / 3;
  REAL factor = fp_exp2i(z.x, third);
  precise COMPLEX r = z * factor;
  r = r * factor;
  r = r * fp_exp2i(z.x, m - 2 * third);
  return r;
}
REAL c_ldexp(REAL x, int n) { return c_ldexp(COMPLEX(x, x), n).x; }
#else
// By exponents: a device may take subnormal factors and products for zeros.
REAL c_ldexp(REAL x, int n) {
  REAL r = dd_ldexp(DOUBLE_WORD(fp_significand(x), REAL(0)), fp_exponent(x) + n);
  return is_zero(x) || !is_finite(x) ? x : fp_copysign(r, x);
}
COMPLEX c_ldexp(COMPLEX z, int n) { return COMPLEX(c_ldexp(z.x, n), c_ldexp(z.y, n)); }
#endif

// a z 2^n part by part, for |z| <= 1 and a <= 4. A device may take a subnormal part of z for zero in the product, which a large
// 2^n makes a normal number.
COMPLEX c_scaled_product(COMPLEX a, COMPLEX z, int n) {
#ifdef HAS_FLOAT64
  precise COMPLEX r = a * z;
  return c_ldexp(r, n);
#else
  precise COMPLEX r = a * c_ldexp(z, REAL_DIGITS);
  return c_ldexp(r, n - REAL_DIGITS);
#endif
}

#endif
