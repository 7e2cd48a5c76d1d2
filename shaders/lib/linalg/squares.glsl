// The sum of the squares of each column, a column a segment.

#include "lib/linalg/column_squares.glsl"

void main() {
  bool live = column() < p.count;
  PART sum = squares(live);
  if (live && lane() == 0) AT(Cell, p.values, column()) = element(sum);
}
