// The columns of each matrix in the order of their values' magnitude, the largest first, equal ones as they stood: a
// value a thread, which counts those that come before it. NaN counts as infinity.

SCALAR magnitude(IDX i) {
  SCALAR x = size(AT(Element, p.values, i));
  return isnan(x) ? power_of_two(2000, SCALAR(0)) * SCALAR(2) : x;
}

void main() {
  IDX i = workgroup() * THREADS + INVOCATION;
  if (i >= p.count) return;
  IDX batch = i / p.columns, j = i % p.columns, position = 0;
  SCALAR own = magnitude(i);
  for (IDX k = 0; k < p.columns; k++) {
    SCALAR other = magnitude(batch * p.columns + k);
    if (other > own || (other == own && k < j)) position++;
  }
  AT(uint, p.order, batch * p.columns + position) = uint(j);
}
