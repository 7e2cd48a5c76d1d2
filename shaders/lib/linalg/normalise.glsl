// Brings the columns to length 1, a column a segment, and keeps their lengths in `values`. Columns of zero stay.

#include "lib/linalg/column_squares.glsl"

void main() {
  bool live = column() < p.count;
  PART sum = squares(live);
  if (!live) return;
  PART length = root(sum);
  if (lane() == 0) AT(Cell, p.values, column()) = element(length);
  for (IDX i = lane(); i < p.rows; i += LANES) {
    IDX place = column() * p.rows + i;
    ELEMENT x = AT(Cell, p.work, place);
    AT(Cell, p.work, place) = length == PART(0) ? ELEMENT(0) : over(x, length);
  }
}
