// Tiled matrix product: a workgroup computes BM×BN of C in steps of BK along k, a thread TM×TN of it as blocks of WIDTH by
// WIDTH. Both tiles lie with k outermost in shared memory, twice: while one step is computed, the next one's elements are
// being loaded, and one barrier a step is enough. (S. Boehm, "How to Optimize a CUDA Matmul Kernel for cuBLAS-like
// Performance", 2022, explains each technique; CUTLASS has the same structure.)
//
// The including kernel defines
// - the tile: BM, BN, BK, and TM, TN, which are multiples of WIDTH; and SLICES, by default 1: each slice has threads of
//   its own for BK / SLICES of a step along k, whose sums are added in the end: with SHARED_STORES 1, for TM and TN of 4, all threads
//   add and store SLICE_ROWS by four of each thread's at a time, otherwise the first slice does;
// - ELEMENT and ACCUMULATOR (types), MULTIPLY_ADD(a, b, c) on the latter, a·b + c, and VECTOR: WIDTH elements, 16 bytes in all;
// - A_ROW(i), A_DEPTH(start, k), B_DEPTH(start, k), B_COLUMN(j): an element's offset is a row's or column's plus a depth's.
//   They are called within bounds only; `start` is that of a step and k is below BK;
// - A_STORED, A_LOAD(offset, depth), A_VALUE(stored), and the same of B: the type of an element in memory, its load from the sum
//   of both offsets, and its conversion to an ELEMENT;
// - A_ALONG_K and B_ALONG_N: 1 or 0, whether neighbouring threads should load neighbours along k of A, along n of B;
// - A_WIDTH and B_WIDTH: the vector width of loads in that direction, by A_LOAD and B_LOAD as A_STORED and B_STORED; such
//   vectors are aligned and complete;
// - A_SCATTERED and B_SCATTERED: 1 where the elements of a vector along rows or columns have an offset each instead;
// - AFFINE: 1 where A_DEPTH and B_DEPTH are proportional to start + k: then A_LOAD takes A_OFFSET(offset), which a
//   thread keeps, and a depth that is uniform, so that loads take no arithmetic but the latter's;
// - UNROLLED_STEPS: iterations that the loop over steps is unrolled by, an even number; 0 for none. Unrolling takes registers that
//   sums may need;
// - STORE(i, j, value) for an element of C, or with C_VECTORS STORE_VEC4(i, j, v0, v1, v2, v3) where WIDTH is 4 and
//   STORE_VEC2(i, j, v0, v1) where it is 2;
// - ROLLED_STORES, which `lib/stores.glsl` explains.
// Without A_STORED or B_STORED elements are stored as ELEMENTs and loaded one by one from A_AT(offset) and B_AT(offset), without
// C_VECTORS stored one by one.
// If it defines DEPTH_TABLES(thread, start), that runs before the loads of the DEPTHS elements along k that begin at `start`,
// and A_DEPTH and B_DEPTH look them up; DEPTHS is a larger multiple of BK, and DEPTHS elements before them stay. If it
// defines FIRST_STEP(start) and NEXT_STEP, they run before the loads of the first step and of each that follows. With
// A_PADDED or B_PADDED 1, an element of that operand is zero where LINE_WORD(i), of its row or column, and
// DEPTH_WORD(start, k) have a bit in common; LINE_WORD is called within bounds only.

#ifndef A_STORED
#define A_STORED ELEMENT
#define A_VALUE(x) x
#define A_LOAD(offset, depth) A_AT((offset) + (depth))
#define A_WIDTH 1
#define A_SCATTERED 0
#endif
#ifndef B_STORED
#define B_STORED ELEMENT
#define B_VALUE(x) x
#define B_LOAD(offset, depth) B_AT((offset) + (depth))
#define B_WIDTH 1
#define B_SCATTERED 0
#endif
#ifndef FIRST_STEP
#define FIRST_STEP(start)
#define NEXT_STEP
#endif
#ifndef AFFINE
#define AFFINE 0
#endif
#ifndef C_VECTORS
#define C_VECTORS 0
#endif
#ifndef A_PADDED
#define A_PADDED 0
#define B_PADDED 0
#endif
#ifndef UNROLLED_STEPS
#define UNROLLED_STEPS 0
#endif
#ifndef SLICES
#define SLICES 1
#endif
#ifndef SHARED_STORES
#define SHARED_STORES 0
#endif
#include "lib/stores.glsl"

