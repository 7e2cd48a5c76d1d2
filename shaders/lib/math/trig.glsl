// Owns nx_sin, nx_cos and nx_tan.
//
// Algorithm: reduction to [-pi/4, pi/4] by a * 2/pi mod 4 in 32-bit integers (Payne and Hanek); of doubles below 2^22 by pi/2
//   in three parts (Cody and Waite). Then minimax polynomials (Sollya's fpminimax) whose first two coefficients are double
//   words. With FAST_FLOAT64, floats are reduced to [-pi/2, pi/2] in double, below 2^21 by Cody and Waite, and the polynomial
//   is double too.
// Domain: all finite numbers. Infinities give NaN.
// Error: below 0.51 ulp in float and double, next to multiples of pi/2 too (bound of native_tests/oracle.rs). Largest
//   measured: sin and cos 0.5006, tan 0.501.
// Source: M. H. Payne, R. N. Hanek, "Radian reduction for trigonometric functions" (1983); W. J. Cody, W. Waite, "Software
//   Manual for the Elementary Functions" (1980).
#ifndef NX_MATH_TRIG
#define NX_MATH_TRIG

#include "lib/math/dd.glsl"

// 2/pi in words of 32 bits, most significant first, after one word of zeros: the first bit has the weight 2^31. The words
// that an argument needs are found by selections, one step for each bit of their index, because an index that differs between
// invocations is a slow load.
const uint TRIG_TWO_OVER_PI[38] = uint[38](
  0x00000000u, 0xa2f9836eu, 0x4e441529u, 0xfc2757d1u, 0xf534ddc0u, 0xdb629599u, 0x3c439041u, 0xfe5163abu, 0xdebbc561u,
  0xb7246e3au, 0x424dd2e0u, 0x06492eeau, 0x09d1921cu, 0xfe1deb1cu, 0xb129a73eu, 0xe88235f5u, 0x2ebb4484u, 0xe99c7026u,
  0xb45f7e41u, 0x3991d639u, 0x835339f4u, 0x9c845f8bu, 0xbdf9283bu, 0x1ff897ffu, 0xde05980fu, 0xef2f118bu, 0x5a0a6d1fu,
  0x6d367ecfu, 0x27cb09b7u, 0x4f463f66u, 0x9e5fea2du, 0x7527bac7u, 0xebe5f17bu, 0x3d0739f7u, 0x8a5292eau, 0x6bfb5fb1u,
  0x1f8d5d08u, 0x56033046u);

// The top 32 bits of (high, low) << s, for 0 <= s <= 31.
uint trig_shift(uint high, uint low, int s) { return (high << s) | ((low >> 1) >> (31 - s)); }

// a * 2/pi mod 4 in units of 2^-94 for finite a >= pi/4, top word first.
uvec3 trig_quadrants(float a) {
  uint bits = floatBitsToUint(a);
  uint m = (bits & 0x7fffffu) | 0x800000u;
  int p = int(bits >> 23) - 120;
  uint g[7];
  for (int i = 0; i < 7; i++) g[i] = (p & 128) != 0 ? TRIG_TWO_OVER_PI[i + 4] : TRIG_TWO_OVER_PI[i];
  for (int i = 0; i < 5; i++) g[i] = (p & 64) != 0 ? g[i + 2] : g[i];
  for (int i = 0; i < 4; i++) g[i] = (p & 32) != 0 ? g[i + 1] : g[i];
  uint low, mid, top, h, l;
  umulExtended(trig_shift(g[2], g[3], p & 31), m, h, low);
  umulExtended(trig_shift(g[1], g[2], p & 31), m, top, l);
  mid = l + h;
  top += trig_shift(g[0], g[1], p & 31) * m + uint(mid < l);
  return uvec3(top, mid, low);
}

