// Owns plain_exp, plain_log and plain_log1p: exponential and logarithm in the type's own arithmetic, for kernels that sum many
// of their values. With them, 32 leapfrog steps of leapfrog_regime.comp take 132 us on an H200; with nx_exp and nx_log they
// take 200.
//
// Algorithm: the reductions of exp.glsl and log.glsl, with polynomials that interpolate at Chebyshev's nodes.
// Domain: plain_exp is 0 below the least normal number and infinite above the largest. plain_log takes 0 and normal x > 0,
//   and gives infinities and NaN back. plain_log1p takes 0 <= x <= 1.
// Error: below 4 ulp where nothing underflows, measured over 200,000 floats. native_tests/leapfrog tests the models built on
//   them.
// Source: as in exp.glsl and log.glsl.
#ifndef NX_MATH_PLAIN
#define NX_MATH_PLAIN

#include "lib/math/log.glsl"

// (exp(r) - 1 - r - r^2 / 2) / r^3 for |r| <= 0.3475.
float plain_exp_tail(float r) {
  return 0.166666667f + r * (0.0416665535f + r * (0.00833332076f + r * (0.0013926376f + r * 0.00019882912f)));
}
// x 2^k, in two factors: 2^k itself may be out of range.
float plain_scale(float x, int k) { return x * fp_exp2i(x, k / 2) * fp_exp2i(x, k - k / 2); }
// x / 2^k, for a normal result.
float plain_significand(float x, int k) { return uintBitsToFloat(floatBitsToUint(x) - (uint(k) << 23)); }

#ifdef HAS_FLOAT64
double plain_exp_tail(double r) {
  return 0.16666666666666666lf + r * (0.041666666666666671lf + r * (0.0083333333333348442lf
      + r * (0.0013888888888882371lf + r * (0.00019841269834360362lf + r * (2.4801587329348014e-05lf
      + r * (2.7557332126007771e-06lf + r * (2.7557269545100985e-07lf + r * (2.5041559028804085e-08lf
      + r * (2.0916198775491508e-09lf + r * 1.9206690211088795e-10lf)))))))));
}
double plain_scale(double x, int k) { return x * fp_exp2i(x, k / 2) * fp_exp2i(x, k - k / 2); }
double plain_significand(double x, int k) {
  uvec2 b = unpackDouble2x32(x);
  return packDouble2x32(uvec2(b.x, b.y - (uint(k) << 20)));
}
#endif

#define NX_PLAIN(T, INF, LOG2E, LN2_HIGH, LN2_LOW, LOWEST, HIGHEST) \
  T plain_exp(T x) { \
    T c = clamp(x, LOWEST, HIGHEST); \
    T k = fp_nearest(c * LOG2E); \
    precise T h = c - k * LN2_HIGH; \
    T r = h - k * LN2_LOW; \
    T v = plain_scale(T(1) + (r + r * r * (T(0.5f) + r * plain_exp_tail(r))), fp_whole(k)); \
    return is_nan(x) ? x : x < LOWEST ? T(0) : v; \
  } \
  T plain_log(T x) { \
    int k = fp_log2_nearest(x); \
    T n = plain_significand(x, k) - T(1); \
    T s = n / (n + T(2)), z = s * s; \
    T t = z * (T(0.33333333333333331lf) + z * (T(0.20000000000000001lf) + z * dd_atanh_tail(z))); \
    T v = T(k) * LN2_HIGH + ((s + s) + ((s + s) * t + T(k) * LN2_LOW)); \
    return is_zero(x) ? -INF : is_finite(x) ? v : x; \
  } \
  T plain_log1p(T x) { \
    precise T u = T(1) + x; \
    precise T lost = x - (u - T(1)); \
    return plain_log(u) + lost / u; \
  }

NX_PLAIN(float, F32_INF, 1.44269502f, 0.693145752f, 1.42860677e-06f, -87.3f, 89.0f)
#ifdef HAS_FLOAT64
NX_PLAIN(double, F64_INF, 1.4426950408889634lf, 0.69314718036912382lf, 1.9082149292705877e-10lf, -708.3lf, 710.0lf)
#endif

#endif
