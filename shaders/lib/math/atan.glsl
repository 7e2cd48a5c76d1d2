#ifndef NX_MATH_ATAN
#define NX_MATH_ATAN

#include "lib/math/dd.glsl"
#include "lib/math/divide.glsl"

// nx_atan, nx_atan2, nx_asin, nx_acos, all through the angle of a point of the first quadrant.
//
// atan t = atan c + atan((t - c) / (1 + t c)) with c = i/8 nearest to t (W. J. Cody, W. Waite, "Software Manual for the
// Elementary Functions", 1980, with more points), where the rest is at most 1/16: a minimax polynomial (Sollya,
// fpminimax), error 2^-49 and 2^-72.

// atan(i/8)
const vec2 ATAN_TABLE32[9] = vec2[9](
  vec2(0.0f, 0.0f), vec2(0.124354996f, -1.2403822e-09f), vec2(0.24497867f, -3.1786778e-09f),
  vec2(0.35877067f, 1.7639499e-09f), vec2(0.4636476f, 5.0121587e-09f), vec2(0.5585993f, 2.2111598e-08f),
  vec2(0.6435011f, 5.8689373e-09f), vec2(0.71883f, 1.01883355e-08f), vec2(0.7853982f, -2.1855694e-08f));

vec2 atan_point(float type, int i) { return ATAN_TABLE32[i]; }

// (atan t - t) / t^3, z = t^2
vec2 atan_series(vec2 z) {
  precise float p = ((0.110597886f * z.x + -0.14285706f) * z.x + 0.2f) * z.x;
  return dd_add(vec2(-0.33333334f, 9.930856e-09f), p);
}

#ifdef HAS_FLOAT64
const dvec2 ATAN_TABLE64[9] = dvec2[9](
  dvec2(0.0lf, 0.0lf), dvec2(0.12435499454676144lf, -3.1253241424539383e-18lf), dvec2(0.24497866312686414lf, 1.0698755618734451e-17lf),
  dvec2(0.35877067027057225lf, -2.4623815582638635e-17lf), dvec2(0.4636476090008061lf, 2.2698777452961687e-17lf), dvec2(0.5585993153435624lf, -5.4556305485916264e-18lf),
  dvec2(0.6435011087932844lf, 1.5834785051444286e-17lf), dvec2(0.7188299996216245lf, -2.1478388444456983e-17lf), dvec2(0.7853981633974483lf, 3.061616997868383e-17lf));

dvec2 atan_point(double type, int i) { return ATAN_TABLE64[i]; }

dvec2 atan_series(dvec2 z) {
  precise double p = ((((0.07602678560162801lf * z.x + -0.09090435617597012lf) * z.x + 0.11111109879207681lf) * z.x + -0.14285714284092926lf) * z.x + 0.19999999999999019lf) * z.x;
  return dd_add(dvec2(-0.3333333333333333lf, -1.652484690007295e-17lf), p);
}
#endif

// x * 2^64 for |x| <= 2^-40; subnormals go through their bits, for devices that read them as zero.
float atan_scale_up(float x) {
  uint b = floatBitsToUint(x);
  precise float r = b < 0x800000u ? float(b) * fp_exp2i(x, -85) : x * fp_exp2i(x, 64);
  return r;
}

#ifdef HAS_FLOAT64
double atan_scale_up(double x) {
  uvec2 b = unpackDouble2x32(x);
  precise double n = (double(b.y) * 4294967296.0lf + double(b.x)) * fp_exp2i(x, -505) * fp_exp2i(x, -505);
  precise double r = b.y < 0x100000u ? n : x * fp_exp2i(x, 64);
  return r;
}
#endif

