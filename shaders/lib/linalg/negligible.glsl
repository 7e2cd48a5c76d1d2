// Sets values to zero that are at most `zero` times the largest one of their matrix: a value a thread. The largest one
// itself is never set, so that all may read it meanwhile.

void main() {
  IDX i = workgroup() * THREADS + INVOCATION;
  if (i >= p.count) return;
  IDX first = i / p.columns * p.columns;
  PART most = size(AT(Cell, p.values, first + IDX(AT(uint, p.order, first)))) * PART(uintBitsToFloat(uint(p.zero)));
  if (size(AT(Cell, p.values, i)) <= most) AT(Cell, p.values, i) = ELEMENT(0);
}
