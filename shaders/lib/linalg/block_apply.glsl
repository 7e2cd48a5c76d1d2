// Applies the rotations, of which `orthogonal` has the products, to pairs of blocks, a workgroup BOTH rows of a pair: to the columns of `work` and, where
// VECTORS, to those of `vectors`. Where TWO_SIDED, `work` is symmetric and its rows are rotated with its columns.

IDX matrix, rows, start, top, bottom, row_top, row_bottom, base;
bool vectors, rotates_rows;

#if VECTORS
#define X(i, j) AT(Element, EITHER(Buffer_Element, vectors, p.vectors, p.work), matrix + (j) * rows + (i))
#else
#define X(i, j) AT(Element, p.work, matrix + (j) * rows + (i))
#endif
IDX row_of(uint i) { return rotates_rows ? column_of(i, row_top, row_bottom) : start + i; }
SCALAR source(uint i, uint k) {
  IDX row = row_of(i), column = column_of(k, top, bottom);
  return row < rows && column < p.columns ? X(row, column) : SCALAR(0);
}

shared SCALAR tile[BOTH][BOTH + 1];
#define TILE(i, k) tile[i][k]
#define ORTHOGONAL(k, j) AT(Element, p.orthogonal, base + (k) * BOTH + (j))
#if CPU_DEVICE
#define LOAD_ORTHOGONAL
#define LEFT(i, k) source(i, k)
#define RIGHT(k, j) ORTHOGONAL(k, j)
#else
shared SCALAR orthogonal[BOTH][BOTH];
#define LOAD_ORTHOGONAL for (uint e = INVOCATION; e < BOTH * BOTH; e += THREADS) orthogonal[e / BOTH][e % BOTH] = ORTHOGONAL(e / BOTH, e % BOTH);
#define LEFT(i, k) TILE(i, k)
#define RIGHT(k, j) orthogonal[k][j]
#endif

void main() {
  IDX group = workgroup();
  if (group >= p.groups) return;
  IDX line = ONCE(QUOTIENT(group, p.slabs)), batch = ONCE(QUOTIENT(line, p.pairs)), pair = line - batch * p.pairs;
  IDX slab = group - line * p.slabs, own = (p.rows + BOTH - 1) / BOTH, first = batch * p.pairs;
  if (finished(batch)) return;
  vectors = VECTORS != 0 && slab >= own;
  rotates_rows = TWO_SIDED != 0 && !vectors;
  rows = vectors ? p.columns : p.rows;
  matrix = ONCE(batch * p.columns * rows);
  start = (vectors ? slab - own : slab) * BOTH;
  top = ONCE(top_of(pair, p.round, p.pairs));
  bottom = ONCE(bottom_of(pair, p.round, p.pairs));
  bool idle = AT(uint, p.idle, first + pair) != 0u;
  if (rotates_rows) {
    // One triangle is enough.
    if (slab > pair) return;
    row_top = ONCE(top_of(slab, p.round, p.pairs));
    row_bottom = ONCE(bottom_of(slab, p.round, p.pairs));
    idle = idle && AT(uint, p.idle, first + slab) != 0u;
  }
  if (idle) return;
  base = (first + pair) * BOTH * BOTH;
#if !CPU_DEVICE
  for (uint e = INVOCATION; e < BOTH * BOTH; e += THREADS) tile[e % BOTH][e / BOTH] = source(e % BOTH, e / BOTH);
  LOAD_ORTHOGONAL
  barrier();
#endif
  CLEAR
  MULTIPLY(LEFT, RIGHT)
  if (rotates_rows) {
    // The rows are rotated as the columns of what is transposed so far.
    barrier();
    EACH_SUM(i, j, sum, tile[j][i] = sum;)
    base = (first + slab) * BOTH * BOTH;
    LOAD_ORTHOGONAL
    barrier();
    CLEAR
    MULTIPLY(TILE, RIGHT)
  }
  EACH_SUM(i, j, sum,
    IDX row = row_of(rotates_rows ? j : i); IDX column = column_of(rotates_rows ? i : j, top, bottom);
    if (row < rows && column < p.columns && (!rotates_rows || slab < pair || j <= i)) {
      X(row, column) = sum;
      if (rotates_rows) X(column, row) = sum;
    })
}
