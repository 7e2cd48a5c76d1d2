// The sum of the squares of a column, added up by its threads.

#include "lib/linalg/sums.glsl"

IDX column() { return workgroup() * GROUP_COLUMNS + INVOCATION / COLUMN_THREADS; }
uint column_thread() { return INVOCATION % COLUMN_THREADS; }

// All threads of a workgroup call it, those beyond the last column too.
SCALAR squares(bool live) {
  Sums s = NOTHING;
  if (live) {
    for (IDX i = column_thread(); i < p.rows; i += COLUMN_THREADS) s.a += square(AT(Element, p.work, column() * p.rows + i));
  }
  s = total(s);
  return SCALAR(s.a);
}
