// Gram matrices of pairs of blocks, a part of the rows a workgroup: `grams` holds them part by part.

IDX first, top, bottom, start, end;

SCALAR source(uint i, uint k) {
  IDX column = column_of(i, top, bottom);
  return column < p.columns && start + k < end ? AT(Element, p.work, (first + column) * p.rows + start + k) : SCALAR(0);
}
#if CPU_DEVICE
#define LEFT(i, k) source(i, k)
#define RIGHT(k, j) source(j, k)
#else
shared SCALAR slab[BOTH][BOTH + 1];
#define LEFT(i, k) slab[i][k]
#define RIGHT(k, j) slab[j][k]
#endif

void main() {
  IDX group = workgroup();
  if (group >= p.groups) return;
  IDX line = ONCE(QUOTIENT(group, p.parts)), batch = ONCE(QUOTIENT(line, p.pairs)), pair = line - batch * p.pairs;
  IDX part = group - line * p.parts;
  if (finished(batch)) return;
  first = batch * p.columns;
  top = ONCE(top_of(pair, p.round, p.pairs));
  bottom = ONCE(bottom_of(pair, p.round, p.pairs));
  end = min((part + 1) * p.depth, p.rows);
  CLEAR
  for (start = part * p.depth; start < end; start += BOTH) {
#if !CPU_DEVICE
    for (uint e = INVOCATION; e < BOTH * BOTH; e += THREADS) slab[e / BOTH][e % BOTH] = source(e / BOTH, e % BOTH);
    barrier();
#endif
    MULTIPLY(LEFT, RIGHT)
#if !CPU_DEVICE
    barrier();
#endif
  }
  EACH_SUM(i, j, sum, AT(Element, p.grams, (group * BOTH + j) * BOTH + i) = sum;)
}
