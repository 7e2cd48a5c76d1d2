// Owns nx_erfc.
//
// Algorithm: of floats, 1 - erf x for |x| < 1/2 and exp(-x^2) G(t) / (x + 2) above, by the approximations of erf.glsl; with
//   FAST_FLOAT64 one polynomial in double. Of doubles, the rational approximations of fdlibm, each step rounded as glibc
//   rounds it: Nx.BinaryBackend calls glibc, and both then print the same digits.
// Domain: all numbers; erfc(Inf) = 0, erfc(-Inf) = 2. Subnormal results are as accurate as others.
// Error: below 0.51 ulp (float), 4 ulp (double) (bounds of native_tests/oracle.rs). Largest measured: 0.502 in float; in
//   double 3.6 just below 1.25 and 2.9 elsewhere. A double's bits are glibc's except 2 in 1000 beyond 1.25, where exp rounds
//   otherwise.
// Source: Shepherd and Laframboise (see erf.glsl) for floats; fdlibm's s_erf.c for doubles.
#ifndef NX_MATH_ERFC
#define NX_MATH_ERFC

#include "lib/math/divide.glsl"
#include "lib/math/erf.glsl"

#ifdef FAST_FLOAT64
// exp(-x^2) P(1 / (x + 4)) for x >= 0, and 0 from 10.2 on. P is a polynomial in u in [-1, 1], by E. Ya. Remez's algorithm,
// with a relative error below 2^-42. Measured over 84 million floats: error < 0.500003 ulp, 1 in 9 million not correctly
// rounded.
float nx_erfc(float x) {
  double a = double(min(nx_abs(x), 10.2f));
  double u = fma(f64_quotient(1.0lf, a + 4.0lf), 11.137254960625873lf, -1.784313740156468lf);
  double p = 0.2318187240602367lf + u * (0.3113897481585034lf + u * (0.22032240721233612lf +
      u * (0.13133752151234895lf + u * (0.06578678825777892lf + u * (0.027364423111430183lf +
      u * (0.009209320415325645lf + u * (0.002370590180962904lf + u * (0.0004008635881938641lf +
      u * (1.535660319059133e-05lf + u * (-1.2915034337608226e-05lf + u * (-3.109549518673928e-06lf +
      u * (1.1540446875802316e-07lf + u * (1.6362643828060975e-07lf + u * (8.332885660233101e-09lf +
      u * -5.880100157469407e-09lf))))))))))))));
  double v = f64_exp(-a * a) * p;
  v = is_negative(x) ? 2.0lf - v : v;
  return is_nan(x) ? F32_NAN : to_f32_from_positive(v);
}
#else
float nx_erfc(float x) {
  if (is_nan(x)) return F32_NAN;
  float a = min(nx_abs(x), 10.2f);
  bool negative = is_negative(x);
  if (a < 0.5f) {
    vec2 e = erf_near_zero(a);
    return dd_value(dd_add(negative ? e : dd_negate(e), 1.0f));
  }
  vec2 s = dd_two_prod(a, a);
  float k = dd_exp_k(-s.x);
  vec2 c = dd_mul(erf_gauss(s, k), erfcx(a));
  int e = fp_ilogb(c.x);
  c = dd_mul(c, fp_exp2i(x, -e));
  e += fp_whole(k);
  if (!negative) return dd_ldexp(c, e);
  return dd_value(dd_add(dd_mul(c, -fp_exp2i(x, max(e, -100))), 2.0f));
}
#endif

#ifdef HAS_FLOAT64
// The rational approximations of Sun's fdlibm (s_erf.c), each as nine coefficients of the numerator and nine of the
// denominator, lowest powers first:
//   Copyright (C) 1993 by Sun Microsystems, Inc. All rights reserved. Developed at SunPro, a Sun Microsystems, Inc.
//   business. Permission to use, copy, modify, and distribute this software is freely granted, provided that this notice
//   is preserved.
//
// ERFC_SMALL    erf x / x - 1 in x^2, for |x| < 0.84375
// ERFC_MIDDLE   erf |x| - 0.845... in |x| - 1, for 0.84375 <= |x| < 1.25
// ERFC_LARGE    log(|x| exp(x^2) erfc |x|) + 0.5625 in 1/x^2, for 1.25 <= |x| < 1/0.35
// ERFC_LARGER   the same for |x| >= 1/0.35
const double ERFC_SMALL[18] = double[18](
  0.12837916709551256lf, -0.3250421072470015lf, -0.02848174957559851lf, -0.005770270296489442lf,
  -2.3763016656650163e-05lf, 0.0lf, 0.0lf, 0.0lf, 0.0lf, 1.0lf, 0.39791722395915535lf, 0.0650222499887673lf,
  0.005081306281875766lf, 0.00013249473800432164lf, -3.960228278775368e-06lf, 0.0lf, 0.0lf, 0.0lf);
