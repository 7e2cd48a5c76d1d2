// As lu_panel.glsl, for CPU devices: a matrix has one subgroup, whose lanes take neighbouring rows and share them through memory. The permutation, which is the identity before the first panel, follows the exchanges of rows.

#include "lib/linalg/subgroup_pivot.glsl"

// Columns for which a row's quotient is read once.
const uint COLUMN_CHUNK = 4;

void main() {
  if (workgroup() >= p.groups) return;
  uint lane = INVOCATION, n = uint(p.n), start = uint(p.start), size = uint(p.size);
  IDX order = workgroup() * p.n, base = (order + p.start) * p.n;
#define AT_PANEL(i, c) ELEMENTS(p.a, base + (c) * p.n + (i))
#define ORDER(i) AT(uint, p.permutation, order + (i))
  if (start == 0) for (uint i = lane; i < n; i += SUBGROUP) ORDER(i) = i;
  for (uint j = 0; j < size; j++) {
    uint here = start + j;
    subgroupMemoryBarrierBuffer();
    SCALAR best = SCALAR(-1);
    uint row = n;
    for (uint i = here + lane; i < n; i += SUBGROUP) {
      SCALAR m = magnitude(AT_PANEL(i, j));
      if (before(m, i, best, row)) {
        best = m;
        row = i;
      }
    }
    first_of(best, row);
    for (uint c = lane; c < size; c += SUBGROUP) {
      ELEMENT x = AT_PANEL(here, c), chosen = AT_PANEL(row, c);
      AT_PANEL(here, c) = chosen;
      AT_PANEL(row, c) = x;
    }
    if (lane == 0) {
      AT(uint, p.pivots, order + here) = row;
      uint from = ORDER(here), chosen = ORDER(row);
      ORDER(here) = chosen;
      ORDER(row) = from;
    }
    subgroupMemoryBarrierBuffer();
    ELEMENT pivot = AT_PANEL(here, j);
    if (!is_zero(magnitude(pivot)))
      for (uint i = here + 1 + lane; i < n; i += SUBGROUP) AT_PANEL(i, j) = divide(AT_PANEL(i, j), pivot);
    for (uint first = j + 1; first < size; first += COLUMN_CHUNK) {
      ELEMENT row_here[COLUMN_CHUNK];
      [[unroll]] for (uint k = 0; k < COLUMN_CHUNK; k++) row_here[k] = AT_PANEL(here, min(first + k, size - 1));
      for (uint i = here + 1 + lane; i < n; i += SUBGROUP) {
        ELEMENT l = AT_PANEL(i, j);
        [[unroll]] for (uint k = 0; k < COLUMN_CHUNK; k++) {
          if (first + k < size) {
            precise ELEMENT product = multiply(l, row_here[k]);
            precise ELEMENT rest = AT_PANEL(i, first + k) - product;
            AT_PANEL(i, first + k) = rest;
          }
        }
      }
    }
  }
}
