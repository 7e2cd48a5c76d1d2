// Owns nx_sinh, nx_cosh, nx_tanh and their inverses nx_asinh, nx_acosh, nx_atanh.
//
// Algorithm: with exp(|x|) = 2^k (1 + e), c = 2^-2k and d = e / (1 + e), hence exp(-|x|) = 2^-k (1 - d), in double words:
//   sinh |x| = 2^(k-1) ((1 - c) + e + c d),   cosh x = 2^(k-1) ((1 + c) + e - c d),
//   tanh |x| = -m / (2 + m) with m = expm1(-2|x|),
//   asinh |x| = log1p(|x| + x^2 / (1 + sqrt(1 + x^2))),   acosh x = log1p(t + sqrt(t (2 + t))) with t = x - 1.
//   sinh, acosh and atanh of doubles round each step as glibc does, which Nx.BinaryBackend calls, to print the same digits.
// Domain: all numbers. tanh(±Inf) is NaN, as in BinaryBackend. acosh(x) for x < 1 and atanh(x) for |x| > 1 are NaN and
//   atanh(±1) is ±Inf, where BinaryBackend raises.
// Error, in ulps (bounds of native_tests/oracle.rs; largest measured in parentheses):
//              float               double
//   sinh       0.504  (0.502)      2
//   cosh       0.503  (0.502)      0.53    (0.515)
//   tanh       0.504  (0.502)      0.55    (0.535)
//   asinh      0.5001 (0.500001)   0.5001  (0.500001)
//   acosh      0.5001 (0.500001)   2
//   atanh      0.5001 (0.500001)   2
// Source: FreeBSD msun's s_asinh.c, e_acosh.c, s_sinh.c, e_atanh.c and s_log1p.c, and fdlibm's e_acosh.c.
#ifndef NX_MATH_HYPERBOLIC
#define NX_MATH_HYPERBOLIC

#include "lib/math/exp.glsl"
#include "lib/math/log.glsl"
#include "lib/math/root.glsl"

/*
 SINH    nx_sinh of floats; of doubles fp_sinh, error < 0.543 ulp
 ACOSH   nx_acosh of floats; of doubles fp_acosh, error < 0.500001 ulp

 From HIGHEST on, sinh and cosh overflow. Where |x| < TINY, sinh x and asinh x are x to half an ulp. Where |x| > LARGE, asinh |x|
 and acosh x are log(2 |x|). 2^-2k is negligible against 1 from k > NEGLIGIBLE on.
*/
#define NX_HYPERBOLIC(T, T2, INF, NAN, HIGHEST, TINY, LARGE, NEGLIGIBLE, SINH, ACOSH) \
  T SINH(T x) { \
    T a = min(nx_abs(x), HIGHEST); \
    T k = dd_exp_k(a); \
    T2 e = dd_expm1_near_zero(dd_exp_r(T2(a, T(0)), k)); \
    T c = k > T(NEGLIGIBLE) ? T(0) : fp_exp2i(x, -2 * fp_whole(min(k, T(NEGLIGIBLE)))); \
    T2 d = dd_mul(dd_div(e, dd_fast_add(T2(T(1), T(0)), e)), c); \
    T v = dd_ldexp(dd_add(dd_two_sum(T(1), -c), dd_add(e, d)), fp_whole(k) - 1); \
    v = fp_copysign(nx_abs(x) < TINY ? nx_abs(x) : v, x); \
    return is_nan(x) ? NAN : v; \
  } \
  T nx_cosh(T x) { \
    T a = min(nx_abs(x), HIGHEST); \
    T k = dd_exp_k(a); \
    T2 e = dd_expm1_near_zero(dd_exp_r(T2(a, T(0)), k)); \
    T c = k > T(NEGLIGIBLE) ? T(0) : fp_exp2i(x, -2 * fp_whole(min(k, T(NEGLIGIBLE)))); \
    T2 d = dd_mul(dd_div(e, dd_fast_add(T2(T(1), T(0)), e)), -c); \
    T v = dd_ldexp(dd_add(dd_two_sum(T(1), c), dd_add(e, d)), fp_whole(k) - 1); \
    return is_nan(x) ? NAN : v; \
  } \
  T nx_asinh(T x) { \
    T a = nx_abs(x); \
    T b = min(a, LARGE); \
    T2 b2 = dd_two_prod(b, b); \
    T2 u = dd_add(dd_div(b2, dd_add(dd_sqrt(dd_add(b2, T(1))), T(1))), b); \
    bool large = a > LARGE; \
    T2 l = dd_log(large ? T2(a, T(0)) : dd_add(u, T(1)), u); \
    l = large ? dd_add(l, dd_log_sum(T(1), T2(T(0), T(0)))) : l; \
    T v = fp_copysign(a < TINY || is_infinity(x) ? a : l.x, x); \
    return is_nan(x) ? NAN : v; \
  } \
  T ACOSH(T x) { \
    T2 t = dd_two_sum(min(x, LARGE), T(-1)); \
    T2 u = dd_add(dd_sqrt(dd_mul(t, dd_add(t, T(2)))), t); \
    bool large = x > LARGE; \
    T2 l = dd_log(large ? T2(x, T(0)) : dd_add(u, T(1)), u); \
    l = large ? dd_add(l, dd_log_sum(T(1), T2(T(0), T(0)))) : l; \
    T v = x == T(1) ? T(0) : l.x; \
    v = is_infinity(x) ? INF : v; \
    return x >= T(1) && !is_nan(x) ? v : NAN; \
  }

