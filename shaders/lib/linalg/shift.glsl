// Adds a number to the diagonal of Hermitian matrices, by which they become positive definite and well conditioned: more than
// the Frobenius norm, of which `values` has the squares of each column. One matrix a workgroup.

#include "lib/linalg/sums.glsl"

void main() {
  IDX batch = workgroup();
  if (batch >= p.groups) return;
  uint thread = INVOCATION;
  IDX base = batch * p.rows * p.rows;
  Sums s = NOTHING;
  for (IDX i = thread; i < p.rows; i += THREADS) s.a += SUM(real_part(AT(Element, p.values, batch * p.rows + i)));
  SCALAR norm = root(SCALAR(total(s).a));
  ELEMENT shift = element(norm == SCALAR(0) ? SCALAR(1) : SCALAR(1.25) * norm);
  for (IDX i = thread; i < p.rows; i += THREADS) AT(Element, p.work, base + i * (p.rows + 1)) += shift;
}
