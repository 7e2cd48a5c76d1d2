// Owns nx_exp, nx_expm1 and nx_sigmoid of complex numbers, and c_exp_reduced, c_cis and c_edges, which other files use too.
//
// Algorithm, with z = x + iy, e^x = 2^k (1 + e), c = cos y and s = sin y:
//   exp z = e^x (c + i s), scaled by 2^k at the end;
//   expm1 z = expm1(x) c - (1 - c) + i e^x s, where 1 - c is s^2 / (1 + c) for c > 0;
//   sigmoid z = conj(1 + e^-z) / |1 + e^-z|^2, or e^z conj(1 + e^z) / |1 + e^z|^2 for x < 0, where with t = e^-|x| both norms
//   are (1 - t)^2 + 2 t (1 + c), a sum of positive numbers, and 1 + c is s^2 / (1 - c) for c < 0.
// Domain: all numbers. exp(-Inf + yi) is 0 for every y. exp(Inf + yi) is infinite for finite y and Inf + NaN i for others, and
//   a zero imaginary part stays zero.
// Error: see formula.glsl.
// Source: W. Kahan, "Branch cuts for complex elementary functions, or much ado about nothing's sign bit" (1987); C17, annex
//   G.6.3.1.
#ifndef NX_COMPLEX_EXP
#define NX_COMPLEX_EXP

#include "lib/complex/formula.glsl"
#include "lib/math/exp.glsl"
#include "lib/math/trig.glsl"

#ifdef HAS_FLOAT64
#define TRIG_REDUCED TrigReduced64
// The exponential of a greater number overflows, even times the smallest one.
#define REAL_MAX_EXP 1480.0lf
// Where |y| is less, sin y and sinh y are y to half an ulp.
#define REAL_TINY 7.4e-9lf
// 2^-NEGLIGIBLE is negligible against 1.
#define REAL_NEGLIGIBLE 60
#else
#define TRIG_REDUCED TrigReduced32
#define REAL_MAX_EXP 200.0f
#define REAL_TINY 1.2e-4f
#define REAL_NEGLIGIBLE 30
#endif

// e^x = 2^k (1 + e) for x in double words, which is clamped to what c_ldexp takes.
DOUBLE_WORD c_exp_reduced(DOUBLE_WORD x, out int k) {
  DOUBLE_WORD c = nx_abs(x.x) < REAL_MAX_EXP ? x : DOUBLE_WORD(fp_copysign(REAL_MAX_EXP, x.x), REAL(0));
  REAL nearest = dd_exp_k(c.x);
  k = fp_whole(nearest);
  return dd_expm1_near_zero(dd_exp_r(c, nearest));
}

// cos + i sin of an angle in double words.
COMPLEX c_cis(DOUBLE_WORD angle) {
  bool negative = is_negative(angle.x);
  TRIG_REDUCED q = trig_reduce(nx_abs(angle.x));
  DOUBLE_WORD r = dd_add(q.r, negative ? nx_negate(angle.y) : angle.y);
  REAL s = dd_value(trig_kernel(r, false)), c = dd_value(trig_kernel(r, true));
  bool odd = (q.quadrant & 1u) != 0u;
  REAL cosine = odd ? s : c, sine = odd ? c : s;
  cosine = ((q.quadrant + 1u) & 2u) != 0u ? nx_negate(cosine) : cosine;
  sine = ((q.quadrant & 2u) != 0u) != negative ? nx_negate(sine) : sine;
  sine = nx_abs(angle.x) < REAL_TINY ? angle.x : sine;
  return is_finite(angle.x) ? COMPLEX(cosine, sine) : COMPLEX(REAL_NAN);
}
COMPLEX c_cis(REAL angle) { return c_cis(DOUBLE_WORD(angle, REAL(0))); }

// f(z) of the functions that are made of exp: r for finite z. Of infinite x and y that is not finite it is `corner`.
COMPLEX c_edges(COMPLEX z, COMPLEX r, COMPLEX corner) {
  if (is_nan(z.x)) return COMPLEX(REAL_NAN, is_zero(z.y) ? z.y : REAL_NAN);
  return is_infinity(z.x) && !is_finite(z.y) ? corner : r;
}

COMPLEX nx_exp(COMPLEX z) {
  int k;
  DOUBLE_WORD e = c_exp_reduced(DOUBLE_WORD(z.x, REAL(0)), k);
  COMPLEX r = c_scaled_product(COMPLEX(REAL(1) + e.x), c_cis(z.y), k);
  return c_edges(z, r, is_negative(z.x) ? COMPLEX(0) : COMPLEX(REAL_INF, REAL_NAN));
}

COMPLEX nx_expm1(COMPLEX z) {
  int k;
  DOUBLE_WORD e = c_exp_reduced(DOUBLE_WORD(z.x, REAL(0)), k);
  COMPLEX cis = c_cis(z.y);
  // The real part in units of 2^max(k, 0).
  int n = clamp(k, -2 * REAL_NEGLIGIBLE, 2 * REAL_NEGLIGIBLE);
  REAL grown = fp_exp2i(e.x, min(n, 0)), unit = fp_exp2i(e.x, min(-n, 0));
  REAL expm1_x = dd_value(dd_add(dd_two_sum(grown, -unit), dd_mul(e, grown)));
  precise REAL versine = cis.x > REAL(0) ? cis.y * cis.y / (REAL(1) + cis.x) : REAL(1) - cis.x;
  precise REAL re = expm1_x * cis.x - unit * versine;
  REAL im = c_scaled_product(COMPLEX(REAL(1) + e.x), cis, k).y;
  COMPLEX r = COMPLEX(c_ldexp(re, max(k, 0)), im);
  return c_edges(z, r, is_negative(z.x) ? COMPLEX(-1, 0) : COMPLEX(REAL_INF, REAL_NAN));
}

COMPLEX nx_sigmoid(COMPLEX z) {
  int k;
  DOUBLE_WORD e = c_exp_reduced(DOUBLE_WORD(-nx_abs(z.x), REAL(0)), k);
  COMPLEX cis = c_cis(z.y);
  REAL unit = fp_exp2i(e.x, max(k, -2 * REAL_NEGLIGIBLE));
  precise REAL grown = REAL(1) + e.x;
  precise REAL t = unit * grown;
  REAL minus_expm1 = dd_value(dd_add(dd_two_sum(REAL(1), -unit), dd_mul(e, -unit)));
  precise REAL p = cis.x < REAL(0) ? cis.y * cis.y / (REAL(1) - cis.x) : REAL(1) + cis.x;
  precise REAL norm = minus_expm1 * minus_expm1 + REAL(2) * t * p;
  precise REAL right = (minus_expm1 + t * p) / norm;
  precise REAL left = grown * (cis.x < REAL(0) ? p - minus_expm1 : cis.x + t) / norm;
  precise REAL im = grown * cis.y / norm;
  COMPLEX scaled = c_ldexp(COMPLEX(left, im), k);
  COMPLEX r = COMPLEX(is_negative(z.x) ? scaled.x : right, scaled.y);
  return c_edges(z, r, COMPLEX(is_negative(z.x) ? 0 : 1, 0));
}

#endif
