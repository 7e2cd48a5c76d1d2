// Applies the reflectors first..last, one after the other, to the columns begin..end of each matrix: a column a segment.

void main() {
  IDX group = workgroup();
  if (group >= p.groups) return;
  IDX blocks = (p.end - p.begin + SEGMENTS - 1) / SEGMENTS, batch = group / blocks;
  uint lane = INVOCATION % LANES, segment = INVOCATION / LANES;
  IDX j = p.begin + group % blocks * SEGMENTS + segment;
  IDX column = (batch * p.columns + j) * p.rows;
  for (IDX step = 0; step < p.last - p.first; step++) {
    IDX i = BACKWARDS != 0 ? p.last - 1 - step : p.first + step;
    PART factor = AT(Number, p.factors, batch * p.reflectors + i);
    // The same for the whole workgroup, which has one matrix.
    if (factor == PART(0)) continue;
    reflect(column, (batch * p.reflectors + i) * p.rows, i, lane, factor, j < p.end);
  }
}
