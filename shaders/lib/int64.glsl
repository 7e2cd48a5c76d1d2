// Owns 64-bit integers on devices without them: the types U64 and S64 hold two words, the low one first. They have the
// functions that ops/, convert.glsl and reduce.glsl define for int64_t and uint64_t.
//
// Algorithm: arithmetic by words with carries, S64 in two's complement. Division is of words where one each is enough, else long
// division, one bit a step.
// Domain: as that of ops/ and convert.glsl.
// Error: exact. Conversions to float round to nearest even.
// Source: D. E. Knuth, "The Art of Computer Programming", volume 2, 4.3.1.
#ifndef NX_INT64
#define NX_INT64

#include "lib/float_bits.glsl"

uvec2 add64(uvec2 a, uvec2 b) {
  uint carry, low = uaddCarry(a.x, b.x, carry);
  return uvec2(low, a.y + b.y + carry);
}
uvec2 negate64(uvec2 a) { return add64(~a, uvec2(1u, 0u)); }
uvec2 subtract64(uvec2 a, uvec2 b) { return add64(a, negate64(b)); }
uvec2 multiply64(uvec2 a, uvec2 b) {
  uint high, low;
  umulExtended(a.x, b.x, high, low);
  return uvec2(low, high + a.x * b.y + a.y * b.x);
}
uvec2 left64(uvec2 a, uint n) {
  if (n == 0u) return a;
  if (n >= 64u) return uvec2(0u);
  return n < 32u ? uvec2(a.x << n, (a.y << n) | (a.x >> (32u - n))) : uvec2(0u, a.x << (n - 32u));
}
// a >> n; bits of `fill` enter from the left.
uvec2 right64(uvec2 a, uint n, uint fill) {
  if (n == 0u) return a;
  if (n >= 64u) return uvec2(fill);
  uint high = n < 32u ? (a.y >> n) | (fill << (32u - n)) : fill;
  if (n == 32u) return uvec2(a.y, fill);
  return uvec2(n < 32u ? (a.x >> n) | (a.y << (32u - n)) : (a.y >> (n - 32u)) | (fill << (64u - n)), high);
}
bool less64(uvec2 a, uvec2 b) { return a.y < b.y || (a.y == b.y && a.x < b.x); }
int msb64(uvec2 a) { return a.y != 0u ? 32 + findMSB(a.y) : findMSB(a.x); }

// The quotient and the remainder of a by b, for b other than 0.
void divide64(uvec2 a, uvec2 b, out uvec2 quotient, out uvec2 rest) {
  if ((a.y | b.y) == 0u) {
    quotient = uvec2(a.x / b.x, 0u);
    rest = uvec2(a.x % b.x, 0u);
    return;
  }
  quotient = uvec2(0u);
  rest = uvec2(0u);
  for (int i = msb64(a); i >= 0; i--) {
    bool carry = (rest.y >> 31) != 0u;
    rest = left64(rest, 1u);
    rest.x |= right64(a, uint(i), 0u).x & 1u;
    quotient = left64(quotient, 1u);
    if (carry || !less64(rest, b)) {
      rest = subtract64(rest, b);
      quotient.x |= 1u;
    }
  }
}

bool is_negative(U64 x) { return false; }
bool is_negative(S64 x) { return (x.bits.y >> 31) != 0u; }
bool nx_less(U64 a, U64 b) { return less64(a.bits, b.bits); }
bool nx_less(S64 a, S64 b) { return is_negative(a) != is_negative(b) ? is_negative(a) : less64(a.bits, b.bits); }

// A negative number is less than every unsigned one.
bool nx_less(S64 a, U64 b) { return is_negative(a) || less64(a.bits, b.bits); }
bool nx_less(U64 a, S64 b) { return !is_negative(b) && less64(a.bits, b.bits); }

