// The sum of the squares of a column, added up by the threads of its segment.

#include "lib/linalg/sums.glsl"

IDX column() { return workgroup() * SEGMENTS + INVOCATION / LANES; }
uint lane() { return INVOCATION % LANES; }

// All threads of a workgroup call it, those beyond the last column too.
PART squares(bool live) {
  Sums s = NOTHING;
  if (live) {
    for (IDX i = lane(); i < p.rows; i += LANES) s.a += square(AT(Cell, p.work, column() * p.rows + i));
  }
  s = total(s);
  return PART(s.a);
}
