// Dense matrices as a tensor of another type.

void main() {
  IDX index = workgroup() * LOCAL_SIZE + INVOCATION;
  if (workgroup() >= p.groups || index >= p.count) return;
  STORE(index, ELEMENTS(p.from, index));
}
