// The arithmetic of the matrix decompositions, for real and complex matrices alike.
//
// The including kernel defines SCALAR, ELEMENT (SCALAR or a pair of it), COMPLEX_ELEMENTS (0 or 1), SUM and SUM_ELEMENT, in which
// sums and complex products are formed, EXACT_DIVISION (0 or 1), whether floats are divided and their roots taken to the last
// bit, EPS (the distance from 1 to the next SCALAR), SHORTEST (the least length whose square is a SUM with all its bits, even where
// subnormal numbers are zero), and COLUMN_THREADS and GROUP_COLUMNS: COLUMN_THREADS threads work on one column, a workgroup
// on GROUP_COLUMNS of them at once. Element and Real are its buffers' types of ELEMENT and SCALAR.

const uint THREADS = COLUMN_THREADS * GROUP_COLUMNS;

SCALAR plus(SCALAR a, SCALAR b) { precise SCALAR r = a + b; return r; }
SCALAR minus(SCALAR a, SCALAR b) { precise SCALAR r = a - b; return r; }
SCALAR times(SCALAR a, SCALAR b) { precise SCALAR r = a * b; return r; }
#if EXACT_DIVISION
#include "lib/math/divide.glsl"
#include "lib/math/root.glsl"
SCALAR over(SCALAR a, SCALAR b) { return nx_divide(a, b); }
SCALAR root(SCALAR a) { return nx_sqrt(a); }
#else
SCALAR over(SCALAR a, SCALAR b) { precise SCALAR r = a / b; return r; }
SCALAR root(SCALAR a) { precise SCALAR r = sqrt(a); return r; }
#endif
SUM square(SCALAR a) { SUM w = SUM(a); return w * w; }

// Powers of two by their bits: exact on every device.
float power_of_two(int e, float unused) { return uintBitsToFloat(uint(clamp(e, -126, 127) + 127) << 23); }
int exponent_of(float x) { return int((floatBitsToUint(x) >> 23) & 0xffu) - 127; }
#ifdef HAS_FLOAT64
double power_of_two(int e, double unused) {
  return packDouble2x32(uvec2(0u, uint(clamp(e, -1022, 1023) + 1023) << 20));
}
int exponent_of(double x) { return int((unpackDouble2x32(x).y >> 20) & 0x7ffu) - 1023; }
#endif

#if COMPLEX_ELEMENTS
ELEMENT conj(ELEMENT a) { return ELEMENT(a.x, -a.y); }
ELEMENT plus(ELEMENT a, ELEMENT b) { precise ELEMENT r = a + b; return r; }
ELEMENT minus(ELEMENT a, ELEMENT b) { precise ELEMENT r = a - b; return r; }
ELEMENT times(ELEMENT a, SCALAR b) { precise ELEMENT r = a * b; return r; }
ELEMENT times(ELEMENT a, ELEMENT b) { return ELEMENT(c_multiply(SUM_ELEMENT(a), SUM_ELEMENT(b))); }
ELEMENT over(ELEMENT a, SCALAR b) { return ELEMENT(over(a.x, b), over(a.y, b)); }
SUM square(ELEMENT a) { return square(a.x) + square(a.y); }
SUM_ELEMENT conj_times(ELEMENT a, ELEMENT b) { return c_multiply(SUM_ELEMENT(a.x, -a.y), SUM_ELEMENT(b)); }
SCALAR size(ELEMENT a) {
  SCALAR largest = max(abs(a.x), abs(a.y));
  if (!(largest > SCALAR(0)) || isinf(largest)) return largest;
  SCALAR scale = power_of_two(-exponent_of(largest), SCALAR(0));
  SUM_ELEMENT b = SUM_ELEMENT(a * scale);
  return SCALAR(sqrt(b.x * b.x + b.y * b.y)) / scale;
}
SCALAR real_part(ELEMENT a) { return a.x; }
ELEMENT element(SCALAR a) { return ELEMENT(a, SCALAR(0)); }
SCALAR largest_part(ELEMENT a) { return max(abs(a.x), abs(a.y)); }
#else
ELEMENT conj(ELEMENT a) { return a; }
SUM_ELEMENT conj_times(ELEMENT a, ELEMENT b) { return SUM(a) * SUM(b); }
SCALAR size(ELEMENT a) { return abs(a); }
SCALAR real_part(ELEMENT a) { return a; }
ELEMENT element(SCALAR a) { return a; }
SCALAR largest_part(ELEMENT a) { return abs(a); }
#endif
