// Products of a few rows with a matrix, for CPU devices, whose invocations are the lanes of vectors. Every element of the matrix is loaded
// once, in vectors of four neighbours. With ALONG_K 0 neighbours lie along the columns, which lanes share among them; with 1 they lie
// along k, and lanes sum different parts of the same COLUMNS columns.
//
// Algorithm: sums of products. A gather of eight lanes is tens of instructions of a CPU, which looks ahead to few gathers
//   for that reason, and would wait for memory with few cache lines under way. A block of the matrix is touched first, therefore: one gather
//   for as many cache lines as there are lanes.
// Domain: all numbers. The number of columns and k are such that vectors are whole; there are BN columns or more.
// Error: products of floats of up to 32 bits are exact in double. A sum of k of them is off by at most k 2^-53 of the sum of their
//   magnitudes, and is rounded once: for k up to 65,536 that is ulp/2 + 2^-13 ulp of an f32, where products do not cancel each other.
// Source: the touched blocks are this project's; docs/performance/lavapipe.md has what they rest on.
//
// The including kernel defines
// - ROWS, LANES, VECTORS (of a lane: along the columns, or along k in a block), ALONG_K and, with it, COLUMNS, at most LANES;
// - UNROLLED_STEPS, which divides LANES: steps along k that are unrolled where neighbours lie along the columns;
// - ACCUMULATOR and MULTIPLY_ADD(a, b, c), a·b + c;
// - of the matrix: MATRIX_VECTOR, the type of four elements in memory, MATRIX_LOAD(start, i), the i-th of them from an address on,
//   MATRIX_START, its own address, MATRIX_BYTES of an element, MATRIX_VALUE(x) of an element of a vector, and MATRIX_BATCH,
//   MATRIX_COLUMN(j) and MATRIX_DEPTH(k), whose sum is an element's offset;
// - of the rows: the same with ROW_LINE(i) for MATRIX_COLUMN(j), and ROW_AT(offset), the value of an element;
// - REDUCES_RESULTS where an epilogue reduces a row, with start_results() and lib/loops/results.glsl;
// - RESULT_BATCH, STORE(target, i, j, value) for an element of the result at `target`, KEEP(word), a store that never happens, and
//   ROLLED_STORES, 1 where the stores are many or long and STORE should be in the kernel once.

layout(local_size_x = LANES) in;

layout(buffer_reference, scalar, buffer_reference_align = 4) buffer Touched { uint v; };

#define ADDRESS(base, i, bytes) (uint64_t(base) + uint64_t(i) * bytes)

// Lanes whose touches cover what a block has of a line of the matrix, a column or an element of k, and lines that all lanes touch at once.
const uint TOUCH_LANES = max(LANES * VECTORS * MATRIX_BYTES / 16, 1u), TOUCH_LINES = LANES / TOUCH_LANES;
const uint WIDTH = 4 * LANES;

#if ALONG_K
const uint BN = COLUMNS, OUTPUTS = ROWS;
#else
const uint BN = VECTORS * WIDTH, OUTPUTS = ROWS * VECTORS * 4;
#endif

uint lane;
IDX batch;

#if ALONG_K
ACCUMULATOR sums[ROWS][COLUMNS];

// Adds the products of a vector along k of each row and column: from `k` on in the rows, from the address `at` on in the matrix.
void add_vector(IDX k, uint64_t at, uint64_t next_column) {
  ACCUMULATOR x[ROWS][4];
  [[unroll]] for (uint i = 0; i < ROWS; i++) {
    IDX offset = ROW_BATCH + ROW_LINE(min(i, p.rows - 1)) + k;
    ROW_VECTOR q = ROW_LOAD(ROW_START, offset / 4);
    [[unroll]] for (uint c = 0; c < 4; c++) x[i][c] = ROW_VALUE(q[c]);
  }
  [[unroll]] for (uint j = 0; j < COLUMNS; j++) {
    MATRIX_VECTOR q = MATRIX_LOAD(at, 0);
    at += next_column;
    [[unroll]] for (uint c = 0; c < 4; c++) {
      ACCUMULATOR w = MATRIX_VALUE(q[c]);
      [[unroll]] for (uint i = 0; i < ROWS; i++) sums[i][j] = MULTIPLY_ADD(x[i][c], w, sums[i][j]);
    }
  }
}

