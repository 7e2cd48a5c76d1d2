// The sum of the squares of each column, a column for the threads of each.

#include "lib/linalg/column_squares.glsl"

void main() {
  bool live = column() < p.count;
  SCALAR sum = squares(live);
  if (live && column_thread() == 0) AT(Element, p.values, column()) = element(sum);
}
