// Owns nx_max, nx_min and nx_clip of real numbers.
//
// Algorithm: selections by comparisons.
// Domain: all numbers. max and min of a NaN are NaN; of equal operands, zeros of either sign among them, they take the first.
//   clip follows Nx.BinaryBackend: of NaN it is the lower bound.
// Error: exact.
#ifndef NX_EXTREMA
#define NX_EXTREMA

// Lets one macro serve integers and floats.
bool is_nan(int x) { return false; }
bool is_nan(uint x) { return false; }
#ifdef HAS_INT64
bool is_nan(int64_t x) { return false; }
bool is_nan(uint64_t x) { return false; }
#endif

#define NX_EXTREMA_OF(T) \
  T nx_max(T a, T b) { return is_nan(a) ? a : (is_nan(b) || b > a) ? b : a; } \
  T nx_min(T a, T b) { return is_nan(a) ? a : (is_nan(b) || b < a) ? b : a; } \
  T nx_clip(T x, T low, T high) { \
    T t = x > low ? x : low; \
    return t < high ? t : high; \
  }

NX_EXTREMA_OF(int)
NX_EXTREMA_OF(uint)
NX_EXTREMA_OF(float)
#ifdef HAS_INT64
NX_EXTREMA_OF(int64_t)
NX_EXTREMA_OF(uint64_t)
#endif
#ifdef HAS_FLOAT64
NX_EXTREMA_OF(double)
#endif
#endif
