// Owns nx_exp, nx_expm1, nx_sigmoid, nx_sinh, nx_cosh and nx_tanh of complex numbers.
//
// Algorithm: exp(x + yi) = exp(x) (cos y + i sin y); the others from exp by their definitions.
// Domain: all numbers. exp(-Inf + yi) is 0 for every y. exp(Inf + yi) is infinite for finite y, with NaN for a part whose
//   factor is zero; exp(Inf + NaN i) is Inf + NaN i. exp of any other number that is not finite is NaN.
// Error and source: see formula.glsl.
#ifndef NX_COMPLEX_EXP
#define NX_COMPLEX_EXP

#include "lib/complex/arithmetic.glsl"
#include "lib/math/exp.glsl"
#include "lib/math/trig.glsl"

// x times infinity.
REAL infinity_of_sign(REAL x) { return is_zero(x) ? REAL_NAN : fp_copysign(REAL_INF, x); }

// exp(z) from cis = exp(i Im z). Where exp(x) overflows, cis is multiplied by exp(x/2) twice: zeros stay zero, and parts that
// are in range are found.
COMPLEX c_exp(COMPLEX z, COMPLEX cis) {
  if (is_infinity(z.x) && is_negative(z.x)) return COMPLEX(0);
  if (is_infinity(z.x) && is_nan(z.y)) return COMPLEX(REAL_INF, REAL_NAN);
  if (is_infinity(z.x) && is_finite(z.y)) return COMPLEX(infinity_of_sign(cis.x), infinity_of_sign(cis.y));
  if (!is_finite(z)) return COMPLEX(REAL_NAN);
  bool large = z.x > REAL_MAX_EXP;
  REAL h = nx_exp(large ? min(REAL(0.5) * z.x, REAL_MAX_EXP) : z.x);
  precise COMPLEX r = h * cis;
  precise COMPLEX squared = h * r;
  return large ? squared : r;
}

// exp(i angle).
COMPLEX c_cis(REAL angle) { return COMPLEX(nx_cos(angle), nx_sin(angle)); }

COMPLEX nx_exp(COMPLEX z) { return c_exp(z, c_cis(z.y)); }
COMPLEX nx_expm1(COMPLEX z) { return nx_subtract(nx_exp(z), one()); }
COMPLEX nx_sigmoid(COMPLEX z) { return nx_divide(one(), nx_add(nx_exp(nx_negate(z)), one())); }

void c_sinh_cosh(COMPLEX z, COMPLEX cis, out COMPLEX sinh_z, out COMPLEX cosh_z) {
  COMPLEX a = c_exp(z, cis), b = c_exp(nx_negate(z), nx_conjugate(cis));
  precise COMPLEX s = REAL(0.5) * (a - b);
  precise COMPLEX c = REAL(0.5) * (a + b);
  sinh_z = s;
  cosh_z = c;
}

COMPLEX nx_sinh(COMPLEX z) { COMPLEX s, c; c_sinh_cosh(z, c_cis(z.y), s, c); return s; }
COMPLEX nx_cosh(COMPLEX z) { COMPLEX s, c; c_sinh_cosh(z, c_cis(z.y), s, c); return c; }

// Where cosh(x)^2 overflows, tanh(x + yi) is ±1 + 4 sin y cos y exp(-2|x|) i.
COMPLEX nx_tanh(COMPLEX z) {
  COMPLEX cis = c_cis(z.y), s, c;
  if (is_finite(z) && nx_abs(z.x) > REAL(0.5) * REAL_MAX_EXP) {
    precise REAL im = REAL(4) * cis.y * cis.x * nx_exp(REAL(-2) * nx_abs(z.x));
    return COMPLEX(fp_copysign(REAL(1), z.x), im);
  }
  c_sinh_cosh(z, cis, s, c);
  return nx_divide(s, c);
}

#endif
