// Owns the predicates of floats (is_nan, is_zero, ...), nx_abs and nx_negate of floats, and fp_copysign.
//
// Algorithm: by the bits alone. Results are the same on devices that read subnormals as zero or assume that no NaN occurs.
// Domain: all numbers.
// Error: exact.
#ifndef NX_FLOAT_BITS
#define NX_FLOAT_BITS

#define F32_NAN uintBitsToFloat(0x7fc00000u)
#define F32_INF uintBitsToFloat(0x7f800000u)

// The high word of the bits (all of them for float): sign, exponent, top of the significand.
uint fp_high(float x) { return floatBitsToUint(x); }

bool is_nan(float x) { return (floatBitsToUint(x) & 0x7fffffffu) > 0x7f800000u; }
bool is_infinity(float x) { return (floatBitsToUint(x) & 0x7fffffffu) == 0x7f800000u; }
bool is_zero(float x) { return (floatBitsToUint(x) & 0x7fffffffu) == 0u; }

float nx_abs(float x) { return uintBitsToFloat(floatBitsToUint(x) & 0x7fffffffu); }
// The sign is added, not xored: NVIDIA's compiler turns the xor into a negation, which flushes subnormals.
float nx_negate(float x) { return uintBitsToFloat(floatBitsToUint(x) + 0x80000000u); }

#ifdef HAS_FLOAT64
#define F64_NAN packDouble2x32(uvec2(0u, 0x7ff80000u))
#define F64_INF packDouble2x32(uvec2(0u, 0x7ff00000u))

uint fp_high(double x) { return unpackDouble2x32(x).y; }

bool is_nan(double x) {
  uvec2 b = unpackDouble2x32(x);
  return ((b.y & 0x7fffffffu) | uint(b.x != 0u)) > 0x7ff00000u;
}
bool is_infinity(double x) {
  uvec2 b = unpackDouble2x32(x);
  return (b.y & 0x7fffffffu) == 0x7ff00000u && b.x == 0u;
}
bool is_zero(double x) {
  uvec2 b = unpackDouble2x32(x);
  return ((b.y & 0x7fffffffu) | b.x) == 0u;
}

double nx_abs(double x) { return packDouble2x32(unpackDouble2x32(x) & uvec2(~0u, 0x7fffffffu)); }
double nx_negate(double x) { return packDouble2x32(unpackDouble2x32(x) ^ uvec2(0u, 0x80000000u)); }
#endif

// fp_copysign: |x| with the sign of s. It selects between x and -x and merges no bits, because on CPUs with AVX-512 LLVM,
// which lavapipe uses, compiles `c ? s : merge(x, s)` wrong (LLVM's issue 157929).
#define NX_SIGN(T, INFINITE) \
  bool is_negative(T x) { return (fp_high(x) >> 31) != 0u; } \
  bool is_finite(T x) { return (fp_high(x) & INFINITE) != INFINITE; } \
  T fp_copysign(T x, T s) { return is_negative(s) != is_negative(x) ? nx_negate(x) : x; }

NX_SIGN(float, 0x7f800000u)
#ifdef HAS_FLOAT64
NX_SIGN(double, 0x7ff00000u)
#endif

#endif
