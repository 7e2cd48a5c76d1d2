// Owns nx_asin and nx_acos.
//
// Algorithm: the angle of the point (sqrt(1 - x^2), x) for asin and of (x, sqrt(1 - x^2)) for acos, by atan_angle, in
//   double words.
// Domain: [-1, 1]; NaN outside. asin(-0) = -0.
// Error: below 0.51 ulp in float and double (bound of native_tests/oracle.rs); largest measured 0.5001.
// Source: the identity asin x = atan2(x, sqrt(1 - x^2)); the arctangent's sources are in atan.glsl.
#ifndef NX_MATH_ASIN
#define NX_MATH_ASIN

#include "lib/math/atan.glsl"

// asin_cathetus: sqrt(1 - a^2) for 0 <= a <= 1 as a double word. Where |x| < tiny, asin x is x to half an ulp.
#define NX_ASIN(T, T2, NAN, pi, tiny) \
  T2 asin_cathetus(T a) { \
    T2 s = dd_mul(dd_two_sum(T(1), -a), dd_two_sum(T(1), a)); \
    return s.x == T(0) ? s : dd_sqrt(s); \
  } \
  T nx_asin(T x) { \
    T a = nx_abs(x); \
    if (!(a <= T(1))) return NAN; \
    if (a < tiny) return x; \
    return atan_signed(dd_value(atan_angle(T2(a, T(0)), asin_cathetus(a))), x); \
  } \
  T nx_acos(T x) { \
    T a = nx_abs(x); \
    if (!(a <= T(1))) return NAN; \
    T2 r = atan_angle(asin_cathetus(a), T2(a, T(0))); \
    return dd_value(is_negative(x) ? dd_fast_add(pi, dd_negate(r)) : r); \
  }

NX_ASIN(float, vec2, F32_NAN, vec2(3.1415927f, -8.742278e-08f), 1.0e-6f)
#ifdef HAS_FLOAT64
NX_ASIN(double, dvec2, F64_NAN, dvec2(3.141592653589793lf, 1.2246467991473532e-16lf), 1.0e-11lf)
#endif

#endif