const uint ROWS = BM / TM, COLUMNS = BN / TN, SLICE_THREADS = ROWS * COLUMNS, THREADS = SLICE_THREADS * SLICES;

// A patch of 4 rows by 8 columns of threads reads the fewest different vectors of the two tiles.
const uint PATCH_COLUMNS = COLUMNS < 8 ? COLUMNS : 8, PATCH_ROWS = ROWS < 4 ? ROWS : 4;
const uint PATCH = PATCH_COLUMNS * PATCH_ROWS, PATCHES_IN_ROW = COLUMNS / PATCH_COLUMNS;

#if WIDTH == 1
#define COMPONENT(v, i) v
#else
#define COMPONENT(v, i) v[i]
#endif

#define OPERAND(name) A_##name
#define LINES BM
#define LINE(i) A_ROW(i)
#define ALONG_K A_ALONG_K
#define LOAD_WIDTH A_WIDTH
#define PADDED A_PADDED
#define SCATTERED A_SCATTERED
#include "lib/matmul_operand.glsl"

#define OPERAND(name) B_##name
#define LINES BN
#define LINE(j) B_COLUMN(j)
#define ALONG_K (1 - B_ALONG_N)
#define LOAD_WIDTH B_WIDTH
#define PADDED B_PADDED
#define SCATTERED B_SCATTERED
#include "lib/matmul_operand.glsl"

ACCUMULATOR sums[TM][TN];
uint thread_row, thread_column, thread_depth;

// Adds the products of the step in `slot` of the tiles.
void add_step(uint slot) {
  [[unroll]] for (uint step = 0; step < BK / SLICES; step++) {
    uint k = thread_depth + step;
    VECTOR a[TM / WIDTH], b[TN / WIDTH];
    [[unroll]] for (uint i = 0; i < TM / WIDTH; i++) a[i] = A_tile[slot][k][thread_row + i * ROWS];
    [[unroll]] for (uint j = 0; j < TN / WIDTH; j++) b[j] = B_tile[slot][k][thread_column + j * COLUMNS];
    [[unroll]] for (uint j = 0; j < TN; j++) {
      [[unroll]] for (uint step_i = 0; step_i < TM; step_i++) {
        // Every other column is traversed in reverse, so that consecutive products have an element in common.
        uint i = j % 2 == 0 ? step_i : TM - 1 - step_i;
        sums[i][j] = MULTIPLY_ADD(ACCUMULATOR(COMPONENT(a[i / WIDTH], i % WIDTH)),
                                  ACCUMULATOR(COMPONENT(b[j / WIDTH], j % WIDTH)), sums[i][j]);
      }
    }
  }
}

// Writes the step at `at`, which was fetched, to `slot` of the tiles.
void put_step(uint thread, IDX start, IDX at, uint slot) {
  A_put(thread, slot);
  B_put(thread, slot);
#ifdef DEPTH_TABLES
  if ((at - start) % DEPTHS == BK) DEPTH_TABLES(thread, at - BK + DEPTHS);
#endif
  barrier();
}

// Adds the step in `slot` while the one at `at`, if there are `more`, is loaded to the other slot. That `more` is a parameter,
// also where it is always true, keeps the driver of an H200 from moving loads to where they take more registers: of doubles 218
// instead of 241, and of floats fewer than the 128 that do not suffice.
void take_step(uint thread, IDX start, IDX at, uint slot, bool more) {
  if (more) {
    NEXT_STEP
    A_fetch(thread, at, BK);
    B_fetch(thread, at, BK);
  }
  add_step(slot);
  if (more) put_step(thread, start, at, 1 - slot);
}

