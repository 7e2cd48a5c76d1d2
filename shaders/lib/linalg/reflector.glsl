// A reflector applied to one column, rounded as Nx.LinAlg.QR rounds. Every thread of the workgroup calls it; each
// touches the same elements of the column every time, so that one reflector after the other needs no barrier.

#include "lib/linalg/sums.glsl"

// The first element from i on that is a lane's.
IDX first_from(IDX i, uint lane) {
  IDX k = i / LANES * LANES + lane;
  return k < i ? k + LANES : k;
}

void reflect(IDX column, IDX v, IDX i, uint lane, PART factor, bool live) {
  Sums s = NOTHING;
  IDX first = first_from(i, lane);
  if (live) {
    for (IDX k = first; k < p.rows; k += LANES)
      s.g += conj_times(AT(Cell, p.reflector, v + k), AT(Cell, p.work, column + k));
  }
  ELEMENT y = ELEMENT(total(s).g);
  if (!live) return;
  for (IDX k = first; k < p.rows; k += LANES) {
    ELEMENT change = times(times(AT(Cell, p.reflector, v + k), y), factor);
    AT(Cell, p.work, column + k) = minus(AT(Cell, p.work, column + k), change);
  }
}
