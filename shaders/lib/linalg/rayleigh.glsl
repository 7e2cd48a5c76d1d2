// Rayleigh quotients xᴴ·A·x of the unit vectors in `work`, COLUMNS of them a workgroup, which read A once for all:
// eigenvalues as accurate as A's elements.

#include "lib/linalg/sums.glsl"

const uint COLUMNS = 4;

void main() {
  IDX tiles = (p.rows + COLUMNS - 1) / COLUMNS, batch = workgroup() / tiles, first = workgroup() % tiles * COLUMNS;
  if (workgroup() >= p.groups) return;
  uint thread = INVOCATION;
  IDX n = p.rows;
  SCALAR scale = AT(Real, p.scales, batch);
  SUM quotients[COLUMNS];
  IDX columns[COLUMNS];
  for (uint c = 0; c < COLUMNS; c++) {
    quotients[c] = SUM(0);
    // Beyond the last column it is taken once more.
    columns[c] = (batch * n + min(first + c, n - 1)) * n;
  }
  for (IDX i = thread; i < n; i += COLUMN_THREADS) {
    SUM_ELEMENT y[COLUMNS];
    for (uint c = 0; c < COLUMNS; c++) y[c] = SUM_ELEMENT(0);
    for (IDX k = 0; k < n; k++) {
      // The element (i, k) is the conjugate of (k, i), where neighbouring threads read neighbours.
      ELEMENT a = LOAD((batch * n + k) * n + i) * scale;
      for (uint c = 0; c < COLUMNS; c++) y[c] += conj_times(a, AT(Element, p.work, columns[c] + k));
    }
    for (uint c = 0; c < COLUMNS; c++)
      quotients[c] += SUM(real_part(ELEMENT(conj_times(AT(Element, p.work, columns[c] + i), ELEMENT(y[c])))));
  }
  for (uint c = 0; c < COLUMNS; c++) {
    Sums s = NOTHING;
    s.a = quotients[c];
    SCALAR quotient = SCALAR(total(s).a);
    if (thread == 0 && first + c < n) AT(Element, p.values, batch * n + first + c) = element(quotient);
  }
}
