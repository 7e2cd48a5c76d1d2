// V·Σ·Vᵀ, or V·Σ²·Vᵀ where SQUARED, from columns in `from` and their singular values: an element a thread.

void main() {
  IDX i = workgroup() * THREADS + INVOCATION;
  if (i >= p.count) return;
  IDX n = p.columns, row = i % n, column = i / n % n, batch = i / (n * n);
  SUM sum = SUM(0);
  for (IDX k = 0; k < n; k++) {
    SUM value = SUM(AT(Element, p.values, batch * n + k)), weight = SQUARED != 0 ? value * value : value;
    IDX base = (batch * n + k) * n;
    sum += weight * SUM(AT(Element, p.from, base + row)) * SUM(AT(Element, p.from, base + column));
  }
  AT(Element, p.work, i) = ELEMENT(sum);
}
