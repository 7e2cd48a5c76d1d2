// Owns nx_exp, nx_expm1 and nx_sigmoid, and the reduction and the series of exp that the other files of math/ use.
//
// Algorithm: x = k ln2 + r with |r| <= ln2 / 2, where ln2 has three parts and k times each of the first two is exact. Then
//   exp(r) - 1 = r + r^2 (1/2 + r ...) in double words, with its relative accuracy kept down to r = 0. Coefficients: Sollya's
//   fpminimax on |r| <= 0.35. With FAST_FLOAT64, functions of floats are polynomials in double. expm1 and sigmoid of doubles
//   round each step as Nx.BinaryBackend's formulas do, to print the same digits, except where those formulas lose accuracy.
// Domain: all numbers. expm1(-0) = +0, as in BinaryBackend.
// Error, in ulps (bounds of native_tests/oracle.rs):
//              float    double
//   exp        0.503    0.53
//   expm1      0.504    1.03
//   sigmoid    0.503    1.54
//   Largest measured over 21 million floats and 3.5 million doubles: exp 0.501 and 0.514, expm1 0.503, sigmoid 0.501; 1 float
//   in 30,000 is not correctly rounded. With FAST_FLOAT64, over 17 million floats: 0.50001; at most 1 in 500,000 of sigmoid
//   and 1 in 5 million of exp and expm1 are not correctly rounded.
// Source: W. J. Cody, W. Waite, "Software Manual for the Elementary Functions" (1980).
#ifndef NX_MATH_EXP
#define NX_MATH_EXP

#include "lib/math/dd.glsl"
#include "lib/math/divide.glsl"

// exp(r) - 1 for |r| <= 0.35, as a double word, relative error below 2^-33.
vec2 dd_expm1_near_zero(vec2 r) {
  precise float t = r.x * (0.0416666679f + r.x * (0.00833333377f + r.x * (0.0013888604f
      + r.x * (0.000198403708f + r.x * (2.4986497e-05f + r.x * 2.80364338e-06f)))));
  precise float t_low = t + -4.96705388e-09f;
  vec2 g = dd_mul(r, dd_fast_two_sum(0.166666672f, t_low));
  g = dd_mul(dd_mul(r, r), dd_fast_add(vec2(0.5f, 0.0f), g));
  return dd_fast_add(r, g);
}

#ifdef HAS_FLOAT64
// exp(r) - 1 for |r| <= 0.35, as a double word, relative error below 2^-58. Terms from r^3 on are plain doubles.
dvec2 dd_expm1_near_zero(dvec2 r) {
  dvec2 r2 = dd_mul(r, r);
  precise double t = (r.x * r2.x) * (0.16666666666666666lf + r.x * (0.041666666666666671lf + r.x * (0.0083333333333348442lf
      + r.x * (0.0013888888888882371lf + r.x * (0.00019841269834360362lf + r.x * (2.4801587329348014e-05lf
      + r.x * (2.7557332126007771e-06lf + r.x * (2.7557269545100985e-07lf + r.x * (2.5041559028804085e-08lf
      + r.x * (2.0916198775491508e-09lf + r.x * 1.9206690211088795e-10lf))))))))));
  precise double h = 0.5lf * r2.x;
  precise double l = 0.5lf * r2.y + t;
  return dd_fast_add(r, dd_fast_two_sum(h, l));
}
#endif

#ifdef FAST_FLOAT64
// The f of e^x = 2^k 2^f, |f| <= 1/2. Adding 1.5 * 2^52 rounds to k and leaves it in the low word. The rounding error of
// log2(e) is multiplied by |x|; it adds at most 2^-46 where e^x neither over- nor underflows.
double f64_exp_reduced(double x, out uint k) {
  precise double shifted = fma(x, 1.4426950408889634lf, 6755399441055744.0lf);
  precise double nearest = shifted - 6755399441055744.0lf;
  k = unpackDouble2x32(shifted).x;
  return x * 1.4426950408889634lf - nearest;
}
// x 2^k, for a normal x and a normal result.
double f64_ldexp(double x, uint k) {
  uvec2 b = unpackDouble2x32(x);
  return packDouble2x32(uvec2(b.x, b.y + (k << 20)));
}
// 2^f - 1 for |f| <= 1/2, relative error below 2^-43 (E. Ya. Remez's algorithm).
double f64_exp2m1_near_zero(double f) {
  return f * (0.69314718055993774lf + f * (0.24022650695814082lf + f * (0.055504108665734665lf + f * (0.0096181291590516568lf
      + f * (0.0013333557983824179lf + f * (0.00015403456133320086lf + f * (1.5252811944439438e-05lf
      + f * (1.3255160666731181e-06lf + f * 1.0178078873975533e-07lf))))))));
}
double f64_exp(double x) {
  uint k;
  double m = f64_exp2m1_near_zero(f64_exp_reduced(x, k));
  return f64_ldexp(1.0lf + m, k);
}
float nx_exp(float x) {
  float v = to_f32_from_positive(f64_exp(clamp(x, -106.0f, 90.0f)));
  return is_nan(x) ? F32_NAN : v;
}
float nx_expm1(float x) {
  uint k;
  double m = f64_exp2m1_near_zero(f64_exp_reduced(clamp(x, -30.0f, 90.0f), k)), scale = f64_ldexp(1.0lf, k);
  float v = float((scale - 1.0lf) + scale * m);
  v = nx_abs(x) < 1.49011612e-08f ? x : v;
  v = is_zero(x) ? 0.0f : v;
  return is_nan(x) ? F32_NAN : v;
}
// c = f coth(f ln2/2) for |f| <= 1/2, relative error below 2^-39 (E. Ya. Remez's algorithm). 2^f = (c + f) / (c - f).
double f64_coth(double f) {
  double z = f * f;
  return 2.8853900817817593lf + z * (0.11552452960138557lf + z * (-0.00092505861835282303lf + z * 1.0518943495548968e-05lf));
}
float nx_sigmoid(float x) {
  uint k;
  double f = f64_exp_reduced(clamp(x, -106.0f, 30.0f), k), c = f64_coth(f), e = f64_ldexp(c + f, k);
  float v = to_f32_from_positive(f64_quotient(e, e + (c - f)));
  return is_nan(x) ? F32_NAN : v;
}
#endif

