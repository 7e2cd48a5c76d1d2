// Tiled matrix product: a workgroup computes BM×BN of C in steps of BK along k, a thread TM×TN of it as blocks of WIDTH by
// WIDTH. Both tiles lie with k outermost in shared memory, twice: while one step is computed, the next one's elements are
// on their way, and one barrier a step is enough. (S. Boehm, "How to Optimize a CUDA Matmul Kernel for cuBLAS-like
// Performance", 2022, goes through the parts; CUTLASS has the same structure.)
//
// The including kernel defines
// - the tile: BM, BN, BK, and TM, TN, which are multiples of WIDTH; and SLICES, 1 if it does not: each has BK / SLICES of a
//   step along k and threads of its own, and the first adds the sums of all in the end;
// - ELEMENT and ACCUMULATOR (types), MULTIPLY_ADD(a, b, c) on the latter, a·b + c, and VECTOR: WIDTH elements of 16 bytes together;
// - A_ROW(i), A_DEPTH(start, k), B_DEPTH(start, k), B_COLUMN(j): the parts of an element's place, which are called within
//   bounds only; `start` is that of a step and k below BK;
// - A_STORED, A_LOAD(place, depth), A_VALUE(stored), and the same of B: an element as it is stored, in memory, where the sum of
//   both parts is its place, and as an ELEMENT;
// - A_ALONG_K and B_ALONG_N: 1 or 0, whether neighbouring threads should load neighbours along k of A, along n of B;
// - A_WIDTH and B_WIDTH: how many neighbours in that direction A_LOAD and B_LOAD load at once, then as A_STORED and B_STORED;
//   such runs are aligned and whole;
// - with units across k, A_SCATTERED and B_SCATTERED: 1 where each element of a unit has a place of its own instead;
// - AFFINE: 1 where A_DEPTH and B_DEPTH are proportional to start + k: then A_LOAD takes A_OFFSET(place) instead of a place,
//   which a thread keeps, and a depth that all threads have in common, so that loads take no arithmetic but the latter's;
// - UNROLLED_STEPS: how many steps, an even number, are taken without branches in between, which takes registers that sums may need;
//   0 for none;
// - STORE(i, j, value) for an element of C, or with C_VECTORS STORE_QUAD(i, j, v0, v1, v2, v3) where WIDTH is 4 and
//   STORE_PAIR(i, j, v0, v1) where it is 2.
// Without A_STORED or B_STORED elements are stored as ELEMENTs and loaded one by one from A_AT(place) and B_AT(place), without
// C_VECTORS stored one by one.
// If it defines DEPTH_TABLES(lane, start), that runs before the loads of the DEPTHS elements along k that begin at `start`,
// and A_DEPTH and B_DEPTH look them up; DEPTHS is a larger multiple of BK, and DEPTHS elements before them stay. If it
// defines FIRST_STEP(start) and NEXT_STEP, they run before the loads of the first step and of each that follows. With
// A_PADDED or B_PADDED 1, an element of that operand is zero where LINE_WORD(i), of its row or column, and
// DEPTH_WORD(start, k) have a bit in common; LINE_WORD is called within bounds only.

#ifndef A_STORED
#define A_STORED ELEMENT
#define A_VALUE(x) x
#define A_LOAD(place, depth) A_AT((place) + (depth))
#define A_WIDTH 1
#define A_SCATTERED 0
#endif
#ifndef B_STORED
#define B_STORED ELEMENT
#define B_VALUE(x) x
#define B_LOAD(place, depth) B_AT((place) + (depth))
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

const uint ROWS = BM / TM, COLUMNS = BN / TN, PLACES = ROWS * COLUMNS, THREADS = PLACES * SLICES;

// A patch of 4 rows by 8 columns of threads reads the fewest different vectors of both tiles together.
const uint PATCH_COLUMNS = COLUMNS < 8 ? COLUMNS : 8, PATCH_ROWS = ROWS < 4 ? ROWS : 4;
const uint PATCH = PATCH_COLUMNS * PATCH_ROWS, PATCHES_ALONG = COLUMNS / PATCH_COLUMNS;

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
      [[unroll]] for (uint turned = 0; turned < TM; turned++) {
        // There and back, so that products after one another have an element in common.
        uint i = j % 2 == 0 ? turned : TM - 1 - turned;
        sums[i][j] = MULTIPLY_ADD(ACCUMULATOR(COMPONENT(a[i / WIDTH], i % WIDTH)),
                                  ACCUMULATOR(COMPONENT(b[j / WIDTH], j % WIDTH)), sums[i][j]);
      }
    }
  }
}

// Brings the step at `at`, which was fetched, to `slot` of the tiles.
void put_step(uint lane, IDX start, IDX at, uint slot) {
  A_put(lane, slot);
  B_put(lane, slot);
#ifdef DEPTH_TABLES
  if ((at - start) % DEPTHS == BK) DEPTH_TABLES(lane, at - BK + DEPTHS);
#endif
  barrier();
}