#ifdef FAST_FLOAT64
// sin a, or cos a = sin(a + pi/2), for finite a >= 0: (-1)^n sin r with |r| <= pi/2. The polynomial is by E. Ya. Remez's
// algorithm, with a relative error below 2^-43.
//
// Below 2^21, pi has two parts. The first has 32 bits, which makes its product with the multiple exact; the second adds an
// error of 2^-65. For a > pi/4, |r| is never below 2^-28.
double f64_sine(float a, bool cosine) {
  uint n;
  double r;
  if (a < 2097152.0f) {
    double w = double(a);
    precise double shifted = cosine ? fma(w, 0.3183098861837907lf, 0.5lf) + 6755399441055744.0lf
        : fma(w, 0.3183098861837907lf, 6755399441055744.0lf);
    precise double nearest = shifted - 6755399441055744.0lf;
    n = unpackDouble2x32(shifted).x;
    double multiple = cosine ? nearest - 0.5lf : nearest;
    r = (w - multiple * 3.1415926534682512lf) - multiple * 1.2154201013012384e-10lf;
  } else {
    uvec3 q = trig_quadrants(a);
    q.x += cosine ? 0x40000000u : 0u;
    n = (q.x + 0x40000000u) >> 31;
    precise double top = double(int(q.x - (n << 31))) * 4294967296.0lf + double(q.y);
    // The factor is 2^-94 pi/2.
    r = (top * 4294967296.0lf + double(q.z)) * 7.930494798548879e-29lf;
  }
  double z = r * r;
  double v = r * (0.9999999999999376lf + z * (-0.1666666666643234lf + z * (0.008333333318765838lf
      + z * (-0.0001984126641166965lf + z * (2.755693192985793e-06lf + z * (-2.5029518972671903e-08lf
      + z * 1.5401171721166652e-10lf))))));
  return f64_negate(v, n);
}
// Measured over 84 million floats: error < 0.500002 ulp, 1 in 2 million not correctly rounded.
float nx_sin(float x) {
  float y = float(f64_sine(nx_abs(x), false));
  float v = nx_abs(x) < 1.0e-6f ? x : (is_negative(x) ? nx_negate(y) : y);
  return is_finite(x) ? v : F32_NAN;
}
float nx_cos(float x) {
  float y = float(f64_sine(nx_abs(x), true));
  return is_finite(x) ? y : F32_NAN;
}
float nx_tan(float x) {
  double c = f64_sine(nx_abs(x), true);
  uint negative = unpackDouble2x32(c).y >> 31;
  float y = float(f64_quotient(f64_negate(f64_sine(nx_abs(x), false), negative), f64_negate(c, negative)));
  float v = nx_abs(x) < 1.0e-6f ? x : (is_negative(x) ? nx_negate(y) : y);
  return is_finite(x) ? v : F32_NAN;
}
#else
// a = (quadrant mod 4) * pi/2 + r
struct TrigReduced32 {
  vec2 r;
  uint quadrant;
};

// For finite a >= 0. For a > pi/4, |r| is never below 2^-30, and the product has 94 fraction bits: the relative error of r is
// at most 2^-40 (2^-45 on all but a few arguments).
TrigReduced32 trig_reduce(float a) {
  if (floatBitsToUint(a) < 0x3f490fdbu) return TrigReduced32(vec2(a, 0.0f), 0u);
  uvec3 q = trig_quadrants(a);
  uint quadrant = (q.x + 0x20000000u) >> 30;
  q.x -= quadrant << 30;
  uint negative = uint(int(q.x) >> 31);
  q ^= negative;

  // The top word is not zero: checked for all floats.
  int s = 31 - findMSB(q.x);
  uint t = trig_shift(q.x, q.y, s);
  uint u = trig_shift(q.y, q.z, s);
  precise float x = float(t >> 8) * fp_exp2i(a, -22 - s);
  precise float y = float(((t & 0xffu) << 16) | (u >> 16)) * fp_exp2i(a, -46 - s);
  vec2 r = dd_mul(dd_fast_two_sum(x, y), vec2(1.5707964f, -4.371139e-08f));
  return TrigReduced32(negative != 0u ? dd_negate(r) : r, quadrant);
}

