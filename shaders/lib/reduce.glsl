// Owns how reductions of real numbers combine two accumulators: combine_<reduction>(a, x) adds x to a. The kernel that
// includes this file defines IDX, the type of indices, and LAST_WINS, whether argmax and argmin give the last of equal elements.
//
// Algorithm: sums of floats with two accumulators are compensated. All others are the plain operation.
// Domain: all numbers. max and min of a NaN are NaN. argmax and argmin give the last NaN, as Nx.BinaryBackend does.
// Error: a compensated sum of n numbers is off by at most ulp/2 plus about n^2 u^2 times the sum of the magnitudes, where u
//   is half an ulp of 1. Sums and products without compensation round once a step. All others are exact.
// Source: A. Neumaier, "Rundungsfehleranalyse einiger Verfahren zur Summation endlicher Summen" (1974).

#include "lib/ops/extrema.glsl"
#include "lib/range.glsl"

int lowest_int() { return int(0x80000000); }
int highest_int() { return 0x7fffffff; }
uint lowest_uint() { return 0u; }
uint highest_uint() { return ~0u; }
float lowest_float() { return -F32_INF; }
float highest_float() { return F32_INF; }

void combine_all(inout uint a, uint x) { a &= x; }
void combine_any(inout uint a, uint x) { a |= x; }

#define NX_REDUCE(T) \
  void combine_sum(inout T a, T x) { precise T s = a + x; a = s; } \
  void combine_product(inout T a, T x) { precise T s = a * x; a = s; } \
  void combine_max(inout T a, T x) { a = nx_max(a, x); } \
  void combine_min(inout T a, T x) { a = nx_min(a, x); }

// The index ~0 stands for no element.
#define NX_REDUCE_ARG(NAME, BEATS, T, I) \
  void NAME(inout T a, inout I i, T x, I j) { \
    if (j == ~I(0)) return; \
    bool both = i != ~I(0), nan_a = both && is_nan(a), nan_x = is_nan(x); \
    bool later = LAST_WINS ? j > i : j < i; \
    bool take = !both || (nan_a || nan_x ? nan_x && (!nan_a || j > i) : BEATS(x, a) || (later && order_of(x) == order_of(a))); \
    if (take) { a = x; i = j; } \
  }

// a is the rounded sum and b the sum of its rounding errors. finish_sum gives the sum of both; where that is no number, a
// says what the sum is.
#define NX_REDUCE_FLOAT(T) \
  void combine_sum(inout T a, inout T b, T x, T y) { \
    precise T s = a + x; \
    precise T t = s - a; \
    precise T e = (a - (s - t)) + (x - t); \
    precise T c = b + y + e; \
    a = s; \
    b = c; \
  } \
  T finish_sum(T a, T b) { precise T s = a + b; return is_nan(b) || is_infinity(a) ? a : s; }

// A maximum or minimum of floats is the number of the largest key, which is one comparison: from 0 for the identity on, with those of NaN above all
// others. Of zeros -0 is the least.
uint max_key(float x) {
  int b = floatBitsToInt(x);
  return uint(b ^ (b >> 31 & 0x7fffffff)) + 0x7f800001u;
}
float of_max_key(uint key) {
  int b = int(key - 0x7f800001u);
  return uintBitsToFloat(uint(b ^ (b >> 31 & 0x7fffffff)));
}
uint min_key(float x) { return 0xff000001u - max_key(x); }
float of_min_key(uint key) { return of_max_key(0xff000001u - key); }
void combine_max_key(inout uint a, uint x) { a = max(a, x); }
void combine_min_key(inout uint a, uint x) { a = max(a, x); }

