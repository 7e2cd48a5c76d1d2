// Owns nx_log, nx_log1p and nx_atan2 of complex numbers.
//
// Algorithm: log z = log |z| + i atan2(Im z, Re z); log1p z = log(1 + z).
// Domain: all numbers.
// Error and source: see formula.glsl.
#ifndef NX_COMPLEX_LOG
#define NX_COMPLEX_LOG

#include "lib/complex/abs.glsl"
#include "lib/complex/arithmetic.glsl"
#include "lib/math/atan.glsl"
#include "lib/math/log.glsl"

COMPLEX nx_log(COMPLEX z) { return COMPLEX(nx_log(nx_abs(z)), nx_atan2(z.y, z.x)); }

COMPLEX nx_log1p(COMPLEX z) { return nx_log(nx_add(z, one())); }

// Nx allows complex operands of atan2 whose imaginary parts are zero.
COMPLEX nx_atan2(COMPLEX y, COMPLEX x) { return COMPLEX(nx_atan2(y.x, x.x), 0); }

#endif
