#ifndef NX_COMPLEX_FORMULA
#define NX_COMPLEX_FORMULA

// The type that formulas of complex numbers are written in: pairs of doubles where the device has them, for c64 too, whose
// results are rounded once then, as BinaryBackend's are.
//
// The formulas are those of the Elixir library Complex, step by step, which BinaryBackend computes with: products,
// quotients and roots have its bits, and so cancel where its do. Where it raises because an intermediate result overflows,
// they go on by IEEE 754, or as told there.

#include "lib/float_bits.glsl"

#ifdef HAS_FLOAT64
#define COMPLEX dvec2
#define REAL double
#define REAL_INF F64_INF
#define REAL_NAN F64_NAN
#define REAL_PI 3.141592653589793lf
#define REAL_THIRD 0.33333333333333331lf
#define REAL_SMALLEST 2.2250738585072014e-308lf
// Where exp begins to overflow.
#define REAL_MAX_EXP 709.0lf
#else
#define COMPLEX vec2
#define REAL float
#define REAL_INF F32_INF
#define REAL_NAN F32_NAN
#define REAL_PI 3.14159274f
#define REAL_THIRD 0.333333343f
#define REAL_SMALLEST 1.17549435e-38f
#define REAL_MAX_EXP 88.0f
#endif

// 1, with an imaginary part that no compiler knows to be zero: lavapipe takes x + 0 for x and 0 - x for -x, which is
// not so where x is a zero. Grids have two axes.
COMPLEX one() { return COMPLEX(1, gl_WorkGroupID.z); }

bool is_finite(COMPLEX z) { return is_finite(z.x) && is_finite(z.y); }
bool is_nan(COMPLEX z) { return is_nan(z.x) || is_nan(z.y); }
bool is_infinity(COMPLEX z) { return is_infinity(z.x) || is_infinity(z.y); }

#endif
