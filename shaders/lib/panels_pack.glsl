// Writes an operand of a product to panels for `lib/matmul_panels.glsl`: WIDTH rows of A or columns of B for each k, panel
// after panel, with zeros beyond the edges. A workgroup writes 2 * LANES rows or columns for `p.chunk` of k.
//
// The including kernel defines WIDTH, which is even, ALONG_K (1 where the operand's elements lie closer along k), the
// offsets OUTER_OFFSET(i) of row or column i of `batch` and DEPTH_OFFSET(k), whose sum is an element's, and ELEMENT_AT(offset).

layout(local_size_x = LANES) in;

void main() {
  uint lane = gl_SubgroupInvocationID;
  IDX group = workgroup(), rest = QUOTIENT(group, p.chunks), chunk = group - rest * p.chunks;
  IDX batch = QUOTIENT(rest, p.tiles), tile = rest - batch * p.tiles;
  IDX start = chunk * p.chunk, end = batch < p.batches ? min(start + p.chunk, p.depth) : start;
  // Each lane finds the offsets of another pair of rows or columns and of another k, and broadcasts them one after the other.
  IDX own = tile * (2 * LANES) + 2 * lane, panel = QUOTIENT(own, WIDTH);
  // Beyond the edges they are those of the last: a load costs less than a branch.
  IDX own_offset = OUTER_OFFSET(min(own, p.size - 1)), own_next_offset = OUTER_OFFSET(min(own + 1, p.size - 1));
  IDX own_to = (batch * p.panels + panel) * p.depth * WIDTH + own - panel * WIDTH;
  for (IDX block = start; block < end; block += LANES) {
    IDX own_depth = DEPTH_OFFSET(min(block + lane, p.k - 1));
    [[unroll]] for (uint step = 0; step < LANES; step++) {
#if ALONG_K
      IDX k = block + lane, i = tile * (2 * LANES) + 2 * step, depth = own_depth;
      IDX offset = subgroupBroadcast(own_offset, step), next_offset = subgroupBroadcast(own_next_offset, step);
      IDX to = subgroupBroadcast(own_to, step);
#else
      IDX k = block + step, i = own, depth = subgroupBroadcast(own_depth, step);
      IDX offset = own_offset, next_offset = own_next_offset, to = own_to;
#endif
      ELEMENT x = ELEMENT_AT(offset + depth), y = ELEMENT_AT(next_offset + depth);
      x = i < p.size && k < p.k ? x : ELEMENT(0);
      y = i + 1 < p.size && k < p.k ? y : ELEMENT(0);
      if (i < p.panels * WIDTH) STORE_PAIR(ADDRESS(p.panels_out, to + k * WIDTH), x, y);
    }
  }
}
