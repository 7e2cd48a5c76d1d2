// Owns equality, logical operations, nx_is_nan and nx_is_infinity of complex numbers.
//
// Domain: all numbers. Parts that are both NaN are equal. Logical operations take every number but zero for true.
// Error: exact.
#ifndef NX_COMPLEX_COMPARE
#define NX_COMPLEX_COMPARE

#include "lib/complex/formula.glsl"
#include "lib/ops/compare.glsl"

// BinaryBackend compares complex numbers as Elixir terms, in which NaN equals NaN.
bool same_part(REAL a, REAL b) { return nx_equal(a, b) || (is_nan(a) && is_nan(b)); }
bool nx_equal(COMPLEX a, COMPLEX b) { return same_part(a.x, b.x) && same_part(a.y, b.y); }
bool nx_not_equal(COMPLEX a, COMPLEX b) { return !nx_equal(a, b); }

bool nx_logical_and(COMPLEX a, COMPLEX b) { return !is_zero(a) && !is_zero(b); }
bool nx_logical_or(COMPLEX a, COMPLEX b) { return !is_zero(a) || !is_zero(b); }
bool nx_logical_xor(COMPLEX a, COMPLEX b) { return is_zero(a) != is_zero(b); }

// A number with a NaN and an infinity as its parts is both.
bool nx_is_nan(COMPLEX z) { return is_nan(z); }
bool nx_is_infinity(COMPLEX z) { return is_infinity(z); }

#endif
