// Owns nx_max, nx_min and nx_clip of real numbers.
//
// Algorithm: selections by the comparisons of compare.glsl, those of max and min without its tests for NaN. Where floats are compared as
//   integers, unsigned keys order them with NaN above all others, which is one comparison for both.
// Domain: all numbers. max and min of a NaN are NaN; of equal operands, zeros of either sign among them, they take the first.
//   clip follows Nx.BinaryBackend: of NaN it is the lower bound.
// Error: exact.
#ifndef NX_EXTREMA
#define NX_EXTREMA

#include "lib/ops/compare.glsl"

// Let one macro serve integers, doubles and floats.
bool is_nan(int x) { return false; }
bool is_nan(uint x) { return false; }
int order_of(int x) { return x; }
uint order_of(uint x) { return x; }
#ifdef HAS_INT64
bool is_nan(int64_t x) { return false; }
bool is_nan(uint64_t x) { return false; }
int64_t order_of(int64_t x) { return x; }
uint64_t order_of(uint64_t x) { return x; }
#endif
#ifdef HAS_FLOAT64
double order_of(double x) { return x; }
#endif

#define NX_MAX_MIN_OF(T) \
  T nx_max(T a, T b) { return is_nan(a) ? a : (is_nan(b) || order_of(a) < order_of(b)) ? b : a; } \
  T nx_min(T a, T b) { return is_nan(a) ? a : (is_nan(b) || order_of(b) < order_of(a)) ? b : a; }

#define NX_EXTREMA_OF(T) \
  NX_MAX_MIN_OF(T) \
  NX_CLIP_OF(T)

#define NX_CLIP_OF(T) \
  T nx_clip(T x, T low, T high) { \
    T t = nx_less(low, x) ? x : low; \
    return nx_less(t, high) ? t : high; \
  }

NX_EXTREMA_OF(int)
NX_EXTREMA_OF(uint)
#ifdef COMPARES_SUBNORMALS
NX_EXTREMA_OF(float)
#else
// From 0 for the least float to 0xff000000 for the greatest, and more for NaN.
uint ascending_key(float x) { return uint(order_of(x)) + 0x7f800000u; }
uint descending_key(float x) { return 0x7f800000u - uint(order_of(x)); }
float nx_max(float a, float b) { return ascending_key(a) < ascending_key(b) ? b : a; }
float nx_min(float a, float b) { return descending_key(a) < descending_key(b) ? b : a; }
NX_CLIP_OF(float)
#endif
#ifdef HAS_INT64
NX_EXTREMA_OF(int64_t)
NX_EXTREMA_OF(uint64_t)
#endif
#ifdef HAS_FLOAT64
NX_EXTREMA_OF(double)
#endif
#endif
