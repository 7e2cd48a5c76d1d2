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
#include "lib/range.glsl"

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
// A quotient without a branch, for many elements that are divided by one number: compilers find its reciprocal once. The product is off by less than
// 2^-50 of the quotient, and a quotient of floats is more than 2^-49 of itself from the middle of two neighbouring floats, which it never is: both round
// alike. Out of range are subnormal a and a / b, but for a = 0, and b other than finite normal numbers.
float nx_divide_in_range(float a, float b) {
  precise double reciprocal = 1.0lf / double(b);
  precise float least = max(nx_abs(b), 1.0f) * 2.3509887e-38f;
  bool is_normal = (floatBitsToUint(b) & 0x7fffffffu) - 0x00800000u < 0x7f000000u;
  uint last_out = is_normal ? floatBitsToUint(least) * 2u - 2u : ~0u;
  out_of_range = out_of_range || floatBitsToUint(a) * 2u - 1u <= last_out;
  precise double quotient = double(a) * reciprocal;
  return float(quotient);
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
