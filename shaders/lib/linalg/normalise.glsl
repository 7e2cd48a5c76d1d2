// Brings the columns to length 1, a column for the threads of each, and keeps their lengths in `values`. Columns of zero stay.

#include "lib/linalg/column_squares.glsl"

void main() {
  bool live = column() < p.count;
  SCALAR sum = squares(live);
  if (!live) return;
  SCALAR length = root(sum);
  if (column_thread() == 0) AT(Element, p.values, column()) = element(length);
  for (IDX i = column_thread(); i < p.rows; i += COLUMN_THREADS) {
    IDX index = column() * p.rows + i;
    ELEMENT x = AT(Element, p.work, index);
    AT(Element, p.work, index) = length == SCALAR(0) ? ELEMENT(0) : over(x, length);
  }
}
