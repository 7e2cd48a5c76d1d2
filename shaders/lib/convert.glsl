// Owns the conversions between element types, for every pair of real ones: to_<type>(x) takes any compute type and gives a
// value of <type> in the compute type of <type>. complex/convert.glsl owns those of complex types.
//
// Algorithm: by bits wherever the device's conversion may flush subnormals, round otherwise than to nearest even or round
//   twice.
// Domain: all numbers, as Nx.as_type/2 and Nx.BinaryBackend define it. Integers wrap. Floats become integers by truncation
//   towards zero, then wrap; NaN becomes 0 and infinities become the type's limits.
// Error: correctly rounded to nearest even for all floats. Integers become f32 and f64 as the device converts them, which
//   native_tests/builtins tests. The tests of Nx.as_type compare every pair of types bit by bit.
// Source: for rounding to odd, S. Boldo, G. Melquiond, "Emulation of FMA and correctly rounded sums: proved algorithms using
//   rounding to odd" (2008).

#include "lib/whole.glsl"

// Narrow floats are bits in memory and floats in computation: <type>_to_float reads, float_to_<type> rounds and writes.

float f16_to_float(uint h) {
  uint s = (h & 0x8000u) << 16, e = (h >> 10) & 31u, m = h & 0x3ffu;
  if (e == 31u) return uintBitsToFloat(s | 0x7f800000u | (m << 13));
  if (e == 0u) return uintBitsToFloat(s | floatBitsToUint(float(m) * 5.9604644775390625e-8));
  return uintBitsToFloat(s | ((e + 112u) << 23) | (m << 13));
}

uint float_to_f16(float x) {
  uint b = floatBitsToUint(x), a = b & 0x7fffffffu;
  // Both cases are computed and one is selected, because a branch costs more. Adding 0.5 rounds a subnormal result to units of
  // 2^-24 and leaves their number in the significand.
  precise float shifted = uintBitsToFloat(a) + 0.5;
  uint subnormal = floatBitsToUint(shifted) - 0x3f000000u, normal = (a - 0x38000000u + 0xfffu + ((a >> 13) & 1u)) >> 13;
  uint r = a < 0x38800000u ? subnormal : normal;
  r = a < 0x477ff000u ? r : 0x7c00u;
  return a > 0x7f800000u ? 0x7e00u : ((b >> 16) & 0x8000u) | r;
}

// bf16 is the high half of an f32. Beyond the largest number the sum carries into the exponent of infinity.
float bf16_to_float(uint h) { return uintBitsToFloat(h << 16); }
uint float_to_bf16(float x) {
  uint b = floatBitsToUint(x);
  return is_nan(x) ? 0x7fc0u : (b + 0x7fffu + ((b >> 16) & 1u)) >> 16;
}
// Of a number that bf16 holds.
uint bf16_bits(float x) { return floatBitsToUint(x) >> 16; }

// f8 (5 bits of exponent, 2 of significand) is the high byte of an f16. BinaryBackend reads the exponent field 0 as if it
// were not subnormal, but rounds to true subnormals. float_to_f8 therefore recognises the values that f8_to_float reads there
// and gives their bits back; round_to_f8 is the rounding of all others.
float f8_to_float(uint h) {
  uint s = (h & 0x80u) << 24, a = h & 0x7fu;
  if (a == 0u) return uintBitsToFloat(s);
  if (a >= 0x7cu) return a == 0x7cu ? uintBitsToFloat(s | 0x7f800000u) : F32_NAN;
  return uintBitsToFloat(s | ((a + 448u) << 21));
}

uint round_to_f8(float x) {
  uint b = floatBitsToUint(x), a = b & 0x7fffffffu;
  // As in float_to_f16: 128 has units of 2^-16.
  precise float shifted = uintBitsToFloat(a) + 128.0;
  uint subnormal = floatBitsToUint(shifted) - 0x43000000u, normal = (a - 0x38000000u + 0xfffffu + ((a >> 21) & 1u)) >> 21;
  uint r = a < 0x38800000u ? subnormal : min(normal, 0x7cu);
  return a > 0x7f800000u ? 0x7eu : ((b >> 24) & 0x80u) | r;
}

