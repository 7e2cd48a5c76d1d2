// Owns nx_sinh, nx_cosh and nx_tanh of complex numbers.
//
// Algorithm, with z = x + iy: sinh z = sinh x cos y + i cosh x sin y, cosh z = cosh x cos y + i sinh x sin y, and
//   tanh z = (sinh x cosh x + i sin y cos y) / (sinh^2 x + cos^2 y), a sum of positive numbers. sinh x and cosh x are scaled by
//   2^-k, as in math/hyperbolic.glsl.
// Domain: all numbers. A zero part of z stays zero where the function has a zero there, beside NaN too.
// Error: see formula.glsl.
// Source: W. Kahan, "Branch cuts for complex elementary functions, or much ado about nothing's sign bit" (1987); C17, annex
//   G.6.2.
#ifndef NX_COMPLEX_HYPERBOLIC
#define NX_COMPLEX_HYPERBOLIC

#include "lib/complex/exp.glsl"

// sinh |x| and cosh x, both times 2^-k. From k = NEGLIGIBLE on they are equal.
COMPLEX c_sinh_cosh(REAL x, out int k) {
  REAL a = nx_abs(x);
  DOUBLE_WORD e = c_exp_reduced(DOUBLE_WORD(a, REAL(0)), k);
  REAL q = k > REAL_NEGLIGIBLE ? REAL(0) : fp_exp2i(x, -2 * min(k, REAL_NEGLIGIBLE));
  DOUBLE_WORD d = dd_mul(dd_div(e, dd_fast_add(DOUBLE_WORD(1, 0), e)), q);
  REAL s = dd_value(dd_add(dd_two_sum(REAL(1), -q), dd_add(e, d)));
  REAL c = dd_value(dd_add(dd_two_sum(REAL(1), q), dd_add(e, dd_negate(d))));
  precise REAL twice = a + a;
  k -= 1;
  return COMPLEX(a < REAL_TINY ? twice : s, c);
}

COMPLEX nx_sinh(COMPLEX z) {
  int k;
  COMPLEX h = c_sinh_cosh(z.x, k);
  COMPLEX r = c_scaled_product(h, c_cis(z.y), k);
  COMPLEX v = COMPLEX(is_zero(z.x) ? z.x : (is_negative(z.x) ? nx_negate(r.x) : r.x), r.y);
  return c_edges(z, v, COMPLEX(z.x, REAL_NAN));
}

COMPLEX nx_cosh(COMPLEX z) {
  int k;
  COMPLEX h = c_sinh_cosh(z.x, k);
  COMPLEX r = c_scaled_product(h.yx, c_cis(z.y), k);
  r.y = is_zero(z.x) && is_nan(r.y) ? REAL(0) : r.y;
  COMPLEX v = COMPLEX(r.x, is_negative(z.x) ? nx_negate(r.y) : r.y);
  return c_edges(z, v, COMPLEX(REAL_INF, REAL_NAN));
}

COMPLEX nx_tanh(COMPLEX z) {
  int k;
  COMPLEX h = c_sinh_cosh(z.x, k), cis = c_cis(z.y);
  precise REAL c = cis.x * fp_exp2i(z.x, -min(k, REAL_NEGLIGIBLE));
  precise REAL norm = h.x * h.x + c * c;
  precise REAL re = h.x * h.y / norm;
  // Up before it is divided, down after that: no small part is subnormal in between.
  REAL sine = k < 0 ? REAL(4) * cis.y : cis.y;
  precise REAL im = cis.x * sine / norm;
  COMPLEX v = COMPLEX(is_zero(z.x) ? z.x : fp_copysign(re, z.x), c_ldexp(im, -2 * max(k, 0)));
  return c_edges(z, v, COMPLEX(fp_copysign(REAL(1), z.x), 0));
}

#endif
