// Tiled matrix product: a workgroup computes BM×BN of C in steps of BK along k, a thread TM×TN of it as blocks of WIDTH by
// WIDTH. Both tiles lie with k outermost in shared memory, twice: while one step is computed, the next one's elements are
// on their way, and one barrier a step is enough. (S. Boehm, "How to Optimize a CUDA Matmul Kernel for cuBLAS-like
// Performance", 2022, goes through the parts; CUTLASS has the same structure.)
//
// The including kernel defines
// - the tile: BM, BN, BK, and TM, TN, which are multiples of WIDTH;
// - ELEMENT and ACCUMULATOR (types), MULTIPLY_ADD(a, b, c) on the latter, a·b + c, and VECTOR: WIDTH elements of 16 bytes together;
// - A_ROW(i), A_DEPTH(k, slot, step), B_DEPTH(k, slot, step), B_COLUMN(j): the parts of an element's place, which are
//   called within bounds only; `step` is k within the step of `slot`, see DEPTH_TABLES;
// - A_STORED, A_AT(place), A_VALUE(stored), and the same of B: an element as it is stored, in memory and as an ELEMENT;
// - A_ALONG_K and B_ALONG_N: 1 or 0, whether neighbouring threads should load neighbours along k of A, along n of B;
// - A_QUADS and B_QUADS: whether A_QUAD(place) and B_QUAD(place), of types A_STORED and B_STORED, read four neighbours
//   in that direction at once; such runs of four are aligned and whole;
// - STORE(i, j, value) for an element of C, or with C_QUADS, for WIDTH = 4 only, STORE_QUAD(i, j, v0, v1, v2, v3).
// Without A_STORED or B_STORED elements are stored as ELEMENTs and loaded one by one, without C_QUADS stored one by one.
// If it defines DEPTH_TABLES(lane, slot, start), that runs a barrier before the loads of the step that begins at `start`.

#ifndef A_STORED
#define A_STORED ELEMENT
#define A_VALUE(x) x
#define A_QUADS 0
#endif
#ifndef B_STORED
#define B_STORED ELEMENT
#define B_VALUE(x) x
#define B_QUADS 0
#endif
#ifndef C_QUADS
#define C_QUADS 0
#endif

const uint ROWS = BM / TM, COLUMNS = BN / TN, THREADS = ROWS * COLUMNS;

// A patch of 4 rows by 8 columns of threads reads the fewest different vectors of both tiles together.
const uint PATCH_COLUMNS = COLUMNS < 8 ? COLUMNS : 8, PATCH_ROWS = ROWS < 4 ? ROWS : 4;
const uint PATCH = PATCH_COLUMNS * PATCH_ROWS, PATCHES_ALONG = COLUMNS / PATCH_COLUMNS;

#define UNIT(quads) (quads != 0 ? 4u : 1u)
const uint A_LOADS = BM * BK / UNIT(A_QUADS), B_LOADS = BN * BK / UNIT(B_QUADS);
const uint A_TURNS = (A_LOADS + THREADS - 1) / THREADS, B_TURNS = (B_LOADS + THREADS - 1) / THREADS;

// One vector more, so that columns of the tile lie in different banks.
shared VECTOR tile_a[2][BK][BM / WIDTH + 1];
shared VECTOR tile_b[2][BK][BN / WIDTH + 1];

#if WIDTH == 1
#define PUT(tile, slot, k, i, x) tile[slot][k][i] = x
#define COMPONENT(v, i) v
#else
#define PUT(tile, slot, k, i, x) tile[slot][k][(i) / WIDTH][(i) % WIDTH] = x
#define COMPONENT(v, i) v[i]
#endif
#if WIDTH == 4
#define PUT_QUAD(tile, slot, k, i, x0, x1, x2, x3) tile[slot][k][(i) / 4] = VECTOR(x0, x1, x2, x3)
#elif WIDTH == 2
#define PUT_QUAD(tile, slot, k, i, x0, x1, x2, x3) \
  tile[slot][k][(i) / 2] = VECTOR(x0, x1); \
  tile[slot][k][(i) / 2 + 1] = VECTOR(x2, x3)
