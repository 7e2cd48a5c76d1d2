// Owns the types and predicates that the formulas of complex numbers, the files of complex/, are written in: COMPLEX and
// REAL. They are double where the device has it, for c64 too, whose results are then rounded once, as Nx.BinaryBackend's are.
//
// Algorithm: the formulas of the Elixir library Complex, which BinaryBackend computes with, step by step. Products, quotients
//   and roots have its bits and cancel where its do.
// Domain: all numbers. Where Complex raises because an intermediate result overflows, a formula follows IEEE 754, unless its
//   file says otherwise.
// Error: for c64, within 1 ulp of BinaryBackend's result; for c128, within 16 ulps, counted against the larger part (bounds of
//   test/support/compare.ex). A formula that cancels is as far from the true value as Complex's.
// Source: the Elixir library Complex (https://hex.pm/packages/complex).
#ifndef NX_COMPLEX_FORMULA
#define NX_COMPLEX_FORMULA

#include "lib/float_bits.glsl"

#ifdef HAS_FLOAT64
#define COMPLEX dvec2
#define REAL double
#define REAL_INF F64_INF
#define REAL_NAN F64_NAN
#define REAL_PI 3.141592653589793lf
#define REAL_THIRD 0.33333333333333331lf
#define REAL_SMALLEST 2.2250738585072014e-308lf
// exp of a greater number may overflow.
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

// 1 + 0i, whose imaginary part is 0 because grids have two axes. A compiler that knew it to be 0 would take x + 0 for x and
// 0 - x for -x, as lavapipe does; both are wrong for zeros.
COMPLEX one() { return COMPLEX(1, gl_WorkGroupID.z); }

bool is_finite(COMPLEX z) { return is_finite(z.x) && is_finite(z.y); }
bool is_nan(COMPLEX z) { return is_nan(z.x) || is_nan(z.y); }
bool is_infinity(COMPLEX z) { return is_infinity(z.x) || is_infinity(z.y); }

#endif
