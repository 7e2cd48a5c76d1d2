// Negates singular vectors so that the right ones point where those of `reference` do, a pair of vectors a thread. Both are
// in the order of their values.

void main() {
  IDX i = workgroup() * THREADS + INVOCATION;
  if (i >= p.count) return;
  IDX n = p.columns, batch = i / n;
  IDX own = (batch * n + IDX(AT(uint, p.order, i))) * n;
  IDX other = (batch * n + IDX(AT(uint, p.reference_order, i))) * n;
  SUM sum = SUM(0);
  for (IDX k = 0; k < n; k++) sum += SUM(AT(Element, p.right, own + k)) * SUM(AT(Element, p.reference, other + k));
  if (sum >= SUM(0)) return;
  for (IDX k = 0; k < n; k++) {
    AT(Element, p.right, own + k) = -AT(Element, p.right, own + k);
    AT(Element, p.left, own + k) = -AT(Element, p.left, own + k);
  }
}
