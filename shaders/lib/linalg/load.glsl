// Scales matrices by a power of two so that their largest part is in [1, 2), which is exact and keeps squares from
// overflowing, and writes them with their columns contiguous: a piece of a matrix a workgroup, as in largest.glsl.

void main() {
  IDX group = workgroup();
  if (group >= p.groups) return;
  uint lane = INVOCATION;
  IDX batch = group / p.parts, count = p.rows * p.columns, piece = (count + p.parts - 1) / p.parts;
  IDX base = batch * count, first = group % p.parts * piece, end = min(first + piece, count);
  PART largest = PART(0);
  for (IDX part = 0; part < p.parts; part++) largest = max(largest, AT(Number, p.maxima, batch * p.parts + part));
  // Of zero, of infinities and of NaN no power of two makes anything better.
  bool scalable = largest > PART(0) && !isinf(largest);
  PART scale = scalable ? power_of_two(-exponent_of(largest), PART(0)) : PART(1);
  if (first == 0 && lane == 0) AT(Number, p.scales, batch) = scale;
  for (IDX i = first + lane; i < end; i += THREADS) {
#if TRANSPOSED
    IDX from = i;
#else
    IDX from = i % p.rows * p.columns + i / p.rows;
#endif
    AT(Cell, p.work, base + i) = LOAD(base + from) * scale;
  }
}
