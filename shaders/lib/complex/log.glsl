// Owns nx_log, nx_log1p and nx_atan2 of complex numbers, and c_log_abs and c_angle, which pow and roots use too.
//
// Algorithm: log z = log |z| + i arg z; log1p z likewise, with 1 + Re z as a double word. |z| = 2^k sqrt(1 + n), where the
//   squares are double words and n is their exact sum less 1, which keeps the logarithm's digits next to |z| = 1.
// Domain: all numbers.
// Error: see formula.glsl; the real part is that near |z| = 1, too.
// Source: T. E. Hull, T. F. Fairgrieve, P. T. P. Tang, "Implementing complex elementary functions using exception handling"
//   (1994), here in double words in place of their cases; C17, annex G.6.3.2.
#ifndef NX_COMPLEX_LOG
#define NX_COMPLEX_LOG

#include "lib/complex/formula.glsl"
#include "lib/math/atan.glsl"
#include "lib/math/log.glsl"

// 2 log |x + x_low + iy| for finite numbers, not all zero, |x_low| <= ulp(x) / 2.
DOUBLE_WORD c_log_norm(REAL x, REAL x_low, REAL y) {
  int e = fp_exponent(c_larger(COMPLEX(x, y)));
  COMPLEX z = c_ldexp(COMPLEX(x, y), -e);
  REAL low = c_ldexp(x_low, -e);
  DOUBLE_WORD a = dd_two_prod(z.x, z.x), b = dd_two_prod(z.y, z.y);
  precise REAL correction = a.y + low * (z.x + z.x + low);
  precise REAL norm = a.x + b.x;
  int k = fp_log2_nearest(norm);
  REAL scale = fp_exp2i(norm, -k);
  DOUBLE_WORD s = dd_two_sum(a.x * scale, b.x * scale);
  precise REAL minus_one = s.x - REAL(1);
  DOUBLE_WORD n = dd_add(dd_two_sum(minus_one, s.y), dd_two_sum(correction * scale, b.y * scale));
  return dd_log_reduced(REAL(2 * e + k), n);
}

// arg(x + iy), whose sign is that of y.
REAL c_angle(COMPLEX z) { return fp_copysign(nx_atan2(nx_abs(z.y), z.x), z.y); }

COMPLEX c_log(REAL x, REAL x_low, REAL y) {
  COMPLEX z = COMPLEX(x, y);
  precise REAL re = REAL(0.5) * c_log_norm(x, x_low, y).x;
  re = is_nan(z) ? REAL_NAN : (is_zero(z) ? -REAL_INF : re);
  return COMPLEX(is_infinity(z) ? REAL_INF : re, c_angle(z));
}

COMPLEX nx_log(COMPLEX z) { return c_log(z.x, REAL(0), z.y); }

COMPLEX nx_log1p(COMPLEX z) {
  DOUBLE_WORD x = dd_two_sum(REAL(1), z.x);
  return c_log(x.x, x.y, z.y);
}

// Nx allows complex operands of atan2 whose imaginary parts are zero.
COMPLEX nx_atan2(COMPLEX y, COMPLEX x) { return COMPLEX(nx_atan2(y.x, x.x), 0); }

#endif
