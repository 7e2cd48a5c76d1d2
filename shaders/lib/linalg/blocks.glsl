// Block Jacobi rotations: pairs of blocks of WIDTH neighbouring columns meet as single columns do in pairs.glsl. What lies
// at or beyond the last column is zero.

#define BOTH (2 * WIDTH)

// The column of the matrix that is column `at` of a pair of blocks.
IDX column_of(uint at, IDX top, IDX bottom) { return at < WIDTH ? top * WIDTH + at : bottom * WIDTH + at - WIDTH; }

// Whether the sweep before this one found nothing to rotate.
bool finished(IDX batch) { return p.sweep > 0 && AT(uint, p.rotations, batch * p.sweeps + p.sweep - 1) == 0u; }

// Sums of products of two tiles of BOTH by BOTH elements: MULTIPLY(LEFT, RIGHT) adds LEFT(i, k)·RIGHT(k, j) to sum (i, j),
// EACH_SUM(i, j, sum, body) runs the body for those that a thread has.
#if CPU_DEVICE
// Invocations are the lanes of a CPU's vectors. Each has a row; what it reads of the right tile it hands to the
// others of its subgroup.
SCALAR sums[BOTH];
#define CLEAR [[unroll]] for (uint j = 0; j < BOTH; j++) sums[j] = SCALAR(0);
#define MULTIPLY(LEFT, RIGHT) \
  [[dont_unroll]] for (uint some = 0; some < BOTH; some += 4) { \
    [[unroll]] for (uint more = 0; more < 4; more++) { \
      uint k = some + more; \
      SCALAR x = LEFT(INVOCATION, k); \
      [[unroll]] for (uint part = 0; part < BOTH; part += SUBGROUP) { \
        SCALAR y = RIGHT(k, part + gl_SubgroupInvocationID); \
        [[unroll]] for (uint l = 0; l < SUBGROUP; l++) sums[part + l] = MULTIPLY_ADD(x, subgroupBroadcast(y, l), sums[part + l]); \
      } \
    } \
  }
#define EACH_SUM(i, j, sum, body) { \
    uint i = INVOCATION; \
    [[unroll]] for (uint j = 0; j < BOTH; j++) { SCALAR sum = sums[j]; body } \
  }
#else
const uint SIDE = 16, EACH = BOTH / SIDE;
SCALAR sums[EACH][EACH];
#define CLEAR for (uint i = 0; i < EACH; i++) for (uint j = 0; j < EACH; j++) sums[i][j] = SCALAR(0);
#define MULTIPLY(LEFT, RIGHT) { \
    uint row = INVOCATION % SIDE, column = INVOCATION / SIDE; \
    for (uint k = 0; k < BOTH; k++) { \
      SCALAR x[EACH], y[EACH]; \
      for (uint i = 0; i < EACH; i++) x[i] = LEFT(row + i * SIDE, k); \
      for (uint j = 0; j < EACH; j++) y[j] = RIGHT(k, column + j * SIDE); \
      for (uint i = 0; i < EACH; i++) for (uint j = 0; j < EACH; j++) sums[i][j] = MULTIPLY_ADD(x[i], y[j], sums[i][j]); \
    } \
  }
#define EACH_SUM(i, j, sum, body) \
  for (uint own_i = 0; own_i < EACH; own_i++) { \
    for (uint own_j = 0; own_j < EACH; own_j++) { \
      uint i = INVOCATION % SIDE + own_i * SIDE, j = INVOCATION / SIDE + own_j * SIDE; \
      SCALAR sum = sums[own_i][own_j]; \
      body \
    } \
  }
#endif
