// Fills the columns of zero, the last ones, so that the first `width` columns are orthonormal in their first `width`
// elements: with the unit vector that is farthest from the columns before, less what it has of them. Columns whose lengths are below
// SHORTEST count as zero: the rotations could not tell their directions. One matrix a workgroup.

#include "lib/linalg/sums.glsl"

shared SCALAR best[THREADS];
shared uint rows_of_best[THREADS];

void main() {
  IDX batch = workgroup();
  if (batch >= p.groups) return;
  uint thread = INVOCATION;
  IDX n = p.width, base = batch * p.columns * p.rows;
  #define C(i, j) AT(Element, p.work, base + (j) * p.rows + (i))
  #define FILLED(j) (SUM(size(AT(Element, p.values, batch * n + IDX(AT(uint, p.order, batch * n + (j)))))) > SHORTEST)
  IDX first = n;
  while (first > 0 && !FILLED(first - 1)) first--;
  for (IDX j = first; j < n; j++) {
    best[thread] = SCALAR(-1);
    rows_of_best[thread] = 0;
    for (IDX i = thread; i < n; i += THREADS) {
      SCALAR rest = SCALAR(1);
      for (IDX k = 0; k < j; k++) rest -= SCALAR(square(C(i, k)));
      if (rest > best[thread]) {
        best[thread] = rest;
        rows_of_best[thread] = uint(i);
      }
    }
    barrier();
    SCALAR farthest = SCALAR(-1);
    IDX unit = 0;
    for (uint k = 0; k < THREADS; k++) {
      if (best[k] > farthest || (best[k] == farthest && rows_of_best[k] < unit)) {
        farthest = best[k];
        unit = rows_of_best[k];
      }
    }
    Sums s = NOTHING;
    for (IDX i = thread; i < n; i += THREADS) {
      SUM_ELEMENT rest = SUM_ELEMENT(element(i == unit ? SCALAR(1) : SCALAR(0)));
      for (IDX k = 0; k < j; k++) rest -= conj_times(C(unit, k), C(i, k));
      C(i, j) = ELEMENT(rest);
      s.a += square(ELEMENT(rest));
    }
    SCALAR length = root(SCALAR(total(s).a));
    for (IDX i = thread; i < n; i += THREADS) C(i, j) = over(C(i, j), length);
    meet();
  }
}
