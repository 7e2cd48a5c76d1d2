// Matrix product of 16-bit floats by cooperative matrices (GL_KHR_cooperative_matrix) of 16×16 with sums in f32. A
// workgroup computes BM×BN of C in steps of BK along k, a subgroup WM×WN of it. While one step is computed, the next one's
// elements are being loaded to registers. Shared memory for a second step would cost more, by the lower occupancy, than it
// saves in barriers. The last 16 of a step along k are multiplied after the step has been overwritten, which lets subgroups
// multiply while they wait for the next step in shared memory.
//
// The including kernel, whose subgroups have 32 invocations, defines the tile (BM, BN, BK, WM, WN), LATE, A_ROW(i),
// A_DEPTH(start, k), B_DEPTH(start, k), B_COLUMN(j), FIRST_STEP(start), NEXT_STEP, A_PADDED, B_PADDED, LINE_WORD(i) and
// DEPTH_WORD(start, k), which `lib/matmul.glsl` explains, A_ALONG_K and B_ALONG_N, the directions in which elements are
// neighbours, A_EIGHT(offset) and B_EIGHT(offset), eight neighbours in that direction as they are stored, A_RAW and B_RAW, their types,
// A_EIGHT_OF(raw) and B_EIGHT_OF(raw), the same as 16-bit floats in a uvec4, and STORE(i, j, value) or,
// with C_VECTORS, STORE_VEC4(i, j, v0, v1, v2, v3). With ROLLED_STORES 1 STORE is long and should be in the kernel few times.

#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require

// Tiles lie in shared memory in the direction in which elements are neighbours in memory. Along k a line has BK elements of
// one row, or column, or of several with a stride of 16 that make 128. Eight more elements let lines begin in different banks.
const uint LINE_ELEMENTS = max(128, BK), ROWS_IN_LINE = LINE_ELEMENTS / BK;
const uint A_LINE = (A_ALONG_K != 0 ? LINE_ELEMENTS : BM) / 8 + 1, A_LINES = A_ALONG_K != 0 ? BM / ROWS_IN_LINE : BK;
const uint B_LINE = (B_ALONG_N != 0 ? BN : LINE_ELEMENTS) / 8 + 1, B_LINES = B_ALONG_N != 0 ? BK : BN / ROWS_IN_LINE;
const uint A_SIZE = A_LINE * A_LINES, B_SIZE = B_LINE * B_LINES;
const uint SUBGROUP_COLUMNS = BN / WN, SUBGROUPS = BM / WM * SUBGROUP_COLUMNS, LANES = 32, THREADS = LANES * SUBGROUPS;
const uint A_THREAD_LOADS = BM * BK / 8 / THREADS, B_THREAD_LOADS = BN * BK / 8 / THREADS;
#ifndef FIRST_STEP
#define FIRST_STEP(start)
#define NEXT_STEP
#endif
#include "lib/stores.glsl"
// Matrices of C side by side that are in shared memory at once, and vec4s of a line of them, with one more against bank conflicts. An index
// that is no constant to the driver would have it keep all sums in memory, so that an odd number of matrices goes one by one.
const uint C_MATRICES = WN / 16 % 2 == 0 ? 2 : 1, C_VEC4S = 4 * C_MATRICES, C_LINE = C_VEC4S + 1;

// The tile of A and after it that of B; in the end, matrices of C.
shared uvec4 tiles[A_SIZE + B_SIZE];

A_RAW fetched_a[A_THREAD_LOADS];
B_RAW fetched_b[B_THREAD_LOADS];
IDX offsets_a[A_THREAD_LOADS], offsets_b[B_THREAD_LOADS];
#if A_PADDED
uint words_a[A_THREAD_LOADS];
#define A_EXISTS(t, start, k) ((words_a[t] & DEPTH_WORD(start, k)) == 0)
#else
#define A_EXISTS(t, start, k) true
#endif
#if B_PADDED
uint words_b[B_THREAD_LOADS];
#define B_EXISTS(t, start, k) ((words_b[t] & DEPTH_WORD(start, k)) == 0)
#else
#define B_EXISTS(t, start, k) true
#endif

// The line that load `e` is a part of, and the position in it where the load begins.
#define LINE(e, line) ((e) / (line - 1))
#define WITHIN(e, line) ((e) % (line - 1))
// For lines along k: the row or column of a load, the index along k where it begins, and the offset of 16 rows or columns.
#define LINE_OF(e, line) ((LINE(e, line) / 16 * ROWS_IN_LINE + WITHIN(e, line) / (BK / 8)) * 16 + LINE(e, line) % 16)
#define DEPTH_OF(e, line) (WITHIN(e, line) % (BK / 8) * 8)
#define BLOCK(i, line) ((i) / 16 / ROWS_IN_LINE * 16 * line + (i) / 16 % ROWS_IN_LINE * (BK / 8))