// The same by the device's own operation, which may take subnormals for zeros and any operand for the extremum of a NaN and another. Out of range are infinities,
// NaN, and extrema that are zero or subnormal.
void combine_max_in_range(inout float a, float x) {
  a = max(a, x);
  precise float noted = fma(x, 0.0f, not_finite);
  not_finite = noted;
}
void combine_min_in_range(inout float a, float x) {
  a = min(a, x);
  precise float noted = fma(x, 0.0f, not_finite);
  not_finite = noted;
}
uint max_key_in_range(float a) {
  out_of_range = out_of_range || (floatBitsToUint(a) & 0x7fffffffu) < 0x00800000u;
  return max_key(a);
}
uint min_key_in_range(float a) { return 0xff000001u - max_key_in_range(a); }

// Floats are compared by keys, which are the same for both zeros and for all NaN, above all others: that takes no branches.
uint ordered_bits(float x) {
  int b = floatBitsToInt(x);
  return uint(b < 0 ? int(0x80000000u) - b : b);
}
// Infinity's is one less.
const uint NAN_KEY = 0xff000001u;
uint argmax_key(float x) { return min(ordered_bits(x) + 0x7f800000u, NAN_KEY); }
uint argmin_key(float x) { return min(0x7f800000u - ordered_bits(x), NAN_KEY); }

#define NX_REDUCE_ARG_BY_KEY(NAME, KEY, T, I) \
  void NAME(inout T a, inout I i, T x, I j) { \
    uint k = KEY(a), l = KEY(x); \
    bool later = LAST_WINS || l == NAN_KEY ? j + 1 > i + 1 : j < i; \
    bool take = l > k || (l == k && later); \
    a = take ? x : a; \
    i = take ? j : i; \
  }

#define IS_GREATER(x, a) (order_of(x) > order_of(a))
#define IS_LESS(x, a) (order_of(x) < order_of(a))
#define NX_REDUCE_ALL(T) \
  NX_REDUCE(T) \
  NX_REDUCE_ARG(combine_argmax, IS_GREATER, T, IDX) \
  NX_REDUCE_ARG(combine_argmin, IS_LESS, T, IDX)

NX_REDUCE(float)
NX_REDUCE_ARG_BY_KEY(combine_argmax, argmax_key, float, IDX)
NX_REDUCE_ARG_BY_KEY(combine_argmin, argmin_key, float, IDX)

NX_REDUCE_ALL(int)
NX_REDUCE_ALL(uint)
NX_REDUCE_FLOAT(float)
#ifdef HAS_INT64
int64_t lowest_int64_t() { return int64_t(uint64_t(1) << 63); }
int64_t highest_int64_t() { return int64_t(~uint64_t(0) >> 1); }
uint64_t lowest_uint64_t() { return uint64_t(0); }
uint64_t highest_uint64_t() { return ~uint64_t(0); }
NX_REDUCE_ALL(int64_t)
NX_REDUCE_ALL(uint64_t)
#endif
#ifdef EMULATED_INT64
U64 lowest_U64() { return U64(uvec2(0u)); }
U64 highest_U64() { return U64(uvec2(~0u)); }
S64 lowest_S64() { return S64(uvec2(0u, 0x80000000u)); }
S64 highest_S64() { return S64(uvec2(~0u, 0x7fffffffu)); }
#define NX_REDUCE_EMULATED(T) \
  void combine_sum(inout T a, T x) { a = nx_add(a, x); } \
  void combine_product(inout T a, T x) { a = nx_multiply(a, x); } \
  void combine_max(inout T a, T x) { a = nx_max(a, x); } \
  void combine_min(inout T a, T x) { a = nx_min(a, x); } \
  NX_REDUCE_ARG(combine_argmax, nx_greater, T, IDX) \
  NX_REDUCE_ARG(combine_argmin, nx_less, T, IDX)
NX_REDUCE_EMULATED(U64)
NX_REDUCE_EMULATED(S64)
#endif
#ifdef HAS_FLOAT64
double lowest_double() { return -F64_INF; }
double highest_double() { return F64_INF; }
NX_REDUCE_ALL(double)
NX_REDUCE_FLOAT(double)
#endif
