// The arithmetic of the matrix decompositions, for real and complex matrices alike.
//
// The including kernel defines PART, ELEMENT (PART or a pair of it), COMPLEX_ELEMENTS (0 or 1), SUM and SUM_ELEMENT, in which
// sums and complex products are formed, EXACT (0 or 1), whether floats are divided and their roots taken to the last
// bit, EPS (the distance from 1 to the next PART), and LANES and SEGMENTS: LANES threads work on one column, a workgroup
// on SEGMENTS of them. Cell and Number are its buffers' types of ELEMENT and PART.

const uint THREADS = LANES * SEGMENTS;

PART plus(PART a, PART b) { precise PART r = a + b; return r; }
PART minus(PART a, PART b) { precise PART r = a - b; return r; }
PART times(PART a, PART b) { precise PART r = a * b; return r; }
#if EXACT
#include "lib/math/divide.glsl"
#include "lib/math/root.glsl"
PART over(PART a, PART b) { return nx_divide(a, b); }
PART root(PART a) { return nx_sqrt(a); }
#else
PART over(PART a, PART b) { precise PART r = a / b; return r; }
PART root(PART a) { precise PART r = sqrt(a); return r; }
#endif
SUM square(PART a) { SUM w = SUM(a); return w * w; }

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
ELEMENT times(ELEMENT a, PART b) { precise ELEMENT r = a * b; return r; }
ELEMENT times(ELEMENT a, ELEMENT b) { return ELEMENT(c_multiply(SUM_ELEMENT(a), SUM_ELEMENT(b))); }
ELEMENT over(ELEMENT a, PART b) { return ELEMENT(over(a.x, b), over(a.y, b)); }
SUM square(ELEMENT a) { return square(a.x) + square(a.y); }
SUM_ELEMENT conj_times(ELEMENT a, ELEMENT b) { return c_multiply(SUM_ELEMENT(a.x, -a.y), SUM_ELEMENT(b)); }
PART size(ELEMENT a) {
  PART largest = max(abs(a.x), abs(a.y));
  if (!(largest > PART(0)) || isinf(largest)) return largest;
  PART scale = power_of_two(-exponent_of(largest), PART(0));
  SUM_ELEMENT b = SUM_ELEMENT(a * scale);
  return PART(sqrt(b.x * b.x + b.y * b.y)) / scale;
}
PART real_part(ELEMENT a) { return a.x; }
ELEMENT element(PART a) { return ELEMENT(a, PART(0)); }
PART largest_part(ELEMENT a) { return max(abs(a.x), abs(a.y)); }
#else
ELEMENT conj(ELEMENT a) { return a; }
SUM_ELEMENT conj_times(ELEMENT a, ELEMENT b) { return SUM(a) * SUM(b); }
PART size(ELEMENT a) { return abs(a); }
PART real_part(ELEMENT a) { return a; }
ELEMENT element(PART a) { return a; }
PART largest_part(ELEMENT a) { return abs(a); }
#endif
