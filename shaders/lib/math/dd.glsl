// Owns double-word arithmetic (dd_*), exponents and significands (fp_*), and quotients and conversions of a float's formula in
// double (f64_*). The other files of math/ are made of these.
//
// Algorithm: a double word is a vec2 (a dvec2 under HAS_FLOAT64). Its .x holds the value rounded to the type and its .y the
//   remainder, |y| <= ulp(x)/2. Add, subtract and multiply must be correctly rounded, which Vulkan promises; `precise`
//   (NoContraction) forbids fusing and reassociating them.
//   HAS_FMA says that the device's fma() rounds once. Vulkan does not promise that (lavapipe's rounds twice); without
//   HAS_FMA, products are split (Veltkamp).
//   FAST_FLOAT64 says that double is the fastest way to more than float's precision. Functions of floats then use f64_* in
//   place of double words.
// Domain and error: told at each function. The functions that are built on these are tested by native_tests/math.rs.
// Source: T. J. Dekker, "A floating-point technique for extending the available precision" (1971); M. Joldes, J.-M. Muller,
//   V. Popescu, "Tight and rigorous error bounds for basic building blocks of double-word arithmetic" (2017).
#ifndef NX_MATH_DD
#define NX_MATH_DD

#include "lib/whole.glsl"

// 2^n for -126 <= n <= 127, exactly.
float fp_exp2i(float type, int n) { return uintBitsToFloat(uint(n + 127) << 23); }

// floor(log2 |x|) for normal x.
int fp_ilogb(float x) { return int((floatBitsToUint(x) >> 23) & 0xffu) - 127; }

// Subnormals are read and written by integers, because a device may read and write subnormal floats as zero.

// Of a subnormal x, |x| in units of the smallest subnormal; any other x unchanged.
float fp_lift(float x) {
  uint b = floatBitsToUint(x);
  precise float units = uintBitsToFloat((b & 0x007fffffu) | 0x4b000000u) - 8388608.0f;
  return (b & 0x7f800000u) == 0u ? units : x;
}
// k times the smallest subnormal, for integers 0 <= k <= 2^23.
float fp_from_units(float k) {
  precise float shifted = k + 8388608.0f;
  return uintBitsToFloat(floatBitsToUint(shifted) - 0x4b000000u);
}

// floor(log2 |x|) for finite x that is not zero.
int fp_exponent(float x) {
  return fp_ilogb(fp_lift(x)) - ((floatBitsToUint(x) & 0x7f800000u) == 0u ? 149 : 0);
}
// |x| / 2^fp_exponent(x), in [1, 2).
float fp_significand(float x) {
  return uintBitsToFloat((floatBitsToUint(fp_lift(x)) & 0x007fffffu) | 0x3f800000u);
}

// The top 12 significant bits of x. They and the remainder x - fp_split(x) have at most 12 bits each, which makes their
// products exact.
float fp_split(float x) { return uintBitsToFloat(floatBitsToUint(x) & 0xfffff000u); }

#if defined HAS_FLOAT64 || defined FAST_FLOAT64
// 2^n for -1022 <= n <= 1023, exactly.
double fp_exp2i(double type, int n) { return packDouble2x32(uvec2(0u, uint(n + 1023) << 20)); }
#endif

#ifdef FAST_FLOAT64
// Conversions between float and double by integers, because the device's own are slow.

