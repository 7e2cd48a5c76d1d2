// c -= a · b, tile by tile.

#if CONJUGATE_A
#define PART_A(x) CONJUGATE(x)
#else
#define PART_A(x) x
#endif
#if CONJUGATE_B
#define PART_B(x) CONJUGATE(x)
#else
#define PART_B(x) x
#endif
#if LOWER
#define STORED(i, j) (j) <= (i)
#else
#define STORED(i, j) true
#endif

IDX a_base, b_base, c_base;
#define A_ROW(i) (i) * p.a_row
#define A_DEPTH(k) (k) * p.a_column
#define A_AT(place) PART_A(ELEMENTS(p.a, a_base + place))
#define B_DEPTH(k) (k) * p.b_row
#define B_COLUMN(j) (j) * p.b_column
#define B_AT(place) PART_B(ELEMENTS(p.b, b_base + place))
#define ELEMENT_C(i, j) ELEMENTS(p.c, c_base + (i) * p.c_row + (j) * p.c_column)
#define STORE(i, j, v) if (STORED(i, j)) ELEMENT_C(i, j) = ELEMENT_C(i, j) - (v)
#if LANES
#define DEPTH_LOOP(body) for (IDX k = 0; k < p.k; k++) body
#define A_NOW A_DEPTH(k)
#define B_NOW B_DEPTH(k)
#define A_VALUE(x) x
#define B_VALUE(x) x
#include "lib/matmul_lanes.glsl"
#else
#include "lib/matmul.glsl"
#endif

void main() {
  IDX columns = (p.n + (BN - 1)) / BN, rows = (p.m + (BM - 1)) / BM;
  IDX batch = workgroup() / (columns * rows), tile = workgroup() % (columns * rows);
  IDX row = tile / columns * BM, column = tile % columns * BN;
  if (workgroup() >= p.groups || !(STORED(row + BM - 1, column))) return;
  a_base = p.a_offset + batch * p.a_batch;
  b_base = p.b_offset + batch * p.b_batch;
  c_base = p.c_offset + batch * p.c_batch;
#if LANES
  matmul(INVOCATION, row, column, p.m, p.n);
#else
  matmul(INVOCATION, row, column, p.m, p.n, IDX(0), p.k);
#endif
}
