// Writes a matrix whose columns are contiguous as a row-major tensor, an element a thread: `rows` × `columns` of the
// result, from columns of `height` elements, `width` columns a matrix. What is at most the smaller of `zero` and
// rounding is zero.

void main() {
  IDX i = workgroup() * THREADS + INVOCATION;
  if (i >= p.count) return;
  IDX column = i % p.columns, row = i / p.columns % p.rows, batch = i / (p.columns * p.rows);
#if TRANSPOSED
  IDX swap = row;
  row = column;
  column = swap;
#endif
#if ORDERED
  IDX from = IDX(AT(uint, p.order, batch * p.width + column));
#else
  IDX from = column;
#endif
  SCALAR scale = SCALAR(1);
#if SCALED
  scale = AT(Real, p.scales, batch);
#endif
  ELEMENT x = AT(Element, p.work, (batch * p.width + from) * p.height + row);
  if (size(x) <= min(SCALAR(uintBitsToFloat(uint(p.zero))) * scale, SCALAR(EPS / 2))) x = ELEMENT(0);
#if UPPER
  if (row > column) x = ELEMENT(0);
#endif
  STORE(i, x / scale);
}