// |x| for normal x; about 2^-127 for zeros and subnormals.
double f64_abs(float x) {
  uint b = floatBitsToUint(nx_abs(x));
  return packDouble2x32(uvec2(b << 29, (b >> 3) + 0x38000000u));
}
// The bits of the float nearest to |x|, where that float is normal. Ties round up: x is inexact, and either
// float is as good.
uint f64_round_bits(double x) {
  uvec2 b = unpackDouble2x32(x);
  return ((b.y << 3) | (b.x >> 29)) + ((b.x >> 28) & 1u) - 0xc0000000u;
}
// a p with the sign of x, for p > 0. Where |x| < 1.5 * 2^-126, a is |x| and 2/3 < p < 4/3. The product is then rounded in
// units of 2^-149, because the bits of a float below 2^-125 are its value in those units.
float f64_scale(float x, double a, double p) {
  uint b = floatBitsToUint(x), magnitude = b & 0x7fffffffu;
  precise double units = packDouble2x32(uvec2(magnitude, 0x43300000u)) - 4503599627370496.0lf;
  precise double shifted = fma(units, p, 4503599627370496.0lf);
  uint v = magnitude < 0x00c00000u ? unpackDouble2x32(shifted).x : f64_round_bits(a * p);
  return uintBitsToFloat(v | (b & 0x80000000u));
}
// (-1)^n x
double f64_negate(double x, uint n) {
  uvec2 b = unpackDouble2x32(x);
  return packDouble2x32(uvec2(b.x, b.y ^ (n << 31)));
}
// a / b for 2^-100 < b < 2^100, relative error below 2^-43: a float reciprocal of the top 24 bits of b, then one Newton step,
// which squares its error. The reciprocal is the square of inversesqrt, because a correctly rounded float division is a dozen
// operations and a branch.
double f64_quotient(double a, double b) {
  uvec2 w = unpackDouble2x32(b);
  float root = inversesqrt(uintBitsToFloat(((w.y << 3) | (w.x >> 29)) - 0xc0000000u));
  uint r = floatBitsToUint(root * root);
  double inverse = packDouble2x32(uvec2(r << 29, (r >> 3) + 0x38000000u));
  double q = a * inverse;
  return q + q * (1.0lf - b * inverse);
}
#endif

#ifdef HAS_FLOAT64

int fp_ilogb(double x) { return int((fp_high(x) >> 20) & 0x7ffu) - 1023; }

double fp_lift(double x) {
  uvec2 b = unpackDouble2x32(x);
  precise double y = double(b.y & 0x000fffffu) * 4294967296.0lf + double(b.x);
  return (b.y & 0x7ff00000u) == 0u ? y : x;
}
double fp_from_units(double k) {
  double high, low;
  fp_words(k, high, low);
  return packDouble2x32(uvec2(uint(low), uint(high)));
}

int fp_exponent(double x) { return fp_ilogb(fp_lift(x)) - ((fp_high(x) & 0x7ff00000u) == 0u ? 1074 : 0); }
double fp_significand(double x) {
  uvec2 b = unpackDouble2x32(fp_lift(x));
  return packDouble2x32(uvec2(b.x, (b.y & 0x000fffffu) | 0x3ff00000u));
}

// The nearest 26-bit value (Veltkamp), for |x| < 2^996.
double fp_split(double x) {
  precise double c = 134217729.0lf * x;
  precise double h = c - (c - x);
  return h;
}
#endif

#ifdef HAS_FMA
#define NX_TWO_PROD(T, T2) \
  T2 dd_two_prod(T a, T b) { \
    precise T p = a * b; \
    precise T e = fma(a, b, -p); \
    return T2(p, e); \
  }
#else
#define NX_TWO_PROD(T, T2) \
  T2 dd_two_prod(T a, T b) { \
    precise T p = a * b; \
    precise T ah = fp_split(a); \
    precise T al = a - ah; \
    precise T bh = fp_split(b); \
    precise T bl = b - bh; \
    precise T e = ((ah * bh - p) + ah * bl + al * bh) + al * bl; \
    return T2(p, e); \
  }
#endif

