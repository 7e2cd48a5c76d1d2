// The Cholesky factor of a matrix of at most WIDTH rows in place, one workgroup a matrix. Thread (i, g) holds the elements
// of row i in columns g, g + GROUPS, …, each with the sum that is subtracted when its column is factored: ACCUMULATOR may be wider
// than ELEMENT, so that the sum rounds once, as BinaryBackend's does.

const uint GROUPS = LOCAL_SIZE / WIDTH, OWN = WIDTH / GROUPS;

shared ELEMENT factor[WIDTH][WIDTH + 1];
shared SCALAR root;

void main() {
  uint thread = INVOCATION;
  if (workgroup() >= p.groups) return;
  uint size = uint(p.size), i = thread % WIDTH, g = thread / WIDTH;
  IDX row = p.a_offset + workgroup() * p.a_batch + i * p.a_row;
  ELEMENT a[OWN];
  ACCUMULATOR sums[OWN];
  for (uint own = 0; own < OWN; own++) {
    uint column = g + own * GROUPS;
    a[own] = ELEMENT(0);
    if (i < size && column <= i) a[own] = ELEMENTS(p.a, row + column * p.a_column);
    sums[own] = ACCUMULATOR(0);
  }
  for (uint j = 0; j < size; j++) {
    ELEMENT rest = ELEMENT(0);
    for (uint own = 0; own < OWN; own++) {
      if (g + own * GROUPS == j) {
        precise ELEMENT difference = a[own] - ELEMENT(sums[own]);
        rest = difference;
      }
    }
    bool is_current = g == j % GROUPS && i >= j && i < size;
    if (is_current && i == j) root = nx_sqrt(REAL_PART(rest));
    barrier();
    if (is_current) {
      // Added to zero: no negative zeros.
      precise ELEMENT l = ELEMENT(0);
      if (i == j) REAL_PART(l) = root;
      else l = divide_real(rest, is_zero(root) ? SCALAR(1.0e-10) : root) + ELEMENT(0);
      factor[i][j] = l;
      ELEMENTS(p.a, row + j * p.a_column) = l;
    }
    barrier();
    for (uint own = 0; own < OWN; own++) {
      uint column = g + own * GROUPS;
      if (column > j && column <= i && i < size) {
        precise ACCUMULATOR product = MULTIPLY(ACCUMULATOR(factor[i][j]), CONJUGATE(ACCUMULATOR(factor[column][j])));
        precise ACCUMULATOR sum = sums[own] + product;
        sums[own] = sum;
      }
    }
  }
}
