// Owns nx_erf, and the approximations of erf and erfc that erfc.glsl uses too.
//
// Algorithm: for |x| < 1/2, erf x = x P(x^2). Above, erf x = 1 - erfc x with erfc x = exp(-x^2) G(t) / (x + 2) and
//   t = (x - 2) / (x + 2). P and G are minimax polynomials (Sollya's fpminimax) whose leading coefficients are double words.
//   With FAST_FLOAT64, the error function of floats is one polynomial in double.
// Domain: all numbers. erf(-0) = -0, erf(±Inf) = ±1.
// Error: below 0.51 ulp (float), 0.6 ulp (double) (bounds of native_tests/oracle.rs); largest measured 0.5006 and 0.51.
// Source: M. M. Shepherd, J. G. Laframboise, "Chebyshev approximation of (1 + 2x) exp(x^2) erfc x in 0 <= x < inf" (1981).
#ifndef NX_MATH_ERF
#define NX_MATH_ERF

#include "lib/math/dd.glsl"
#include "lib/math/exp.glsl"

// erf(x) / x, z = x^2 <= 1/4. Error of the polynomial 2^-43.
vec2 erf_series(vec2 z) {
  precise float p = z.x * (0.0052232714f + z.x * (-0.00085066125f + z.x * 0.00010820734f));
  vec2 r = dd_fast_add(vec2(-0.026866108f, -8.152471e-10f), vec2(p, 0.0f));
  r = dd_fast_add(vec2(0.11283791f, 3.4875978e-09f), dd_mul(z, r));
  r = dd_fast_add(vec2(-0.37612638f, -1.0216963e-08f), dd_mul(z, r));
  r = dd_fast_add(vec2(1.1283792f, -5.8635486e-08f), dd_mul(z, r));
  return r;
}

// (x + 2) exp(x^2) erfc x, t = (x - 2) / (x + 2), 1/2 <= x <= 10.3. Error of the polynomial 2^-41.
vec2 erfc_series(vec2 t) {
  precise float p = t.x * (0.00647919f + t.x * (0.0030906696f + t.x * (-0.0008373716f + t.x * (-0.00066354393f + t.x *
      (3.4934677e-05f + t.x * (0.00014648697f + t.x * (3.1919513e-05f + t.x * (-2.6224847e-05f + t.x * (-1.1637228e-05f +
      t.x * 3.7252196e-06f)))))))));
  vec2 r = dd_add(vec2(-0.021510664f, -9.0109487e-10f), p);
  r = dd_fast_add(vec2(-0.03644223f, -2.6987035e-10f), dd_mul(t, r));
  r = dd_fast_add(vec2(0.27947208f, 9.777514e-09f), dd_mul(t, r));
  r = dd_fast_add(vec2(-0.6871607f, -1.3655303e-08f), dd_mul(t, r));
  r = dd_fast_add(vec2(1.0215827f, -1.7422124e-08f), dd_mul(t, r));
  return r;
}

#ifdef HAS_FLOAT64
// erf(x) / x, z = x^2 <= 1/4. Error of the polynomial 2^-85.
dvec2 erf_series(dvec2 z) {
  precise double p = z.x * (-0.026866170645131252lf + z.x * (0.005223977625442207lf + z.x * (-0.0008548327023455677lf +
      z.x * (0.00012055332982578318lf + z.x * (-1.4925650445592744e-05lf + z.x * (1.646212100934454e-06lf + z.x *
      (-1.6366194099779996e-07lf + z.x * (1.4819649862333294e-08lf + z.x * (-1.257783233116617e-09lf + z.x *
      (1.3282335368998372e-10lf + z.x * -2.94445927968219e-11lf))))))))));
  dvec2 r = dd_fast_add(dvec2(0.11283791670955126lf, -4.0116772737470636e-18lf), dvec2(p, 0.0lf));
  r = dd_fast_add(dvec2(-0.37612638903183754lf, 1.339186659220893e-17lf), dd_mul(z, r));
  r = dd_fast_add(dvec2(1.1283791670955126lf, 1.5335459640982892e-17lf), dd_mul(z, r));
  return r;
}

