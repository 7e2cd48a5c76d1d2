#ifndef NX_WHOLE
#define NX_WHOLE

#include "lib/float_bits.glsl"

// Whole numbers near a float, by floor and exact sums.
//
// GLSL's trunc and roundEven stay out of the library: of doubles lavapipe (Mesa 25.0.7) returns every number from 2^24 on
// unchanged, where its vectors are wider than the CPU's rounding instruction. native_tests/builtins.rs tests what is used.

/*
 fp_nearest      the whole number nearest to x, the even one of two, for |x| <= 2^22 (float), 2^51 (double): a number that
                 1.5 * 2^23 (1.5 * 2^52) is added to has no bits left below 1, and the sum rounds once (D. E. Knuth, "The Art of
                 Computer Programming", volume 2, 4.2.2). Exact; +0 for all that rounds to zero.
 fp_whole        the same as an integer, the low bits of the sum, for |x| <= 2^22 (float), |x| < 2^31 (double). Lavapipe
                 converts lane by lane.
 fp_truncate     |x| without its fraction, for every x but NaN. Exact.
 fp_is_whole     whether x has no fraction; infinities have none
 fp_words        t = high 2^32 + low for whole t >= 0: scaling by a power of two and the difference are exact
*/
float fp_nearest(float x) {
  precise float shifted = x + 12582912.0f;
  precise float nearest = shifted - 12582912.0f;
  return nearest;
}
int fp_whole(float x) {
  precise float shifted = x + 12582912.0f;
  return floatBitsToInt(shifted) - 0x4b400000;
}

#if defined HAS_FLOAT64 || defined FAST_FLOAT64
double fp_nearest(double x) {
  precise double shifted = x + 6755399441055744.0lf;
  precise double nearest = shifted - 6755399441055744.0lf;
  return nearest;
}
int fp_whole(double x) {
  precise double shifted = x + 6755399441055744.0lf;
  return int(unpackDouble2x32(shifted).x);
}
#endif

#define NX_WHOLE_OF(T) \
  T fp_truncate(T x) { return floor(nx_abs(x)); } \
  bool fp_is_whole(T x) { return floor(x) == x; } \
  void fp_words(T t, out T high, out T low) { \
    precise T h = floor(t * T(2.3283064365386962890625e-10)); \
    precise T l = t - h * T(4294967296.0); \
    high = h; \
    low = l; \
  }

NX_WHOLE_OF(float)
#ifdef HAS_FLOAT64
NX_WHOLE_OF(double)
#endif

#endif