uint float_to_f8(float x) {
  uint b = floatBitsToUint(x), a = b & 0x7fffffffu;
  bool subnormal = (a & 0x1fffffu) == 0u && a > 448u << 21 && a < 452u << 21;
  return subnormal ? ((b >> 24) & 0x80u) | ((a >> 21) - 448u) : round_to_f8(x);
}

// f8_e4m3fn (4 bits of exponent, 3 of significand) has no infinities: everything beyond 448 becomes 448.
float f8_e4m3fn_to_float(uint h) {
  uint s = (h & 0x80u) << 24, a = h & 0x7fu;
  if (a == 0x7fu) return F32_NAN;
  if (a < 8u) return uintBitsToFloat(s | floatBitsToUint(float(a) * 0.001953125));
  return uintBitsToFloat(s | ((a + 960u) << 20));
}

uint float_to_f8_e4m3fn(float x) {
  uint b = floatBitsToUint(x), a = b & 0x7fffffffu;
  // As in float_to_f16: 16,384 has units of 2^-9.
  precise float shifted = uintBitsToFloat(a) + 16384.0;
  uint subnormal = floatBitsToUint(shifted) - 0x46800000u, normal = (a - 0x3c000000u + 0x7ffffu + ((a >> 20) & 1u)) >> 20;
  uint r = a < 0x3c800000u ? subnormal : min(normal, 0x7eu);
  return a > 0x7f800000u ? 0x7fu : ((b >> 24) & 0x80u) | r;
}

// The conversions of S to floats narrower than f32, by what makes an f32 of it that rounds to them as the number itself.
#define NX_TO_NARROW_FLOATS(S, TO_FLOAT) \
  float to_f8(S x) { return to_f8(TO_FLOAT(x)); } \
  float to_f8_e4m3fn(S x) { return to_f8_e4m3fn(TO_FLOAT(x)); } \
  float to_f16(S x) { return to_f16(TO_FLOAT(x)); } \
  float to_bf16(S x) { return to_bf16(TO_FLOAT(x)); }

float to_f8(float x) { return f8_to_float(round_to_f8(x)); }
float to_f8_e4m3fn(float x) { return f8_e4m3fn_to_float(float_to_f8_e4m3fn(x)); }
float to_f16(float x) { return f16_to_float(float_to_f16(x)); }
float to_bf16(float x) { return bf16_to_float(float_to_bf16(x)); }
float to_f32(float x) { return x; }

#if defined HAS_FLOAT64 || defined FAST_FLOAT64
#ifdef KEEPS_SUBNORMALS
double to_f64(float x) { return double(x); }
#elif defined SUBNORMAL_DOUBLES
// The device may convert subnormals to zero. The bits of x in a double's places are x 2^-896, a subnormal double where x is one. An exponent of
// ones stays one of infinities and NaN.
double double_in_place(float x) {
  uint b = floatBitsToUint(x), high = uint(int(b) >> 3) & 0x8fffffffu;
  high = (b & 0x7fffffffu) >= 0x7f800000u ? high | 0x70000000u : high;
  return packDouble2x32(uvec2(b << 29, high));
}
double to_f64(float x) { return double_in_place(x) * 5.2829453113566525e269lf; }
#else
// The device may convert subnormals to zero. The subnormal m 2^-149 is found by putting m into the last bits of 2^-97 and
// subtracting 2^-97. The selection is between words, not doubles, to keep compilers from fusing the subtraction with what
// follows.
double to_f64(float x) {
  uint b = floatBitsToUint(x);
  precise double tiny = packDouble2x32(uvec2(b & 0x7fffffu, 0x39e00000u)) - packDouble2x32(uvec2(0u, 0x39e00000u));
  uvec2 words = unpackDouble2x32(tiny) | uvec2(0u, b & 0x80000000u);
  return packDouble2x32((b & 0x7f800000u) != 0u ? unpackDouble2x32(double(x)) : words);
}
#endif
#ifdef SUBNORMAL_DOUBLES
float to_f32_from_positive(double x) { return float(x); }
float to_f32(double x) { return float(x); }
#else
// For x >= 0.
float to_f32_from_positive(double x) {
  // A subnormal result is a whole number of 2^-149. Scaling by 2^149 and adding 2^52 rounds to it and leaves it in the low word.
  bool tiny = unpackDouble2x32(x).y < 0x38100000u;
  precise double shifted = x * 713623846352979940529142984724747568191373312.0lf + 4503599627370496.0lf;
  return tiny ? uintBitsToFloat(unpackDouble2x32(shifted).x) : float(x);
}
float to_f32(double x) {
  uvec2 b = unpackDouble2x32(x);
  float v = to_f32_from_positive(packDouble2x32(uvec2(b.x, b.y & 0x7fffffffu)));
  return uintBitsToFloat((b.y & 0x80000000u) | floatBitsToUint(v));
}
#endif
#endif

