// Owns nx_pow of floats; ops/pow.glsl owns that of integers.
//
// Algorithm: x^y = exp(y log|x|) with the sign of x for odd integers y; the logarithm and the product are double words.
// Domain: all numbers, by the rules of Nx.BinaryBackend, which differ from IEEE 754's. A NaN as base or exponent gives NaN,
//   in x^0 and 1^y too. Otherwise y = 0 gives 1. y = -Inf gives 0 and y = Inf gives Inf for every base except 0, which gives
//   Inf and 0. A base of -Inf gives 0 for y < 0. BinaryBackend raises in other cases, which follow IEEE 754 here: NaN for x <
//   0 and y no integer; infinities for 0 to a negative power, on overflow, and for -Inf to a positive power (negative for odd
//   y).
// Error: below 0.503 ulp (float), 0.53 ulp (double) (bounds of native_tests/oracle.rs); largest measured 0.501 and 0.516. Of
//   20 million floats, 1 in 40,000 is not correctly rounded.
// Source: the methods of exp.glsl and log.glsl.
#ifndef NX_MATH_POW
#define NX_MATH_POW

#include "lib/math/exp.glsl"
#include "lib/math/log.glsl"

// |x|^y for finite x other than 0 and |y| <= 2^(P+12). Beyond ±LIMIT, exp over- or underflows.
#define FP_POW(T, T2, LIMIT) \
  T fp_pow(T x, T y) { \
    T2 p = dd_mul(dd_log(x), y); \
    p = nx_abs(p.x) < LIMIT ? p : T2(fp_copysign(LIMIT, p.x), T(0)); \
    T k = dd_exp_k(p.x); \
    T2 e = dd_expm1_near_zero(dd_exp_r(p, k)); \
    return dd_ldexp(dd_fast_add(T2(T(1), T(0)), e), fp_whole(k)); \
  }

// y is clamped to ±2^(P+12), where x^y over- or underflows for every x but ±1.
#define NX_POW(T, P, INF, NAN) \
  T nx_pow(T x, T y) { \
    precise T half_y = T(0.5f) * y; \
    bool integer = nx_abs(y) >= T(1) && fp_is_whole(y); \
    bool odd = integer && !fp_is_whole(half_y); \
    T bound = fp_exp2i(x, P + 12); \
    T v = fp_pow(x, clamp(y, -bound, bound)); \
    v = is_zero(x) || is_infinity(x) ? (is_zero(x) == is_negative(y) ? INF : T(0)) : v; \
    v = is_negative(x) ? (odd ? nx_negate(v) : (integer || is_zero(x) || is_infinity(x) ? v : NAN)) : v; \
    v = is_infinity(x) && is_negative(y) ? T(0) : v; \
    v = is_infinity(y) ? (is_zero(x) == is_negative(y) ? INF : T(0)) : v; \
    v = is_zero(y) ? T(1) : v; \
    return is_nan(x) || is_nan(y) ? NAN : v; \
  }

#ifdef FAST_FLOAT64
float fp_pow(float x, float y) { return to_f32(f64_exp(clamp(double(y) * f64_log(x), -110.0lf, 110.0lf))); }
#else
FP_POW(float, vec2, 110.0f)
#endif
NX_POW(float, 23, F32_INF, F32_NAN)
#ifdef HAS_FLOAT64
FP_POW(double, dvec2, 750.0lf)
NX_POW(double, 52, F64_INF, F64_NAN)
#endif

#endif