// cos r or sin r for |r| <= pi/4: 1 + z w(z) or r (1 + z w(z)), z = r^2. Error of the polynomials 2^-43 and 2^-47.
vec2 trig_kernel(vec2 r, bool cosine) {
  vec2 z = dd_mul(r, r);
  vec2 c1 = cosine ? vec2(-0.5f, 4.474643e-12f) : vec2(-0.16666667f, 4.967336e-09f);
  vec2 c2 = cosine ? vec2(0.041666668f, -1.3459314e-09f) : vec2(0.008333334f, -4.416711e-10f);
  float c3 = cosine ? -0.0013888881f : -0.00019841264f;
  float c4 = cosine ? 2.4799037e-05f : 2.7555445e-06f;
  float c5 = cosine ? -2.7179706e-07f : -2.4767317e-08f;
  precise float p = (((c5 * z.x) + c4) * z.x + c3) * z.x;
  vec2 w = dd_fast_add(c1, dd_mul(z, dd_add(c2, p)));
  vec2 v = dd_add(dd_mul(z, w), 1.0f);
  return cosine ? v : dd_mul(r, v);
}
#endif

#ifdef HAS_FLOAT64
struct TrigReduced64 {
  dvec2 r;
  uint quadrant;
};

// For finite a >= 0. Below 2^22, pi/2 has three parts; the first two have 31 bits each, which makes their products with the
// quadrant exact. From 2^22 on, a * 2/pi mod 4 has 190 fraction bits. |r| is never below 2^-62; its relative error is at most
// 2^-75.
TrigReduced64 trig_reduce(double a) {
  uvec2 bits = unpackDouble2x32(a);
  if (a < 0.78539816339744828lf) return TrigReduced64(dvec2(a, 0.0lf), 0u);

  if (bits.y < 0x41500000u) {
    uint k = uint(fp_whole(a * 0.6366197723675814lf));
    double n = double(k);
    precise double t = a - n * 1.5707963267341256lf;
    precise double u = n * -6.07710050359346e-11lf;
    dvec2 r = dd_add(dd_two_sum(t, u), dd_mul(dvec2(-2.912732056093356e-20lf, -1.2293331171481208e-36lf), n));
    return TrigReduced64(r, k & 3u);
  }

  uint m0 = bits.x;
  uint m1 = (bits.y & 0xfffffu) | 0x100000u;
  int p = int(bits.y >> 20) - 1045;
  uint g[22], w[6];
  for (int i = 0; i < 22; i++) g[i] = (p & 512) != 0 ? TRIG_TWO_OVER_PI[i + 16] : TRIG_TWO_OVER_PI[i];
  for (int i = 0; i < 14; i++) g[i] = (p & 256) != 0 ? g[i + 8] : g[i];
  for (int i = 0; i < 10; i++) g[i] = (p & 128) != 0 ? g[i + 4] : g[i];
  for (int i = 0; i < 8; i++) g[i] = (p & 64) != 0 ? g[i + 2] : g[i];
  for (int i = 0; i < 7; i++) g[i] = (p & 32) != 0 ? g[i + 1] : g[i];
  for (int i = 0; i < 6; i++) g[i] = trig_shift(g[i], g[i + 1], p & 31);

  uint carry = 0u;
  for (int i = 5; i >= 0; i--) {
    uint h, l;
    umulExtended(g[i], m0, h, l);
    w[i] = l + carry;
    carry = h + uint(w[i] < l);
  }
  carry = 0u;
  for (int i = 5; i >= 1; i--) {
    uint h, l;
    umulExtended(g[i], m1, h, l);
    l += carry;
    h += uint(l < carry);
    w[i - 1] += l;
    carry = h + uint(w[i - 1] < l);
  }

  uint quadrant = (w[0] + 0x20000000u) >> 30;
  w[0] -= quadrant << 30;
  uint negative = uint(int(w[0]) >> 31);
  for (int i = 0; i < 6; i++) w[i] ^= negative;

  int e = 30;
  for (int j = 0; j < 2; j++) {
    if (w[0] == 0u) {
      for (int i = 0; i < 5; i++) w[i] = w[i + 1];
      w[5] = 0u;
      e += 32;
    }
  }
  int s = 31 - findMSB(w[0]);
  e += s;
  uint t0 = trig_shift(w[0], w[1], s);
  uint t1 = trig_shift(w[1], w[2], s);
  uint t2 = trig_shift(w[2], w[3], s);
  uint t3 = trig_shift(w[3], w[4], s);
  // The 53 leading bits, and the 53 that follow.
  precise double x = (double(t0) * 2097152.0lf + double(t1 >> 11)) * fp_exp2i(a, -21 - e);
  precise double y = (double(t1 & 0x7ffu) * 4398046511104.0lf + double(t2) * 1024.0lf + double(t3 >> 22))
      * fp_exp2i(a, -74 - e);
  dvec2 r = dd_mul(dd_fast_two_sum(x, y), dvec2(1.5707963267948966lf, 6.123233995736766e-17lf));
  return TrigReduced64(negative != 0u ? dd_negate(r) : r, quadrant);
}