NX_HYPERBOLIC(float, vec2, F32_INF, F32_NAN, 91.0f, 1.2e-4f, 1048576.0f, 30, nx_sinh, nx_acosh)
#ifdef HAS_FLOAT64
NX_HYPERBOLIC(double, dvec2, F64_INF, F64_NAN, 712.0lf, 7.4e-9lf, 274877906944.0lf, 60, fp_sinh, fp_acosh)
#endif

#define NX_TANH(T, T2, NAN, ONE, TINY) \
  T nx_tanh(T x) { \
    precise T a = T(-2) * min(nx_abs(x), ONE); \
    T k = dd_exp_k(a); \
    T2 e = dd_expm1_near_zero(dd_exp_r(T2(a, T(0)), k)); \
    precise T s = fp_exp2i(x, fp_whole(k)); \
    precise T2 t = T2(e.x * s, e.y * s); \
    T2 m = dd_add(dd_two_sum(s, T(-1)), t); \
    T v = -dd_div(m, dd_add(m, T(2))).x; \
    v = fp_copysign(nx_abs(x) < TINY ? nx_abs(x) : v, x); \
    return is_finite(x) ? v : NAN; \
  }

#ifdef FAST_FLOAT64
// (e^2x - 1) / (e^2x + 1), whose difference has 41 bits or more where |x| >= 1.2e-4. Error < 0.50003 ulp, 1 in 300,000 is not
// correctly rounded.
float nx_tanh(float x) {
  uint k;
  double f = f64_exp_reduced(2.0f * clamp(x, -10.0f, 10.0f), k), c = f64_coth(f), e = f64_ldexp(c + f, k), one = c - f;
  float v = float(f64_quotient(e - one, e + one));
  v = nx_abs(x) < 1.2e-4f ? x : v;
  return is_finite(x) ? v : F32_NAN;
}
#else
NX_TANH(float, vec2, F32_NAN, 10.0f, 1.2e-4f)
#endif
#ifdef HAS_FLOAT64
NX_TANH(double, dvec2, F64_NAN, 22.0lf, 7.4e-9lf)
#endif