/*
 u is half an ulp of 1 (2^-24, 2^-53); algorithm numbers are those of Joldes, Muller and Popescu.

 dd_fast_two_sum a + b exactly as a double word, for |a| >= |b| or a = 0
 dd_two_sum      a + b exactly as a double word
 dd_two_prod     a * b exactly as a double word, while neither over- nor underflows: |a b| >= 2^-100 (2^-968), |a|, |b| < 2^996
 dd_add          sums: algorithms 4 (error 2 u^2) and 6 (3 u^2)
 dd_fast_add     sum for |a| >= |b| and a + b not much smaller than a (error 4 u^2)
 dd_mul          products: algorithms 9 (error 2 u^2) and 12 (5 u^2)
 dd_div          quotients: the device's own, corrected by its residual; error 10 u^2 where the device's is within 3 ulp
 dd_sqrt         square roots for a > 0: the device's own, corrected by its residual
 dd_value        the double word rounded to its type
 dd_ldexp        a * 2^n rounded once, for a normalised double word with |a| in [1/4, 4), positive where the result may be
                 subnormal. A subnormal result is rounded by adding c = 2^(emin-n) to a.x; a.y decides ties.
*/
#define NX_DD(T, T2, P, EMIN) \
  T2 dd_fast_two_sum(T a, T b) { \
    precise T s = a + b; \
    precise T e = b - (s - a); \
    return T2(s, e); \
  } \
  T2 dd_two_sum(T a, T b) { \
    precise T s = a + b; \
    precise T t = s - a; \
    precise T e = (a - (s - t)) + (b - t); \
    return T2(s, e); \
  } \
  NX_TWO_PROD(T, T2) \
  T2 dd_negate(T2 a) { return T2(nx_negate(a.x), nx_negate(a.y)); } \
  T2 dd_add(T2 a, T b) { \
    T2 s = dd_two_sum(a.x, b); \
    precise T e = a.y + s.y; \
    return dd_fast_two_sum(s.x, e); \
  } \
  T2 dd_add(T2 a, T2 b) { \
    T2 s = dd_two_sum(a.x, b.x); \
    T2 t = dd_two_sum(a.y, b.y); \
    precise T c = s.y + t.x; \
    T2 v = dd_fast_two_sum(s.x, c); \
    precise T w = t.y + v.y; \
    return dd_fast_two_sum(v.x, w); \
  } \
  T2 dd_fast_add(T2 a, T2 b) { \
    T2 s = dd_fast_two_sum(a.x, b.x); \
    precise T e = s.y + (a.y + b.y); \
    return dd_fast_two_sum(s.x, e); \
  } \
  T2 dd_mul(T2 a, T b) { \
    T2 p = dd_two_prod(a.x, b); \
    precise T e = p.y + a.y * b; \
    return dd_fast_two_sum(p.x, e); \
  } \
  T2 dd_mul(T2 a, T2 b) { \
    T2 p = dd_two_prod(a.x, b.x); \
    precise T e = p.y + (a.y * b.y + a.x * b.y + a.y * b.x); \
    return dd_fast_two_sum(p.x, e); \
  } \
  T2 dd_div(T2 a, T2 b) { \
    precise T q = a.x / b.x; \
    T2 p = dd_two_prod(q, b.x); \
    precise T r = ((a.x - p.x) - p.y) + (a.y - q * b.y); \
    precise T c = r / b.x; \
    return dd_fast_two_sum(q, c); \
  } \
  T2 dd_sqrt(T2 a) { \
    precise T q = sqrt(a.x); \
    T2 p = dd_two_prod(q, q); \
    precise T r = ((a.x - p.x) - p.y) + a.y; \
    precise T c = r / (q + q); \
    return dd_fast_two_sum(q, c); \
  } \
  T dd_value(T2 a) { \
    precise T r = a.x + a.y; \
    return r; \
  } \
  T dd_ldexp(T2 a, int n) { \
    int m = clamp(n, EMIN - P - 4, -2 * EMIN); \
    T c = m < EMIN + 3 ? fp_exp2i(a.x, EMIN - m) : T(0); \
    bool subnormal = nx_abs(a.x) < c; \
    c = subnormal ? c : T(0); \
    precise T s = c + a.x; \
    precise T e = a.x - (s - c); \
    precise T h = c * fp_exp2i(a.x, -P - 1); \
    precise T tie = (e == h && a.y > T(0)) ? h + h : ((e == -h && a.y < T(0)) ? -(h + h) : T(0)); \
    precise T r = (s + tie) - c; \
    precise T units = r * fp_exp2i(a.x, min(m, EMIN + 3) - EMIN + P); \
    r = r * fp_exp2i(a.x, m / 2) * fp_exp2i(a.x, m - m / 2); \
    r = subnormal ? fp_from_units(units) : r; \
    return r; \
  }

NX_DD(float, vec2, 23, -126)
#ifdef HAS_FLOAT64
NX_DD(double, dvec2, 52, -1022)
#endif

#endif