/*
 dd_exp_k    the k of x
 dd_exp_r    r = x - k ln2
 EXPM1       exp(x) - 1: nx_expm1 of floats; of doubles fp_expm1, error < 0.563 ulp
 SIGMOID     1 / (1 + exp(-x)) = N / (1 + t) with t = exp(-|x|) and N = 1 or t: nx_sigmoid of floats; of doubles fp_sigmoid,
             error < 0.514 ulp

 x is clamped to [LOWEST, HIGHEST], outside which the result is 0 or infinite. 2^-NEGLIGIBLE is negligible against 1. Where
 |x| < TINY, expm1 x is x to half an ulp.
*/
#define NX_EXP_PARTS(T, T2, LOG2E, LN2_1, LN2_2, LN2_3) \
  T dd_exp_k(T x) { return fp_nearest(x * LOG2E); } \
  T2 dd_exp_r(T2 x, T k) { \
    precise T h = x.x - k * LN2_1; \
    precise T m = -(k * LN2_2); \
    T2 r = dd_two_sum(h, m); \
    precise T l = r.y + (x.y - k * LN2_3); \
    return dd_fast_two_sum(r.x, l); \
  }
#define NX_EXP(T, T2, NAN, LOWEST, HIGHEST, NEGLIGIBLE, TINY, EXPM1, SIGMOID) \
  T nx_exp(T x) { \
    T c = clamp(x, LOWEST, HIGHEST); \
    T k = dd_exp_k(c); \
    T2 e = dd_expm1_near_zero(dd_exp_r(T2(c, T(0)), k)); \
    T v = dd_ldexp(dd_fast_add(T2(T(1), T(0)), e), fp_whole(k)); \
    return is_nan(x) ? NAN : v; \
  } \
  T EXPM1(T x) { \
    T c = clamp(x, T(-NEGLIGIBLE), HIGHEST); \
    T k = dd_exp_k(c); \
    T2 e = dd_expm1_near_zero(dd_exp_r(T2(c, T(0)), k)); \
    T one = k > T(2 * NEGLIGIBLE) ? T(0) : fp_exp2i(x, -fp_whole(min(k, T(2 * NEGLIGIBLE)))); \
    T2 d = dd_add(dd_two_sum(T(1), -one), e); \
    T v = dd_ldexp(d, fp_whole(k)); \
    v = nx_abs(x) < TINY ? x : v; \
    v = is_zero(x) ? T(0) : v; \
    return is_nan(x) ? NAN : v; \
  } \
  T SIGMOID(T x) { \
    T c = max(-nx_abs(x), LOWEST); \
    T k = dd_exp_k(c); \
    T2 p = dd_fast_add(T2(T(1), T(0)), dd_expm1_near_zero(dd_exp_r(T2(c, T(0)), k))); \
    int n = fp_whole(k); \
    precise T s = n < -2 * NEGLIGIBLE ? T(0) : fp_exp2i(x, max(n, -2 * NEGLIGIBLE)); \
    precise T2 t = T2(p.x * s, p.y * s); \
    bool negative = is_negative(x); \
    T2 top = negative ? p : T2(T(1), T(0)); \
    T v = dd_ldexp(dd_div(top, dd_fast_add(T2(T(1), T(0)), t)), negative ? n : 0); \
    return is_nan(x) ? NAN : v; \
  }

NX_EXP_PARTS(float, vec2, 1.44269502f, 0.693145752f, 1.42861973e-06f, -1.290532e-11f)
#ifndef FAST_FLOAT64
NX_EXP(float, vec2, F32_NAN, -106.0f, 90.0f, 30, 1.49011612e-08f, nx_expm1, nx_sigmoid)
#endif
#ifdef HAS_FLOAT64
NX_EXP_PARTS(double, dvec2, 1.4426950408889634lf, 0.69314718055989033lf, 5.4979230187085024e-14lf, -1.3124698417785255e-27lf)
NX_EXP(double, dvec2, F64_NAN, -748.0lf, 711.0lf, 60, 2.7755575615628914e-17lf, fp_expm1, fp_sigmoid)

// exp(x) - 1, each step rounded as in BinaryBackend, where |x| > 0.41: there the difference has at most one leading bit less
// than exp(x) and 1. Error < 1.03 ulp.
double nx_expm1(double x) {
  precise double e = nx_exp(x);
  precise double d = e - 1.0lf;
  return nx_abs(x) > 0.41lf && is_finite(e) ? d : fp_expm1(x);
}
// 1 / (1 + exp(-x)), each step rounded as in BinaryBackend, for x >= 0. For x < 0, exp(-x) > 1, and its error counts in full.
// Error < 1.54 ulp.
double nx_sigmoid(double x) {
  precise double s = 1.0lf + nx_exp(-nx_abs(x));
  return is_negative(x) || is_nan(x) ? fp_sigmoid(x) : nx_divide(1.0lf, s);
}
#endif

#endif