// Adds the step in `slot` while `more`, the one at `at`, is on its way to the other slot. That `more` is a parameter, also
// where it is always true, keeps the driver of an H200 from moving loads to where they take more registers: of doubles 218
// instead of 241, and of floats fewer than the 128 that do not suffice.
void take_step(uint lane, IDX start, IDX at, uint slot, bool more) {
  if (more) {
    NEXT_STEP
    A_fetch(lane, at, BK);
    B_fetch(lane, at, BK);
  }
  add_step(slot);
  if (more) put_step(lane, start, at, 1 - slot);
}

// The sums over k from `start` to `end`.
void add_steps(uint lane, IDX start, IDX end) {
  // A step that is not whole comes first, from the end, so that the others need not look where k ends.
  uint rest = start < end ? uint((end - start - 1) % BK) + 1 : 0;
  bool whole = rest == BK;
  IDX at = whole ? start : end - rest;
#ifdef DEPTH_TABLES
  DEPTH_TABLES(lane, at);
  barrier();
#endif
  FIRST_STEP(at)
  A_fetch(lane, at, rest);
  B_fetch(lane, at, rest);
#ifdef DEPTH_TABLES
  if (!whole) {
    barrier();
    DEPTH_TABLES(lane, start);
  }
#endif
  A_put(lane, 0);
  B_put(lane, 0);
  barrier();
  at = whole ? start + BK : start;
  if (!whole) end -= rest;
  // Several steps a turn: the slots are constants, and sums need not change their registers between them.
#if UNROLLED_STEPS
  while (at + (UNROLLED_STEPS - 1) * BK < end) {
    [[unroll]] for (uint step = 0; step < UNROLLED_STEPS; step++) {
      take_step(lane, start, at, step % 2, true);
      at += BK;
    }
  }
#endif
  while (true) {
    [[unroll]] for (uint slot = 0; slot < 2; slot++) {
      bool more = at < end;
      take_step(lane, start, at, slot, more);
      if (!more) return;
      at += BK;
    }
  }
}

#if SLICES > 1
// A column of each thread's sums but the first slice's.
shared ACCUMULATOR parts[TM][PLACES * (SLICES - 1)];

// Adds all slices' sums to those of the first, in their order. With a barrier that depends on the turn drivers do not unroll
// the loop, and keep all sums in memory.
void add_slices(uint slice, uint place) {
  [[unroll]] for (uint j = 0; j < TN; j++) {
    barrier();
    if (slice != 0) {
      [[unroll]] for (uint i = 0; i < TM; i++) parts[i][(slice - 1) * PLACES + place] = sums[i][j];
    }
    barrier();
    if (slice == 0) {
      [[unroll]] for (uint other = 0; other < SLICES - 1; other++) {
        [[unroll]] for (uint i = 0; i < TM; i++) sums[i][j] += parts[i][other * PLACES + place];
      }
    }
  }
}
#endif

// The part of the product's tile at (row, column) that k from `start` to `end` makes. m and n are the matrices' extents.
void matmul(uint lane, IDX row, IDX column, IDX m, IDX n, IDX start, IDX end) {
  uint slice = SLICES == 1 ? 0 : lane / PLACES, place = SLICES == 1 ? lane : lane % PLACES;
  thread_depth = slice * (BK / SLICES);
  uint block = place / PATCH, within = place % PATCH;
  // Pairs of neighbours read one vector of B, so that shared memory serves more threads at once.
  const uint PAIR = PATCH_ROWS < 2 ? 1 : 2;
  thread_row = block / PATCHES_ALONG * PATCH_ROWS + within / (PAIR * PATCH_COLUMNS) * PAIR + within % PAIR;
  thread_column = block % PATCHES_ALONG * PATCH_COLUMNS + within / PAIR % PATCH_COLUMNS;
  [[unroll]] for (uint i = 0; i < TM; i++) {
    [[unroll]] for (uint j = 0; j < TN; j++) sums[i][j] = ACCUMULATOR(0);
  }
  A_find_places(lane, row, m);
  B_find_places(lane, column, n);
  add_steps(lane, start, end);
#if SLICES > 1
  add_slices(slice, place);
  if (slice != 0) return;
#endif
  [[unroll]] for (uint i = 0; i < TM; i++) {
    IDX at_row = row + (thread_row + i / WIDTH * ROWS) * WIDTH + i % WIDTH;
    [[unroll]] for (uint j = 0; j < TN; j += WIDTH) {
      IDX at_column = column + (thread_column + j / WIDTH * COLUMNS) * WIDTH;
#if C_VECTORS && WIDTH == 4
      if (at_row < m && at_column < n) {
        STORE_QUAD(at_row, at_column, sums[i][j], sums[i][j + 1], sums[i][j + 2], sums[i][j + 3]);
      }
#elif C_VECTORS
      if (at_row < m && at_column < n) STORE_PAIR(at_row, at_column, sums[i][j], sums[i][j + 1]);
#else
      [[unroll]] for (uint w = 0; w < WIDTH; w++) {
        if (at_row < m && at_column + w < n) STORE(at_row, at_column + w, sums[i][j + w]);
      }
#endif
    }
  }
}
