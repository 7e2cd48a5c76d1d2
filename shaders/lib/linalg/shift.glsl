// Adds so much to the diagonal of Hermitian matrices that they become positive definite and well conditioned: more than
// the Frobenius norm, of which `values` has the squares of each column. One matrix a workgroup.

#include "lib/linalg/sums.glsl"

void main() {
  IDX batch = workgroup();
  if (batch >= p.groups) return;
  uint lane = INVOCATION;
  IDX base = batch * p.rows * p.rows;
  Sums s = NOTHING;
  for (IDX i = lane; i < p.rows; i += THREADS) s.a += SUM(real_part(AT(Cell, p.values, batch * p.rows + i)));
  PART norm = root(PART(total(s).a));
  ELEMENT shift = element(norm == PART(0) ? PART(1) : PART(1.25) * norm);
  for (IDX i = lane; i < p.rows; i += THREADS) AT(Cell, p.work, base + i * (p.rows + 1)) += shift;
}