#else
#define PUT_QUAD(tile, slot, k, i, x0, x1, x2, x3) \
  tile[slot][k][i] = x0; \
  tile[slot][k][(i) + 1] = x1; \
  tile[slot][k][(i) + 2] = x2; \
  tile[slot][k][(i) + 3] = x3
#endif

// Where in its tile load `e` begins: within the k of a step, and within the rows of A or the columns of B.
#define LOAD_K(e, along_k, size, unit) (along_k != 0 ? (e) * unit % BK : (e) / (size / unit))
#define LOAD_I(e, along_k, size, unit) (along_k != 0 ? (e) * unit / BK : (e) % (size / unit) * unit)
#define A_K(e) LOAD_K(e, A_ALONG_K, BM, UNIT(A_QUADS))
#define A_I(e) LOAD_I(e, A_ALONG_K, BM, UNIT(A_QUADS))
#define B_K(e) LOAD_K(e, 1 - B_ALONG_N, BN, UNIT(B_QUADS))
#define B_J(e) LOAD_I(e, 1 - B_ALONG_N, BN, UNIT(B_QUADS))

A_STORED fetched_a[A_TURNS];
B_STORED fetched_b[B_TURNS];
IDX places_a[A_TURNS], places_b[B_TURNS];

// Rows and columns beyond the matrices repeat the last ones: their sums are not stored.
void find_places(uint lane, IDX row, IDX column, IDX m, IDX n) {
  [[unroll]] for (uint t = 0; t < A_TURNS; t++) {
    IDX i = row + A_I(lane + t * THREADS);
    places_a[t] = A_ROW(min(i, m - (A_ALONG_K != 0 ? 1 : UNIT(A_QUADS))));
  }
  [[unroll]] for (uint t = 0; t < B_TURNS; t++) {
    IDX j = column + B_J(lane + t * THREADS);
    places_b[t] = B_COLUMN(min(j, n - (B_ALONG_N != 0 ? UNIT(B_QUADS) : 1)));
  }
}

// Loads what this thread brings to the step at `start`; beyond `end` along k are zeros, in A and in B.
void fetch(uint lane, uint slot, IDX start, IDX end) {
  [[unroll]] for (uint t = 0; t < A_TURNS; t++) {
    uint e = lane + t * THREADS, k = A_K(e);
    fetched_a[t] = A_STORED(0);
    if ((A_LOADS % THREADS == 0 || e < A_LOADS) && start + k < end) {
      IDX place = places_a[t] + A_DEPTH(start + k, slot, k);
#if A_QUADS
      fetched_a[t] = A_QUAD(place);
#else
      fetched_a[t] = A_AT(place);
#endif
    }
  }
  [[unroll]] for (uint t = 0; t < B_TURNS; t++) {
    uint e = lane + t * THREADS, k = B_K(e);
    fetched_b[t] = B_STORED(0);
    if ((B_LOADS % THREADS == 0 || e < B_LOADS) && start + k < end) {
      IDX place = places_b[t] + B_DEPTH(start + k, slot, k);
#if B_QUADS
      fetched_b[t] = B_QUAD(place);
#else
      fetched_b[t] = B_AT(place);
#endif
    }
  }
}

void put(uint lane, uint slot) {
  [[unroll]] for (uint t = 0; t < A_TURNS; t++) {
    uint e = lane + t * THREADS, k = A_K(e), i = A_I(e);
    if (A_LOADS % THREADS == 0 || e < A_LOADS) {
      A_STORED x = fetched_a[t];
#if !A_QUADS
      PUT(tile_a, slot, k, i, A_VALUE(x));
#elif A_ALONG_K
      [[unroll]] for (uint c = 0; c < 4; c++) PUT(tile_a, slot, k + c, i, A_VALUE(x[c]));
#else
      PUT_QUAD(tile_a, slot, k, i, A_VALUE(x[0]), A_VALUE(x[1]), A_VALUE(x[2]), A_VALUE(x[3]));
#endif
    }
  }
  [[unroll]] for (uint t = 0; t < B_TURNS; t++) {
    uint e = lane + t * THREADS, k = B_K(e), j = B_J(e);
    if (B_LOADS % THREADS == 0 || e < B_LOADS) {
      B_STORED x = fetched_b[t];
#if !B_QUADS
      PUT(tile_b, slot, k, j, B_VALUE(x));
#elif B_ALONG_N
      PUT_QUAD(tile_b, slot, k, j, B_VALUE(x[0]), B_VALUE(x[1]), B_VALUE(x[2]), B_VALUE(x[3]));
#else
      [[unroll]] for (uint c = 0; c < 4; c++) PUT(tile_b, slot, k + c, j, B_VALUE(x[c]));
#endif
    }
  }
}

