// Owns nx_pow of integers; math/pow.glsl owns that of floats.
//
// Algorithm: repeated squaring.
// Domain: all integers. Products wrap. A negative exponent, which Nx refuses, gives 0.
// Error: exact modulo 2^32 or 2^64.
// Source: D. E. Knuth, "The Art of Computer Programming", volume 2, 4.6.3.

#include "lib/math/pow.glsl"

#define NX_POW_INT(T) \
  T nx_pow(T x, T n) { \
    if (n < T(0)) return T(0); \
    T r = T(1); \
    for (; n != T(0); n >>= 1) { \
      if ((n & T(1)) != T(0)) r *= x; \
      x *= x; \
    } \
    return r; \
  }

NX_POW_INT(int)
NX_POW_INT(uint)
#ifdef HAS_INT64
NX_POW_INT(int64_t)
NX_POW_INT(uint64_t)
#endif
