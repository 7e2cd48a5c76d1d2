// Multiplies the columns of pairs of blocks by the rotations in `turns`, SLAB rows a workgroup: those of `work` and, where
// VECTORS, those of `vectors`.

const uint SIDE = 16, EACH = BOTH / SIDE, SLAB = 32, ROWS = SLAB / SIDE;

shared PART slab[BOTH][SLAB + 1], turn[BOTH][BOTH];

void main() {
  IDX group = workgroup();
  if (group >= p.groups) return;
  IDX slabs = p.groups / (p.pairs * p.batch), pair = group / slabs % p.pairs, batch = group / (slabs * p.pairs);
  if (finished(batch) || AT(uint, p.idle, group / slabs) != 0u) return;
  IDX top = top_of(pair, p.round, p.pairs), bottom = bottom_of(pair, p.round, p.pairs);
  uint lane = INVOCATION, row = lane % SIDE, column = lane / SIDE;
  IDX start = group % slabs * SLAB, rows = p.rows;
#if VECTORS
  IDX own = (p.rows + SLAB - 1) / SLAB * SLAB;
  bool vectors = start >= own;
  if (vectors) {
    start -= own;
    rows = p.columns;
  }
  #define X(i, j) AT(Cell, (vectors ? p.vectors : p.work), (batch * p.columns + (j)) * rows + (i))
#else
  #define X(i, j) AT(Cell, p.work, (batch * p.columns + (j)) * rows + (i))
#endif
  for (uint e = lane; e < BOTH * BOTH; e += THREADS)
    turn[e / BOTH][e % BOTH] = AT(Cell, p.turns, group / slabs * BOTH * BOTH + e);
  for (uint e = lane; e < BOTH * SLAB; e += THREADS) {
    uint i = e % SLAB, k = e / SLAB;
    IDX from = column_of(k, top, bottom);
    PART x = PART(0);
    if (from < p.columns && start + i < rows) x = X(start + i, from);
    slab[k][i] = x;
  }
  barrier();
  PART sums[ROWS][EACH];
  for (uint i = 0; i < ROWS; i++) for (uint j = 0; j < EACH; j++) sums[i][j] = PART(0);
  for (uint k = 0; k < BOTH; k++) {
    PART x[ROWS], y[EACH];
    for (uint i = 0; i < ROWS; i++) x[i] = slab[k][row + i * SIDE];
    for (uint j = 0; j < EACH; j++) y[j] = turn[k][column + j * SIDE];
    for (uint i = 0; i < ROWS; i++) for (uint j = 0; j < EACH; j++) sums[i][j] += x[i] * y[j];
  }
  for (uint i = 0; i < ROWS; i++) {
    for (uint j = 0; j < EACH; j++) {
      IDX to = column_of(column + j * SIDE, top, bottom), at = start + row + i * SIDE;
      if (to < p.columns && at < rows) X(at, to) = sums[i][j];
    }
  }
}