// The part of the product's tile at (row, column) that k from `start` to `end` makes. m and n are the matrices' extents.
void matmul(uint lane, IDX row, IDX column, IDX m, IDX n, IDX start, IDX end) {
  uint block = lane / PATCH, within = lane % PATCH;
  // Pairs of neighbours read one vector of B, so that shared memory serves more threads at once.
  const uint PAIR = PATCH_ROWS < 2 ? 1 : 2;
  uint thread_row = block / PATCHES_ALONG * PATCH_ROWS + within / (PAIR * PATCH_COLUMNS) * PAIR + within % PAIR;
  uint thread_column = block % PATCHES_ALONG * PATCH_COLUMNS + within / PAIR % PATCH_COLUMNS;
  ACCUMULATOR sums[TM][TN];
  [[unroll]] for (uint i = 0; i < TM; i++) {
    [[unroll]] for (uint j = 0; j < TN; j++) sums[i][j] = ACCUMULATOR(0);
  }
  find_places(lane, row, column, m, n);
#ifdef DEPTH_TABLES
  DEPTH_TABLES(lane, 0, start);
  DEPTH_TABLES(lane, 1, start + BK);
  barrier();
#endif
  fetch(lane, 0, start, end);
  put(lane, 0);
  barrier();
  uint slot = 0;
  for (IDX at = start; at < end; at += BK) {
    fetch(lane, slot ^ 1u, at + BK, end);
    [[unroll]] for (uint k = 0; k < BK; k++) {
      VECTOR a[TM / WIDTH], b[TN / WIDTH];
      [[unroll]] for (uint i = 0; i < TM / WIDTH; i++) a[i] = tile_a[slot][k][thread_row + i * ROWS];
      [[unroll]] for (uint j = 0; j < TN / WIDTH; j++) b[j] = tile_b[slot][k][thread_column + j * COLUMNS];
      [[unroll]] for (uint i = 0; i < TM; i++) {
        [[unroll]] for (uint j = 0; j < TN; j++) {
          sums[i][j] = MULTIPLY_ADD(ACCUMULATOR(COMPONENT(a[i / WIDTH], i % WIDTH)),
                                    ACCUMULATOR(COMPONENT(b[j / WIDTH], j % WIDTH)), sums[i][j]);
        }
      }
    }
    put(lane, slot ^ 1u);
#ifdef DEPTH_TABLES
    DEPTH_TABLES(lane, slot, at + 2 * BK);
#endif
    slot ^= 1u;
    barrier();
  }
  [[unroll]] for (uint i = 0; i < TM; i++) {
    IDX at_row = row + (thread_row + i / WIDTH * ROWS) * WIDTH + i % WIDTH;
    [[unroll]] for (uint j = 0; j < TN; j += WIDTH) {
      IDX at_column = column + (thread_column + j / WIDTH * COLUMNS) * WIDTH;
#if C_QUADS
      if (at_row < m && at_column < n) {
        STORE_QUAD(at_row, at_column, sums[i][j], sums[i][j + 1], sums[i][j + 2], sums[i][j + 3]);
      }
#else
      [[unroll]] for (uint w = 0; w < WIDTH; w++) {
        if (at_row < m && at_column + w < n) STORE(at_row, at_column + w, sums[i][j + w]);
      }
#endif
    }
  }
}
