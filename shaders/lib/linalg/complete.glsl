// Fills the columns of zero, the last ones, so that the first `width` columns are orthonormal in their first `width`
// elements: with the unit vector that is farthest from the columns before, less what it has of them. One matrix a
// workgroup.

#include "lib/linalg/sums.glsl"

shared PART best[THREADS];
shared uint places[THREADS];

void main() {
  IDX batch = workgroup();
  if (batch >= p.groups) return;
  uint lane = INVOCATION;
  IDX n = p.width, base = batch * p.columns * p.rows;
  #define C(i, j) AT(Cell, p.work, base + (j) * p.rows + (i))
  #define FILLED(j) (size(AT(Cell, p.values, batch * n + IDX(AT(uint, p.order, batch * n + (j))))) > PART(0))
  IDX first = n;
  while (first > 0 && !FILLED(first - 1)) first--;
  for (IDX j = first; j < n; j++) {
    best[lane] = PART(-1);
    places[lane] = 0;
    for (IDX i = lane; i < n; i += THREADS) {
      PART rest = PART(1);
      for (IDX k = 0; k < j; k++) rest -= PART(square(C(i, k)));
      if (rest > best[lane]) {
        best[lane] = rest;
        places[lane] = uint(i);
      }
    }
    barrier();
    PART farthest = PART(-1);
    IDX unit = 0;
    for (uint k = 0; k < THREADS; k++) {
      if (best[k] > farthest || (best[k] == farthest && places[k] < unit)) {
        farthest = best[k];
        unit = places[k];
      }
    }
    Sums s = NOTHING;
    for (IDX i = lane; i < n; i += THREADS) {
      SUM_ELEMENT rest = SUM_ELEMENT(element(i == unit ? PART(1) : PART(0)));
      for (IDX k = 0; k < j; k++) rest -= conj_times(C(unit, k), C(i, k));
      C(i, j) = ELEMENT(rest);
      s.a += square(ELEMENT(rest));
    }
    PART length = root(PART(total(s).a));
    for (IDX i = lane; i < n; i += THREADS) C(i, j) = over(C(i, j), length);
    meet();
  }
}
