// LU factorisation with partial pivoting of a panel of at most WIDTH columns of a matrix in column-major order, one
// workgroup a matrix. Thread t owns the rows start + t, start + t + LOCAL_SIZE, …: no other thread reads or writes their
// memory, and what others need of them goes through shared memory.

shared SCALAR sizes[LOCAL_SIZE];
shared uint rows[LOCAL_SIZE];
// The current row and the pivot's.
shared ELEMENT current[WIDTH], pivot[WIDTH];

#include "lib/linalg/before.glsl"

void main() {
  uint thread = INVOCATION;
  if (workgroup() >= p.groups) return;
  uint n = uint(p.n), start = uint(p.start), size = uint(p.size);
  IDX base = workgroup() * p.n * p.n + p.start * p.n;
  #define OFFSET(i, c) (base + (c) * p.n + (i))
  #define AT_PANEL(i, c) ELEMENTS(p.a, OFFSET(i, c))
  SCALAR best = SCALAR(-1);
  uint row = n;
  for (uint i = start + thread; i < n; i += LOCAL_SIZE) {
    SCALAR m = magnitude(AT_PANEL(i, 0));
    if (before(m, i, best, row)) { best = m; row = i; }
  }
  for (uint j = 0; j < size; j++) {
    uint here = start + j;
    sizes[thread] = best;
    rows[thread] = row;
    for (uint half_size = LOCAL_SIZE / 2; half_size > 0; half_size /= 2) {
      barrier();
      if (thread < half_size && before(sizes[thread + half_size], rows[thread + half_size], sizes[thread], rows[thread])) {
        sizes[thread] = sizes[thread + half_size];
        rows[thread] = rows[thread + half_size];
      }
    }
    barrier();
    uint chosen = rows[0];
    bool has_current = (here - start) % LOCAL_SIZE == thread, has_pivot = (chosen - start) % LOCAL_SIZE == thread;
    if (has_current) for (uint c = 0; c < size; c++) current[c] = AT_PANEL(here, c);
    if (has_pivot) for (uint c = 0; c < size; c++) pivot[c] = AT_PANEL(chosen, c);
    if (thread == 0) AT(uint, p.pivots, workgroup() * p.n + here) = chosen;
    barrier();
    if (chosen != here) {
      if (has_current) for (uint c = 0; c < size; c++) AT_PANEL(here, c) = pivot[c];
      if (has_pivot) for (uint c = 0; c < size; c++) AT_PANEL(chosen, c) = current[c];
    }
    bool zero = is_zero(magnitude(pivot[j]));
    best = SCALAR(-1);
    row = n;
    for (uint i = start + thread; i < n; i += LOCAL_SIZE) {
      if (i <= here) continue;
      ELEMENT l = AT_PANEL(i, j);
      if (!zero) {
        l = divide(l, pivot[j]);
        AT_PANEL(i, j) = l;
      }
      for (uint c = j + 1; c < size; c++) {
        precise ELEMENT product = multiply(l, pivot[c]);
        precise ELEMENT rest = AT_PANEL(i, c) - product;
        AT_PANEL(i, c) = rest;
        if (c == j + 1) {
          SCALAR m = magnitude(rest);
          if (before(m, i, best, row)) { best = m; row = i; }
        }
      }
    }
  }
}
