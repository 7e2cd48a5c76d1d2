// Owns nx_sign, nx_ceil, nx_floor, nx_round, nx_real and nx_imag of real numbers, and nx_abs and nx_negate of integers;
// float_bits.glsl owns nx_abs and nx_negate of floats.
//
// Algorithm: the device's floor and ceil. round is the truncated magnitude, plus 1 where the fraction is 1/2 or more.
// Domain: all numbers. An integer is its own ceiling; abs and negate of the least integer wrap. As in Nx.BinaryBackend, sign
//   is x itself for zeros, and 1 for NaN and both infinities. round takes ties away from zero and gives no negative zero.
// Error: exact, on devices that read subnormals as zero too.

#include "lib/whole.glsl"

#define NX_ROUNDING_INT(T) \
  T nx_abs(T x) { return x < T(0) ? -x : x; } \
  T nx_negate(T x) { return -x; } \
  T nx_sign(T x) { return x < T(0) ? T(-1) : T(x != T(0)); } \
  T nx_ceil(T x) { return x; } \
  T nx_floor(T x) { return x; } \
  T nx_round(T x) { return x; } \
  T nx_real(T x) { return x; } \
  T nx_imag(T x) { return T(0); }

NX_ROUNDING_INT(int)
NX_ROUNDING_INT(uint)

// is_fraction: whether 0 < |x| < 1, by the bits. A device that reads subnormals as zero has ceil(x) = 0 for a subnormal x.
#define NX_ROUNDING(T) \
  bool is_fraction(T x) { return nx_abs(x) < T(1) && !is_zero(x); } \
  T nx_sign(T x) { return is_zero(x) ? x : is_negative(x) && !is_nan(x) && !is_infinity(x) ? T(-1) : T(1); } \
  T nx_ceil(T x) { return is_fraction(x) && !is_negative(x) ? T(1) : ceil(x); } \
  T nx_floor(T x) { return is_fraction(x) && is_negative(x) ? T(-1) : floor(x); } \
  T nx_round(T x) { \
    if (is_nan(x) || is_infinity(x)) return x; \
    T t = fp_truncate(x); \
    precise T rest = nx_abs(x) - t; \
    precise T r = rest >= T(0.5) ? t + T(1) : t; \
    return r > T(0) && is_negative(x) ? -r : r; \
  } \
  T nx_real(T x) { return x; } \
  T nx_imag(T x) { return T(0); }

NX_ROUNDING(float)

#ifdef HAS_INT64
NX_ROUNDING_INT(int64_t)
NX_ROUNDING_INT(uint64_t)
#endif

#ifdef HAS_FLOAT64
NX_ROUNDING(double)
#endif