// Adds the products from `start` to `end` along k of the columns from `column` on.
void add_products(IDX column, IDX start, IDX end) {
  [[unroll]] for (uint i = 0; i < ROWS; i++) {
    [[unroll]] for (uint j = 0; j < COLUMNS; j++) sums[i][j] = ACCUMULATOR(0);
  }
  uint64_t next_column = ADDRESS(0, MATRIX_COLUMN(1), MATRIX_BYTES);
  uint64_t block = ADDRESS(MATRIX_START, MATRIX_BATCH + MATRIX_COLUMN(column) + start, MATRIX_BYTES);
  uint64_t at = ADDRESS(block, 4 * lane, MATRIX_BYTES);
  uint64_t touch = block + lane / TOUCH_LANES * next_column + lane % TOUCH_LANES * 64;
  IDX k = start;
  for (; k + VECTORS * WIDTH <= end; k += VECTORS * WIDTH) {
    uint touched = 0;
    uint64_t line = touch;
    [[unroll]] for (uint j = 0; j < COLUMNS; j += TOUCH_LINES) {
      touched ^= Touched(line).v;
      line += TOUCH_LINES * next_column;
    }
    // This never happens. Without a use compilers drop loads, and without a branch they may move them to later ones.
    if (p.none != 0) KEEP(touched);
    [[unroll]] for (uint v = 0; v < VECTORS; v++) {
      add_vector(k + v * WIDTH + 4 * lane, at, next_column);
      at += WIDTH * MATRIX_BYTES;
    }
    touch += VECTORS * WIDTH * MATRIX_BYTES;
  }
  for (k += 4 * lane; k < end; k += WIDTH) {
    add_vector(k, at, next_column);
    at += WIDTH * MATRIX_BYTES;
  }
}

#include "lib/exchange.glsl"

// The sum of a row and of column `lane % COLUMNS` over all lanes. Each exchange halves the columns whose sums a lane has.
ACCUMULATOR summed(uint i) {
  [[unroll]] for (uint half_columns = COLUMNS / 2; half_columns > 0; half_columns /= 2) {
    bool upper = (lane & half_columns) != 0;
    [[unroll]] for (uint j = 0; j < half_columns; j++) {
      ACCUMULATOR low = sums[i][j], high = sums[i][j + half_columns];
      sums[i][j] = (upper ? high : low) + from_lane(upper ? low : high, half_columns);
    }
  }
  [[unroll]] for (uint lanes = COLUMNS; lanes < LANES; lanes *= 2) sums[i][0] += from_lane(sums[i][0], lanes);
  return sums[i][0];
}

#define FINISH(results) [[unroll]] for (uint i = 0; i < ROWS; i++) results[i] = summed(i);
#define ROW_OF(e) (e)
#define COLUMN_OF(e) (lane % COLUMNS)
// Those with the same column have the same sums.
#define STORING_LANES COLUMNS
#else
ACCUMULATOR sums[ROWS][VECTORS][4];

// Loads a line of the matrix: a lane has four neighbours of each vector.
#define LOAD_LINE(w, at) \
  ACCUMULATOR w[VECTORS][4]; \
  [[unroll]] for (uint v = 0; v < VECTORS; v++) { \
    MATRIX_VECTOR q = MATRIX_LOAD(at, v * LANES); \
    [[unroll]] for (uint c = 0; c < 4; c++) w[v][c] = MATRIX_VALUE(q[c]); \
  }

// Adds the products of a row's element and a line of the matrix.
void add_line(uint i, ACCUMULATOR x, ACCUMULATOR w[VECTORS][4]) {
  [[unroll]] for (uint v = 0; v < VECTORS; v++) {
    [[unroll]] for (uint c = 0; c < 4; c++) sums[i][v][c] = MULTIPLY_ADD(x, w[v][c], sums[i][v][c]);
  }
}

