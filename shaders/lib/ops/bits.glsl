// Owns the bitwise operations, the shifts, nx_count_leading_zeros and nx_population_count of integers.
//
// Algorithm: the device's own operations. A 64-bit count is made of two 32-bit ones.
// Domain: all integers. A shift by the type's width or more gives 0, or copies of the sign for a right shift of a negative
//   number. Negative shift amounts, which Nx refuses, give the same. Counts take the element's width in bits, because narrow
//   elements are computed in 32 bits.
// Error: exact.

#define NX_BITS(T, U, WIDTH) \
  T nx_bitwise_and(T a, T b) { return a & b; } \
  T nx_bitwise_or(T a, T b) { return a | b; } \
  T nx_bitwise_xor(T a, T b) { return a ^ b; } \
  T nx_bitwise_not(T a) { return ~a; } \
  T nx_left_shift(T a, T n) { return U(n) < U(WIDTH) ? a << n : T(0); } \
  T nx_right_shift(T a, T n) { return U(n) < U(WIDTH) ? a >> n : a < T(0) ? T(~T(0)) : T(0); }

NX_BITS(int, uint, 32)
NX_BITS(uint, uint, 32)

uint low_bits(uint x, uint width) { return width < 32u ? x & ((1u << width) - 1u) : x; }

uint nx_count_leading_zeros(uint x, uint width) { return width - 1u - uint(findMSB(low_bits(x, width))); }
uint nx_count_leading_zeros(int x, uint width) { return nx_count_leading_zeros(uint(x), width); }
uint nx_population_count(uint x, uint width) { return uint(bitCount(low_bits(x, width))); }
uint nx_population_count(int x, uint width) { return nx_population_count(uint(x), width); }

#ifdef HAS_INT64
NX_BITS(int64_t, uint64_t, 64)
NX_BITS(uint64_t, uint64_t, 64)

uint nx_count_leading_zeros(uint64_t x, uint width) {
  uvec2 b = unpackUint2x32(x);
  return b.y != 0u ? nx_count_leading_zeros(b.y, 32u) : 32u + nx_count_leading_zeros(b.x, 32u);
}
uint nx_count_leading_zeros(int64_t x, uint width) { return nx_count_leading_zeros(uint64_t(x), width); }
uint nx_population_count(uint64_t x, uint width) {
  uvec2 b = unpackUint2x32(x);
  return uint(bitCount(b.x) + bitCount(b.y));
}
uint nx_population_count(int64_t x, uint width) { return nx_population_count(uint64_t(x), width); }
#endif
