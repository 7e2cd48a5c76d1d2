// The columns of each matrix in the order of their values' magnitude, the largest first, equal ones as they stood: a
// value a thread, which counts those that come before it. NaN counts as infinity.

PART magnitude(IDX i) {
  PART x = size(AT(Cell, p.values, i));
  return isnan(x) ? power_of_two(2000, PART(0)) * PART(2) : x;
}

void main() {
  IDX i = workgroup() * THREADS + INVOCATION;
  if (i >= p.count) return;
  IDX batch = i / p.columns, j = i % p.columns, place = 0;
  PART own = magnitude(i);
  for (IDX k = 0; k < p.columns; k++) {
    PART other = magnitude(batch * p.columns + k);
    if (other > own || (other == own && k < j)) place++;
  }
  AT(uint, p.order, batch * p.columns + place) = uint(j);
}
