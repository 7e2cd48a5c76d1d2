// Gram matrices of pairs of blocks, a part of the rows a workgroup: `grams` holds them part by part.

const uint SIDE = 16, EACH = BOTH / SIDE, SLAB = 64;

shared PART slab[BOTH][SLAB + 1];

void main() {
  IDX group = workgroup();
  if (group >= p.groups) return;
  IDX part = group % p.parts, pair = group / p.parts % p.pairs, batch = group / (p.parts * p.pairs);
  if (finished(batch)) return;
  IDX top = top_of(pair, p.round, p.pairs), bottom = bottom_of(pair, p.round, p.pairs);
  uint lane = INVOCATION, row = lane % SIDE, column = lane / SIDE;
  PART sums[EACH][EACH];
  for (uint i = 0; i < EACH; i++) for (uint j = 0; j < EACH; j++) sums[i][j] = PART(0);
  IDX end = min((part + 1) * p.depth, p.rows);
  for (IDX start = part * p.depth; start < end; start += SLAB) {
    for (uint e = lane; e < BOTH * SLAB; e += THREADS) {
      uint k = e % SLAB;
      IDX from = column_of(e / SLAB, top, bottom);
      PART x = PART(0);
      if (from < p.columns && start + k < end) x = AT(Cell, p.work, (batch * p.columns + from) * p.rows + start + k);
      slab[e / SLAB][k] = x;
    }
    barrier();
    for (uint k = 0; k < SLAB; k++) {
      PART x[EACH], y[EACH];
      for (uint i = 0; i < EACH; i++) x[i] = slab[row + i * SIDE][k];
      for (uint j = 0; j < EACH; j++) y[j] = slab[column + j * SIDE][k];
      for (uint i = 0; i < EACH; i++) for (uint j = 0; j < EACH; j++) sums[i][j] += x[i] * y[j];
    }
    barrier();
  }
  IDX base = group * BOTH * BOTH;
  for (uint i = 0; i < EACH; i++) {
    for (uint j = 0; j < EACH; j++) AT(Cell, p.grams, base + (column + j * SIDE) * BOTH + row + i * SIDE) = sums[i][j];
  }
}
