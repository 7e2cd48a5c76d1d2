// Puts the factors of diagonal blocks at their places, an element a thread.

void main() {
  IDX i = workgroup() * LOCAL_SIZE + INVOCATION;
  if (workgroup() >= p.groups || i >= p.count) return;
  IDX k = i % WIDTH, row = i / WIDTH % p.rows, batch = i / WIDTH / p.rows, column = row / WIDTH * WIDTH + k;
  if (row < p.n && column <= row) ELEMENTS(p.a, (batch * p.n + row) * p.n + column) = ELEMENTS(p.diagonal, i);
}
