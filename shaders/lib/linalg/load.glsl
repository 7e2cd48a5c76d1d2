// Scales matrices by a power of two so that their largest part is in [1, 2), which is exact and keeps squares from
// overflowing, and writes them with their columns contiguous: a piece of a matrix a workgroup, as in largest.glsl.

void main() {
  IDX group = workgroup();
  if (group >= p.groups) return;
  uint thread = INVOCATION;
  IDX batch = group / p.parts, count = p.rows * p.columns, piece = (count + p.parts - 1) / p.parts;
  IDX base = batch * count, first = group % p.parts * piece, end = min(first + piece, count);
  SCALAR largest = SCALAR(0);
  for (IDX part = 0; part < p.parts; part++) largest = max(largest, AT(Real, p.maxima, batch * p.parts + part));
  // Of zero, of infinities and of NaN no power of two makes anything better.
  bool scalable = largest > SCALAR(0) && !isinf(largest);
  SCALAR scale = scalable ? power_of_two(-exponent_of(largest), SCALAR(0)) : SCALAR(1);
  if (first == 0 && thread == 0) AT(Real, p.scales, batch) = scale;
  for (IDX i = first + thread; i < end; i += THREADS) {
#if TRANSPOSED
    IDX from = i;
#else
    IDX from = i % p.rows * p.columns + i / p.rows;
#endif
    AT(Element, p.work, base + i) = LOAD(base + from) * scale;
  }
}
