// One pass of `lib/sort/radix.glsl` on a device whose invocations are the lanes of a CPU's vectors: each of them is a
// block of its own and counts alone, in memory, so that none waits for another.
//
// The kernel defines what that file asks for, without MAX_SUMMED_BLOCKS, ITEMS and SUBGROUP, and LANES, the invocations of a workgroup. p.blocks
// is a multiple of it.

#ifndef SUMS
#include "lib/sort/key.glsl"

// Of the digit in the key, in bits.
uint shift() { return uint(p.order) >> 8; }
#endif

#define DIGITS 256u
#define COUNT(row, digit, block) AT(uint, p.counts, ((row) * DIGITS + (digit)) * p.blocks + (block))

void main() {
  IDX group = workgroup();
  if (group >= p.groups) return;
#ifdef SUMS
  // A lane for each digit of each row.
  IDX line = group * LANES + INVOCATION;
  uint before = 0u;
  for (IDX at = line * p.blocks; at < (line + 1u) * p.blocks; ++at) {
    uint x = AT(uint, p.counts, at);
    AT(uint, p.counts, at) = before;
    before += x;
  }
  AT(uint, p.totals, line) = before;
#else
  IDX groups = p.blocks / LANES, row = group / groups, block = group % groups * LANES + INVOCATION;
  uint begin = uint(min(block * p.block_len, p.n)), end = uint(min(IDX(begin) + p.block_len, p.n));
#ifdef HISTOGRAM
  for (uint digit = 0u; digit < DIGITS; ++digit) COUNT(row, digit, block) = 0u;
  for (uint i = begin; i < end; ++i) {
    RAW key = key_of(RAW(AT(STORED, p.source, position(row, i, p.inner, p.n))));
    COUNT(row, key_digit(key, shift()), block) += 1u;
  }
#else
  uint before = 0u;
  for (uint digit = 0u; digit < DIGITS; ++digit) {
    COUNT(row, digit, block) += before;
    before += AT(uint, p.totals, row * DIGITS + digit);
  }
  for (uint i = begin; i < end; ++i) {
    IDX from = position(row, i, p.inner, p.n);
    uint digit = key_digit(key_of(RAW(AT(STORED, p.source, from))), shift()), to = COUNT(row, digit, block);
    COUNT(row, digit, block) = to + 1u;
    if (to < uint(p.keep)) WRITE(position(row, to, p.inner_to, p.keep), from, i);
  }
#endif
#endif
}
