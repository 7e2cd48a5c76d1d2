// Sets values to zero that are at most `zero` times the largest one of their matrix: a value a thread. The largest one
// itself is never set, so that all may read it meanwhile.

void main() {
  IDX i = workgroup() * THREADS + INVOCATION;
  if (i >= p.count) return;
  IDX first = i / p.columns * p.columns;
  SCALAR most = size(AT(Element, p.values, first + IDX(AT(uint, p.order, first)))) * SCALAR(uintBitsToFloat(uint(p.zero)));
  if (size(AT(Element, p.values, i)) <= most) AT(Element, p.values, i) = ELEMENT(0);
}
