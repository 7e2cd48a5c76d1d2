// Writes one operand of a product to panels for `lib/matmul_panels.glsl`: of A, for every two steps along k BM rows with both
// elements side by side; of B, for every step two columns for each lane. Zeros are beyond the edges.
//
// The including kernel defines PACKS_A, the parts OUTER_PLACE(i) and DEPTH_PLACE(k) of an element's place, of row or column i of
// `batch`, and ELEMENT_AT(place).

layout(local_size_x = LANES) in;

#if PACKS_A
#define FROM_LANE(x, l) subgroupShuffle(x, l)
#else
#define FROM_LANE(x, l) subgroupBroadcast(x, l)
#endif

void main() {
  uint lane = gl_SubgroupInvocationID;
  IDX group = workgroup(), chunk = group % p.chunks;
  group /= p.chunks;
  IDX panel = group % p.panels, batch = group / p.panels;
  IDX start = chunk * p.chunk, end = batch < p.batches ? min(start + p.chunk, p.depth) : start;
#if PACKS_A
  const uint WIDTH = BM, STEP = 2 * (LANES / BM);
  IDX i = panel * WIDTH + lane % BM, next_i = i;
  uint first = lane / BM * 2, next = 1;
#else
  const uint WIDTH = 2 * LANES, STEP = 1;
  IDX i = panel * WIDTH + 2 * lane, next_i = i + 1;
  uint first = 0, next = 0;
#endif
  IDX to = (batch * p.panels + panel) * p.depth * WIDTH + (PACKS_A != 0 ? lane % BM : lane) * 2;
  bool has = i < p.size, has_next = next_i < p.size;
  IDX outer = OUTER_PLACE(i), next_outer = OUTER_PLACE(next_i);
  // Each lane finds the place of another k, and hands it to the others.
  for (IDX block = start; block < end; block += LANES) {
    IDX depths = DEPTH_PLACE(block + lane);
    [[unroll]] for (uint turn = 0; turn < LANES; turn += STEP) {
      uint k = turn + first;
      IDX depth = FROM_LANE(depths, k), next_depth = FROM_LANE(depths, k + next);
      ELEMENT x = ELEMENT(0), y = ELEMENT(0);
      if (has && block + k < p.k) x = ELEMENT_AT(outer + depth);
      if (has_next && block + k + next < p.k) y = ELEMENT_AT(next_outer + next_depth);
      if (block + k < end) STORE_PAIR(p.panels_out, to + (block + k) * WIDTH, x, y);
    }
  }
}
