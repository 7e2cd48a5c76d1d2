// Owns nx_sqrt, nx_cbrt and nx_rsqrt.
//
// Algorithm, with m = |x| / 2^e for an even e (sqrt, rsqrt) or a multiple of 3 (cbrt):
//   sqrt    the device's root of m, corrected by a Newton step. A y within an ulp of the root is the nearest one unless
//           m - y^2, which is exact, exceeds y ulp(y) in magnitude. The device's own sqrt need not be correctly rounded.
//   cbrt    y = m z^2 with z = 1/cbrt(m), then one Newton step in double words
//   rsqrt   of floats, the device's inversesqrt y of m, then y + y (r/2 + 3 r^2/8) with r = 1 - m y^2, in double words, or of x in double;
//           of doubles, the quotient of 1 and sqrt, as Nx.BinaryBackend computes it, to print the same digits
// Domain: x >= 0 for sqrt and rsqrt, NaN below; all numbers for cbrt. sqrt(-0) = -0 and rsqrt(±0) = ±Inf. cbrt(-0) = +0, as in
//   BinaryBackend.
// Error (bounds of native_tests/math.rs and oracle.rs): sqrt is correctly rounded. cbrt is below 0.5001 ulp in float and
//   double. rsqrt is below 0.5001 ulp (float), 1.5 ulp (double). Largest measured of cbrt and of rsqrt of floats: 0.500001; of
//   20 million floats, at most one of each is not correctly rounded.
// Source: B. Tuckerman's test for sqrt (R. C. Agarwal and others, "New scalar and vector elementary functions for the IBM
//   System/370", 1986); Newton's iteration for cbrt; the series of (1 - r)^(-1/2) for rsqrt.
#ifndef NX_MATH_ROOT
#define NX_MATH_ROOT

#include "lib/math/dd.glsl"
#include "lib/math/divide.glsl"

// An approximation of 1/cbrt(m) for m in [1, 2): a polynomial to 2^-14.7 (Sollya's fpminimax), then a Newton step
// z + z (1 - m z^3) / 3, which doubles the number of correct digits.
float fp_rcbrt_start(float m) {
  precise float z = 1.67000842f + m * (-1.17288518f + m * (0.695488036f + m * (-0.221240416f + m * 0.0285914727f)));
  precise float r = z + z * ((1.0f - m * z * z * z) * 0.333333343f);
  return r;
}
#ifdef HAS_FLOAT64
double fp_rcbrt_start(double m) {
  precise double z = double(fp_rcbrt_start(float(m)));
  z = z + z * ((1.0lf - m * z * z * z) * 0.33333333333333331lf);
  return z;
}
#endif

#define NX_SQRT(T, T2, P, INF, NAN) \
  T nx_sqrt(T x) { \
    precise T u = fp_exp2i(x, -P); \
    precise T below_two = T(2) - u; \
    int e = fp_exponent(x); \
    precise T m = fp_significand(x); \
    m = (e & 1) != 0 ? m + m : m; \
    precise T y = clamp(sqrt(m), T(1), below_two); \
    T2 p = dd_two_prod(y, y); \
    precise T r = (m - p.x) - p.y; \
    y = clamp(y + r / (y + y), T(1), below_two); \
    p = dd_two_prod(y, y); \
    r = (m - p.x) - p.y; \
    precise T h = y * u; \
    y = r > h ? y + u : (r <= -h ? y - u : y); \
    precise T v = y * fp_exp2i(x, e >> 1); \
    v = is_negative(x) || is_nan(x) ? NAN : (is_infinity(x) ? INF : v); \
    return is_zero(x) ? x : v; \
  }

#define NX_CBRT(T, T2, INF, NAN, THIRD, RCBRT2, RCBRT4) \
  T nx_cbrt(T x) { \
    int e = fp_exponent(x); \
    int q = (e + 1200) / 3 - 400; \
    int s = e - 3 * q; \
    precise T m = fp_significand(x); \
    precise T z = fp_rcbrt_start(m); \
    z = s == 0 ? z : z * (s == 1 ? RCBRT2 : RCBRT4); \
    m = s == 0 ? m : m * (s == 1 ? T(2) : T(4)); \
    z = z + z * ((T(1) - m * z * z * z) * THIRD); \
    precise T y = m * z * z; \
    T2 t = dd_mul(dd_two_prod(y, y), y); \
    precise T r = (m - t.x) - t.y; \
    precise T c = r * (z * z) * THIRD; \
    precise T v = fp_copysign((y + c) * fp_exp2i(x, q), x); \
    v = is_infinity(x) ? x : (is_nan(x) ? NAN : v); \
    return is_zero(x) ? T(0) : v; \
  }

NX_CBRT(float, vec2, F32_INF, F32_NAN, 0.333333343f, 0.793700516f, 0.629960537f)
#ifdef FAST_FLOAT64
// Rounding the root to double first does not change the float: double has more than 2 * 24 + 1 bits
// (S. A. Figueroa, "When is double rounding innocuous?", 1995).
float nx_sqrt(float x) {
  float v = float(sqrt(to_f64(x)));
  v = is_negative(x) || is_nan(x) ? F32_NAN : (is_infinity(x) ? F32_INF : v);
  return is_zero(x) ? x : v;
}
#else
NX_SQRT(float, vec2, 23, F32_INF, F32_NAN)
#endif
#ifdef HAS_FLOAT64
NX_SQRT(double, dvec2, 52, F64_INF, F64_NAN)
NX_CBRT(double, dvec2, F64_INF, F64_NAN, 0.33333333333333331lf, 0.79370052598409979lf, 0.62996052494743659lf)
#endif

#ifdef FAST_FLOAT64
float nx_rsqrt(float x) {
  double d = to_f64(x);
#ifdef HAS_FMA
  // The device's inversesqrt takes subnormals for zeros.
  if (x >= 1.17549435e-38f && x < F32_INF) {
    double y = double(inversesqrt(x)), r = fma(-d * y, y, 1.0lf);
    return float(fma(y * r, fma(0.375lf, r, 0.5lf), y));
  }
#endif
  float v = float(1.0lf / sqrt(d));
  v = is_negative(x) || is_nan(x) ? F32_NAN : (is_infinity(x) ? 0.0f : v);
  return is_zero(x) ? fp_copysign(F32_INF, x) : v;
}
#else
float nx_rsqrt(float x) {
  int e = fp_exponent(x);
  precise float m = fp_significand(x);
  m = (e & 1) != 0 ? m + m : m;
  precise float y = inversesqrt(m);
  vec2 t = dd_mul(dd_two_prod(y, y), m);
  precise float r = (1.0f - t.x) - t.y;
  precise float c = y * (r * (0.5f + 0.375f * r));
  precise float v = (y + c) * fp_exp2i(x, -(e >> 1));
  v = is_negative(x) || is_nan(x) ? F32_NAN : (is_infinity(x) ? 0.0f : v);
  return is_zero(x) ? fp_copysign(F32_INF, x) : v;
}
#endif
#ifdef HAS_FLOAT64
// Both steps are rounded, as in BinaryBackend.
double nx_rsqrt(double x) { return nx_divide(1.0lf, nx_sqrt(x)); }
#endif

#endif
