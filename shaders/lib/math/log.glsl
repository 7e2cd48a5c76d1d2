// Owns nx_log and nx_log1p, and the logarithms in double words and in double that the other files of math/ use.
//
// Algorithm: x = 2^k m with m in [sqrt(1/2), sqrt(2)), and log(m) = 2 atanh(s) with s = (m - 1) / (m + 1), |s| < 0.172. In
//   double words, 2 atanh(s) = 2 s (1 + z/3 + z^2/5 + z^3 ...) with z = s^2; the tail from z^3 on is plain arithmetic, by
//   Sollya's fpminimax on z <= 0.0301. With FAST_FLOAT64, logarithms of floats are computed in double.
// Domain: x >= 0 for log, x >= -1 for log1p; NaN below. log(±0) = -Inf, log1p(-1) = -Inf; log1p(-0) = +0, as in
//   Nx.BinaryBackend.
// Error: below 0.5001 ulp in float and double (bound of native_tests/oracle.rs); largest measured 0.500001. That holds for
//   log1p near zero too, where BinaryBackend's log(1 + x) loses digits.
// Source: FreeBSD msun's e_log.c, here in double words.
#ifndef NX_MATH_LOG
#define NX_MATH_LOG

#include "lib/math/dd.glsl"

// (atanh(s) / s - 1 - z/3 - z^2/5) / z^3 for z = s^2 <= 0.0301, in plain arithmetic.
float dd_atanh_tail(float z) {
  precise float t = 0.142857149f + z * (0.111109771f + z * (0.0909509882f + z * 0.0787825063f));
  return t;
}

// The k of x > 0, not subnormal.
int fp_log2_nearest(float x) { return int((floatBitsToUint(x) + 0x004afb0du) >> 23) - 127; }

#ifdef HAS_FLOAT64
double dd_atanh_tail(double z) {
  precise double t = 0.14285714285714285lf + z * (0.11111111111111124lf + z * (0.090909090908663767lf
      + z * (0.076923077149232161lf + z * (0.066666621755414684lf + z * (0.058827770409832357lf
      + z * (0.052426744869680665lf + z * 0.052477420997993705lf))))));
  return t;
}
int fp_log2_nearest(double x) { return int((fp_high(x) + 0x00095f62u) >> 20) - 1023; }
#endif

/*
 dd_two_atanh    2 atanh(s) for |s| < 0.172, relative error below 2^-42 (float), 2^-70 (double)
 dd_log_sum      k ln2 + l
 dd_log_reduced  log of 2^k (1 + n)
 dd_log          log of the normalised double word x > 0, not subnormal; minus_one must be x - 1 where x is in
                 [sqrt(1/2), sqrt(2)), to keep the relative accuracy near 1. Relative error below 2^-40 (float), 2^-66 (double).
                 The overload with one T takes any finite x > 0.

 Where |x| < TINY, log1p x is x to half an ulp.
*/
#define NX_LOG_PARTS(T, T2, C3, C3_LOW, C5, C5_LOW, LN2_1, LN2_2, LN2_3, EMIN) \
  T2 dd_two_atanh(T2 s) { \
    T2 z = dd_mul(s, s); \
    precise T t = z.x * dd_atanh_tail(z.x); \
    precise T t_low = t + C5_LOW; \
    T2 g = dd_mul(z, dd_fast_two_sum(C5, t_low)); \
    g = dd_mul(z, dd_fast_add(T2(C3, C3_LOW), g)); \
    precise T2 d = T2(s.x + s.x, s.y + s.y); \
    return dd_fast_add(d, dd_mul(d, g)); \
  } \
  T2 dd_log_sum(T k, T2 l) { \
    precise T h = k * LN2_1; \
    precise T m = k * LN2_2; \
    precise T low = l.y + k * LN2_3; \
    return dd_add(dd_fast_two_sum(h, m), T2(l.x, low)); \
  } \
  T2 dd_log_reduced(T k, T2 n) { \
    T2 s = dd_div(n, dd_add(n, T(2))); \
    return dd_log_sum(k, dd_two_atanh(s)); \
  } \
  T2 dd_log(T2 x, T2 minus_one) { \
    int k = fp_log2_nearest(x.x); \
    int e = fp_exponent(x.x); \
    precise T m = fp_significand(x.x); \
    m = k > e ? T(0.5f) * m : m; \
    precise T h = m - T(1); \
    precise T l = x.y * fp_exp2i(m, clamp(-k, EMIN, -EMIN)); \
    T2 n = dd_two_sum(h, l); \
    return dd_log_reduced(T(k), k == 0 ? minus_one : n); \
  } \
  T2 dd_log(T x) { \
    int e = fp_exponent(x); \
    precise T m = fp_significand(x); \
    bool high = fp_log2_nearest(m) != 0; \
    m = high ? T(0.5f) * m : m; \
    precise T n = m - T(1); \
    return dd_log_reduced(T(high ? e + 1 : e), T2(n, T(0))); \
  }

