// Owns nx_pow of complex numbers.
//
// Algorithm: x^y = exp(y log x), where the logarithm, the product, and so the exponent and the angle, are double words.
// Domain: all numbers. 0^0 is 1, and 0 to every other power is 0, 0^Inf too. Every other x^y with a part that is not finite
//   is NaN. x^1 is x and x^-1 is 1/x.
// Error: see formula.glsl, while |y log x| < 2^10. Beyond, it grows with that number.
// Source: the methods of exp.glsl and log.glsl.
#ifndef NX_COMPLEX_POW
#define NX_COMPLEX_POW

#include "lib/complex/arithmetic.glsl"
#include "lib/complex/exp.glsl"
#include "lib/complex/log.glsl"

#ifdef HAS_FLOAT64
#define PI_WORDS dvec2(3.141592653589793lf, 1.2246467991473532e-16lf)
#else
#define PI_WORDS vec2(3.1415927f, -8.742278e-08f)
#endif

// arg z as a double word, for finite z that is not zero.
DOUBLE_WORD c_angle_words(COMPLEX z) {
  COMPLEX w = c_ldexp(z, -fp_exponent(c_larger(z)));
  DOUBLE_WORD r = atan_angle(DOUBLE_WORD(nx_abs(w.y), REAL(0)), DOUBLE_WORD(nx_abs(w.x), REAL(0)));
  r = is_negative(z.x) ? dd_fast_add(PI_WORDS, dd_negate(r)) : r;
  return is_negative(z.y) ? dd_negate(r) : r;
}

COMPLEX nx_pow(COMPLEX x, COMPLEX y) {
  if (is_zero(x) && is_infinity(y.x) && !is_negative(y.x) && is_zero(y.y)) return COMPLEX(0);
  if (!is_finite(x) || !is_finite(y)) return COMPLEX(REAL_NAN);
  if (is_zero(x)) return COMPLEX(is_zero(y) ? 1 : 0, 0);
  if (is_zero(y.y) && y.x == REAL(1)) return x;
  if (is_zero(y.y) && y.x == REAL(-1)) return nx_divide(one(), x);
  DOUBLE_WORD l = REAL(0.5) * c_log_norm(x.x, REAL(0), x.y), a = c_angle_words(x);
  // y and log x are scaled to [1, 2), and their product back again. Beyond 2^40 it is out of every range.
  int m = c_exponent(y), n = c_exponent(COMPLEX(l.x, a.x));
  COMPLEX v = c_ldexp(y, -m);
  l = c_ldexp(l, -n);
  a = c_ldexp(a, -n);
  DOUBLE_WORD exponent = c_ldexp(dd_add(dd_mul(l, v.x), dd_negate(dd_mul(a, v.y))), min(m + n, 40));
  DOUBLE_WORD angle = c_ldexp(dd_add(dd_mul(a, v.x), dd_mul(l, v.y)), min(m + n, 40));
  int k;
  DOUBLE_WORD e = c_exp_reduced(exponent, k);
  return c_scaled_product(COMPLEX(REAL(1) + e.x), c_cis(angle), k);
}

#endif
