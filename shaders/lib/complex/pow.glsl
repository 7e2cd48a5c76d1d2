// Owns nx_pow of complex numbers.
//
// Algorithm: polar coordinates: with x = r exp(i a), |x^y| is r^Re(y) exp(-a Im(y)) and the angle of x^y is a Re(y) + Im(y)
//   log r.
// Domain: all numbers. 0^0 is 1, and 0 to every other power is 0, 0^Inf too. Every other x^y with a part that is not finite
//   is NaN.
// Error and source: see formula.glsl.
#ifndef NX_COMPLEX_POW
#define NX_COMPLEX_POW

#include "lib/complex/abs.glsl"
#include "lib/complex/arithmetic.glsl"
#include "lib/math/atan.glsl"
#include "lib/math/pow.glsl"
#include "lib/math/trig.glsl"

COMPLEX nx_pow(COMPLEX x, COMPLEX y) {
  if (is_zero(x) && is_infinity(y.x) && !is_negative(y.x) && is_zero(y.y)) return COMPLEX(0);
  if (!is_finite(x) || !is_finite(y)) return COMPLEX(REAL_NAN);
  if (is_zero(x)) return COMPLEX(is_zero(y) ? 1 : 0, 0);
  if (is_zero(y.y) && y.x == REAL(1)) return x;
  if (is_zero(y.y) && y.x == REAL(-1)) return nx_divide(one(), x);
  REAL length = nx_abs(x), angle = nx_atan2(x.y, x.x);
  precise REAL decay = nx_negate(y.y) * angle;
  precise REAL scale = nx_pow(length, y.x) * nx_exp(decay);
  precise REAL phase = y.x * angle + y.y * nx_log(length);
  precise COMPLEX r = scale * COMPLEX(nx_cos(phase), nx_sin(phase));
  return r;
}

#endif
