// Identity matrices, rows × columns, columns contiguous.
void main() {
  IDX i = workgroup() * THREADS + INVOCATION;
  if (i >= p.count) return;
  AT(Element, p.work, i) = i % p.rows == i / p.rows % p.columns ? element(SCALAR(1)) : ELEMENT(0);
}
