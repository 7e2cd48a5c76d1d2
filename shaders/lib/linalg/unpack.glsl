// Dense matrices as a tensor of another type.

void main() {
  IDX place = workgroup() * LOCAL_SIZE + INVOCATION;
  if (workgroup() >= p.groups || place >= p.count) return;
  STORE(place, ELEMENTS(p.from, place));
}