/*
 atan_angle   the angle in [0, pi/2] of the point (x, y) as a double word, for x, y >= 0, not both zero, both below 2^64;
              where y/x is below 2^-40 its relative error grows
 atan_root    the square root as a double word
 nx_atan2     BinaryBackend's rule, not C's, where x is infinite and y finite: 0 for +Inf and pi for -Inf, whatever the sign of y
 nx_asin, nx_acos   NaN beyond [-1, 1]

 Where |x| < tiny, asin x and atan x are x, and atan2(y, x) is y/x, to well within half an ulp; atan x is pi/2 beyond huge.
*/
#define NX_ATAN(T, T2, NAN, half_pi, pi, tiny, huge) \
  T2 atan_angle(T2 y, T2 x) { \
    bool steep = y.x > x.x; \
    T2 a = steep ? x : y; \
    T2 b = steep ? y : x; \
    int i = int(a.x / b.x * T(8) + T(0.5)); \
    T c = T(i) * T(0.125); \
    T2 t = dd_div(dd_add(a, dd_mul(b, -c)), dd_add(b, dd_mul(a, c))); \
    T2 z = dd_mul(t, t); \
    T2 r = dd_add(atan_point(c, i), dd_add(t, dd_mul(dd_mul(t, z), atan_series(z)))); \
    return steep ? dd_add(half_pi, dd_negate(r)) : r; \
  } \
  T2 atan_root(T2 a) { \
    if (a.x == T(0)) return a; \
    T q = sqrt(a.x); \
    T2 p = dd_two_prod(q, q); \
    precise T r = ((a.x - p.x) - p.y) + a.y; \
    precise T h = T(0.5) * r / q; \
    return dd_fast_two_sum(q, h); \
  } \
  T nx_atan(T x) { \
    T a = fp_abs(x); \
    if (fp_is_nan(x)) return NAN; \
    if (a < tiny) return x; \
    T2 r = a > huge ? half_pi : atan_angle(T2(a, T(0)), T2(T(1), T(0))); \
    return fp_copysign(dd_value(r), x); \
  } \
  T nx_atan2(T y, T x) { \
    T a = fp_abs(y); \
    T b = fp_abs(x); \
    if (fp_is_nan(x) || fp_is_nan(y)) return NAN; \
    if (fp_is_inf(x) && !fp_is_inf(y)) return fp_is_negative(x) ? pi.x : T(0); \
    T2 r; \
    if (fp_is_zero(y)) { \
      r = T2(T(0), T(0)); \
    } else if (fp_is_zero(x) || fp_is_inf(y)) { \
      r = T2(fp_is_inf(x) ? T(0.5) : T(1), T(0)); \
      r = dd_mul(half_pi, r.x); \
    } else { \
      if (fp_ilogb(a) < -40 && fp_ilogb(b) < -40) { \
        a = atan_scale_up(a); \
        b = atan_scale_up(b); \
      } \
      int e = max(fp_ilogb(a), fp_ilogb(b)); \
      a = fp_ldexp(a, -e); \
      b = fp_ldexp(b, -e); \
      if (a < tiny * b && !fp_is_negative(x)) return nx_divide(y, x); \
      r = atan_angle(T2(a, T(0)), T2(b, T(0))); \
    } \
    if (fp_is_negative(x) && !(fp_is_zero(x) && !fp_is_zero(y))) r = dd_add(pi, dd_negate(r)); \
    return fp_copysign(dd_value(r), y); \
  } \
  T nx_asin(T x) { \
    T a = fp_abs(x); \
    if (!(a <= T(1))) return NAN; \
    if (a < tiny) return x; \
    T2 c = atan_root(dd_mul(dd_two_sum(T(1), -a), dd_two_sum(T(1), a))); \
    return fp_copysign(dd_value(atan_angle(T2(a, T(0)), c)), x); \
  } \
  T nx_acos(T x) { \
    T a = fp_abs(x); \
    if (!(a <= T(1))) return NAN; \
    T2 s = atan_root(dd_mul(dd_two_sum(T(1), -a), dd_two_sum(T(1), a))); \
    T2 r = atan_angle(s, T2(a, T(0))); \
    return dd_value(fp_is_negative(x) ? dd_add(pi, dd_negate(r)) : r); \
  }

NX_ATAN(float, vec2, F32_NAN, vec2(1.5707964f, -4.371139e-08f), vec2(3.1415927f, -8.742278e-08f), 1.0e-6f, 1.0e18f)
#ifdef HAS_FLOAT64
NX_ATAN(double, dvec2, F64_NAN, dvec2(1.5707963267948966lf, 6.123233995736766e-17lf),
        dvec2(3.141592653589793lf, 1.2246467991473532e-16lf), 1.0e-11lf, 1.0e30lf)
#endif

#endif
