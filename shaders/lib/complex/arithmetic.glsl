// Owns the four operations, negation, the conjugate, the parts and the sign of complex numbers.
//
// Domain: all numbers. A finite number divided by a real infinity is 0; divided by zero it is NaN.
// Error: sums, differences and products have BinaryBackend's bits; see formula.glsl for quotients.
// Source: see formula.glsl; R. L. Smith, "Algorithm 116: Complex division" (1962).
#ifndef NX_COMPLEX_ARITHMETIC
#define NX_COMPLEX_ARITHMETIC

#include "lib/complex/formula.glsl"
#include "lib/complex.glsl"
#include "lib/math/divide.glsl"

COMPLEX nx_add(COMPLEX a, COMPLEX b) { precise COMPLEX r = a + b; return r; }
COMPLEX nx_subtract(COMPLEX a, COMPLEX b) { precise COMPLEX r = a - b; return r; }
COMPLEX nx_multiply(COMPLEX a, COMPLEX b) { return c_multiply(a, b); }

// Complex's formula is (a conj b) / |b|^2. Where it over- or underflows in between, Smith's formula gives the quotient.
COMPLEX nx_divide(COMPLEX a, COMPLEX b) {
  if (is_finite(a) && is_infinity(b.x) && is_zero(b.y)) return COMPLEX(0);
  precise COMPLEX n = COMPLEX(a.x * b.x + a.y * b.y, a.y * b.x - a.x * b.y);
  precise REAL d = b.x * b.x + b.y * b.y;
  bool lost = !is_finite(n) || !is_finite(d) || (d < REAL_SMALLEST && !is_zero(b));
  if (lost && is_finite(a) && is_finite(b)) return c_divide(a, b);
  return COMPLEX(nx_divide(n.x, d), nx_divide(n.y, d));
}

COMPLEX nx_negate(COMPLEX z) { return COMPLEX(nx_negate(z.x), nx_negate(z.y)); }
COMPLEX nx_conjugate(COMPLEX z) { return COMPLEX(z.x, nx_negate(z.y)); }
REAL nx_real(COMPLEX z) { return z.x; }
REAL nx_imag(COMPLEX z) { return z.y; }

// BinaryBackend's sign of every complex number is 1.
COMPLEX nx_sign(COMPLEX z) { return COMPLEX(1, 0); }

#endif
