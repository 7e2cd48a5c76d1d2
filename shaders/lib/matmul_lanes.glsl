// Matrix product without shared memory, for devices whose invocations are the lanes of a processor's vectors: each
// invocation computes BM elements of one column of C. Lanes lie along columns, so an element of A is the same in all of
// them and is read once for all, and one of B serves BM products.
//
// The including kernel defines what `lib/matmul.glsl` asks for, with TM = BM and TN = 1, but A_DEPTH and B_DEPTH: DEPTH_LOOP
// runs its argument for each k, for which A_NOW and B_NOW are the parts of the places.

void matmul(uint lane, IDX row, IDX column, IDX m, IDX n) {
  IDX j = column + lane, places_a[BM], place_b = B_COLUMN(min(j, n - 1));
  ACCUMULATOR sums[BM];
  for (uint i = 0; i < BM; i++) {
    places_a[i] = A_ROW(min(row + i, m - 1));
    sums[i] = ACCUMULATOR(0);
  }
  DEPTH_LOOP({
    ACCUMULATOR b = ACCUMULATOR(B_VALUE(B_AT(place_b + B_NOW)));
    for (uint i = 0; i < BM; i++) sums[i] = MULTIPLY_ADD(ACCUMULATOR(A_VALUE(A_AT(places_a[i] + A_NOW))), b, sums[i]);
  })
  for (uint i = 0; i < BM; i++) {
    IDX at_row = row + i;
    if (at_row < m && j < n) STORE(at_row, j, sums[i]);
  }
}
