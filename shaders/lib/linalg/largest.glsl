// The largest magnitude of a part of an element in each of `parts` pieces of each matrix, a piece a workgroup.

shared SCALAR maxima[THREADS];

void main() {
  IDX group = workgroup();
  if (group >= p.groups) return;
  uint thread = INVOCATION;
  IDX count = p.rows * p.columns, piece = (count + p.parts - 1) / p.parts;
  IDX base = group / p.parts * count, first = group % p.parts * piece, end = min(first + piece, count);
  SCALAR largest = SCALAR(0);
  for (IDX i = first + thread; i < end; i += THREADS) largest = max(largest, largest_part(LOAD(base + i)));
  maxima[thread] = largest;
  barrier();
  if (thread > 0) return;
  for (uint k = 1; k < THREADS; k++) largest = max(largest, maxima[k]);
  AT(Real, p.maxima, group) = largest;
}