const double ERFC_MIDDLE[18] = double[18](
  -0.0023621185607526594lf, 0.41485611868374833lf, -0.3722078760357013lf, 0.31834661990116175lf,
  -0.11089469428239668lf, 0.035478304325618236lf, -0.002166375594868791lf, 0.0lf, 0.0lf, 1.0lf, 0.10642088040084423lf,
  0.540397917702171lf, 0.07182865441419627lf, 0.12617121980876164lf, 0.01363708391202905lf, 0.011984499846799107lf,
  0.0lf, 0.0lf);
const double ERFC_LARGE[18] = double[18](
  -0.009864944034847148lf, -0.6938585727071818lf, -10.558626225323291lf, -62.375332450326006lf, -162.39666946257347lf,
  -184.60509290671104lf, -81.2874355063066lf, -9.814329344169145lf, 0.0lf, 1.0lf, 19.651271667439257lf,
  137.65775414351904lf, 434.56587747522923lf, 645.3872717332679lf, 429.00814002756783lf, 108.63500554177944lf,
  6.570249770319282lf, -0.0604244152148581lf);
const double ERFC_LARGER[18] = double[18](
  -0.0098649429247001lf, -0.799283237680523lf, -17.757954917754752lf, -160.63638485582192lf, -637.5664433683896lf,
  -1025.0951316110772lf, -483.5191916086514lf, 0.0lf, 0.0lf, 1.0lf, 30.33806074348246lf, 325.7925129965739lf,
  1536.729586084437lf, 3199.8582195085955lf, 2553.0504064331644lf, 474.52854120695537lf, -22.44095244658582lf, 0.0lf);

// The quotient of the polynomials. Their terms are added by pairs, in glibc's order, to round as glibc does.
double erfc_rational(const double c[18], double z) {
  precise double z2 = z * z, z4 = z2 * z2, z6 = z4 * z2, z8 = z4 * z4;
  precise double n = (c[0] + z * c[1]) + z2 * (c[2] + z * c[3]) + z4 * (c[4] + z * c[5]) + z6 * (c[6] + z * c[7]);
  precise double d = (c[9] + z * c[10]) + z2 * (c[11] + z * c[12]) + z4 * (c[13] + z * c[14]) + z6 * (c[15] + z * c[16])
      + z8 * c[17];
  return nx_divide(n, d);
}

double nx_erfc(double x) {
  if (is_nan(x)) return F64_NAN;
  double a = nx_abs(x);
  if (a < 0.84375lf) {
    precise double y = erfc_rational(ERFC_SMALL, x * x);
    precise double r = x < 0.25lf ? 1.0lf - (x + x * y) : 0.5lf - (x * y + (x - 0.5lf));
    return r;
  }
  if (a < 1.25lf) {
    const double at_one = 0.8450629115104675lf;
    precise double y = erfc_rational(ERFC_MIDDLE, a - 1.0lf);
    precise double r = is_negative(x) ? 1.0lf + (at_one + y) : (1.0lf - at_one) - y;
    return r;
  }
  if (x <= -6.0lf) return 2.0lf;
  if (a >= 28.0lf) return 0.0lf;
  // exp(-x^2) in two factors: the square of z, the high half of |x|, is exact.
  double s = nx_divide(1.0lf, a * a);
  double y = fp_high(a) < 0x4006db6du ? erfc_rational(ERFC_LARGE, s) : erfc_rational(ERFC_LARGER, s);
  precise double z = packDouble2x32(uvec2(0u, fp_high(a)));
  precise double g = nx_exp(-z * z - 0.5625lf) * nx_exp((z - a) * (z + a) + y);
  double r = nx_divide(g, a);
  return is_negative(x) ? 2.0lf - r : r;
}
#endif

#endif
