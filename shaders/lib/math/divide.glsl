// Owns nx_divide of real numbers.
//
// Algorithm: the device's quotient of the significands is corrected by its residual. The residual of the corrected quotient is
//   exact and decides the last bit. The device's own division need not be correctly rounded.
// Domain: all numbers, subnormals included. As in Nx.BinaryBackend, x / ±Inf is +0, Inf / -0 keeps the infinity's sign, Inf /
//   Inf and 0 / 0 are NaN. BinaryBackend raises for other x / 0, which here is IEEE 754's infinity.
// Error: correctly rounded to nearest even in float and double, which native_tests/math.rs compares bit by bit.
// Source: P. Markstein, "Computation of elementary functions on the IBM RISC System/6000 processor" (1990).
#ifndef NX_MATH_DIVIDE
#define NX_MATH_DIVIDE

#include "lib/math/dd.glsl"

#define NX_DIVIDE(T, T2, P, INF, NAN) \
  T nx_divide(T a, T b) { \
    precise T u = fp_exp2i(a, -P); \
    precise T below_two = T(2) - u; \
    precise T x = fp_significand(a); \
    precise T y = fp_significand(b); \
    int n = fp_exponent(a) - fp_exponent(b); \
    n = x < y ? n - 1 : n; \
    x = x < y ? x + x : x; \
    precise T q = clamp(x / y, T(1), below_two); \
    T2 p = dd_two_prod(q, y); \
    precise T r = (x - p.x) - p.y; \
    q = clamp(q + r / y, T(1), below_two); \
    p = dd_two_prod(q, y); \
    r = (x - p.x) - p.y; \
    precise T h = y * (T(0.5f) * u); \
    q = r > h ? q + u : (r < -h ? q - u : q); \
    r = r > h ? -h : (r < -h ? h : r); \
    T v = dd_ldexp(T2(q, r), n); \
    T sign = is_negative(a) != is_negative(b) ? T(-1) : T(1); \
    sign = is_infinity(a) && is_zero(b) ? a : sign; \
    v = is_zero(b) || is_infinity(a) ? INF : v; \
    v = is_zero(a) ? T(0) : v; \
    v = is_infinity(b) ? T(0) : fp_copysign(v, sign); \
    bool invalid = (is_zero(a) && is_zero(b)) || (is_infinity(a) && is_infinity(b)) || is_nan(a) || is_nan(b); \
    return invalid ? NAN : v; \
  }

#ifdef FAST_FLOAT64
// Rounding the quotient to double first does not change the float: double has more than 2 * 24 + 1 bits
// (S. A. Figueroa, "When is double rounding innocuous?", 1995).
float divide_by_double(float a, float b) {
  float v = to_f32(to_f64(a) / to_f64(b));
  bool invalid = (is_zero(a) && is_zero(b)) || (is_infinity(a) && is_infinity(b)) || is_nan(a) || is_nan(b);
  v = is_infinity(b) ? 0.0f : v;
  v = is_zero(b) || is_infinity(a) ? fp_copysign(F32_INF, is_negative(a) != is_negative(b) ? -1.0f : 1.0f) : v;
  v = is_infinity(a) && is_zero(b) ? a : v;
  return invalid ? F32_NAN : v;
}
#ifdef HAS_FMA
// 1 / b for |b| in [2^-60, 2^60), from an estimate that is off by an ulp at most. Where all bits of the significand are ones, its residual cannot tell
// the two neighbours apart (Markstein's exception), and quotients of powers of two by the wrong one would be an ulp off.
float nx_reciprocal(float b) {
  uint bits = floatBitsToUint(b);
  precise float estimate = 1.0f / b;
  precise float reciprocal = fma(fma(-b, estimate, 1.0f), estimate, estimate);
  float of_ones = uintBitsToFloat((bits & 0x80000000u) | (0x7e800001u - (bits & 0x7f800000u)));
  return (bits & 0x7fffffu) == 0x7fffffu ? of_ones : reciprocal;
}
// For |b| in [2^-26, 2^51) and |a| in [2^-70, 2^101), or a = 0, two residuals correct the product with the reciprocal: no step over- or
// underflows. The reciprocal comes first, as a value that compilers find once for all elements which are divided by one number.
float nx_divide(float a, float b) {
  precise float reciprocal = nx_reciprocal(b);
  uint exponent_a = floatBitsToUint(a) >> 23 & 0xffu, exponent_b = floatBitsToUint(b) >> 23 & 0xffu;
  if ((exponent_a - 57u <= 170u || is_zero(a)) && exponent_b - 101u <= 76u) {
    precise float product = a * reciprocal;
    precise float corrected = fma(fma(-b, product, a), reciprocal, product);
    precise float quotient = fma(fma(-b, corrected, a), reciprocal, corrected);
    return is_zero(a) ? product : quotient;
  }
  return divide_by_double(a, b);
}
// Quotients of many elements by one number without a branch: between begin_quotients() and any_out_of_range(), which says whether one of them may
// be wrong. The residuals are multiplied by 2^64, and b's sign is a's, so that those of zeros keep the sign of the quotient: right for |b| in
// [2^-60, 2^60), |a| < 2^63 and normal a and a / b, or a = 0. Larger numbers become infinities or NaN, which not_finite keeps; what is too small is
// found by its bits. Operations on integers are few, as GPUs of compute capability 9.0 have half as many units for them (NVIDIA's CUDA C++ Programming
// Guide, "Arithmetic Instructions").
bool too_small = false;
float not_finite = 0.0f;
void begin_quotients() {
  too_small = false;
  not_finite = 0.0f;
}
bool any_out_of_range() { return too_small || is_nan(not_finite); }
float nx_divide_in_range(float a, float b) {
  const float scale = 18446744073709551616.0f;
  precise float reciprocal = nx_reciprocal(b);
  precise float divisor = nx_abs(b) * scale, inverse = nx_abs(reciprocal) * -5.421010862427522e-20f;
  precise float least = max(nx_abs(b), 1.0f) * 2.3509887e-38f;
  uint least_bits = floatBitsToUint(b) * 2u - 0x43000000u < 0x78000000u ? floatBitsToUint(least) * 2u : ~0u;
  precise float scaled = a * (is_negative(b) ? -scale : scale);
  precise float product = a * reciprocal;
  precise float corrected = fma(fma(divisor, product, -scaled), inverse, product);
  precise float quotient = fma(fma(divisor, corrected, -scaled), inverse, corrected);
  too_small = too_small || floatBitsToUint(a) * 2u - 1u < least_bits;
  precise float kept = fma(quotient, 0.0f, not_finite);
  not_finite = kept;
  return quotient;
}
#else
float nx_divide(float a, float b) { return divide_by_double(a, b); }
#endif
#else
NX_DIVIDE(float, vec2, 23, F32_INF, F32_NAN)
#endif
#ifdef HAS_FLOAT64
NX_DIVIDE(double, dvec2, 52, F64_INF, F64_NAN)
#endif

#endif
