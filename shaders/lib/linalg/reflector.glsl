// A reflector applied to one column, rounded as Nx.LinAlg.QR rounds. Every thread of the workgroup calls it; each
// touches the same elements of the column every time.

#include "lib/linalg/sums.glsl"

void reflect(IDX column, IDX v, IDX i, uint lane, PART factor, bool live) {
  Sums s = NOTHING;
  if (live) {
    for (IDX k = i + lane; k < p.rows; k += LANES)
      s.g += conj_times(AT(Cell, p.reflector, v + k), AT(Cell, p.work, column + k));
  }
  ELEMENT y = ELEMENT(total(s).g);
  if (!live) return;
  for (IDX k = i + lane; k < p.rows; k += LANES) {
    ELEMENT change = times(times(AT(Cell, p.reflector, v + k), y), factor);
    AT(Cell, p.work, column + k) = minus(AT(Cell, p.work, column + k), change);
  }
}
