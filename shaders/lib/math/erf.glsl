#ifndef NX_MATH_ERF
#define NX_MATH_ERF

#include "lib/math/dd.glsl"
#include "lib/math/exp.glsl"
#include "lib/math/log.glsl"
#include "lib/math/root.glsl"

// nx_erf, nx_erfc, nx_erf_inv.
//
// Below 1/2 erf x = x P(x^2). Beyond, erfc x = exp(-x^2) G(t) / (x + 2) with t = (x - 2) / (x + 2), after M. M. Shepherd and
// J. G. Laframboise, "Chebyshev approximation of (1 + 2x) exp(x^2) erfc x in 0 <= x < inf" (1981); G by Sollya's fpminimax
// on the part of the axis where erfc does not vanish. The first coefficients of both are double words.
// The inverse is a first guess to 20 bits in w = -log(1 - x^2) and sqrt(w), as in M. Giles, "Approximating the erfinv
// function" (2010), with a correction from the Taylor series of the inverse.

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

// erf_inv(a) for 0 < a < 1 to 2^-20, from q = (1 - a)(1 + a) >= 2^-53.
float erf_inv_guess(float a, float q) {
  precise float w = -nx_log(q);
  precise float u = w - 3.0f;
  precise float v = nx_sqrt(w) - 4.25f;
  precise float central = 1.6235424f + u * (0.24163069f + u * (-0.0057395296f + u * (-0.00083719334f + u * (0.00019596177f
      + u * (-1.215359e-05f + u * (-1.96678e-06f + u * 3.4981593e-07f))))));
  precise float tail = 4.092224f + v * (1.0099784f + v * (0.00070372806f + v * (-0.00060994265f + v * (0.00023543456f + v
      * (-6.072961e-05f + v * (-6.25893e-07f + v * (-1.128353e-05f + v * (1.5458389e-05f + v * -4.188616e-06f))))))));
  precise float y = a * (w < 6.0f ? central : tail);
  return y;
}

#ifdef HAS_FLOAT64
// The same. Error of the polynomial 2^-85.
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

// The same up to x = 27.4. Error of the polynomial 2^-63.
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

double erf_inv_guess(double a, double q) { return double(erf_inv_guess(float(a), float(q))); }
#endif

/*
 erf_near_zero  erf a as a double word, for a <= 1/2, not so small that a^2 vanishes
 erf_gauss      exp(-s) / 2^k, k = dd_exp_k(-s.x)
 erfcx          exp(a^2) erfc a as a double word, for 1/2 <= a <= 10.3 (27.4)
 erf_scaled     c |x| for a small x, c in [1/2, 2), rounded once
 nx_erf         measured < 0.5006 ulp (float), 0.51 (double)
 nx_erfc        measured < 0.502 ulp (float), 0.53 (double), subnormal results included. glibc's, which BinaryBackend calls,
                is off by up to 2.6 ulp (double)
 nx_erf_inv     measured < 0.501 ulp (float), 0.54 (double); erf_inv(-0) = +0, as BinaryBackend has it, whose own formula is
                off by 1.2e-7; NaN beyond [-1, 1]
*/
#define NX_ERF(T, T2, INF, NAN, TWO_OVER_ROOT_PI, HALF_ROOT_PI, TINY, ONE_FROM, ZERO_FROM, SIXTH) \
  T2 erf_near_zero(T a) { return dd_mul(erf_series(dd_two_prod(a, a)), a); } \
  T2 erf_gauss(T2 s, T k) { \
    return dd_fast_add(T2(T(1), T(0)), dd_expm1_near_zero(dd_exp_r(dd_negate(s), k))); \
  } \
  T2 erfcx(T a) { \
    T2 v = dd_div(T2(T(1), T(0)), dd_two_sum(a, T(2))); \
    return dd_mul(erfc_series(dd_mul(dd_two_sum(a, T(-2)), v)), v); \
  } \
  T erf_scaled(T2 c, T x) { return dd_ldexp(dd_mul(c, fp_significand(x)), fp_exponent(x)); } \
  T nx_erf(T x) { \
    if (is_nan(x)) return NAN; \
    if (is_zero(x)) return x; \
    T a = min(nx_abs(x), ONE_FROM); \
    T r; \
    if (a < TINY) { \
      r = erf_scaled(TWO_OVER_ROOT_PI, x); \
    } else if (a < T(0.5f)) { \
      r = dd_value(erf_near_zero(a)); \
    } else { \
      T2 s = dd_two_prod(a, a); \
      T k = dd_exp_k(-s.x); \
      T2 c = dd_mul(dd_mul(erf_gauss(s, k), erfcx(a)), -fp_exp2i(x, int(k))); \
      r = dd_value(dd_add(c, T(1))); \
    } \
    return is_negative(x) ? nx_negate(r) : r; \
  } \
  T nx_erfc(T x) { \
    if (is_nan(x)) return NAN; \
    T a = min(nx_abs(x), ZERO_FROM); \
    bool negative = is_negative(x); \
    if (a < T(0.5f)) { \
      T2 e = erf_near_zero(a); \
      return dd_value(dd_add(negative ? e : dd_negate(e), T(1))); \
    } \
    T2 s = dd_two_prod(a, a); \
    T k = dd_exp_k(-s.x); \
    T2 c = dd_mul(erf_gauss(s, k), erfcx(a)); \
    int e = fp_ilogb(c.x); \
    c = dd_mul(c, fp_exp2i(x, -e)); \
    e += int(k); \
    if (!negative) return dd_ldexp(c, e); \
    return dd_value(dd_add(dd_mul(c, -fp_exp2i(x, max(e, -100))), T(2))); \
  } \
  T nx_erf_inv(T x) { \
    T a = nx_abs(x); \
    if (!(a <= T(1))) return NAN; \
    if (is_zero(x)) return T(0); \
    T r; \
    if (a == T(1)) { \
      r = INF; \
    } else if (a < TINY) { \
      r = erf_scaled(HALF_ROOT_PI, x); \
    } else { \
      precise T q = T(1) - a; \
      precise T y = erf_inv_guess(a, q * (T(1) + a)); \
      T2 s = dd_two_prod(y, y); \
      T k = dd_exp_k(-s.x); \
      T2 g = erf_gauss(s, k); \
      precise T h = fp_exp2i(x, -int(k)); \
      T2 d; \
      if (y < T(0.5f)) { \
        d = dd_div(dd_mul(dd_add(dd_negate(erf_near_zero(y)), a), h), g); \
      } else { \
        d = dd_add(erfcx(y), dd_negate(dd_div(T2(q * h, T(0)), g))); \
      } \
      precise T u = d.x * HALF_ROOT_PI.x; \
      precise T v = y + u * (T(1) + u * (y + u * ((T(4) * s.x + T(2)) * SIXTH))); \
      r = v; \
    } \
    return is_negative(x) ? nx_negate(r) : r; \
  }

NX_ERF(float, vec2, F32_INF, F32_NAN, vec2(1.1283792f, -5.8635383e-08f), vec2(0.88622695f, -2.66232e-08f),
       1.0e-6f, 4.0f, 10.2f, 0.16666667f)
#ifdef HAS_FLOAT64
NX_ERF(double, dvec2, F64_INF, F64_NAN, dvec2(1.1283791670955126lf, 1.533545961316588e-17lf),
       dvec2(0.886226925452758lf, -3.8332932499128993e-17lf), 1.0e-10lf, 6.0lf, 27.3lf, 0.16666666666666666lf)
#endif

#endif