// (x + 2) exp(x^2) erfc x, t = (x - 2) / (x + 2), 1/2 <= x <= 27.4. Error of the polynomial 2^-63.
dvec2 erfc_series(dvec2 t) {
  precise double p = t.x * (-0.021510661889498742lf + t.x * (0.006479185067626294lf + t.x * (0.0030906120597603446lf + t.x
      * (-0.000837296059455654lf + t.x * (-0.0006630735168142582lf + t.x * (3.437139021507314e-05lf + t.x *
      (0.00014447087601937776lf + t.x * (3.4149321780911075e-05lf + t.x * (-2.169710007282984e-05lf + t.x *
      (-1.6123425027599478e-05lf + t.x * (-1.121382478282226e-06lf + t.x * (3.6533863378983648e-06lf + t.x *
      (1.987253426251323e-06lf + t.x * (-2.1259267552816246e-08lf + t.x * (-5.32954785335539e-07lf + t.x *
      (-2.9217475080407136e-07lf + t.x * (-7.206483458947304e-08lf + t.x * (9.574111658323749e-08lf + t.x *
      (1.3105471149055523e-07lf + t.x * (-2.93242703975116e-08lf + t.x * (-5.201456552605799e-08lf + t.x *
      1.868514171690862e-08lf)))))))))))))))))))));
  dvec2 r = dd_add(dvec2(-0.03644223150687698lf, -3.3585389641197207e-18lf), p);
  r = dd_fast_add(dvec2(0.2794720925560548lf, 6.797629194665851e-18lf), dd_mul(t, r));
  r = dd_fast_add(dvec2(-0.6871606844138106lf, 1.6750308060665183e-17lf), dd_mul(t, r));
  r = dd_fast_add(dvec2(1.021582705242023lf, -1.70899267898763e-17lf), dd_mul(t, r));
  return r;
}
#endif

/*
 erf_near_zero  erf a as a double word, for TINY <= a <= 1/2
 erf_gauss      exp(-s) / 2^k, k = dd_exp_k(-s.x)
 erfcx          exp(a^2) erfc a as a double word, for 1/2 <= a <= 10.3 (27.4)

 Where |x| < TINY, erf x is 2 x / sqrt(pi) to half an ulp. From ONE_FROM on, 1 is the float nearest to it.
*/
#define NX_ERF(T, T2, NAN, TWO_OVER_ROOT_PI, TINY, ONE_FROM) \
  T2 erf_near_zero(T a) { return dd_mul(erf_series(dd_two_prod(a, a)), a); } \
  T2 erf_gauss(T2 s, T k) { \
    return dd_fast_add(T2(T(1), T(0)), dd_expm1_near_zero(dd_exp_r(dd_negate(s), k))); \
  } \
  T2 erfcx(T a) { \
    T2 v = dd_div(T2(T(1), T(0)), dd_two_sum(a, T(2))); \
    return dd_mul(erfc_series(dd_mul(dd_two_sum(a, T(-2)), v)), v); \
  } \
  T nx_erf(T x) { \
    if (is_nan(x)) return NAN; \
    if (is_zero(x)) return x; \
    T a = min(nx_abs(x), ONE_FROM); \
    T r; \
    if (a < TINY) { \
      r = dd_ldexp(dd_mul(TWO_OVER_ROOT_PI, fp_significand(x)), fp_exponent(x)); \
    } else if (a < T(0.5f)) { \
      r = dd_value(erf_near_zero(a)); \
    } else { \
      T2 s = dd_two_prod(a, a); \
      T k = dd_exp_k(-s.x); \
      T2 c = dd_mul(dd_mul(erf_gauss(s, k), erfcx(a)), -fp_exp2i(x, fp_whole(k))); \
      r = dd_value(dd_add(c, T(1))); \
    } \
    return is_negative(x) ? nx_negate(r) : r; \
  }

#ifdef FAST_FLOAT64
// x P(x^2) for |x| < 3.92, and ±1 from there on. P is a polynomial in u in [-1, 1], by E. Ya. Remez's algorithm, with a
// relative error below 2^-42. Measured over 70 million floats: error < 0.500002 ulp, 1 in a million not correctly rounded.
float nx_erf(float x) {
  double a = f64_abs(min(nx_abs(x), 3.92f));
  double u = fma(a * a, 0.1301540973909984lf, -1.0lf);
  double p = 0.36073681319857065lf + u * (-0.18010859797174597lf + u * (0.13408336760843254lf +
      u * (-0.10917998784695003lf + u * (0.09062263312479008lf + u * (-0.07401569007671016lf +
      u * (0.05818649458472657lf + u * (-0.04342613498922756lf + u * (0.030527813243760967lf +
      u * (-0.020137857113544173lf + u * (0.012450829500786326lf + u * (-0.0072183334805581lf +
      u * (0.0039311261084512324lf + u * (-0.002016604507829878lf + u * (0.0009735633272300386lf +
      u * (-0.00044082548662505535lf + u * (0.00019205326832827957lf + u * (-8.344190837940761e-05lf +
      u * (3.1688156343797276e-05lf + u * (-8.5964528495757e-06lf + u * (3.474562450269005e-06lf +
      u * (-2.499564578307619e-06lf + u * 7.410125007861488e-07lf)))))))))))))))))))));
  return is_nan(x) ? F32_NAN : f64_scale(x, a, p);
}
#else
NX_ERF(float, vec2, F32_NAN, vec2(1.1283792f, -5.8635383e-08f), 1.0e-6f, 4.0f)
#endif
#ifdef HAS_FLOAT64
NX_ERF(double, dvec2, F64_NAN, dvec2(1.1283791670955126lf, 1.533545961316588e-17lf), 1.0e-10lf, 6.0lf)
#endif

#endif