// The sums over k from `start` to `end`.
void add_steps(uint thread, IDX start, IDX end) {
  // A step that is not whole comes first, from the end, so that the others need no comparison with the end of k.
  uint rest = start < end ? uint((end - start - 1) % BK) + 1 : 0;
  bool whole = rest == BK;
  IDX at = whole ? start : end - rest;
#ifdef DEPTH_TABLES
  DEPTH_TABLES(thread, at);
  barrier();
#endif
  FIRST_STEP(at)
  A_fetch(thread, at, rest);
  B_fetch(thread, at, rest);
#ifdef DEPTH_TABLES
  if (!whole) {
    barrier();
    DEPTH_TABLES(thread, start);
  }
#endif
  A_put(thread, 0);
  B_put(thread, 0);
  barrier();
  at = whole ? start + BK : start;
  if (!whole) end -= rest;
  // Several steps an iteration: the slots are constants, and sums stay in their registers.
#if UNROLLED_STEPS
  while (at + (UNROLLED_STEPS - 1) * BK < end) {
    [[unroll]] for (uint step = 0; step < UNROLLED_STEPS; step++) {
      take_step(thread, start, at, step % 2, true);
      at += BK;
    }
  }
#endif
  while (true) {
    [[unroll]] for (uint slot = 0; slot < 2; slot++) {
      bool more = at < end;
      take_step(thread, start, at, slot, more);
      if (!more) return;
      at += BK;
    }
  }
}

// Neighbours that are stored at once.
const uint GROUP = C_VECTORS != 0 ? WIDTH : 1;
#if C_VECTORS && WIDTH == 4
#define STORE_GROUP(i, j, v) STORE_VEC4(i, j, v[0], v[1], v[2], v[3])
#elif C_VECTORS
#define STORE_GROUP(i, j, v) STORE_VEC2(i, j, v[0], v[1])
#else
#define STORE_GROUP(i, j, v) STORE(i, j, v[0])
#endif

#if SHARED_STORES
// All slices' sums of a block of SLICE_ROWS by four of each thread.
const uint BLOCK_COLUMNS = COLUMNS * 4, BLOCK = ROWS * SLICE_ROWS * BLOCK_COLUMNS;
shared ACCUMULATOR slice_sums[SLICES][BLOCK];

// Adds the sums of all slices in their order and stores them, those of the rows from `i` on of each thread. The threads of all slices
// share the stores, which wait for what an epilogue reads.
void store_block(uint i, uint thread, IDX row, IDX column, IDX m, IDX n) {
  const uint TURNS = (BLOCK / GROUP + THREADS - 1) / THREADS;
  barrier();
  STORE_LOOP for (uint turn = 0; turn < TURNS; turn++) {
    uint at = (thread + turn * THREADS) * GROUP, y = at / BLOCK_COLUMNS, x = at % BLOCK_COLUMNS;
    uint own_row = i + y % SLICE_ROWS, own_column = x % 4;
    IDX at_row = row + (y / SLICE_ROWS + own_row / WIDTH * ROWS) * WIDTH + own_row % WIDTH;
    IDX at_column = column + (x / 4 + own_column / WIDTH * COLUMNS) * WIDTH + own_column % WIDTH;
    if (at < BLOCK && at_row < m && at_column < n) {
      ACCUMULATOR total[GROUP];
      [[unroll]] for (uint w = 0; w < GROUP; w++) {
        total[w] = slice_sums[0][at + w];
        [[unroll]] for (uint other = 1; other < SLICES; other++) total[w] += slice_sums[other][at + w];
      }
      STORE_GROUP(at_row, at_column, total);
    }
  }
  barrier();
}

// A macro, as drivers do not unroll a loop of such blocks: they would find the sums by index, and keep them in memory all the time.
#define TAKE_BLOCK(i) \
  [[unroll]] for (uint y = 0; y < SLICE_ROWS; y++) { \
    uint at = (thread_row * SLICE_ROWS + y) * BLOCK_COLUMNS + thread_column * 4; \
    [[unroll]] for (uint x = 0; x < 4; x++) slice_sums[slice][at + x] = sums[(i) + y][x]; \
  } \
  store_block(i, thread, row, column, m, n);

