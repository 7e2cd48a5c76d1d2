// Sorts rows of at most TILE elements, as many as fit in a workgroup's shared memory, stably: runs of twice the width
// in every round, each element finding its place by a binary search in the neighbouring run (N. Satish, M. Harris,
// M. Garland, "Designing efficient sorting algorithms for manycore GPUs", 2009, section 5).
//
// The kernel defines what sort/key.glsl asks for, TILE, and WRITE(to, from, i): element i of the row goes there.

#include "lib/sort/key.glsl"

#define THREADS 256u
#define EACH (TILE / THREADS)

shared RAW keys[TILE];
shared uint places[TILE];

void main() {
  IDX group = workgroup();
  if (group >= p.groups) return;
  uint lane = INVOCATION, n = uint(p.n), keep = uint(p.keep);
  IDX first = group * p.rows_each;
  uint rows = uint(min(p.rows_each, p.rows - first)), count = rows * n;
  // Neighbouring threads take neighbouring elements: of one row, or of rows that alternate.
  bool across = p.inner > 1;
  for (uint e = lane; e < count; e += THREADS) {
    uint r = across ? e % rows : e / n, i = across ? e / rows : e % n;
    keys[r * n + i] = key_of(RAW(AT(STORED, p.source, place(first + r, i, p.inner, p.n))));
    places[r * n + i] = i;
  }
  uint at[EACH], row[EACH];
  REPEAT for (uint k = 0u; k < EACH; ++k) {
    uint e = lane + k * THREADS;
    at[k] = e % n;
    row[k] = e - at[k];
  }
  barrier();
  for (uint s = 0u; (1u << s) < n; ++s) {
    RAW key[EACH];
    uint from[EACH], to[EACH];
    REPEAT for (uint k = 0u; k < EACH; ++k) {
      uint e = lane + k * THREADS;
      if (e >= count) continue;
      uint run = at[k] >> s, mate = min((run ^ 1u) << s, n), low = mate, high = min(mate + (1u << s), n);
      bool left = (run & 1u) == 0u;
      key[k] = keys[e];
      from[k] = places[e];
      // The equal elements of the left run stand before those of the right one.
      while (low < high) {
        uint middle = (low + high) / 2u;
        RAW other = keys[row[k] + middle];
        if (left ? key_less(other, key[k]) : !key_less(key[k], other)) low = middle + 1u;
        else high = middle;
      }
      to[k] = row[k] + at[k] - (left ? 0u : 1u << s) + low - mate;
    }
    barrier();
    REPEAT for (uint k = 0u; k < EACH; ++k) {
      if (lane + k * THREADS >= count) continue;
      keys[to[k]] = key[k];
      places[to[k]] = from[k];
    }
    barrier();
  }
  for (uint e = lane; e < rows * keep; e += THREADS) {
    uint r = across ? e % rows : e / keep, i = across ? e / rows : e % keep;
    uint from = places[r * n + i];
    WRITE(place(first + r, i, p.inner, p.keep), place(first + r, from, p.inner, p.n), from);
  }
}
