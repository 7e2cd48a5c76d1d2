#ifndef NX_COMPLEX_COMPARE
#define NX_COMPLEX_COMPARE

#include "lib/complex/formula.glsl"

// Parts that are both NaN are equal, unlike real NaN: BinaryBackend compares the numbers as Elixir's terms.
bool same_part(REAL a, REAL b) { return a == b || (is_nan(a) && is_nan(b)); }
bool nx_equal(COMPLEX a, COMPLEX b) { return same_part(a.x, b.x) && same_part(a.y, b.y); }
bool nx_not_equal(COMPLEX a, COMPLEX b) { return !nx_equal(a, b); }

bool nx_logical_and(COMPLEX a, COMPLEX b) { return !is_zero(a) && !is_zero(b); }
bool nx_logical_or(COMPLEX a, COMPLEX b) { return !is_zero(a) || !is_zero(b); }
bool nx_logical_xor(COMPLEX a, COMPLEX b) { return is_zero(a) != is_zero(b); }

// A number may be both.
bool nx_is_nan(COMPLEX z) { return is_nan(z); }
bool nx_is_infinity(COMPLEX z) { return is_infinity(z); }

#endif
