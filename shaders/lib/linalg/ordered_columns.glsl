// Columns of `height` elements in their order as the first of columns of `rows` elements; zeros below them, and unit
// vectors after them. An element a thread.

void main() {
  IDX i = workgroup() * THREADS + INVOCATION;
  if (i >= p.count) return;
  IDX row = i % p.rows, column = i / p.rows % p.columns, batch = i / (p.rows * p.columns);
  ELEMENT x = row == column ? element(SCALAR(1)) : ELEMENT(0);
  if (column < p.width) {
    IDX from = IDX(AT(uint, p.order, batch * p.width + column));
    x = row < p.height ? AT(Element, p.from, (batch * p.width + from) * p.height + row) : ELEMENT(0);
  }
  AT(Element, p.work, i) = x;
}
