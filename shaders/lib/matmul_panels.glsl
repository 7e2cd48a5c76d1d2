// A subgroup computes PANELS panels of BM rows by two columns for each of its lanes, from panels as `lib/panels_pack.glsl` writes
// them. Lanes load pairs of neighbours: of B both columns, of A what 2 * LANES consecutive products need. What an iteration
// loads of B serves one panel of A after the other; the sums of one at a time are in registers.
//
// `p.none` is 0, which the compiler does not know: lanes whose index is no constant are read from the spilled vector,
// by a broadcasting load each. Shuffles would take the port on which half of the arithmetic runs, and registers for their
// patterns.
//
// The including kernel defines MULTIPLY_ADD(a, b, c), a·b + c, STORE(i, j, value) for an element of C in `batch`,
// KEEP(k, value), a store that never happens, SEPARATE_LOADS, 1 where loads must not be scheduled between arithmetic, and PAIR_STORES, 1
// where pairs of columns of C are words: then also C_OFFSET(i, j) of an element and RESULT(value, old), its new value.

layout(local_size_x = LANES) in;

void main() {
  uint lane = gl_SubgroupInvocationID;
  const uint BN = 2 * LANES;
  IDX group = workgroup(), rows = QUOTIENT(p.m + (PANELS * BM - 1), PANELS * BM), columns = (p.n + (BN - 1)) / BN;
  IDX rest = QUOTIENT(group, rows), row_panels = group - rest * rows;
  IDX batch = QUOTIENT(rest, columns), column_panel = rest - batch * columns;
  // Addresses are kept, so that a load adds no more than a constant to them.
  uint64_t at_a = ADDRESS(p.a, (batch * rows + row_panels) * PANELS * p.depth * BM + 2 * lane), next = ADDRESS(0, p.depth * BM);
  uint64_t at_b = ADDRESS(p.b, (batch * columns + column_panel) * p.depth * BN + 2 * lane);
  IDX depth = group < p.groups ? p.depth : 0;
  ACCUMULATOR sums[PANELS * BM][2];
  [[unroll]] for (uint i = 0; i < PANELS * BM; i++) sums[i][0] = sums[i][1] = ACCUMULATOR(0);
  for (IDX k = 0; k < depth; k += STEPS) {
    const uint OF_A = STEPS * BM / LANES, OF_B = STEPS * 2;
    ACCUMULATOR a[PANELS * OF_A], b[OF_B];
    [[unroll]] for (uint load = 0; load < PANELS * OF_A; load += 2) {
      ELEMENT x, y;
      LOAD_PAIR(at_a + (load / OF_A) * next + (load % OF_A) * (LANES * SIZE), x, y);
      a[load] = ACCUMULATOR(x);
      a[load + 1] = ACCUMULATOR(y);
    }
    [[unroll]] for (uint load = 0; load < OF_B; load += 2) {
      ELEMENT x, y;
      LOAD_PAIR(at_b + load * (LANES * SIZE), x, y);
      b[load] = ACCUMULATOR(x);
      b[load + 1] = ACCUMULATOR(y);
    }
#if SEPARATE_LOADS
    // This never happens, but the compiler orders instructions between branches only. Without the branch it would split pairs
    // where they are used: addresses of 64 bits make them vectors of 512 bits, and while these are in use a core has two ports
    // for arithmetic instead of three.
    if (p.none != 0) {
      KEEP(k + lane, a[0]);
      KEEP(k - lane, b[0]);
    }
#endif
    [[unroll]] for (uint step = 0; step < PANELS * STEPS; step++) {
      [[unroll]] for (uint i = 0; i < BM; i++) {
        uint e = step * BM + i, row = step / STEPS * BM + i, k_b = step % STEPS * 2;
        ACCUMULATOR own = subgroupBroadcast(a[e / BN * 2 + e % 2], p.none + e % BN / 2);
        sums[row][0] = MULTIPLY_ADD(own, b[k_b], sums[row][0]);
        sums[row][1] = MULTIPLY_ADD(own, b[k_b + 1], sums[row][1]);
      }
    }
    at_a += STEPS * BM * SIZE;
    at_b += STEPS * BN * SIZE;
  }
  [[unroll]] for (uint r = 0; r < PANELS * BM; r++) {
    IDX i = row_panels * (PANELS * BM) + r, j = column_panel * BN + 2 * lane;
    bool within = group < p.groups && i < p.m;
#if PAIR_STORES
    if (within && j < p.n) {
      uint64_t at = ADDRESS(p.c, C_OFFSET(i, j));
      ELEMENT x, y;
      LOAD_PAIR(at, x, y);
      STORE_PAIR(at, RESULT(sums[r][0], x), RESULT(sums[r][1], y));
    }
#else
    if (within && j < p.n) STORE(i, j, sums[r][0]);
    j++;
    if (within && j < p.n) STORE(i, j, sums[r][1]);
#endif
  }
}
