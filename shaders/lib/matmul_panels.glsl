// A subgroup computes BM rows by two columns for each of its lanes, from panels as `lib/panels_pack.glsl` writes them. Lanes load
// pairs of neighbours: of B both columns, of A what 2 * LANES products need one after the other.
//
// `p.none` is 0, which the compiler does not know: lanes of vectors that it cannot name are read from where the vector is spilled,
// by a broadcasting load each. Shuffles would take the port on which half of the arithmetic runs, and registers for their patterns.
//
// The including kernel defines MULTIPLY_ADD(a, b, c), a·b + c, and STORE(i, j, value) for an element of C in `batch`.

layout(local_size_x = LANES) in;

void main() {
  uint lane = gl_SubgroupInvocationID;
  const uint BN = 2 * LANES;
  IDX group = workgroup(), rows = QUOTIENT(p.m + (BM - 1), BM), columns = (p.n + (BN - 1)) / BN;
  IDX rest = QUOTIENT(group, rows), row_panel = group - rest * rows;
  IDX batch = QUOTIENT(rest, columns), column_panel = rest - batch * columns;
  // Addresses are kept, so that a load adds no more than a constant to them.
  uint64_t at_a = ADDRESS(p.a, (batch * rows + row_panel) * p.depth * BM + 2 * lane);
  uint64_t at_b = ADDRESS(p.b, (batch * columns + column_panel) * p.depth * BN + 2 * lane);
  IDX depth = group < p.groups ? p.depth : 0;
  ACCUMULATOR sums[BM][2];
  [[unroll]] for (uint i = 0; i < BM; i++) sums[i][0] = sums[i][1] = ACCUMULATOR(0);
  for (IDX k = 0; k < depth; k += STEPS) {
    ACCUMULATOR a[STEPS * BM / LANES];
    [[unroll]] for (uint load = 0; load < STEPS * BM / LANES; load += 2) {
      ELEMENT x, y;
      LOAD_PAIR(at_a + load * (LANES * SIZE), x, y);
      a[load] = ACCUMULATOR(x);
      a[load + 1] = ACCUMULATOR(y);
    }
    [[unroll]] for (uint step = 0; step < STEPS; step++) {
      ELEMENT x, y;
      LOAD_PAIR(at_b + step * (BN * SIZE), x, y);
      ACCUMULATOR b0 = ACCUMULATOR(x), b1 = ACCUMULATOR(y);
      [[unroll]] for (uint i = 0; i < BM; i++) {
        uint e = step * BM + i;
        ACCUMULATOR own = subgroupBroadcast(a[e / BN * 2 + e % 2], p.none + e % BN / 2);
        sums[i][0] = MULTIPLY_ADD(own, b0, sums[i][0]);
        sums[i][1] = MULTIPLY_ADD(own, b1, sums[i][1]);
      }
    }
    at_a += STEPS * BM * SIZE;
    at_b += STEPS * BN * SIZE;
  }
  [[unroll]] for (uint r = 0; r < BM; r++) {
    IDX i = row_panel * BM + r, j = column_panel * BN + 2 * lane;
    bool within = group < p.groups && i < p.m;
    if (within && j < p.n) STORE(i, j, sums[r][0]);
    j++;
    if (within && j < p.n) STORE(i, j, sums[r][1]);
  }
}
