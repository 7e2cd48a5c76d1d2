// A reflector applied to one column, rounded as Nx.LinAlg.QR rounds. Every thread of the workgroup calls it; each
// touches the same elements of the column every time, so that one reflector after the other needs no barrier.

#include "lib/linalg/sums.glsl"

// The first element from i on that is a thread's.
IDX first_from(IDX i, uint thread) {
  IDX k = i / COLUMN_THREADS * COLUMN_THREADS + thread;
  return k < i ? k + COLUMN_THREADS : k;
}

void reflect(IDX column, IDX v, IDX i, uint thread, SCALAR factor, bool live) {
  Sums s = NOTHING;
  IDX first = first_from(i, thread);
  if (live) {
    for (IDX k = first; k < p.rows; k += COLUMN_THREADS)
      s.g += conj_times(AT(Element, p.reflector, v + k), AT(Element, p.work, column + k));
  }
  ELEMENT y = ELEMENT(total(s).g);
  if (!live) return;
  for (IDX k = first; k < p.rows; k += COLUMN_THREADS) {
    ELEMENT change = times(times(AT(Element, p.reflector, v + k), y), factor);
    AT(Element, p.work, column + k) = minus(AT(Element, p.work, column + k), change);
  }
}
