// Rayleigh quotients xᴴ·A·x of the unit vectors in `work`, COLUMNS of them a workgroup, which read A once for all:
// eigenvalues as accurate as A's elements.

#include "lib/linalg/sums.glsl"

const uint COLUMNS = 4;

void main() {
  IDX tiles = (p.rows + COLUMNS - 1) / COLUMNS, batch = workgroup() / tiles, first = workgroup() % tiles * COLUMNS;
  if (workgroup() >= p.groups) return;
  uint lane = INVOCATION;
  IDX n = p.rows;
  PART scale = AT(Number, p.scales, batch);
  SUM quotients[COLUMNS];
  IDX columns[COLUMNS];
  for (uint c = 0; c < COLUMNS; c++) {
    quotients[c] = SUM(0);
    // Beyond the last column it is taken once more.
    columns[c] = (batch * n + min(first + c, n - 1)) * n;
  }
  for (IDX i = lane; i < n; i += LANES) {
    SUM_ELEMENT y[COLUMNS];
    for (uint c = 0; c < COLUMNS; c++) y[c] = SUM_ELEMENT(0);
    for (IDX k = 0; k < n; k++) {
      // The element (i, k) is the conjugate of (k, i), where neighbouring threads read neighbours.
      ELEMENT a = LOAD((batch * n + k) * n + i) * scale;
      for (uint c = 0; c < COLUMNS; c++) y[c] += conj_times(a, AT(Cell, p.work, columns[c] + k));
    }
    for (uint c = 0; c < COLUMNS; c++)
      quotients[c] += SUM(real_part(ELEMENT(conj_times(AT(Cell, p.work, columns[c] + i), ELEMENT(y[c])))));
  }
  for (uint c = 0; c < COLUMNS; c++) {
    Sums s = NOTHING;
    s.a = quotients[c];
    PART quotient = PART(total(s).a);
    if (lane == 0 && first + c < n) AT(Cell, p.values, batch * n + first + c) = element(quotient);
  }
}
