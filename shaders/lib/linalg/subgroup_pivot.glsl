#include "lib/linalg/before.glsl"

// The first row of all lanes in that order.
void first_of(inout SCALAR best, inout uint row) {
  for (uint mask = SUBGROUP / 2; mask > 0; mask /= 2) {
    SCALAR other = subgroupShuffleXor(best, mask);
    uint its = subgroupShuffleXor(row, mask);
    if (before(other, its, best, row)) {
      best = other;
      row = its;
    }
  }
}
