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

IDX a_base, b_base, c_base;
#define A_ROW(i) (i) * p.a_row
#define A_DEPTH(start, k) ((start) + (k)) * p.a_column
#define A_AT(index) PART_A(ELEMENTS(p.a, a_base + index))
#define B_DEPTH(start, k) ((start) + (k)) * p.b_row
#define B_COLUMN(j) (j) * p.b_column
#define B_AT(index) PART_B(ELEMENTS(p.b, b_base + index))
#define ELEMENT_C(i, j) ELEMENTS(p.c, c_base + (i) * p.c_row + (j) * p.c_column)
#define STORE(i, j, v) ELEMENT_C(i, j) = ELEMENT_C(i, j) - (v)
#if BY_COLUMNS
// A thread has BM elements of a column. Of A each lane of a subgroup reads a row and hands it to the others.
#if CPU_DEVICE
const uint SPAN = BM < SUBGROUP ? BM : SUBGROUP;
#define OWN_PART (gl_SubgroupInvocationID % SPAN)
#define PART_OF(x, part) subgroupBroadcast(x, part)
#else
const uint SPAN = 1;
#define OWN_PART 0
#define PART_OF(x, part) x
#endif

void matmul(uint thread, IDX row, IDX column, IDX m, IDX n) {
  IDX j = column + thread, from_b = B_COLUMN(min(j, n - 1)), from_a[BM / SPAN];
  ELEMENT sums[BM];
  [[unroll]] for (uint i = 0; i < BM; i++) sums[i] = ELEMENT(0);
  [[unroll]] for (uint i = 0; i < BM / SPAN; i++) from_a[i] = A_ROW(min(row + i * SPAN + OWN_PART, m - 1));
#define STEP(k) { \
    ELEMENT b = B_AT(from_b + B_DEPTH(k, 0)); \
    [[unroll]] for (uint i = 0; i < BM; i += SPAN) { \
      ELEMENT a = A_AT(from_a[i / SPAN] + A_DEPTH(k, 0)); \
      [[unroll]] for (uint part = 0; part < SPAN; part++) \
        sums[i + part] = MULTIPLY_ADD(PART_OF(a, part), b, sums[i + part]); \
    } \
  }
  IDX k = 0;
  // What a loop carries costs in each iteration.
  for (; k + 4 <= p.k; k += 4) [[unroll]] for (uint step = 0; step < 4; step++) STEP(k + step)
  for (; k < p.k; k++) STEP(k)
  [[unroll]] for (uint i = 0; i < BM; i++) if (row + i < m && j < n) STORE(row + i, j, sums[i]);
}
#else
#include "lib/matmul.glsl"
#endif

void main() {
  IDX columns = (p.n + (BN - 1)) / BN, rows = (p.m + (BM - 1)) / BM;
  IDX line = QUOTIENT(workgroup(), columns), batch = QUOTIENT(line, rows);
  IDX row = (line - batch * rows) * BM, column = (workgroup() - line * columns) * BN;
  if (workgroup() >= p.groups) return;
  a_base = p.a_offset + batch * p.a_batch;
  b_base = p.b_offset + batch * p.b_batch;
  c_base = p.c_offset + batch * p.c_batch;
#if BY_COLUMNS
  matmul(INVOCATION, row, column, p.m, p.n);
#else
  matmul(INVOCATION, row, column, p.m, p.n, IDX(0), p.k);
#endif
}