// The bits of the float nearest to a magnitude.
uint round_to_float(uvec2 magnitude) {
  int top = msb64(magnitude);
  if (top < 24) return floatBitsToUint(float(magnitude.x));
  // 24 bits are kept. The others decide the rounding; ties go to even.
  uvec2 normal = left64(magnitude, uint(63 - top));
  uint kept = normal.y >> 8, rest = normal.y & 0xffu;
  bool up = rest > 0x80u || (rest == 0x80u && (normal.x != 0u || (kept & 1u) != 0u));
  return (uint(top + 126) << 23) + kept + uint(up);
}

#define NX_COMPARE64(A, B) \
  bool nx_equal(A a, B b) { return !nx_less(a, b) && !nx_less(b, a); } \
  bool nx_not_equal(A a, B b) { return !nx_equal(a, b); } \
  bool nx_greater(A a, B b) { return nx_less(b, a); } \
  bool nx_less_equal(A a, B b) { return !nx_less(b, a); } \
  bool nx_greater_equal(A a, B b) { return !nx_less(a, b); } \
  bool nx_logical_and(A a, B b) { return !is_zero(a) && !is_zero(b); } \
  bool nx_logical_or(A a, B b) { return !is_zero(a) || !is_zero(b); } \
  bool nx_logical_xor(A a, B b) { return is_zero(a) != is_zero(b); }

#define NX_INT64_OF(T) \
  bool is_zero(T x) { return (x.bits.x | x.bits.y) == 0u; } \
  bool is_nan(T x) { return false; } \
  T order_of(T x) { return x; } \
  bool nx_is_nan(T x) { return false; } \
  bool nx_is_infinity(T x) { return false; } \
  T nx_add(T a, T b) { return T(add64(a.bits, b.bits)); } \
  T nx_subtract(T a, T b) { return T(subtract64(a.bits, b.bits)); } \
  T nx_multiply(T a, T b) { return T(multiply64(a.bits, b.bits)); } \
  T nx_negate(T x) { return T(negate64(x.bits)); } \
  T nx_abs(T x) { return is_negative(x) ? nx_negate(x) : x; } \
  T nx_sign(T x) { return is_negative(x) ? T(uvec2(~0u)) : T(uvec2(uint(!is_zero(x)), 0u)); } \
  T nx_ceil(T x) { return x; } \
  T nx_floor(T x) { return x; } \
  T nx_round(T x) { return x; } \
  T nx_real(T x) { return x; } \
  T nx_imag(T x) { return T(uvec2(0u)); } \
  T nx_quotient(T a, T b) { \
    if (is_zero(b)) return T(uvec2(~0u)); \
    uvec2 quotient, rest; \
    divide64(nx_abs(a).bits, nx_abs(b).bits, quotient, rest); \
    return T(is_negative(a) != is_negative(b) ? negate64(quotient) : quotient); \
  } \
  T nx_remainder(T a, T b) { \
    if (is_zero(b)) return a; \
    uvec2 quotient, rest; \
    divide64(nx_abs(a).bits, nx_abs(b).bits, quotient, rest); \
    return T(is_negative(a) ? negate64(rest) : rest); \
  } \
  T nx_pow(T x, T n) { \
    T r = T(uvec2(1u, 0u)); \
    if (is_negative(n)) return T(uvec2(0u)); \
    for (; !is_zero(n); n.bits = right64(n.bits, 1u, 0u)) { \
      if ((n.bits.x & 1u) != 0u) r = nx_multiply(r, x); \
      x = nx_multiply(x, x); \
    } \
    return r; \
  } \
  T nx_bitwise_and(T a, T b) { return T(a.bits & b.bits); } \
  T nx_bitwise_or(T a, T b) { return T(a.bits | b.bits); } \
  T nx_bitwise_xor(T a, T b) { return T(a.bits ^ b.bits); } \
  T nx_bitwise_not(T a) { return T(~a.bits); } \
  uint shift64(T n) { return n.bits.y != 0u ? 64u : min(n.bits.x, 64u); } \
  T nx_left_shift(T a, T n) { return T(left64(a.bits, shift64(n))); } \
  T nx_right_shift(T a, T n) { return T(right64(a.bits, shift64(n), is_negative(a) ? ~0u : 0u)); } \
  uint nx_count_leading_zeros(T x, uint width) { return uint(63 - msb64(x.bits)); } \
  uint nx_population_count(T x, uint width) { return uint(bitCount(x.bits.x) + bitCount(x.bits.y)); } \
  T nx_max(T a, T b) { return nx_less(a, b) ? b : a; } \
  T nx_min(T a, T b) { return nx_less(b, a) ? b : a; } \
  T nx_clip(T x, T low, T high) { return nx_min(nx_max(low, x), high); } \
  uint to_u2(T x) { return x.bits.x & 3u; } \
  uint to_u4(T x) { return x.bits.x & 0xfu; } \
  uint to_u8(T x) { return x.bits.x & 0xffu; } \
  uint to_u16(T x) { return x.bits.x & 0xffffu; } \
  uint to_u32(T x) { return x.bits.x; } \
  U64 to_u64(T x) { return U64(x.bits); } \
  int to_s2(T x) { return bitfieldExtract(int(x.bits.x), 0, 2); } \
  int to_s4(T x) { return bitfieldExtract(int(x.bits.x), 0, 4); } \
  int to_s8(T x) { return bitfieldExtract(int(x.bits.x), 0, 8); } \
  int to_s16(T x) { return bitfieldExtract(int(x.bits.x), 0, 16); } \
  int to_s32(T x) { return int(x.bits.x); } \
  S64 to_s64(T x) { return S64(x.bits); } \
  float to_f32(T x) { return uintBitsToFloat(round_to_float(nx_abs(x).bits) | (is_negative(x) ? 0x80000000u : 0u)); } \
  float to_odd(T x) { return is_negative(x) ? -to_odd(nx_abs(x).bits) : to_odd(x.bits); } \
  NX_TO_NARROW_FLOATS(T, to_odd)