// Rows and columns beyond the matrices repeat the last ones: their sums are not stored.
void find_offsets(uint lane, IDX row, IDX column, IDX m, IDX n) {
  [[unroll]] for (uint t = 0; t < A_THREAD_LOADS; t++) {
    uint e = lane + t * THREADS;
    IDX i = A_ALONG_K != 0 ? min(row + LINE_OF(e, A_LINE), m - 1) : min(row + WITHIN(e, A_LINE) * 8, (m - 1) / 8 * 8);
    offsets_a[t] = A_ROW(i);
#if A_PADDED
    words_a[t] = LINE_WORD(i);
#endif
  }
  [[unroll]] for (uint t = 0; t < B_THREAD_LOADS; t++) {
    uint e = lane + t * THREADS;
    IDX j = B_ALONG_N != 0 ? min(column + WITHIN(e, B_LINE) * 8, (n - 1) / 8 * 8) : min(column + LINE_OF(e, B_LINE), n - 1);
    offsets_b[t] = B_COLUMN(j);
#if B_PADDED
    words_b[t] = LINE_WORD(j);
#endif
  }
}

// Loads a step of `count` elements along k from `start`. A step shorter than BK is filled with zeros, and padding is zero.
void fetch(uint lane, IDX start, uint count) {
  [[unroll]] for (uint t = 0; t < A_THREAD_LOADS; t++) {
    uint e = lane + t * THREADS, k = A_ALONG_K != 0 ? DEPTH_OF(e, A_LINE) : LINE(e, A_LINE);
    fetched_a[t] = A_RAW(0);
    if ((count == BK || k < count) && A_EXISTS(t, start, k)) {
      fetched_a[t] = A_EIGHT(offsets_a[t] + A_DEPTH(start, k));
    }
  }
  [[unroll]] for (uint t = 0; t < B_THREAD_LOADS; t++) {
    uint e = lane + t * THREADS, k = B_ALONG_N != 0 ? LINE(e, B_LINE) : DEPTH_OF(e, B_LINE);
    fetched_b[t] = B_RAW(0);
    if ((count == BK || k < count) && B_EXISTS(t, start, k)) {
      fetched_b[t] = B_EIGHT(offsets_b[t] + B_DEPTH(start, k));
    }
  }
}

// Writes to shared memory what was fetched.
void put(uint lane) {
  [[unroll]] for (uint t = 0; t < A_THREAD_LOADS; t++) {
    uint e = lane + t * THREADS;
    tiles[LINE(e, A_LINE) * A_LINE + WITHIN(e, A_LINE)] = A_EIGHT_OF(fetched_a[t]);
  }
  [[unroll]] for (uint t = 0; t < B_THREAD_LOADS; t++) {
    uint e = lane + t * THREADS;
    tiles[A_SIZE + LINE(e, B_LINE) * B_LINE + WITHIN(e, B_LINE)] = B_EIGHT_OF(fetched_b[t]);
  }
}

#define MATRIX_A coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseA>
#define MATRIX_B coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseB>
#define MATRIX_C coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator>

#if A_ALONG_K
#define LOAD_A(matrix, i, k) coopMatLoad(matrix, tiles, BLOCK(i, A_LINE) + (k) / 8, A_LINE, gl_CooperativeMatrixLayoutRowMajor)
#else
#define LOAD_A(matrix, i, k) coopMatLoad(matrix, tiles, (k) * A_LINE + (i) / 8, A_LINE, gl_CooperativeMatrixLayoutColumnMajor)
#endif
#if B_ALONG_N
#define LOAD_B(matrix, j, k) \
  coopMatLoad(matrix, tiles, A_SIZE + (k) * B_LINE + (j) / 8, B_LINE, gl_CooperativeMatrixLayoutRowMajor)
#else
#define LOAD_B(matrix, j, k) \
  coopMatLoad(matrix, tiles, A_SIZE + BLOCK(j, B_LINE) + (k) / 8, B_LINE, gl_CooperativeMatrixLayoutColumnMajor)
#endif

// Loads the matrices at k of a step to one of two slots in alternation.
#define LOAD(k) \
  { \
    [[unroll]] for (uint i = 0; i < WM / 16; i++) LOAD_A(a[(k) / 16 % 2][i], warp_row + i * 16, k); \
    [[unroll]] for (uint j = 0; j < WN / 16; j++) LOAD_B(b[(k) / 16 % 2][j], warp_column + j * 16, k); \
  }
