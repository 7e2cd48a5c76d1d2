// Owns nx_add, nx_subtract and nx_multiply of real numbers.
//
// Algorithm: the device's own operation. `precise` forbids fusing floats' with their neighbours.
// Domain: all numbers. Integers wrap.
// Error: floats are correctly rounded, as Vulkan requires; native_tests/builtins tests the device's operations.

#define NX_ARITHMETIC(T, QUALIFIER) \
  T nx_add(T a, T b) { QUALIFIER T r = a + b; return r; } \
  T nx_subtract(T a, T b) { QUALIFIER T r = a - b; return r; } \
  T nx_multiply(T a, T b) { QUALIFIER T r = a * b; return r; }

NX_ARITHMETIC(int, )
NX_ARITHMETIC(uint, )
NX_ARITHMETIC(float, precise)
#ifdef HAS_INT64
NX_ARITHMETIC(int64_t, )
NX_ARITHMETIC(uint64_t, )
#endif
#ifdef HAS_FLOAT64
NX_ARITHMETIC(double, precise)
#endif
