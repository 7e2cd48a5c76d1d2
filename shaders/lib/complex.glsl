// Owns products, quotients, conjugates and squared magnitudes of complex numbers as pairs (real part, imaginary part), in
// float and in double. Kernels that compute in the operands' own type, such as matmul and linear algebra, use these; the
// files of complex/ own the functions of Nx.
//
// Algorithm: products by the definition; quotients by Smith's method, which does not square the divisor's parts and so avoids
//   overflow.
// Error: each operation is rounded once. The tests of the kernels that use these functions bound their results.
// Source: R. L. Smith, "Algorithm 116: Complex division" (1962).
#ifndef NX_COMPLEX
#define NX_COMPLEX

#define NX_COMPLEX_OF(C, R) \
  C c_conjugate(C a) { return C(a.x, -a.y); } \
  C c_multiply(C a, C b) { precise C r = C(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x); return r; } \
  C c_divide(C a, C b) { \
    if (abs(b.x) >= abs(b.y)) { \
      precise R t = b.y / b.x, d = b.x + b.y * t; \
      precise C r = C((a.x + a.y * t) / d, (a.y - a.x * t) / d); \
      return r; \
    } \
    precise R t = b.x / b.y, d = b.x * t + b.y; \
    precise C r = C((a.x * t + a.y) / d, (a.y * t - a.x) / d); \
    return r; \
  } \
  R c_norm(C a) { precise R r = a.x * a.x + a.y * a.y; return r; }

NX_COMPLEX_OF(vec2, float)
#ifdef HAS_FLOAT64
NX_COMPLEX_OF(dvec2, double)
#endif

#endif
