// Tiled matrix product: a workgroup computes BM×BN of C in steps of BK along k, a thread TM×TN of it.
//
// The including kernel defines the tile (BM, BN, BK, TM, TN), ELEMENT and ACCUMULATOR (types), LOAD_A(i, k),
// LOAD_B(k, j) and STORE(i, j, value), which are called within bounds only, and A_ALONG_K and B_ALONG_N: whether
// neighbouring threads should load neighbours along k of A, along n of B. (BM / TM)·(BN / TN) threads take part.

const uint ROWS = BM / TM, COLUMNS = BN / TN, THREADS = ROWS * COLUMNS;

// One column more, so that neither filling nor reading the tile hits one bank of shared memory again and again.
shared ELEMENT tile_a[BK][BM + 1];
shared ELEMENT tile_b[BK][BN + 1];

void matmul(uint lane, IDX row, IDX column, IDX m, IDX n, IDX depth) {
  ACCUMULATOR sums[TM][TN];
  for (uint i = 0; i < TM; i++) for (uint j = 0; j < TN; j++) sums[i][j] = ACCUMULATOR(0);
  uint thread_row = lane / COLUMNS, thread_column = lane % COLUMNS;
  for (IDX start = 0; start < depth; start += BK) {
    for (uint e = lane; e < BM * BK; e += THREADS) {
      uint i = A_ALONG_K ? e / BK : e % BM, k = A_ALONG_K ? e % BK : e / BM;
      bool inside = row + i < m && start + k < depth;
      tile_a[k][i] = inside ? ELEMENT(LOAD_A(row + i, start + k)) : ELEMENT(0);
    }
    for (uint e = lane; e < BN * BK; e += THREADS) {
      uint j = B_ALONG_N ? e % BN : e / BK, k = B_ALONG_N ? e / BN : e % BK;
      bool inside = column + j < n && start + k < depth;
      tile_b[k][j] = inside ? ELEMENT(LOAD_B(start + k, column + j)) : ELEMENT(0);
    }
    barrier();
    // What lies beyond the matrices is zero and would add 0·Inf = NaN, so the last step ends where they do.
    uint steps = uint(min(IDX(BK), depth - start));
    for (uint k = 0; k < steps; k++) {
      ACCUMULATOR a[TM], b[TN];
      for (uint i = 0; i < TM; i++) a[i] = ACCUMULATOR(tile_a[k][thread_row + i * ROWS]);
      for (uint j = 0; j < TN; j++) b[j] = ACCUMULATOR(tile_b[k][thread_column + j * COLUMNS]);
      for (uint i = 0; i < TM; i++) for (uint j = 0; j < TN; j++) sums[i][j] += a[i] * b[j];
    }
    barrier();
  }
  for (uint i = 0; i < TM; i++) {
    for (uint j = 0; j < TN; j++) {
      IDX at_row = row + thread_row + i * ROWS, at_column = column + thread_column + j * COLUMNS;
      if (at_row < m && at_column < n) STORE(at_row, at_column, sums[i][j]);
    }
  }
}
