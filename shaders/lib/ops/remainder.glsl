// Owns nx_quotient of integers and nx_remainder of real numbers.
//
// Algorithm: integers by the device's division, which truncates. The remainder is x - x / y * y, because Vulkan defines signed
//   division of negative operands but not OpSRem, which GLSL's % becomes. Floats by long division of the significands, one
//   bit a step.
// Domain: all numbers. The remainder has the dividend's sign, as C's fmod. As in XLA, the quotient by 0 has all bits set and
//   the remainder by 0 is x, for integers; the remainder of a float by 0 is NaN. The quotient of the least integer and -1
//   wraps.
// Error: exact.
// Source: schoolbook long division in base 2.

#define NX_REMAINDER_INT(T) \
  T nx_quotient(T x, T y) { return y == T(0) ? T(~T(0)) : is_minus_one(y) ? -x : x / y; } \
  T nx_remainder(T x, T y) { return y == T(0) ? x : is_minus_one(y) ? T(0) : x - x / y * y; }

bool is_minus_one(int x) { return x == -1; }
bool is_minus_one(uint x) { return false; }
NX_REMAINDER_INT(int)
NX_REMAINDER_INT(uint)

#ifdef HAS_INT64
bool is_minus_one(int64_t x) { return x == int64_t(-1); }
bool is_minus_one(uint64_t x) { return false; }
NX_REMAINDER_INT(int64_t)
NX_REMAINDER_INT(uint64_t)
#endif

// BITS: bits of the fraction. INFINITE: the exponent field of an infinity.
#define NX_REMAINDER(T, U, BITS, INFINITE, TO_BITS, FROM_BITS, MSB) \
  T nx_remainder(T x, T y) { \
    U one = U(1) << BITS, infinity = U(INFINITE) << BITS; \
    U mask = infinity | (one - U(1)); \
    U bx = TO_BITS(x), by = TO_BITS(y); \
    U sign = bx & ~mask, ax = bx & mask, ay = by & mask; \
    if (ay == U(0) || ax >= infinity || ay > infinity) return FROM_BITS(infinity | (one >> 1)); \
    if (ay == infinity || ax < ay) return x; \
    int ex = int(ax >> BITS), ey = int(ay >> BITS); \
    U mx = ax & (one - U(1)), my = ay & (one - U(1)); \
    if (ex == 0) { int s = BITS - MSB(mx); mx <<= s; ex = 1 - s; } else mx |= one; \
    if (ey == 0) { int s = BITS - MSB(my); my <<= s; ey = 1 - s; } else my |= one; \
    for (; ex > ey; ex--) { if (mx >= my) mx -= my; mx <<= 1; } \
    if (mx >= my) mx -= my; \
    if (mx == U(0)) return FROM_BITS(sign); \
    int s = BITS - MSB(mx); \
    mx <<= s; \
    ey -= s; \
    return FROM_BITS(sign | (ey > 0 ? (mx - one) | (U(ey) << BITS) : mx >> (1 - ey))); \
  }

NX_REMAINDER(float, uint, 23, 255, floatBitsToUint, uintBitsToFloat, findMSB)

#if defined(HAS_FLOAT64) && defined(HAS_INT64)
uint64_t double_bits(double x) { return packUint2x32(unpackDouble2x32(x)); }
double bits_double(uint64_t b) { return packDouble2x32(unpackUint2x32(b)); }
int msb64(uint64_t b) {
  uvec2 w = unpackUint2x32(b);
  return w.y != 0u ? 32 + findMSB(w.y) : findMSB(w.x);
}
NX_REMAINDER(double, uint64_t, 52, 2047, double_bits, bits_double, msb64)
#elif defined(HAS_FLOAT64)
#include "lib/int64.glsl"
// The remainder of doubles in two 32-bit words, for devices without 64-bit integers.
double nx_remainder(double x, double y) {
  uvec2 one = uvec2(0u, 1u << 20), infinity = uvec2(0u, 0x7ff00000u), fraction = uvec2(~0u, 0xfffffu);
  uvec2 bx = unpackDouble2x32(x), by = unpackDouble2x32(y), mask = uvec2(~0u, 0x7fffffffu);
  uvec2 sign = bx & ~mask, ax = bx & mask, ay = by & mask;
  if ((ay.x | ay.y) == 0u || !less64(ax, infinity) || less64(infinity, ay)) return F64_NAN;
  if (ay == infinity || less64(ax, ay)) return x;
  int ex = int(ax.y >> 20), ey = int(ay.y >> 20);
  uvec2 mx = ax & fraction, my = ay & fraction;
  if (ex == 0) { int s = 52 - msb64(mx); mx = left64(mx, uint(s)); ex = 1 - s; } else mx |= one;
  if (ey == 0) { int s = 52 - msb64(my); my = left64(my, uint(s)); ey = 1 - s; } else my |= one;
  for (; ex > ey; ex--) {
    if (!less64(mx, my)) mx = subtract64(mx, my);
    mx = left64(mx, 1u);
  }
  if (!less64(mx, my)) mx = subtract64(mx, my);
  if ((mx.x | mx.y) == 0u) return packDouble2x32(sign);
  int s = 52 - msb64(mx);
  mx = left64(mx, uint(s));
  ey -= s;
  uvec2 r = ey > 0 ? subtract64(mx, one) | uvec2(0u, uint(ey) << 20) : right64(mx, uint(1 - ey), 0u);
  return packDouble2x32(sign | r);
}
#endif
