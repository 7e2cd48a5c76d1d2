// Writes an operand of a product to panels for `lib/matmul_panels.glsl`: WIDTH rows of A or columns of B for each k, the panels
// one after the other, with zeros beyond the edges. A workgroup writes 2 * LANES rows or columns for `p.chunk` of k.
//
// The including kernel defines WIDTH, which is even, ALONG_K (1 where the operand's elements lie closer along k), the parts
// OUTER_OFFSET(i) and DEPTH_OFFSET(k) of an element's place, of row or column i of `batch`, and ELEMENT_AT(place).

layout(local_size_x = LANES) in;

void main() {
  uint lane = gl_SubgroupInvocationID;
  IDX group = workgroup(), rest = QUOTIENT(group, p.chunks), chunk = group - rest * p.chunks;
  IDX batch = QUOTIENT(rest, p.tiles), tile = rest - batch * p.tiles;
  IDX start = chunk * p.chunk, end = batch < p.batches ? min(start + p.chunk, p.depth) : start;
  // Each lane finds the places of another pair of rows or columns and of another k, and all of them take one of these in turn.
  IDX own = tile * (2 * LANES) + 2 * lane, panel = QUOTIENT(own, WIDTH);
  // Beyond the edges they are those of the last: a load costs less than a branch.
  IDX own_place = OUTER_OFFSET(min(own, p.size - 1)), own_next_place = OUTER_OFFSET(min(own + 1, p.size - 1));
  IDX own_to = (batch * p.panels + panel) * p.depth * WIDTH + own - panel * WIDTH;
  for (IDX block = start; block < end; block += LANES) {
    IDX own_depth = DEPTH_OFFSET(min(block + lane, p.k - 1));
    [[unroll]] for (uint turn = 0; turn < LANES; turn++) {
#if ALONG_K
      IDX k = block + lane, i = tile * (2 * LANES) + 2 * turn, depth = own_depth;
      IDX place = subgroupBroadcast(own_place, turn), next_place = subgroupBroadcast(own_next_place, turn);
      IDX to = subgroupBroadcast(own_to, turn);
#else
      IDX k = block + turn, i = own, depth = subgroupBroadcast(own_depth, turn);
      IDX place = own_place, next_place = own_next_place, to = own_to;
#endif
      ELEMENT x = ELEMENT_AT(place + depth), y = ELEMENT_AT(next_place + depth);
      x = i < p.size && k < p.k ? x : ELEMENT(0);
      y = i + 1 < p.size && k < p.k ? y : ELEMENT(0);
      if (i < p.panels * WIDTH) STORE_PAIR(ADDRESS(p.panels_out, to + k * WIDTH), x, y);
    }
  }
}
