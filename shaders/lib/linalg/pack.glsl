// A dense copy of a batch of matrices. LOAD(i) is element i of the operand in the result's type.

#define ALL 0
#define LOWER 1
#define TRANSPOSED 2
#define ROWS 3

void main() {
  IDX place = workgroup() * LOCAL_SIZE + INVOCATION;
  if (workgroup() >= p.groups || place >= p.count) return;
#if MODE == ALL
  ELEMENTS(p.to, place) = LOAD(place);
#else
  IDX column = place % p.columns, line = place / p.columns;
  IDX row = line % p.rows, first = line - row;
#if MODE == LOWER
  ELEMENTS(p.to, place) = column <= row ? LOAD(place) : ELEMENT(0);
#elif MODE == TRANSPOSED
  ELEMENTS(p.to, first * p.columns + column * p.rows + row) = LOAD(place);
#else
  IDX source = (first + AT(uint, p.permutation, line)) * p.columns + column;
  ELEMENTS(p.to, place) = LOAD(source);
#endif
#endif
}