// Adds the products from `start` to `end` along k of the columns from `column` on.
void add_products(IDX column, IDX start, IDX end) {
  [[unroll]] for (uint i = 0; i < ROWS; i++) {
    [[unroll]] for (uint v = 0; v < VECTORS; v++) {
      [[unroll]] for (uint c = 0; c < 4; c++) sums[i][v][c] = ACCUMULATOR(0);
    }
  }
  IDX lines[ROWS];
  [[unroll]] for (uint i = 0; i < ROWS; i++) lines[i] = ROW_BATCH + ROW_LINE(min(i, p.rows - 1));
  uint64_t next_line = ADDRESS(0, MATRIX_DEPTH(1), MATRIX_BYTES);
  uint64_t block = ADDRESS(MATRIX_START, MATRIX_BATCH + column + MATRIX_DEPTH(start), MATRIX_BYTES);
  uint64_t at = ADDRESS(block, 4 * lane, MATRIX_BYTES);
  uint64_t touch = block + lane / TOUCH_LANES * next_line + lane % TOUCH_LANES * 64;
  IDX k = start;
  const uint STEPS = LANES * TOUCH_LINES;
  while (k + STEPS <= end) {
    uint touched = 0;
    [[unroll]] for (uint step = 0; step < STEPS; step += TOUCH_LINES) {
      touched ^= Touched(touch).v;
      touch += TOUCH_LINES * next_line;
    }
    // This never happens. Without a use compilers drop loads, and without a branch they may move them to later ones.
    if (p.none != 0) KEEP(touched);
    [[dont_unroll]] for (uint part = 0; part < TOUCH_LINES; part++) {
      // Each lane loads the rows' elements of another step.
      ACCUMULATOR own[ROWS];
      [[unroll]] for (uint i = 0; i < ROWS; i++) own[i] = ROW_AT(lines[i] + ROW_DEPTH(k + lane));
      [[dont_unroll]] for (uint first = 0; first < LANES; first += UNROLLED_STEPS) {
        [[unroll]] for (uint step = 0; step < UNROLLED_STEPS; step++) {
          LOAD_LINE(w, at)
          [[unroll]] for (uint i = 0; i < ROWS; i++) add_line(i, subgroupBroadcast(own[i], first + step), w);
          at += next_line;
        }
      }
      k += LANES;
    }
  }
  for (; k < end; k++) {
    LOAD_LINE(w, at)
    [[unroll]] for (uint i = 0; i < ROWS; i++) add_line(i, ROW_AT(lines[i] + ROW_DEPTH(k)), w);
    at += next_line;
  }
}

#define FINISH(results) [[unroll]] for (uint e = 0; e < OUTPUTS; e++) results[e] = sums[e / (4 * VECTORS)][e / 4 % VECTORS][e % 4];
#define ROW_OF(e) ((e) / (4 * VECTORS))
#define COLUMN_OF(e) ((e) / 4 % VECTORS * WIDTH + 4 * lane + (e) % 4)
#define STORING_LANES LANES
#endif

void main() {
  lane = gl_SubgroupInvocationID;
  IDX group = workgroup(), blocks = QUOTIENT(p.columns + (BN - 1), BN), part = QUOTIENT(group, blocks);
  batch = QUOTIENT(part, p.splits);
  IDX split = part - batch * p.splits, start = split * p.chunk;
  IDX end = group < p.groups ? min(start + p.chunk, p.k) : start;
  // The last block ends with the matrix, and stores what the one before does not.
  IDX first = (group - part * blocks) * BN, column = min(first, p.columns - BN);
  add_products(column, start, end);
  ACCUMULATOR results[OUTPUTS];
  FINISH(results)
#ifdef REDUCES_RESULTS
  start_results();
#endif
  IDX target = RESULT_BATCH + split * p.elements;
#if ROLLED_STORES
  [[dont_unroll]]
#else
  [[unroll]]
#endif
  for (uint e = 0; e < OUTPUTS; e++) {
    IDX i = ROW_OF(e), j = column + COLUMN_OF(e);
    if (group < p.groups && i < p.rows && j >= first) STORE(target, i, j, results[e]);
  }
#ifdef REDUCES_RESULTS
  finish_results(group, lane < STORING_LANES, lane, STORING_LANES);
#endif
}