// atanh |x| = (k ln2)/2 + atanh(s), s = ((1 - q) + |x| (1 + q)) / ((1 + q) + |x| (1 - q)), q = 2^k near (1 + |x|) / (1 - |x|),
// in double words. Error < 0.500001 ulp.
float nx_atanh(float x) {
  float a = nx_abs(x);
  float b = a < 1.0f ? a : 0.0f;
  precise float w = (1.0f + b) / (1.0f - b);
  int k = fp_log2_nearest(w);
  float q = fp_exp2i(x, k);
  vec2 p = dd_two_sum(1.0f, q);
  vec2 m = dd_two_sum(1.0f, -q);
  vec2 s = dd_div(dd_add(m, dd_mul(p, b)), dd_add(p, dd_mul(m, b)));
  vec2 l = dd_log_sum(float(k), dd_two_atanh(s));
  precise float h = 0.5f * l.x;
  float v = fp_copysign(a < 1.2e-4f ? a : (a == 1.0f ? F32_INF : h), x);
  return a <= 1.0f && !is_nan(x) ? v : F32_NAN;
}

#ifdef HAS_FLOAT64
// sinh by msun's s_sinh.c, each step rounded. Error < 2 ulp, largest just below sinh(x) = 1. From 22 on, fp_sinh is as good as
// msun's exp(|x|) / 2.
double nx_sinh(double x) {
  double a = min(nx_abs(x), 22.0lf);
  double t = fp_expm1(a);
  precise double u = t + 1.0lf;
  precise double t2 = t * t;
  precise double v = 0.5lf * (a < 1.0lf ? 2.0lf * t - nx_divide(t2, u) : t + nx_divide(t, u));
  return a >= 7.4e-9lf && a < 22.0lf && !is_nan(x) ? fp_copysign(v, x) : fp_sinh(x);
}
// log(1 + x) for 2^-29 < x < 2^55 by msun's s_log1p.c, error < 0.9 ulp: 1 + x = 2^k (1 + f), c is the rounding error of 1 + x.
double fp_log1p(double x) {
  precise double u = 1.0lf + x;
  int k = fp_log2_nearest(u);
  precise double lost = u >= 2.0lf ? 1.0lf - (u - x) : x - (u - 1.0lf);
  precise double c = nx_divide(lost, u);
  precise double f = k == 0 ? x : u * fp_exp2i(x, -k) - 1.0lf;
  precise double s = nx_divide(f, 2.0lf + f);
  precise double z = s * s;
  precise double z2 = z * z;
  precise double z4 = z2 * z2;
  precise double r1 = z * 0.6666666666666735lf;
  precise double r2 = 0.3999999999940942lf + z * 0.2857142874366239lf;
  precise double r3 = 0.22222198432149784lf + z * 0.1818357216161805lf;
  precise double r4 = 0.15313837699209373lf + z * 0.14798198605116586lf;
  precise double r = r1 + z2 * r2 + z4 * r3 + (z4 * z2) * r4;
  precise double h = 0.5lf * f * f;
  precise double low = double(k) * 1.9082149292705877e-10lf + c;
  precise double t = s * (h + r);
  precise double v = k == 0 ? f - (h - t) : double(k) * 0.6931471803691238lf - ((h - (t + low)) - f);
  return v;
}
// atanh by msun's e_atanh.c, each step rounded. Error < 2 ulp.
double nx_atanh(double x) {
  double a = nx_abs(x);
  double b = a < 1.0lf ? a : 0.0lf;
  precise double t = b + b;
  precise double c = 1.0lf - b;
  precise double p = t * b;
  precise double u = b < 0.5lf ? t + nx_divide(p, c) : nx_divide(t, c);
  precise double h = 0.5lf * fp_log1p(u);
  double v = fp_copysign(a < 3.7e-9lf ? a : (a == 1.0lf ? F64_INF : h), x);
  return a <= 1.0lf && !is_nan(x) ? v : F64_NAN;
}

// acosh by fdlibm's e_acosh.c, each step rounded, for x <= 2: log1p(t + sqrt(2t + t^2)) with t = x - 1. Error < 2 ulp.
double nx_acosh(double x) {
  precise double t = x - 1.0lf;
  precise double square = 2.0lf * t + t * t;
  precise double u = t + nx_sqrt(square);
  return x > 1.0lf && x <= 2.0lf ? fp_log1p(u) : fp_acosh(x);
}
#endif

#endif
