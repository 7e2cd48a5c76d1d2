// Owns nx_atan and nx_atan2, and atan_angle, the angle of a point of the first quadrant, which asin.glsl uses too.
//
// Algorithm: atan t = atan c + atan((t - c) / (1 + t c)) with c = i/8 nearest to t, in double words. The second arctangent
//   has an argument of at most 1/16 and is a minimax polynomial (Sollya's fpminimax).
// Domain: all numbers. Infinite x and finite y follow Nx.BinaryBackend, not C: atan2(y, +Inf) is 0 and atan2(y, -Inf) is
//   pi, for y of either sign.
// Error: below 0.51 ulp in float and double (bound of native_tests/oracle.rs); largest measured 0.5001.
// Source: W. J. Cody, W. Waite, "Software Manual for the Elementary Functions" (1980), here with more points c.
#ifndef NX_MATH_ATAN
#define NX_MATH_ATAN

#include "lib/math/dd.glsl"
#include "lib/math/divide.glsl"

// atan(i/8)
const vec2 ATAN_TABLE32[9] = vec2[9](
  vec2(0.0f, 0.0f), vec2(0.124354996f, -1.2403822e-09f), vec2(0.24497867f, -3.1786778e-09f),
  vec2(0.35877067f, 1.7639499e-09f), vec2(0.4636476f, 5.0121587e-09f), vec2(0.5585993f, 2.2111598e-08f),
  vec2(0.6435011f, 5.8689373e-09f), vec2(0.71883f, 1.01883355e-08f), vec2(0.7853982f, -2.1855694e-08f));

// (atan t - t) / t^3 for |t| <= 1/16, z = t^2. Relative error of atan t: 2^-49.
vec2 atan_series(vec2 z) {
  precise float p = z.x * (0.2f + z.x * (-0.14285706f + z.x * 0.110597886f));
  return dd_add(vec2(-0.33333334f, 9.930856e-09f), p);
}

#ifdef HAS_FLOAT64
const dvec2 ATAN_TABLE64[9] = dvec2[9](
  dvec2(0.0lf, 0.0lf), dvec2(0.12435499454676144lf, -3.1253241424539383e-18lf),
  dvec2(0.24497866312686414lf, 1.0698755618734451e-17lf), dvec2(0.35877067027057225lf, -2.4623815582638635e-17lf),
  dvec2(0.4636476090008061lf, 2.2698777452961687e-17lf), dvec2(0.5585993153435624lf, -5.4556305485916264e-18lf),
  dvec2(0.6435011087932844lf, 1.5834785051444286e-17lf), dvec2(0.7188299996216245lf, -2.1478388444456983e-17lf),
  dvec2(0.7853981633974483lf, 3.061616997868383e-17lf));

// The same for double. Relative error of atan t: 2^-72.
dvec2 atan_series(dvec2 z) {
  precise double p = z.x * (0.19999999999999019lf + z.x * (-0.14285714284092926lf + z.x * (0.11111109879207681lf + z.x *
      (-0.09090435617597012lf + z.x * 0.07602678560162801lf))));
  return dd_add(dvec2(-0.3333333333333333lf, -1.652484690007295e-17lf), p);
}
#endif

/*
 atan_point    TABLE[i] by selections, because an index that differs between invocations is a slow load
 atan_angle    the angle in [0, pi/2] of the point (x, y) as a double word, for x, y >= 0, not both zero, both below 2^64;
               its relative error grows where y/x is below 2^-40 (float) or 2^-400 (double)
 atan_signed   r with the sign of s

 Where |x| < tiny, atan x is x to half an ulp. Where |x| > huge, it is ±pi/2. Where y has a smaller exponent than x by more than
 -gap, atan2(y, x) is y/x for x > 0.
*/
#define NX_ATAN(T, T2, NAN, TABLE, half_pi, pi, tiny, huge, gap) \
  T2 atan_point(T type, int i) { \
    T2 p[4]; \
    for (int j = 0; j < 4; j++) p[j] = (i & 4) != 0 ? TABLE[j + 4] : TABLE[j]; \
    for (int j = 0; j < 2; j++) p[j] = (i & 2) != 0 ? p[j + 2] : p[j]; \
    T2 r = (i & 1) != 0 ? p[1] : p[0]; \
    return i == 8 ? TABLE[8] : r; \
  } \
  T2 atan_angle(T2 y, T2 x) { \
    bool steep = y.x > x.x; \
    T2 a = steep ? x : y; \
    T2 b = steep ? y : x; \
    int i = fp_whole(a.x / b.x * T(8)); \
    T c = T(i) * T(0.125); \
    T2 t = dd_div(dd_add(a, dd_mul(b, -c)), dd_fast_add(b, dd_mul(a, c))); \
    T2 z = dd_mul(t, t); \
    T2 r = dd_fast_add(atan_point(c, i), dd_fast_add(t, dd_mul(dd_mul(t, z), atan_series(z)))); \
    return steep ? dd_fast_add(half_pi, dd_negate(r)) : r; \
  } \
  T atan_signed(T r, T s) { return is_negative(s) ? nx_negate(r) : r; } \
  T nx_atan(T x) { \
    T a = nx_abs(x); \
    if (is_nan(x)) return NAN; \
    if (a < tiny) return x; \
    T2 r = a > huge ? half_pi : atan_angle(T2(a, T(0)), T2(T(1), T(0))); \
    return atan_signed(dd_value(r), x); \
  } \
  T nx_atan2(T y, T x) { \
    if (is_nan(x) || is_nan(y)) return NAN; \
    if (is_infinity(x) && !is_infinity(y)) return is_negative(x) ? pi.x : T(0); \
    T2 r; \
    if (is_zero(y)) { \
      r = T2(T(0), T(0)); \
    } else if (is_zero(x) || is_infinity(y)) { \
      r = is_infinity(x) ? half_pi * T(0.5) : half_pi; \
    } else { \
      int e = fp_exponent(y) - fp_exponent(x); \
      if (e < gap && !is_negative(x)) return nx_divide(y, x); \
      precise T a = fp_significand(y) * fp_exp2i(y, clamp(e, -100, 0)); \
      precise T b = fp_significand(x) * fp_exp2i(x, clamp(-e, -100, 0)); \
      r = atan_angle(T2(a, T(0)), T2(b, T(0))); \
    } \
    if (is_negative(x) && !(is_zero(x) && !is_zero(y))) r = dd_fast_add(pi, dd_negate(r)); \
    return atan_signed(dd_value(r), y); \
  }

NX_ATAN(float, vec2, F32_NAN, ATAN_TABLE32, vec2(1.5707964f, -4.371139e-08f), vec2(3.1415927f, -8.742278e-08f),
        1.0e-6f, 1.0e18f, -21)
#ifdef HAS_FLOAT64
NX_ATAN(double, dvec2, F64_NAN, ATAN_TABLE64, dvec2(1.5707963267948966lf, 6.123233995736766e-17lf),
        dvec2(3.141592653589793lf, 1.2246467991473532e-16lf), 1.0e-11lf, 1.0e30lf, -38)
#endif

#endif
