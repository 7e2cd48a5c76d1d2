// Owns comparisons, logical operations, nx_is_nan and nx_is_infinity of real numbers.
//
// Algorithm: the device's own comparisons; of floats they compare the bits as integers, unless COMPARES_SUBNORMALS says that the
//   device's own tell subnormals from zeros.
// Domain: all numbers. Floats compare as in IEEE 754. Signed and unsigned 64-bit integers compare by value. Logical
//   operations take every number but zero for true, NaN included.
// Error: exact.
#ifndef NX_OPS_COMPARE
#define NX_OPS_COMPARE

#define NX_COMPARE(T) \
  bool nx_equal(T a, T b) { return a == b; } \
  bool nx_not_equal(T a, T b) { return a != b; } \
  bool nx_less(T a, T b) { return a < b; } \
  bool nx_less_equal(T a, T b) { return a <= b; } \
  bool nx_greater(T a, T b) { return a > b; } \
  bool nx_greater_equal(T a, T b) { return a >= b; }

// Operands may differ in type: a signed and an unsigned 64-bit integer have no common type.
#define NX_LOGIC(A, B) \
  bool nx_logical_and(A a, B b) { return !is_zero(a) && !is_zero(b); } \
  bool nx_logical_or(A a, B b) { return !is_zero(a) || !is_zero(b); } \
  bool nx_logical_xor(A a, B b) { return is_zero(a) != is_zero(b); }

#define NX_NO_NAN(T) \
  bool nx_is_nan(T x) { return false; } \
  bool nx_is_infinity(T x) { return false; }

bool nx_is_nan(float x) { return is_nan(x); }
bool nx_is_infinity(float x) { return is_infinity(x); }

NX_COMPARE(int)
NX_COMPARE(uint)
// What the device's own comparisons order as they should order x, which is not NaN. As an integer, both zeros are 0.
#ifdef COMPARES_SUBNORMALS
float order_of(float x) { return x; }
// They are false of a NaN.
bool fp_ordered(float a, float b) { return true; }
#else
int order_of(float x) {
  int b = floatBitsToInt(x);
  return b < 0 ? int(0x80000000u) - b : b;
}
bool fp_ordered(float a, float b) { return !is_nan(a) && !is_nan(b); }
#endif
bool nx_equal(float a, float b) { return fp_ordered(a, b) && order_of(a) == order_of(b); }
bool nx_not_equal(float a, float b) { return !nx_equal(a, b); }
bool nx_less(float a, float b) { return fp_ordered(a, b) && order_of(a) < order_of(b); }
bool nx_less_equal(float a, float b) { return fp_ordered(a, b) && order_of(a) <= order_of(b); }
bool nx_greater(float a, float b) { return nx_less(b, a); }
bool nx_greater_equal(float a, float b) { return nx_less_equal(b, a); }
NX_LOGIC(int, int)
NX_LOGIC(uint, uint)
NX_LOGIC(float, float)
NX_NO_NAN(int)
NX_NO_NAN(uint)

#ifdef HAS_INT64
NX_COMPARE(int64_t)
NX_COMPARE(uint64_t)
NX_LOGIC(int64_t, int64_t)
NX_LOGIC(uint64_t, uint64_t)
NX_LOGIC(int64_t, uint64_t)
NX_LOGIC(uint64_t, int64_t)
NX_NO_NAN(int64_t)
NX_NO_NAN(uint64_t)

// A negative number is less than every unsigned one.
bool nx_less(int64_t a, uint64_t b) { return a < 0 || uint64_t(a) < b; }
bool nx_less(uint64_t a, int64_t b) { return b >= 0 && a < uint64_t(b); }
bool nx_equal(int64_t a, uint64_t b) { return a >= 0 && uint64_t(a) == b; }
bool nx_equal(uint64_t a, int64_t b) { return nx_equal(b, a); }

#define NX_COMPARE_BY_VALUE(A, B) \
  bool nx_not_equal(A a, B b) { return !nx_equal(a, b); } \
  bool nx_greater(A a, B b) { return nx_less(b, a); } \
  bool nx_less_equal(A a, B b) { return !nx_less(b, a); } \
  bool nx_greater_equal(A a, B b) { return !nx_less(a, b); }
NX_COMPARE_BY_VALUE(int64_t, uint64_t)
NX_COMPARE_BY_VALUE(uint64_t, int64_t)
#endif

#ifdef HAS_FLOAT64
NX_COMPARE(double)
NX_LOGIC(double, double)
bool nx_is_nan(double x) { return is_nan(x); }
bool nx_is_infinity(double x) { return is_infinity(x); }
#endif

#endif
