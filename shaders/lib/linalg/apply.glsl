// Applies the reflectors first..last, one after the other, to the columns begin..end of each matrix: a column for the threads of each.

void main() {
  IDX group = workgroup();
  if (group >= p.groups) return;
  IDX blocks = (p.end - p.begin + GROUP_COLUMNS - 1) / GROUP_COLUMNS, batch = group / blocks;
  uint thread = INVOCATION % COLUMN_THREADS, group_column = INVOCATION / COLUMN_THREADS;
  IDX j = p.begin + group % blocks * GROUP_COLUMNS + group_column;
  IDX column = (batch * p.columns + j) * p.rows;
  for (IDX step = 0; step < p.last - p.first; step++) {
    IDX i = REVERSED != 0 ? p.last - 1 - step : p.first + step;
    SCALAR factor = AT(Real, p.factors, batch * p.reflectors + i);
    // The same for the whole workgroup, which has one matrix.
    if (factor == SCALAR(0)) continue;
    reflect(column, (batch * p.reflectors + i) * p.rows, i, thread, factor, j < p.end);
  }
}
