// Elements of matrices. The including kernel defines ELEMENT, the type of its parts SCALAR and, where there are two of
// them, COMPLEX_ELEMENTS. What has a name in small letters rounds as BinaryBackend's does.

#include "lib/float_bits.glsl"
#include "lib/math/divide.glsl"
#include "lib/math/root.glsl"

#if COMPLEX_ELEMENTS
#include "lib/complex/arithmetic.glsl"
#include "lib/complex/abs.glsl"
#define MULTIPLY(a, b) c_multiply(a, b)
#define CONJUGATE(a) c_conjugate(a)
#define REAL_PART(a) (a).x
ELEMENT multiply(ELEMENT a, ELEMENT b) { return ELEMENT(c_multiply(COMPLEX(a), COMPLEX(b))); }
ELEMENT divide(ELEMENT a, ELEMENT b) { return ELEMENT(nx_divide(COMPLEX(a), COMPLEX(b))); }
ELEMENT divide_real(ELEMENT a, SCALAR b) { return ELEMENT(nx_divide(a.x, b), nx_divide(a.y, b)); }
SCALAR magnitude(ELEMENT a) { return SCALAR(nx_abs(COMPLEX(a))); }
#else
#define MULTIPLY(a, b) ((a) * (b))
#define CONJUGATE(a) (a)
#define REAL_PART(a) (a)
ELEMENT multiply(ELEMENT a, ELEMENT b) { precise ELEMENT r = a * b; return r; }
ELEMENT divide(ELEMENT a, ELEMENT b) { return nx_divide(a, b); }
ELEMENT divide_real(ELEMENT a, SCALAR b) { return nx_divide(a, b); }
SCALAR magnitude(ELEMENT a) { return nx_abs(a); }
#endif
