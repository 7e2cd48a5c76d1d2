// The magnitude below which an element off the diagonal is but rounding, from the Frobenius norm, of which `values` has the
// squares of each column. One matrix a workgroup.

#include "lib/linalg/sums.glsl"

void main() {
  IDX batch = workgroup();
  if (batch >= p.groups) return;
  uint thread = INVOCATION;
  Sums s = NOTHING;
  for (IDX i = thread; i < p.rows; i += THREADS) s.a += SUM(real_part(AT(Element, p.values, batch * p.rows + i)));
  SCALAR norm = root(SCALAR(total(s).a));
  if (thread == 0) AT(Real, p.least, batch) = SCALAR(EPS / 2) * norm;
}
