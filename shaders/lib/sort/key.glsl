// Elements as unsigned integers in their order: NaN above everything, all NaNs equal, the two zeros equal.
//
// The kernel that includes this defines STORED (the type of an element in a buffer) and WIDTH (of an element's bits).
// What else tells types apart are parameters, so that few kernels sort all of them: p.order holds the kind in its lowest
// bits (0 unsigned, 1 signed, 2 float) and whether to descend in bit 2; of floats p.largest is the bits of infinity, or of
// the largest number where there is none (of 64 bits the upper half). No key is above LAST.

uint kind() { return uint(p.order) & 3u; }
bool descending() { return (uint(p.order) & 4u) != 0u; }

#if WIDTH == 64
#define RAW uvec2
#define SIGN 0x80000000u
#define LAST uvec2(~0u)

uvec2 key_of(uvec2 x) {
  uint magnitude = x.y & ~SIGN, largest = uint(p.largest);
  if (kind() == 1u) x.y ^= SIGN;
  else if (kind() == 2u) {
    if (magnitude > largest || (magnitude == largest && x.x != 0u)) x = uvec2(~0u);
    else if ((magnitude | x.x) == 0u) x = uvec2(0u, SIGN);
    else if ((x.y & SIGN) != 0u) x = ~x;
    else x.y |= SIGN;
  }
  return descending() ? ~x : x;
}

bool key_less(uvec2 a, uvec2 b) { return a.y < b.y || (a.y == b.y && a.x < b.x); }
uint key_digit(uvec2 key, uint shift) { return ((shift < 32u ? key.x : key.y) >> (shift & 31u)) & 255u; }
#else
#define RAW uint
#define SIGN (1u << (WIDTH - 1))
#define ALL (SIGN | (SIGN - 1u))
#define LAST ALL

uint key_of(uint x) {
  // Of a type below a byte only the low bits are the element's.
  x &= ALL;
  uint magnitude = x & (SIGN - 1u);
  if (kind() == 1u) x ^= SIGN;
  else if (kind() == 2u) {
    if (magnitude > uint(p.largest)) x = ALL;
    else if (magnitude == 0u) x = SIGN;
    else if ((x & SIGN) != 0u) x ^= ALL;
    else x |= SIGN;
  }
  return descending() ? x ^ ALL : x;
}

bool key_less(uint a, uint b) { return a < b; }
uint key_digit(uint key, uint shift) { return (key >> shift) & 255u; }
#endif

// Where element i of a row stands; rows have n elements, and `inner` rows alternate.
IDX position(IDX row, uint i, IDX inner, IDX n) { return (row / inner) * (n * inner) + row % inner + IDX(i) * inner; }
