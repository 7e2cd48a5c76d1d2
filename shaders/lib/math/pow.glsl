#ifndef NX_MATH_POW
#define NX_MATH_POW

#include "lib/math/exp.glsl"
#include "lib/math/log.glsl"

// nx_pow(x, y) = exp(y log|x|), the product a double word, with the sign of x for odd integer y. Error < 0.501 ulp (float),
// 0.516 (double); of 20 million floats, 1 in 40,000 was not the correctly rounded one.
//
// As BinaryBackend, which differs from IEEE 754: NaN as base or exponent gives NaN (x^0 and 1^y too); otherwise y = 0 gives 1,
// y = -Inf gives 0 and y = Inf gives Inf for every base except 0, where it is the other way round; a base of -Inf gives
// 0 for y < 0. Where BinaryBackend raises, the result is IEEE 754's: NaN for x < 0 and y not an integer, infinities for
// 0 to a negative power, on overflow, and for -Inf to a positive power (negative for odd y).
//
// Beyond |y| = 2^(P+12), x^y over- or underflows unless x is 1, so there y is clamped.
#define FP_POW(T, T2, LIMIT) \
  T fp_pow(T x, T y) { \
    T2 p = dd_mul(dd_log(x), y); \
    p = nx_abs(p.x) < LIMIT ? p : T2(fp_copysign(LIMIT, p.x), T(0)); \
    T k = dd_exp_k(p.x); \
    T2 e = dd_expm1_near_zero(dd_exp_r(p, k)); \
    return dd_ldexp(dd_fast_add(T2(T(1), T(0)), e), fp_whole(k)); \
  }
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

// |x|^y for x finite and not zero, y within the bound.
#ifdef FAST_FLOAT64
float fp_pow(float x, float y) { return to_f32(wide_exp(clamp(double(y) * wide_log(x), -110.0lf, 110.0lf))); }
#else
FP_POW(float, vec2, 110.0f)
#endif
NX_POW(float, 23, F32_INF, F32_NAN)
#ifdef HAS_FLOAT64
FP_POW(double, dvec2, 750.0lf)
NX_POW(double, 52, F64_INF, F64_NAN)
#endif

#endif
