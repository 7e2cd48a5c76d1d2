// The magnitude below which an element off the diagonal is but rounding, from the Frobenius norm, of which `values` has the
// squares of each column. One matrix a workgroup.

#include "lib/linalg/sums.glsl"

void main() {
  IDX batch = workgroup();
  if (batch >= p.groups) return;
  uint lane = INVOCATION;
  Sums s = NOTHING;
  for (IDX i = lane; i < p.rows; i += THREADS) s.a += SUM(real_part(AT(Cell, p.values, batch * p.rows + i)));
  PART norm = root(PART(total(s).a));
  if (lane == 0) AT(Number, p.least, batch) = PART(EPS / 2) * norm;
}
