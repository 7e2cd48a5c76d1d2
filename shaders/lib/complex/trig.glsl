// Owns nx_sin, nx_cos and nx_tan of complex numbers.
//
// Algorithm: the hyperbolic functions of iz: sin z = -i sinh(iz), cos z = cosh(iz), tan z = -i tanh(iz).
// Domain: all numbers, by the hyperbolic functions' rules.
// Error and source: see hyperbolic.glsl; C17, annex G.6, defines sin, cos and tan so.
#ifndef NX_COMPLEX_TRIG
#define NX_COMPLEX_TRIG

#include "lib/complex/hyperbolic.glsl"

COMPLEX c_times_i(COMPLEX z) { return COMPLEX(nx_negate(z.y), z.x); }
COMPLEX c_over_i(COMPLEX z) { return COMPLEX(z.y, nx_negate(z.x)); }

COMPLEX nx_sin(COMPLEX z) { return c_over_i(nx_sinh(c_times_i(z))); }
COMPLEX nx_cos(COMPLEX z) { return nx_cosh(c_times_i(z)); }
COMPLEX nx_tan(COMPLEX z) { return c_over_i(nx_tanh(c_times_i(z))); }

#endif
