// A subgroup computes BM rows by two columns for each of its lanes, from panels as `lib/panels_pack.glsl` writes them: a lane
// reads two columns of B, and two steps of one row of A, which it hands to the others.
//
// The including kernel defines MULTIPLY_ADD(a, b, c), a·b + c, and STORE(i, j, value) for an element of C in `batch`.

layout(local_size_x = LANES) in;

void main() {
  uint lane = gl_SubgroupInvocationID;
  const uint BN = 2 * LANES;
  IDX group = workgroup(), rows = (p.m + (BM - 1)) / BM, columns = (p.n + (BN - 1)) / BN;
  IDX row_panel = group % rows, rest = group / rows, column_panel = rest % columns, batch = rest / columns;
  IDX from_a = (batch * rows + row_panel) * p.depth * BM + lane % BM * 2;
  IDX from_b = (batch * columns + column_panel) * p.depth * BN + lane * 2;
  IDX depth = group < p.groups ? p.depth : 0;
  ACCUMULATOR sums[BM][2];
  [[unroll]] for (uint i = 0; i < BM; i++) sums[i][0] = sums[i][1] = ACCUMULATOR(0);
  for (IDX k = 0; k < depth; k += STEPS) {
    [[unroll]] for (uint step = 0; step < STEPS; step += 2) {
      ELEMENT a[2], b[2][2];
      LOAD_PAIR(p.a, from_a + (k + step) * BM, a[0], a[1]);
      LOAD_PAIR(p.b, from_b + (k + step) * BN, b[0][0], b[0][1]);
      LOAD_PAIR(p.b, from_b + (k + step + 1) * BN, b[1][0], b[1][1]);
      [[unroll]] for (uint l = 0; l < 2; l++) {
        ACCUMULATOR own = ACCUMULATOR(a[l]), b0 = ACCUMULATOR(b[l][0]), b1 = ACCUMULATOR(b[l][1]);
        [[unroll]] for (uint i = 0; i < BM; i++) {
          ACCUMULATOR x = subgroupBroadcast(own, i);
          sums[i][0] = MULTIPLY_ADD(x, b0, sums[i][0]);
          sums[i][1] = MULTIPLY_ADD(x, b1, sums[i][1]);
        }
      }
    }
  }
  [[unroll]] for (uint r = 0; r < BM; r++) {
    IDX i = row_panel * BM + r, j = column_panel * BN + 2 * lane;
    bool within = group < p.groups && i < p.m;
    if (within && j < p.n) STORE(i, j, sums[r][0]);
    j++;
    if (within && j < p.n) STORE(i, j, sums[r][1]);
  }
}
