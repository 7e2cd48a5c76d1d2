// As lu_panel.glsl, for panels whose rows the threads hold in registers: thread t those that stood at start + t,
// start + t + LOCAL_SIZE, …. Not rows are exchanged, but their positions.

#include "lib/linalg/subgroup_pivot.glsl"

const uint SUBGROUPS = LOCAL_SIZE / SUBGROUP;

shared SCALAR sizes[SUBGROUPS];
shared uint rows[SUBGROUPS];
shared ELEMENT pivot[WIDTH];

void main() {
  if (workgroup() >= p.groups) return;
  uint id = INVOCATION, lane = gl_SubgroupInvocationID;
  uint n = uint(p.n), start = uint(p.start), size = uint(p.size);
  IDX base = workgroup() * p.n * p.n + p.start * p.n;
  ELEMENT a[EACH][WIDTH];
  // n where there is no row.
  uint position[EACH];
  for (uint r = 0; r < EACH; r++) {
    position[r] = min(start + id + r * LOCAL_SIZE, n);
    for (uint k = 0; k < WIDTH; k++) {
      a[r][k] = ELEMENT(0);
      if (position[r] < n && k < size) a[r][k] = ELEMENTS(p.a, base + k * p.n + position[r]);
    }
  }
  // The current column comes first; after WIDTH iterations all are back at their positions.
  [[dont_unroll]] for (uint j = 0; j < WIDTH; j++) {
    uint here = start + j;
    bool zero = true;
    if (j < size) {
      SCALAR best = SCALAR(-1);
      uint row = n;
      for (uint r = 0; r < EACH; r++) {
        SCALAR m = magnitude(a[r][0]);
        if (position[r] >= here && position[r] < n && before(m, position[r], best, row)) {
          best = m;
          row = position[r];
        }
      }
      first_of(best, row);
      if (lane == 0) {
        sizes[gl_SubgroupID] = best;
        rows[gl_SubgroupID] = row;
      }
      barrier();
      best = SCALAR(-1);
      row = n;
      for (uint s = lane; s < SUBGROUPS; s += SUBGROUP) {
        if (before(sizes[s], rows[s], best, row)) {
          best = sizes[s];
          row = rows[s];
        }
      }
      first_of(best, row);
      for (uint r = 0; r < EACH; r++) {
        if (position[r] == row) {
          position[r] = here;
          for (uint k = 0; k < WIDTH; k++) pivot[k] = a[r][k];
        } else if (position[r] == here) {
          position[r] = row;
        }
      }
      if (id == 0) AT(uint, p.pivots, workgroup() * p.n + here) = row;
      barrier();
      zero = is_zero(magnitude(pivot[0]));
    }
    for (uint r = 0; r < EACH; r++) {
      bool below = j < size && position[r] > here;
      ELEMENT l = a[r][0];
      if (below && !zero) l = divide(l, pivot[0]);
      for (uint k = 1; k < WIDTH; k++) {
        precise ELEMENT rest = a[r][k];
        if (below && j + k < WIDTH) {
          precise ELEMENT product = multiply(l, pivot[k]);
          rest = rest - product;
        }
        a[r][k - 1] = rest;
      }
      a[r][WIDTH - 1] = l;
    }
  }
  for (uint r = 0; r < EACH; r++) {
    if (position[r] >= n) continue;
    for (uint k = 0; k < WIDTH; k++) if (k < size) ELEMENTS(p.a, base + k * p.n + position[r]) = a[r][k];
  }
}
