// Applies the rotations in `turns` to pairs of blocks, a workgroup BOTH rows of a pair: to the columns of `work` and, where
// VECTORS, to those of `vectors`. Where TWO_SIDED, `work` is symmetric and its rows turn with its columns.

IDX matrix, rows, start, top, bottom, row_top, row_bottom, turns;
bool vectors, rows_turn;

#if VECTORS
#define X(i, j) AT(Cell, (vectors ? p.vectors : p.work), matrix + (j) * rows + (i))
#else
#define X(i, j) AT(Cell, p.work, matrix + (j) * rows + (i))
#endif
IDX row_of(uint i) { return rows_turn ? column_of(i, row_top, row_bottom) : start + i; }
PART source(uint i, uint k) {
  IDX row = row_of(i), column = column_of(k, top, bottom);
  return row < rows && column < p.columns ? X(row, column) : PART(0);
}

shared PART tile[BOTH][BOTH + 1];
#define TILE(i, k) tile[i][k]
#define TURN(k, j) AT(Cell, p.turns, turns + (k) * BOTH + (j))
#if PROCESSOR
#define LOAD_TURN
#define LEFT(i, k) source(i, k)
#define RIGHT(k, j) TURN(k, j)
#else
shared PART turn[BOTH][BOTH];
#define LOAD_TURN for (uint e = INVOCATION; e < BOTH * BOTH; e += THREADS) turn[e / BOTH][e % BOTH] = TURN(e / BOTH, e % BOTH);
#define LEFT(i, k) TILE(i, k)
#define RIGHT(k, j) turn[k][j]
#endif

void main() {
  IDX group = workgroup();
  if (group >= p.groups) return;
  IDX line = ONCE(QUOTIENT(group, p.slabs)), batch = ONCE(QUOTIENT(line, p.pairs)), pair = line - batch * p.pairs;
  IDX slab = group - line * p.slabs, own = (p.rows + BOTH - 1) / BOTH, first = batch * p.pairs;
  if (finished(batch)) return;
  vectors = VECTORS != 0 && slab >= own;
  rows_turn = TWO_SIDED != 0 && !vectors;
  rows = vectors ? p.columns : p.rows;
  matrix = ONCE(batch * p.columns * rows);
  start = (vectors ? slab - own : slab) * BOTH;
  top = ONCE(top_of(pair, p.round, p.pairs));
  bottom = ONCE(bottom_of(pair, p.round, p.pairs));
  bool idle = AT(uint, p.idle, first + pair) != 0u;
  if (rows_turn) {
    // One triangle is enough.
    if (slab > pair) return;
    row_top = ONCE(top_of(slab, p.round, p.pairs));
    row_bottom = ONCE(bottom_of(slab, p.round, p.pairs));
    idle = idle && AT(uint, p.idle, first + slab) != 0u;
  }
  if (idle) return;
  turns = (first + pair) * BOTH * BOTH;
#if !PROCESSOR
  for (uint e = INVOCATION; e < BOTH * BOTH; e += THREADS) tile[e % BOTH][e / BOTH] = source(e % BOTH, e / BOTH);
  LOAD_TURN
  barrier();
#endif
  CLEAR
  MULTIPLY(LEFT, RIGHT)
  if (rows_turn) {
    // The transposed of what it is so far takes the turn of its rows.
    barrier();
    EACH_SUM(i, j, sum, tile[j][i] = sum;)
    turns = (first + slab) * BOTH * BOTH;
    LOAD_TURN
    barrier();
    CLEAR
    MULTIPLY(TILE, RIGHT)
  }
  EACH_SUM(i, j, sum,
    IDX row = row_of(rows_turn ? j : i); IDX column = column_of(rows_turn ? i : j, top, bottom);
    if (row < rows && column < p.columns && (!rows_turn || slab < pair || j <= i)) {
      X(row, column) = sum;
      if (rows_turn) X(column, row) = sum;
    })
}
