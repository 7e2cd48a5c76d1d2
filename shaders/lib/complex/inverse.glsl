// Owns the inverse trigonometric and hyperbolic functions of complex numbers.
//
// Algorithm: logarithms, by Complex's formulas.
// Domain: all numbers. Branches follow from the formulas: acosh(z) is log(z + sqrt(z^2 - 1)), whose real part is negative in
//   the left half plane. asin and acos of a number that is not finite are NaN.
// Error and source: see formula.glsl.
#ifndef NX_COMPLEX_INVERSE
#define NX_COMPLEX_INVERSE

#include "lib/complex/log.glsl"
#include "lib/complex/root.glsl"

COMPLEX times_i(COMPLEX z) { return c_multiply(COMPLEX(0, 1), z); }
COMPLEX times_minus_i(COMPLEX z) { return c_multiply(nx_negate(COMPLEX(0, 1)), z); }
COMPLEX square_minus_one(COMPLEX z) { return nx_subtract(c_multiply(z, z), one()); }

COMPLEX nx_asin(COMPLEX z) {
  if (!is_finite(z)) return COMPLEX(REAL_NAN);
  return times_minus_i(nx_log(nx_add(times_i(z), nx_sqrt(nx_subtract(one(), c_multiply(z, z))))));
}

COMPLEX nx_acos(COMPLEX z) {
  if (!is_finite(z)) return COMPLEX(REAL_NAN);
  return times_minus_i(nx_log(nx_add(z, nx_sqrt(square_minus_one(z)))));
}

COMPLEX nx_atan(COMPLEX z) {
  COMPLEX iz = times_i(z);
  return c_multiply(COMPLEX(0, 0.5), nx_subtract(nx_log(nx_subtract(one(), iz)), nx_log(nx_add(one(), iz))));
}

COMPLEX nx_asinh(COMPLEX z) { return nx_log(nx_add(z, nx_sqrt(nx_add(c_multiply(z, z), one())))); }
COMPLEX nx_acosh(COMPLEX z) { return nx_log(nx_add(z, nx_sqrt(square_minus_one(z)))); }

COMPLEX nx_atanh(COMPLEX z) {
  return c_multiply(COMPLEX(0.5, 0), nx_log(nx_divide(nx_add(one(), z), nx_subtract(one(), z))));
}

#endif
