// Matrix product without shared memory, for CPU devices, whose invocations are the lanes of vectors: each invocation
// computes BM elements of one column of C. Neighbouring invocations compute neighbouring columns: an element of A is the same in
// all of them and is read once, and one of B serves BM products.
//
// The including kernel defines what `lib/matmul.glsl` asks for, with TM = BM and TN = 1, but A_DEPTH and B_DEPTH: DEPTH_LOOP
// runs its argument for each k, for which A_NOW and B_NOW are the offsets along the depth.

void matmul(uint thread, IDX row, IDX column, IDX m, IDX n) {
  IDX j = column + thread, offsets_a[BM], offset_b = B_COLUMN(min(j, n - 1));
  ACCUMULATOR sums[BM];
  for (uint i = 0; i < BM; i++) {
    offsets_a[i] = A_ROW(min(row + i, m - 1));
    sums[i] = ACCUMULATOR(0);
  }
  DEPTH_LOOP({
    ACCUMULATOR b = ACCUMULATOR(B_VALUE(B_AT(offset_b + B_NOW)));
    for (uint i = 0; i < BM; i++) sums[i] = MULTIPLY_ADD(ACCUMULATOR(A_VALUE(A_AT(offsets_a[i] + A_NOW))), b, sums[i]);
  })
  for (uint i = 0; i < BM; i++) {
    IDX at_row = row + i;
    if (at_row < m && j < n) STORE(at_row, j, sums[i]);
  }
}