// float(x) rounded once. SwiftShader rounds unsigned integers from 2^31 on twice. Half of such an integer, with the bit that is lost
// kept in the last one, is a positive int and rounds as x does.
float rounded_float(int x) { return float(x); }
float rounded_float(uint x) {
#ifdef UINT_BY_INT
  return int(x) >= 0 ? float(int(x)) : 2.0 * float(int((x >> 1) | (x & 1u)));
#else
  return float(x);
#endif
}
#ifdef HAS_INT64
float rounded_float(int64_t x) { return float(x); }
float rounded_float(uint64_t x) { return float(x); }
#endif

// An integer as f32, rounded to odd: the last bit is set where bits were lost. Rounding the result to a narrower type gives the
// type's correctly rounded value.
float to_odd(uint x) { return rounded_float(x < 0x1000000u ? x : (x & ~0xffu) | (uint((x & 0xffu) != 0u) << 8)); }
float to_odd(int x) { return x < 0 ? -to_odd(0u - uint(x)) : to_odd(uint(x)); }
// Of 64 bits: the leading 32 of them, and whether others were lost.
float to_odd(uvec2 x) {
  if (x.y == 0u) return to_odd(x.x);
  int shift = findMSB(x.y) + 1;
  uint leading = shift == 32 ? x.y : (x.y << (32 - shift)) | (x.x >> shift);
  uint lost = shift == 32 ? x.x : x.x << (32 - shift);
  return to_odd(leading | uint(lost != 0u)) * uintBitsToFloat(uint(127 + shift) << 23);
}

// From integers, without 64-bit results.
#define NX_FROM_INT(S) \
  uint to_u2(S x) { return uint(x) & 3u; } \
  uint to_u4(S x) { return uint(x) & 0xfu; } \
  uint to_u8(S x) { return uint(x) & 0xffu; } \
  uint to_u16(S x) { return uint(x) & 0xffffu; } \
  uint to_u32(S x) { return uint(x); } \
  int to_s2(S x) { return bitfieldExtract(int(x), 0, 2); } \
  int to_s4(S x) { return bitfieldExtract(int(x), 0, 4); } \
  int to_s8(S x) { return bitfieldExtract(int(x), 0, 8); } \
  int to_s16(S x) { return bitfieldExtract(int(x), 0, 16); } \
  int to_s32(S x) { return int(x); } \
  float to_f32(S x) { return rounded_float(x); } \
  NX_TO_NARROW_FLOATS(S, to_odd) \
  bool is_zero(S x) { return x == S(0); }
NX_FROM_INT(int)
NX_FROM_INT(uint)

// From floats to integers of at most 32 bits. Magnitudes are wrapped and then negated, because -129 + 2^32 is no float.
#define NX_FROM_FLOAT(S) \
  uint wrap32(S x) { \
    S high, low; \
    fp_words(fp_truncate(x), high, low); \
    return is_negative(x) ? 0u - uint(low) : uint(low); \
  } \
  uint wrap(S x, uint lowest, uint highest) { \
    if (is_nan(x)) return 0u; \
    if (is_infinity(x)) return is_negative(x) ? lowest : highest; \
    return wrap32(x); \
  } \
  uint to_u2(S x) { return wrap(x, 0u, 3u) & 3u; } \
  uint to_u4(S x) { return wrap(x, 0u, 0xfu) & 0xfu; } \
  uint to_u8(S x) { return wrap(x, 0u, 0xffu) & 0xffu; } \
  uint to_u16(S x) { return wrap(x, 0u, 0xffffu) & 0xffffu; } \
  uint to_u32(S x) { return wrap(x, 0u, 0xffffffffu); } \
  int to_s2(S x) { return bitfieldExtract(int(wrap(x, 2u, 1u)), 0, 2); } \
  int to_s4(S x) { return bitfieldExtract(int(wrap(x, 8u, 7u)), 0, 4); } \
  int to_s8(S x) { return bitfieldExtract(int(wrap(x, 0x80u, 0x7fu)), 0, 8); } \
  int to_s16(S x) { return bitfieldExtract(int(wrap(x, 0x8000u, 0x7fffu)), 0, 16); } \
  int to_s32(S x) { return int(wrap(x, 0x80000000u, 0x7fffffffu)); }