#define NX_LOG(T, T2, INF, NAN, TINY) \
  T nx_log(T x) { \
    T2 l = dd_log(x); \
    T v = is_negative(x) || is_nan(x) ? NAN : (is_infinity(x) ? INF : l.x); \
    return is_zero(x) ? -INF : v; \
  } \
  T nx_log1p(T x) { \
    T2 l = dd_log(dd_two_sum(T(1), x), T2(x, T(0))); \
    T v = nx_abs(x) < TINY ? x : l.x; \
    v = is_zero(x) ? T(0) : v; \
    v = x > T(-1) && !is_nan(x) ? v : (x == T(-1) ? -INF : NAN); \
    return is_infinity(x) && !is_negative(x) ? INF : v; \
  }

NX_LOG_PARTS(float, vec2, 0.333333343f, -9.93410776e-09f, 0.200000003f, -2.98023228e-09f,
    0.693145752f, 1.42861973e-06f, -1.290532e-11f, -126)
#ifdef FAST_FLOAT64
// log of 2^k (1 + n), relative error below 2^-43. With s = 2n / (2 + n), |s| < 0.3433, log(1 + n) = s + s^3 (1/12 + s^2/80
// ...), by E. Ya. Remez's algorithm.
double f64_log_reduced(int k, double n) {
  double s = f64_quotient(n + n, 2.0lf + n), z = s * s;
  double t = 0.08333333334464577lf + z * (0.012499998639140723lf + z * (0.0022321958587510063lf
      + z * (0.0004331302865058318lf + z * 9.56204019128332e-05lf)));
  return double(k) * 0.69314718055994529lf + (s + (s * z) * t);
}
// log |x| for finite x that is not zero.
double f64_log(float x) {
  uint b = floatBitsToUint(fp_lift(x)) & 0x7fffffffu, above = b + 0x004afb0du;
  int k = int(above >> 23) - ((floatBitsToUint(x) & 0x7f800000u) == 0u ? 276 : 127);
  return f64_log_reduced(k, double(uintBitsToFloat(b + 0x3f800000u - (above & 0xff800000u)) - 1.0f));
}
// log x for normal x > 0.
double f64_log(double x) {
  uvec2 b = unpackDouble2x32(x);
  uint k = ((b.y + 0x00095f62u) >> 20) - 1023u;
  return f64_log_reduced(int(k), packDouble2x32(uvec2(b.x, b.y - (k << 20))) - 1.0lf);
}
float nx_log(float x) {
  float l = float(f64_log(x));
  float v = is_negative(x) || is_nan(x) ? F32_NAN : (is_infinity(x) ? F32_INF : l);
  return is_zero(x) ? -F32_INF : v;
}
float nx_log1p(float x) {
  double u = 1.0lf + double(x);
  int k = fp_log2_nearest(float(u));
  float l = float(f64_log_reduced(k, k == 0 ? double(x) : u * fp_exp2i(1.0lf, -k) - 1.0lf));
  float v = nx_abs(x) < 1.49011612e-08f ? x : l;
  v = is_zero(x) ? 0.0f : v;
  v = x > -1.0f && !is_nan(x) ? v : (x == -1.0f ? -F32_INF : F32_NAN);
  return is_infinity(x) && !is_negative(x) ? F32_INF : v;
}
#else
NX_LOG(float, vec2, F32_INF, F32_NAN, 1.49011612e-08f)
#endif
#ifdef HAS_FLOAT64
NX_LOG_PARTS(double, dvec2, 0.33333333333333331lf, 1.8503717077085941e-17lf, 0.20000000000000001lf,
    -1.1102230246251566e-17lf, 0.69314718055989033lf, 5.4979230187085024e-14lf, -1.3124698417785255e-27lf, -1022)
NX_LOG(double, dvec2, F64_INF, F64_NAN, 2.7755575615628914e-17lf)
#endif

#endif
