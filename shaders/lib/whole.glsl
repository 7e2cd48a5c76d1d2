// Owns rounding of floats to whole numbers (fp_nearest, fp_whole, fp_truncate, fp_is_whole) and splitting of whole floats
// into words.
//
// Algorithm: GLSL's floor, and sums that round to a whole number. GLSL's trunc and roundEven are not used: lavapipe (Mesa
//   25.0.7) returns doubles from 2^24 on unchanged, where its vectors hold more elements than the CPU's rounding instruction
//   takes.
// Domain: told at each function.
// Error: exact; native_tests/builtins tests the built-in functions that are used.
// Source: D. E. Knuth, "The Art of Computer Programming", volume 2, 4.2.2.
#ifndef NX_WHOLE
#define NX_WHOLE

#include "lib/float_bits.glsl"

/*
 fp_nearest      the whole number nearest to x, the even one of two, for |x| <= 2^22 (float), 2^51 (double); +0 for
                 every x that rounds to zero. The sum with 1.5 * 2^23 (1.5 * 2^52) has no bits below 1 and rounds once.
 fp_whole        the same as an integer, the low bits of the sum, for |x| <= 2^22 (float), |x| < 2^31 (double). Lavapipe
                 converts vectors element by element, which is slow.
 fp_truncate     |x| without its fraction, for every x but NaN
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