#define MULTIPLY(k, first, last) \
  { \
    [[unroll]] for (uint i = first; i < last; i++) { \
      [[unroll]] for (uint j = 0; j < WN / 16; j++) { \
        sums[i][j] = coopMatMulAdd(a[(k) / 16 % 2][i], b[(k) / 16 % 2][j], sums[i][j]); \
      } \
    } \
  }
// All of a step but its first loads and its last products.
#define COMPUTE \
  [[unroll]] for (uint k = 16; k < BK; k += 16) { \
    LOAD(k) \
    MULTIPLY(k - 16, 0, WM / 16) \
  }

// The next step's loads begin as soon as the last one's are in shared memory. Where a workgroup has a multiprocessor to
// itself they are better LATE, when half of the step in shared memory is computed: its loads from there would wait behind them.
void matmul(IDX row, IDX column, IDX m, IDX n, IDX start, IDX end) {
  uint lane = gl_SubgroupID * LANES + gl_SubgroupInvocationID;
  uint warp_row = gl_SubgroupID / SUBGROUP_COLUMNS * WM, warp_column = gl_SubgroupID % SUBGROUP_COLUMNS * WN;
  MATRIX_A a[2][WM / 16];
  MATRIX_B b[2][WN / 16];
  MATRIX_C sums[WM / 16][WN / 16];
  [[unroll]] for (uint i = 0; i < WM / 16; i++) {
    [[unroll]] for (uint j = 0; j < WN / 16; j++) sums[i][j] = MATRIX_C(0.0);
  }
  find_offsets(lane, row, column, m, n);
  // A step that is not whole comes first, from the end.
  uint rest = start < end ? uint((end - start - 1) % BK) + 1 : 0;
  bool whole = rest == BK;
  FIRST_STEP(start)
  fetch(lane, whole ? start : end - rest, rest);
  put(lane);
  barrier();
  if (!whole) end -= rest;
  IDX at = whole ? start + BK : start;
#if LATE
  if (at < end) {
    NEXT_STEP
    fetch(lane, at, BK);
  }
  LOAD(0)
  for (; at < end; at += BK) {
    COMPUTE
    barrier();
    put(lane);
    // Without a branch, the last step once more: drivers wait for loads where branches meet.
    if (at + BK < end) {
      NEXT_STEP
    }
    fetch(lane, min(at + BK, end - BK), BK);
    MULTIPLY(BK - 16, 0, WM / 32)
    barrier();
    LOAD(0)
    MULTIPLY(BK - 16, WM / 32, WM / 16)
  }
#else
  // Before the first step there are no products left.
  [[unroll]] for (uint i = 0; i < WM / 16; i++) a[1][i] = MATRIX_A(float16_t(0.0));
  [[unroll]] for (uint j = 0; j < WN / 16; j++) b[1][j] = MATRIX_B(float16_t(0.0));
  for (; at < end; at += BK) {
    NEXT_STEP
    fetch(lane, at, BK);
    barrier();
    LOAD(0)
    MULTIPLY(BK - 16, 0, WM / 16)
    COMPUTE
    barrier();
    put(lane);
  }
  barrier();
  LOAD(0)
  MULTIPLY(BK - 16, 0, WM / 16)
#endif
  COMPUTE
  MULTIPLY(BK - 16, 0, WM / 16)
  barrier();
  // The layout of a matrix in the lanes is implementation-defined: through shared memory each lane gets four neighbours to store.
  uint base = gl_SubgroupID * 16 * C_LINE;
  [[unroll]] for (uint i = 0; i < WM / 16; i++) {
    [[unroll]] for (uint j = 0; j < WN / 16; j += C_MATRICES) {
      [[unroll]] for (uint c = 0; c < C_MATRICES; c++) {
        coopMatStore(sums[i][j + c], tiles, base + c * 4, C_LINE, gl_CooperativeMatrixLayoutRowMajor);
      }
      subgroupBarrier();
      STORE_LOOP for (uint e = 0; e < 16 * C_VEC4S; e += LANES) {
        uint vec4_index = e + gl_SubgroupInvocationID, line = vec4_index / C_VEC4S, within = vec4_index % C_VEC4S;
        vec4 values = uintBitsToFloat(tiles[base + line * C_LINE + within]);
        IDX at_row = row + warp_row + i * 16 + line, at_column = column + warp_column + j * 16 + within * 4;
#if C_VECTORS
        if (at_row < m && at_column < n) {
          STORE_VEC4(at_row, at_column, values.x, values.y, values.z, values.w);
        }
#else
        STORE_LOOP for (uint w = 0; w < 4; w++) {
          if (at_row < m && at_column + w < n) STORE(at_row, at_column + w, values[w]);
        }
#endif
      }
      subgroupBarrier();
    }
  }
}
