// Owns nx_erf_inv.
//
// Algorithm: x times a polynomial in w = -log((1 - x)(1 + x)), or in its square root where w >= 5. This is the formula of
//   Nx.BinaryBackend for every type, which makes random normal numbers equal on all backends. A float is the formula's value
//   in double, rounded once; double words keep 2^-42 of it. A double is rounded after each step, as in BinaryBackend.
// Domain: (-1, 1); ±Inf at ±1, and NaN outside, where BinaryBackend raises. erf_inv(-0) = +0, as in BinaryBackend.
// Error against the formula: below 0.51 ulp (float), 2 ulp (double) (bounds of native_tests/oracle.rs). A double differs from
//   BinaryBackend's only where log does.
// Error of the formula against the inverse error function: up to 1.25e-7, relative, for |x| <= 1 - 2^-24, which is 2.3 ulp of
//   a float and half of a double's digits. Doubles nearer to 1 lose more, up to 2 % at the last.
// Source: M. Giles, "Approximating the erfinv function" (2010), the formula for single precision.
#ifndef NX_MATH_ERF_INV
#define NX_MATH_ERF_INV

#include "lib/math/log.glsl"
#include "lib/math/root.glsl"

#ifdef FAST_FLOAT64
float nx_erf_inv(float x) {
  double a = f64_abs(x);
  double w = -f64_log(1.0lf - a * a);
  double t = w - 2.5lf;
  double p = 1.50140941lf + t * (0.246640727lf + t * (-0.00417768164lf + t * (-0.00125372503lf + t * (0.00021858087lf
      + t * (-4.39150654e-06lf + t * (-3.5233877e-06lf + t * (3.43273939e-07lf + t * 2.81022636e-08lf)))))));
  if (w >= 5.0lf) {
    t = sqrt(w) - 3.0lf;
    p = 2.83297682lf + t * (1.00167406lf + t * (0.00943887047lf + t * (-0.0076224613lf + t * (0.00573950773lf
        + t * (-0.00367342844lf + t * (0.00134934322lf + t * (0.000100950558lf + t * -0.000200214257lf)))))));
  }
  float v = nx_abs(x) < 1.0f ? f64_scale(x, a, p) : nx_abs(x) == 1.0f ? fp_copysign(F32_INF, x) : F32_NAN;
  return is_zero(x) ? 0.0f : v;
}
#else
// p t + c, or p t + d in the tail.
vec2 erf_inv_step(vec2 p, vec2 t, bool tail, vec2 c, vec2 d) { return dd_add(dd_mul(p, t), tail ? d : c); }

float nx_erf_inv(float x) {
  float a = nx_abs(x);
  if (!(a <= 1.0f)) return F32_NAN;
  if (is_zero(x)) return 0.0f;
  if (a == 1.0f) return is_negative(x) ? -F32_INF : F32_INF;
  vec2 q = dd_mul(dd_two_sum(1.0f, -a), dd_two_sum(1.0f, a));
  vec2 w = dd_negate(dd_log(q, dd_negate(dd_two_prod(a, a))));
  bool tail = w.x > 5.0f || (w.x == 5.0f && w.y >= 0.0f);
  vec2 t = tail ? dd_add(dd_sqrt(w), -3.0f) : dd_add(w, -2.5f);
  vec2 p = tail ? vec2(-0.00020021426f, 3.473975e-13f) : vec2(2.8102264e-08f, -2.7260981e-17f);
  p = erf_inv_step(p, t, tail, vec2(3.4327394e-07f, -5.186907e-17f), vec2(0.00010095056f, 3.1966508e-13f));
  p = erf_inv_step(p, t, tail, vec2(-3.5233877e-06f, 4.2628593e-15f), vec2(0.0013493432f, 2.2801878e-13f));
  p = erf_inv_step(p, t, tail, vec2(-4.3915065e-06f, -3.8056436e-15f), vec2(-0.0036734284f, -3.258767e-12f));
  p = erf_inv_step(p, t, tail, vec2(0.00021858087f, 1.5861065e-13f), vec2(0.0057395077f, -1.0502528e-12f));
  p = erf_inv_step(p, t, tail, vec2(-0.001253725f, -4.718589e-13f), vec2(-0.0076224613f, 3.432749e-13f));
  p = erf_inv_step(p, t, tail, vec2(-0.0041776816f, -3.9347553e-12f), vec2(0.0094388705f, -4.69616e-12f));
  p = erf_inv_step(p, t, tail, vec2(0.24664073f, 7.605744e-11f), vec2(1.001674f, 3.9468384e-09f));
  p = erf_inv_step(p, t, tail, vec2(1.5014094f, -1.4303589e-09f), vec2(2.8329768f, 1.915283e-09f));
  float r = dd_ldexp(dd_mul(p, fp_significand(x)), fp_exponent(x));
  return is_negative(x) ? nx_negate(r) : r;
}
#endif

#ifdef HAS_FLOAT64
double nx_erf_inv(double x) {
  if (!(nx_abs(x) <= 1.0lf)) return F64_NAN;
  if (is_zero(x)) return 0.0lf;
  if (nx_abs(x) == 1.0lf) return is_negative(x) ? -F64_INF : F64_INF;
  precise double q = (1.0lf - x) * (1.0lf + x);
  double w = -nx_log(q);
  bool tail = w >= 5.0lf;
  precise double t = tail ? nx_sqrt(w) - 3.0lf : w - 2.5lf;
  precise double p = tail ? -0.000200214257lf : 2.81022636e-08lf;
  p = p * t + (tail ? 0.000100950558lf : 3.43273939e-07lf);
  p = p * t + (tail ? 0.00134934322lf : -3.5233877e-06lf);
  p = p * t + (tail ? -0.00367342844lf : -4.39150654e-06lf);
  p = p * t + (tail ? 0.00573950773lf : 0.00021858087lf);
  p = p * t + (tail ? -0.0076224613lf : -0.00125372503lf);
  p = p * t + (tail ? 0.00943887047lf : -0.00417768164lf);
  p = p * t + (tail ? 1.00167406lf : 0.246640727lf);
  p = p * t + (tail ? 2.83297682lf : 1.50140941lf);
  precise double r = p * x;
  return r;
}
#endif

#endif