void store_slices(uint thread, uint slice, IDX row, IDX column, IDX m, IDX n) {
  TAKE_BLOCK(0)
#if SLICE_ROWS < 4
  TAKE_BLOCK(SLICE_ROWS)
#endif
#if SLICE_ROWS < 2
  TAKE_BLOCK(2)
  TAKE_BLOCK(3)
#endif
}
#elif SLICES > 1
// A column of each thread's sums but the first slice's.
shared ACCUMULATOR slice_sums[TM][SLICE_THREADS * (SLICES - 1)];

// Adds all slices' sums to those of the first, in their order. Every iteration has the same barriers: if they depended on the
// iteration, drivers would not unroll the loop, and would keep all sums in memory.
void add_slices(uint slice, uint slice_thread) {
  [[unroll]] for (uint j = 0; j < TN; j++) {
    barrier();
    if (slice != 0) {
      [[unroll]] for (uint i = 0; i < TM; i++) slice_sums[i][(slice - 1) * SLICE_THREADS + slice_thread] = sums[i][j];
    }
    barrier();
    if (slice == 0) {
      [[unroll]] for (uint other = 0; other < SLICES - 1; other++) {
        [[unroll]] for (uint i = 0; i < TM; i++) sums[i][j] += slice_sums[i][other * SLICE_THREADS + slice_thread];
      }
    }
  }
}
#endif

// The product's tile at (row, column), summed over k from `start` to `end`. m and n are the matrices' extents.
void matmul(uint thread, IDX row, IDX column, IDX m, IDX n, IDX start, IDX end) {
  uint slice = SLICES == 1 ? 0 : thread / SLICE_THREADS, slice_thread = SLICES == 1 ? thread : thread % SLICE_THREADS;
  thread_depth = slice * (BK / SLICES);
  uint patch_index = slice_thread / PATCH, within = slice_thread % PATCH;
  // Pairs of neighbours read one vector of B, so that shared memory serves more threads at once.
  const uint COLUMN_PAIR = PATCH_ROWS < 2 ? 1 : 2;
  uint patch_row = within / (COLUMN_PAIR * PATCH_COLUMNS) * COLUMN_PAIR + within % COLUMN_PAIR;
  thread_row = patch_index / PATCHES_IN_ROW * PATCH_ROWS + patch_row;
  thread_column = patch_index % PATCHES_IN_ROW * PATCH_COLUMNS + within / COLUMN_PAIR % PATCH_COLUMNS;
  [[unroll]] for (uint i = 0; i < TM; i++) {
    [[unroll]] for (uint j = 0; j < TN; j++) sums[i][j] = ACCUMULATOR(0);
  }
  A_find_offsets(thread, row, m);
  B_find_offsets(thread, column, n);
  add_steps(thread, start, end);
#if SHARED_STORES
  store_slices(thread, slice, row, column, m, n);
#else
#if SLICES > 1
  add_slices(slice, slice_thread);
  if (slice != 0) return;
#endif
#if ROLLED_STORES
  // The sums stay in registers until they are copied to where a loop finds them by index.
  ACCUMULATOR results[TM * TN];
  [[unroll]] for (uint i = 0; i < TM; i++) {
    [[unroll]] for (uint j = 0; j < TN; j++) results[i * TN + j] = sums[i][j];
  }
  [[dont_unroll]] for (uint e = 0; e < TM * TN; e++) {
    uint i = e / TN, j = e % TN;
    IDX at_row = row + (thread_row + i / WIDTH * ROWS) * WIDTH + i % WIDTH;
    IDX at_column = column + (thread_column + j / WIDTH * COLUMNS) * WIDTH + j % WIDTH;
    if (at_row < m && at_column < n) STORE(at_row, at_column, results[e]);
  }
#else
  [[unroll]] for (uint i = 0; i < TM; i++) {
    IDX at_row = row + (thread_row + i / WIDTH * ROWS) * WIDTH + i % WIDTH;
    [[unroll]] for (uint j = 0; j < TN; j += GROUP) {
      IDX at_column = column + (thread_column + j / WIDTH * COLUMNS) * WIDTH + j % WIDTH;
      if (at_row < m && at_column < n) {
        ACCUMULATOR group[GROUP];
        [[unroll]] for (uint w = 0; w < GROUP; w++) group[w] = sums[i][j + w];
        STORE_GROUP(at_row, at_column, group);
      }
    }
  }
#endif
#endif
}
