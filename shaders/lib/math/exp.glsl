#ifndef NX_MATH_EXP
#define NX_MATH_EXP

#include "lib/math/dd.glsl"
#include "lib/math/divide.glsl"

// The exponential family: x = k ln2 + r with |r| <= ln2 / 2 (W. J. Cody, W. Waite, "Software manual for the elementary
// functions", 1980: ln2 in three parts, of which k times the first two is exact), then exp(r) - 1 = r + r^2 (1/2 + r ...)
// in double words, with its relative accuracy kept down to r = 0. Coefficients by Sollya's fpminimax on |r| <= 0.35.

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
// The same with a relative error below 2^-58; r^3 and what follows are plain doubles.
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
// Floats go through double where that is cheap: e^x = 2^k 2^f with |f| <= 1/2. Adding 1.5 * 2^52 rounds to k and leaves it in
// the low word. The error of log2(e) counts |x| times, which is 2^-46 where nothing over- or underflows.
double wide_exp_reduced(double x, out uint k) {
  precise double shifted = fma(x, 1.4426950408889634lf, 6755399441055744.0lf);
  precise double nearest = shifted - 6755399441055744.0lf;
  k = unpackDouble2x32(shifted).x;
  return x * 1.4426950408889634lf - nearest;
}
// x 2^k, where both are normal.
double wide_ldexp(double x, uint k) {
  uvec2 b = unpackDouble2x32(x);
  return packDouble2x32(uvec2(b.x, b.y + (k << 20)));
}
// 2^f - 1 for |f| <= 1/2, relative error below 2^-43 (E. Ya. Remez's algorithm, as for what follows).
double wide_exp2m1_near_zero(double f) {
  return f * (0.69314718055993774lf + f * (0.24022650695814082lf + f * (0.055504108665734665lf + f * (0.0096181291590516568lf
      + f * (0.0013333557983824179lf + f * (0.00015403456133320086lf + f * (1.5252811944439438e-05lf
      + f * (1.3255160666731181e-06lf + f * 1.0178078873975533e-07lf))))))));
}
double wide_exp(double x) {
  uint k;
  double m = wide_exp2m1_near_zero(wide_exp_reduced(x, k));
  return wide_ldexp(1.0lf + m, k);
}
float nx_exp(float x) {
  float v = to_f32_from_positive(wide_exp(clamp(x, -106.0f, 90.0f)));
  return is_nan(x) ? F32_NAN : v;
}
float nx_expm1(float x) {
  uint k;
  double m = wide_exp2m1_near_zero(wide_exp_reduced(clamp(x, -30.0f, 90.0f), k)), scale = wide_ldexp(1.0lf, k);
  float v = float((scale - 1.0lf) + scale * m);
  v = nx_abs(x) < 1.49011612e-08f ? x : v;
  v = is_zero(x) ? 0.0f : v;
  return is_nan(x) ? F32_NAN : v;
}
// c = f coth(f ln2/2) for |f| <= 1/2, relative error below 2^-39: 2^f = (c + f) / (c - f).
double wide_coth(double f) {
  double z = f * f;
  return 2.8853900817817593lf + z * (0.11552452960138557lf + z * (-0.00092505861835282303lf + z * 1.0518943495548968e-05lf));
}
float nx_sigmoid(float x) {
  uint k;
  double f = wide_exp_reduced(clamp(x, -106.0f, 30.0f), k), c = wide_coth(f), e = wide_ldexp(c + f, k);
  float v = to_f32_from_positive(wide_quotient(e, e + (c - f)));
  return is_nan(x) ? F32_NAN : v;
}
#endif

/*
 dd_exp_k    the k of x
 dd_exp_r    r = x - k ln2
 nx_exp      error < 0.501 ulp (float), 0.514 (double)
 expm1       exp(x) - 1: error < 0.503 ulp (float), 0.563 (double), near zero too, where BinaryBackend's formula loses digits;
             expm1(-0) = +0, as there
 sigmoid     1 / (1 + exp(-x)) = N / (1 + t) with t = exp(-|x|) and N = 1 or t: error < 0.501 ulp (float), 0.514 (double)

 The last two are nx_expm1 and nx_sigmoid for floats; those for doubles stand below.

 Measured over 21 million floats and 3.5 million doubles; of the floats, 1 in 30,000 is not the correctly rounded one. Through
 double, of 17 million: error < 0.50001 ulp; of sigmoid 1 in 500,000 or fewer are not correctly rounded, of exp and expm1 1 in
 5 million or fewer.
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

// BinaryBackend's formulas, each step rounded, to give a double's last digits as it does; the accurate functions where the
// formulas are worse: 1 is not small against exp(x), or exp(-x) > 1, whose error and the sum's then count in full.

// Error < 1.03 ulp: from 0.41 on, the difference has at most one leading bit less than exp(x), or than 1.
double nx_expm1(double x) {
  precise double e = nx_exp(x);
  precise double d = e - 1.0lf;
  return nx_abs(x) > 0.41lf && is_finite(e) ? d : fp_expm1(x);
}
// Error < 1.54 ulp.
double nx_sigmoid(double x) {
  precise double s = 1.0lf + nx_exp(-nx_abs(x));
  return is_negative(x) || is_nan(x) ? fp_sigmoid(x) : nx_divide(1.0lf, s);
}
#endif

#endif
