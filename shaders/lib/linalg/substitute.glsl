// Forward substitution with a lower triangle of at most WIDTH rows, on LOCAL_SIZE / WIDTH columns of X in a workgroup.
// A thread owns one element of X: it sums the products with the elements above, then divides, as BinaryBackend does.

const uint COLUMNS = LOCAL_SIZE / WIDTH;

shared ELEMENT triangle[WIDTH][WIDTH + 1];
// Two rows that alternate, so that one barrier a row is enough.
shared ELEMENT solved[2][COLUMNS];

void main() {
  uint thread = INVOCATION;
  if (workgroup() >= p.groups) return;
  IDX batch = workgroup() / p.tiles, tile = workgroup() % p.tiles;
  uint size = uint(p.size);
  uint i = CONTIGUOUS_COLUMNS != 0 ? thread / COLUMNS : thread % WIDTH;
  uint c = CONTIGUOUS_COLUMNS != 0 ? thread % COLUMNS : thread / WIDTH;
  IDX column = tile * COLUMNS + c;
  for (uint e = thread; e < size * size; e += LOCAL_SIZE) {
    uint row = e / size, k = e % size;
    IDX index = p.l_offset + batch * p.l_batch + row * p.l_row + k * p.l_column;
    if (k < row || (k == row && UNIT_DIAGONAL == 0)) {
#if CONJUGATED
      triangle[row][k] = CONJUGATE(ELEMENTS(p.l, index));
#else
      triangle[row][k] = ELEMENTS(p.l, index);
#endif
    }
  }
  bool inside = i < size && column < p.columns;
  IDX index = p.x_offset + batch * p.x_batch + i * p.x_row + column * p.x_column;
  ELEMENT x = ELEMENT(0);
  if (inside) x = ELEMENTS(p.x, index);
  precise ELEMENT sum = ELEMENT(0);
  barrier();
  for (uint k = 0; k < size; k++) {
    if (i == k) {
      precise ELEMENT rest = x - sum;
#if UNIT_DIAGONAL
      x = rest;
#else
      x = divide(rest, triangle[k][k]);
#endif
      solved[k & 1u][c] = x;
    }
    barrier();
    if (i > k && i < size) {
      precise ELEMENT product = MULTIPLY(triangle[i][k], solved[k & 1u][c]);
      sum = sum + product;
    }
  }
  if (inside) ELEMENTS(p.x, index) = x;
}
