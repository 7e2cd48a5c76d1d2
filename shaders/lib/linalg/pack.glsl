// A dense copy of a batch of matrices. LOAD(i) is element i of the operand in the result's type.

#define ALL 0
#define LOWER 1
#define TRANSPOSED 2
#define ROWS 3

void main() {
  IDX index = workgroup() * LOCAL_SIZE + INVOCATION;
  if (workgroup() >= p.groups || index >= p.count) return;
#if MODE == ALL
  ELEMENTS(p.to, index) = LOAD(index);
#else
  IDX column = index % p.columns, line = index / p.columns;
  IDX row = line % p.rows, first = line - row;
#if MODE == LOWER
  ELEMENTS(p.to, index) = column <= row ? LOAD(index) : ELEMENT(0);
#elif MODE == TRANSPOSED
  ELEMENTS(p.to, first * p.columns + column * p.rows + row) = LOAD(index);
#else
  // A permutation may come from anywhere.
  IDX source = (first + min(IDX(AT(uint, p.permutation, line)), p.rows - 1)) * p.columns + column;
  ELEMENTS(p.to, index) = LOAD(source);
#endif
#endif
}
