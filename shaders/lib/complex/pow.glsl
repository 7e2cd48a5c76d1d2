#ifndef NX_COMPLEX_POW
#define NX_COMPLEX_POW

#include "lib/complex/abs.glsl"
#include "lib/complex/arithmetic.glsl"
#include "lib/math/atan.glsl"
#include "lib/math/pow.glsl"
#include "lib/math/trig.glsl"

// By polar coordinates. 0^0 = 1, and 0 to every other power is 0; a part that is not finite makes it NaN, but 0^Inf = 0.
COMPLEX nx_pow(COMPLEX x, COMPLEX y) {
  if (is_zero(x) && is_infinity(y.x) && !is_negative(y.x) && is_zero(y.y)) return COMPLEX(0);
  if (!is_finite(x) || !is_finite(y)) return COMPLEX(REAL_NAN);
  if (is_zero(x)) return COMPLEX(is_zero(y) ? 1 : 0, 0);
  if (is_zero(y.y) && y.x == REAL(1)) return x;
  if (is_zero(y.y) && y.x == REAL(-1)) return nx_divide(one(), x);
  REAL length = nx_abs(x), angle = nx_atan2(x.y, x.x);
  precise REAL turn = nx_negate(y.y) * angle;
  precise REAL scale = nx_pow(length, y.x) * nx_exp(turn);
  precise REAL phase = y.x * angle + y.y * nx_log(length);
  precise COMPLEX r = scale * COMPLEX(nx_cos(phase), nx_sin(phase));
  return r;
}

#endif