NX_FROM_FLOAT(float)

#ifdef HAS_FLOAT64
NX_FROM_FLOAT(double)
double to_f64(double x) { return x; }
double to_f64(int x) { return double(x); }
double to_f64(uint x) { return double(x); }

// x as f32, rounded to odd, by bits, because compilers remove a conversion to float and back.
float to_odd(double x) {
  uvec2 b = unpackDouble2x32(x);
  uint s = b.y & 0x80000000u, e = (b.y >> 20) & 0x7ffu, m = ((b.y & 0xfffffu) << 3) | (b.x >> 29);
  uint rest = uint((b.x & 0x1fffffffu) != 0u);
  if (e == 0x7ffu) return uintBitsToFloat(s | 0x7f800000u | m | rest);
  if (e > 1150u) return uintBitsToFloat(s | 0x7f7fffffu);
  if (e < 897u) {
    // A subnormal result, or none.
    uint significand = m | (e == 0u ? 0u : 0x800000u), shift = min(897u - e, 31u), kept = significand >> shift;
    return uintBitsToFloat(s | kept | rest | uint((kept << shift) != significand));
  }
  return uintBitsToFloat(s | ((e - 896u) << 23) | m | rest);
}
NX_TO_NARROW_FLOATS(double, to_odd)
#endif

#ifdef HAS_INT64
float to_odd(uint64_t x) { return to_odd(unpackUint2x32(x)); }
float to_odd(int64_t x) { return x < 0 ? -to_odd(uint64_t(0) - uint64_t(x)) : to_odd(uint64_t(x)); }
NX_FROM_INT(int64_t)
NX_FROM_INT(uint64_t)
uint64_t to_u64(int x) { return uint64_t(int64_t(x)); }
uint64_t to_u64(uint x) { return uint64_t(x); }
uint64_t to_u64(int64_t x) { return uint64_t(x); }
uint64_t to_u64(uint64_t x) { return x; }
int64_t to_s64(int x) { return int64_t(x); }
int64_t to_s64(uint x) { return int64_t(uint64_t(x)); }
int64_t to_s64(int64_t x) { return x; }
int64_t to_s64(uint64_t x) { return int64_t(x); }

#define NX_INT64_FROM_FLOAT(S) \
  uint64_t wrap64(S x) { \
    S high, low; \
    fp_words(fp_truncate(x), high, low); \
    uint64_t magnitude = packUint2x32(uvec2(uint(low), wrap32(high))); \
    return is_negative(x) ? uint64_t(0) - magnitude : magnitude; \
  } \
  uint64_t wrap(S x, uint64_t lowest, uint64_t highest) { \
    if (is_nan(x)) return uint64_t(0); \
    if (is_infinity(x)) return is_negative(x) ? lowest : highest; \
    return wrap64(x); \
  } \
  uint64_t to_u64(S x) { return wrap(x, uint64_t(0), ~uint64_t(0)); } \
  int64_t to_s64(S x) { return int64_t(wrap(x, uint64_t(1) << 63, ~uint64_t(0) >> 1)); }
NX_INT64_FROM_FLOAT(float)
#ifdef HAS_FLOAT64
NX_INT64_FROM_FLOAT(double)
double to_f64(int64_t x) { return double(x); }
double to_f64(uint64_t x) { return double(x); }
#endif
#endif

#ifdef EMULATED_INT64
#include "lib/int64.glsl"
#endif
