// As lu_exchange.glsl, for CPU devices, without the permutation: a lane has a column, in which it exchanges one after the other.

void main() {
  IDX tiles = ONCE(QUOTIENT(p.groups, p.batch)), batch = ONCE(QUOTIENT(workgroup(), tiles));
  IDX column = (workgroup() - batch * tiles) * LOCAL_SIZE + INVOCATION, others = p.n - p.size;
  if (workgroup() >= p.groups || column >= others) return;
  if (column >= p.start) column += p.size;
  IDX pivots = batch * p.n, base = (pivots + column) * p.n;
  for (IDX here = p.start; here < p.start + p.size; here++) {
    IDX chosen = AT(uint, p.pivots, pivots + here);
    ELEMENT x = ELEMENTS(p.a, base + here), y = ELEMENTS(p.a, base + chosen);
    ELEMENTS(p.a, base + here) = y;
    ELEMENTS(p.a, base + chosen) = x;
  }
}