NX_INT64_OF(U64)
NX_INT64_OF(S64)
NX_COMPARE64(U64, U64)
NX_COMPARE64(S64, S64)
NX_COMPARE64(U64, S64)
NX_COMPARE64(S64, U64)

U64 to_u64(uint x) { return U64(uvec2(x, 0u)); }
S64 to_s64(uint x) { return S64(uvec2(x, 0u)); }
U64 to_u64(int x) { return U64(uvec2(uint(x), uint(x >> 31))); }
S64 to_s64(int x) { return S64(uvec2(uint(x), uint(x >> 31))); }

// Conversions from floats, by the rules of convert.glsl.
#define NX_INT64_FROM_FLOAT(S) \
  uvec2 wrap(S x, uvec2 lowest, uvec2 highest) { \
    if (is_nan(x)) return uvec2(0u); \
    if (is_infinity(x)) return is_negative(x) ? lowest : highest; \
    S high, low; \
    fp_words(fp_truncate(x), high, low); \
    uvec2 magnitude = uvec2(uint(low), wrap32(high)); \
    return is_negative(x) ? negate64(magnitude) : magnitude; \
  } \
  U64 to_u64(S x) { return U64(wrap(x, uvec2(0u), uvec2(~0u))); } \
  S64 to_s64(S x) { return S64(wrap(x, uvec2(0u, 0x80000000u), uvec2(~0u, 0x7fffffffu))); }
NX_INT64_FROM_FLOAT(float)
#ifdef HAS_FLOAT64
NX_INT64_FROM_FLOAT(double)
double to_f64(U64 x) {
  precise double r = double(x.bits.y) * 4294967296.0lf + double(x.bits.x);
  return r;
}
double to_f64(S64 x) { return is_negative(x) ? -to_f64(U64(negate64(x.bits))) : to_f64(U64(x.bits)); }
#endif

#endif