// cos r or sin r for |r| <= pi/4: 1 + z w(z) or r (1 + z w(z)), z = r^2. Error of the polynomials 2^-75 (cos) and 2^-68 (sin).
dvec2 trig_kernel(dvec2 r, bool cosine) {
  dvec2 z = dd_mul(r, r);
  dvec2 c1 = cosine ? dvec2(-0.5lf, 3.0473106357699346e-21lf) : dvec2(-0.16666666666666666lf, -8.987777655947178e-18lf);
  dvec2 c2 = cosine ? dvec2(0.041666666666666664lf, 2.1561387686816872e-18lf)
      : dvec2(0.008333333333333323lf, -3.023904409991982e-19lf);
  double c3 = cosine ? -0.0013888888888888861lf : -0.000198412698412548lf;
  double c4 = cosine ? 2.4801587301563652e-05lf : 2.7557319214065345e-06lf;
  double c5 = cosine ? -2.755731921277576e-07lf : -2.505210488196315e-08lf;
  double c6 = cosine ? 2.087675388568255e-09lf : 1.6058363177273472e-10lf;
  double c7 = cosine ? -1.1470246786976911e-11lf : -7.578540830068363e-13lf;
  double c8 = cosine ? 4.736274529789957e-14lf : 0.0lf;
  precise double p = (((((c8 * z.x + c7) * z.x + c6) * z.x + c5) * z.x + c4) * z.x + c3) * z.x;
  dvec2 w = dd_fast_add(c1, dd_mul(z, dd_add(c2, p)));
  dvec2 v = dd_add(dd_mul(z, w), 1.0lf);
  return cosine ? v : dd_mul(r, v);
}
#endif

// Where |x| < tiny, sin x and tan x are x to half an ulp.
#define NX_TRIG(T, T2, TrigReduced, NAN, tiny) \
  T nx_sin(T x) { \
    T a = nx_abs(x); \
    if (a < tiny) return x; \
    if (!is_finite(x)) return NAN; \
    TrigReduced q = trig_reduce(a); \
    T y = dd_value(trig_kernel(q.r, (q.quadrant & 1u) != 0u)); \
    return ((q.quadrant & 2u) != 0u) != is_negative(x) ? nx_negate(y) : y; \
  } \
  T nx_cos(T x) { \
    T a = nx_abs(x); \
    if (!is_finite(x)) return NAN; \
    TrigReduced q = trig_reduce(a); \
    T y = dd_value(trig_kernel(q.r, (q.quadrant & 1u) == 0u)); \
    return ((q.quadrant + 1u) & 2u) != 0u ? nx_negate(y) : y; \
  } \
  T nx_tan(T x) { \
    T a = nx_abs(x); \
    if (a < tiny) return x; \
    if (!is_finite(x)) return NAN; \
    TrigReduced q = trig_reduce(a); \
    T2 s = trig_kernel(q.r, false); \
    T2 c = trig_kernel(q.r, true); \
    bool odd = (q.quadrant & 1u) != 0u; \
    T y = dd_value(odd ? dd_div(c, s) : dd_div(s, c)); \
    return odd != is_negative(x) ? nx_negate(y) : y; \
  }

#ifndef FAST_FLOAT64
NX_TRIG(float, vec2, TrigReduced32, F32_NAN, 1.0e-6f)
#endif
#ifdef HAS_FLOAT64
NX_TRIG(double, dvec2, TrigReduced64, F64_NAN, 1.0e-11lf)
#endif

#endif
