// As substitute.glsl, for CPU devices: a lane has a column of X, and hands to the others what it reads of the triangle.

void main() {
  IDX batch = ONCE(QUOTIENT(workgroup(), p.tiles)), column = (workgroup() - batch * p.tiles) * LOCAL_SIZE + INVOCATION;
  bool inside = workgroup() < p.groups && column < p.columns;
  IDX index = p.x_offset + batch * p.x_batch + min(column, p.columns - 1) * p.x_column;
  IDX line = p.l_offset + batch * p.l_batch;
  uint size = workgroup() < p.groups ? uint(p.size) : 0;
  for (uint i = 0; i < size; i++) {
    ELEMENT x = ELEMENTS(p.x, index + i * p.x_row);
    precise ELEMENT sum = ELEMENT(0);
    for (uint some = 0; some < i; some += SUBGROUP) {
      ELEMENT own = ELEMENTS(p.l, line + min(some + gl_SubgroupInvocationID, i - 1) * p.l_column);
#if CONJUGATED
      own = CONJUGATE(own);
#endif
      [[unroll]] for (uint part = 0; part < SUBGROUP; part++) {
        ELEMENT l = subgroupBroadcast(own, part);
        if (some + part < i) {
          precise ELEMENT product = MULTIPLY(l, ELEMENTS(p.x, index + (some + part) * p.x_row));
          sum = sum + product;
        }
      }
    }
    precise ELEMENT rest = x - sum;
#if UNIT_DIAGONAL
    x = rest;
#elif CONJUGATED
    x = divide(rest, CONJUGATE(ELEMENTS(p.l, line + i * p.l_column)));
#else
    x = divide(rest, ELEMENTS(p.l, line + i * p.l_column));
#endif
    if (inside) ELEMENTS(p.x, index + i * p.x_row) = x;
    line += p.l_row;
  }
}
