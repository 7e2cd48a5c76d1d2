#ifndef NX_MATH_HYPERBOLIC
#define NX_MATH_HYPERBOLIC

#include "lib/math/exp.glsl"
#include "lib/math/log.glsl"

/*
 With exp(|x|) = 2^k (1 + e), c = 2^-2k and d = e / (1 + e), so that exp(-|x|) = 2^-k (1 - d):
   sinh |x| = 2^(k-1) ((1 - c) + e + c d),   cosh x = 2^(k-1) ((1 + c) + e - c d),
 and tanh |x| = -m / (2 + m) with m = expm1(-2|x|). The inverse functions are logarithms (FreeBSD msun's s_asinh.c,
 e_acosh.c), all in double words:
   asinh |x| = log1p(|x| + x^2 / (1 + sqrt(1 + x^2))),   acosh x = log1p(t + sqrt(t (2 + t))) with t = x - 1,
   atanh |x| = (k ln2)/2 + atanh(s), s = ((1 - q) + |x| (1 + q)) / ((1 + q) + |x| (1 - q)), q = 2^k near (1 + |x|) / (1 - |x|).

 Where |x| < TINY, x is nearer than any other value.

 nx_sinh, nx_cosh, nx_tanh     error < 0.502 ulp (float), 0.543, 0.515, 0.535 (double)
 nx_asinh, nx_acosh, nx_atanh  error < 0.500001 ulp (float and double)

 tanh(±Inf) is NaN, as BinaryBackend has it. acosh(x) for x < 1 and atanh(x) for |x| > 1 are NaN, atanh(±1) = ±Inf,
 where BinaryBackend raises.
*/
#define NX_HYPERBOLIC(T, T2, INF, NAN, HIGHEST, ONE, TINY, LARGE, NEGLIGIBLE) \
  T nx_sinh(T x) { \
    T a = min(nx_abs(x), HIGHEST); \
    T k = dd_exp_k(a); \
    T2 e = dd_expm1_near_zero(dd_exp_r(T2(a, T(0)), k)); \
    T c = k > T(NEGLIGIBLE) ? T(0) : fp_exp2i(x, -2 * int(min(k, T(NEGLIGIBLE)))); \
    T2 d = dd_mul(dd_div(e, dd_fast_add(T2(T(1), T(0)), e)), c); \
    T v = dd_ldexp(dd_add(dd_two_sum(T(1), -c), dd_add(e, d)), int(k) - 1); \
    v = fp_copysign(nx_abs(x) < TINY ? nx_abs(x) : v, x); \
    return is_nan(x) ? NAN : v; \
  } \
  T nx_cosh(T x) { \
    T a = min(nx_abs(x), HIGHEST); \
    T k = dd_exp_k(a); \
    T2 e = dd_expm1_near_zero(dd_exp_r(T2(a, T(0)), k)); \
    T c = k > T(NEGLIGIBLE) ? T(0) : fp_exp2i(x, -2 * int(min(k, T(NEGLIGIBLE)))); \
    T2 d = dd_mul(dd_div(e, dd_fast_add(T2(T(1), T(0)), e)), -c); \
    T v = dd_ldexp(dd_add(dd_two_sum(T(1), c), dd_add(e, d)), int(k) - 1); \
    return is_nan(x) ? NAN : v; \
  } \
  T nx_tanh(T x) { \
    precise T a = T(-2) * min(nx_abs(x), ONE); \
    T k = dd_exp_k(a); \
    T2 e = dd_expm1_near_zero(dd_exp_r(T2(a, T(0)), k)); \
    precise T s = fp_exp2i(x, int(k)); \
    precise T2 t = T2(e.x * s, e.y * s); \
    T2 m = dd_add(dd_two_sum(s, T(-1)), t); \
    T v = -dd_div(m, dd_add(m, T(2))).x; \
    v = fp_copysign(nx_abs(x) < TINY ? nx_abs(x) : v, x); \
    return is_finite(x) ? v : NAN; \
  } \
  T nx_asinh(T x) { \
    T a = nx_abs(x); \
    T b = min(a, LARGE); \
    T2 b2 = dd_two_prod(b, b); \
    T2 u = dd_add(dd_div(b2, dd_add(dd_sqrt(dd_add(b2, T(1))), T(1))), b); \
    bool large = a > LARGE; \
    T2 l = dd_log(large ? T2(a, T(0)) : dd_add(u, T(1)), u); \
    l = large ? dd_add(l, dd_log_sum(T(1), T2(T(0), T(0)))) : l; \
    T v = fp_copysign(a < TINY || is_infinity(x) ? a : l.x, x); \
    return is_nan(x) ? NAN : v; \
  } \
  T nx_acosh(T x) { \
    T2 t = dd_two_sum(min(x, LARGE), T(-1)); \
    T2 u = dd_add(dd_sqrt(dd_mul(t, dd_add(t, T(2)))), t); \
    bool large = x > LARGE; \
    T2 l = dd_log(large ? T2(x, T(0)) : dd_add(u, T(1)), u); \
    l = large ? dd_add(l, dd_log_sum(T(1), T2(T(0), T(0)))) : l; \
    T v = x == T(1) ? T(0) : l.x; \
    v = is_infinity(x) ? INF : v; \
    return x >= T(1) && !is_nan(x) ? v : NAN; \
  } \
  T nx_atanh(T x) { \
    T a = nx_abs(x); \
    T b = a < T(1) ? a : T(0); \
    precise T w = (T(1) + b) / (T(1) - b); \
    int k = fp_log2_nearest(w); \
    T q = fp_exp2i(x, k); \
    T2 p = dd_two_sum(T(1), q); \
    T2 m = dd_two_sum(T(1), -q); \
    T2 s = dd_div(dd_add(m, dd_mul(p, b)), dd_add(p, dd_mul(m, b))); \
    T2 l = dd_log_sum(T(k), dd_two_atanh(s)); \
    precise T h = T(0.5f) * l.x; \
    T v = fp_copysign(a < TINY ? a : (a == T(1) ? INF : h), x); \
    return a <= T(1) && !is_nan(x) ? v : NAN; \
  }

NX_HYPERBOLIC(float, vec2, F32_INF, F32_NAN, 91.0f, 10.0f, 1.2e-4f, 1048576.0f, 30)
#ifdef HAS_FLOAT64
NX_HYPERBOLIC(double, dvec2, F64_INF, F64_NAN, 712.0lf, 22.0lf, 7.4e-9lf, 274877906944.0lf, 60)
#endif

#endif
