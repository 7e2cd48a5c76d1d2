// Rᵀ of QR decompositions, whose R stands in the upper triangles of matrices of `rows` rows: lower triangles with their
// columns contiguous. An element a thread.
void main() {
  IDX i = workgroup() * THREADS + INVOCATION;
  if (i >= p.count) return;
  IDX n = p.columns, row = i % n, column = i / n % n, batch = i / (n * n);
  AT(Element, p.work, i) = column <= row ? AT(Element, p.from, (batch * n + row) * p.rows + column) : ELEMENT(0);
}
