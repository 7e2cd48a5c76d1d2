// Matrix product of 16-bit floats by cooperative matrices (GL_KHR_cooperative_matrix) of 16×16 with sums in f32. A
// workgroup computes BM×BN of C in steps of BK along k, a subgroup WM×WN of it. Tiles lie in shared memory as they do in
// memory; while one step is computed, the next one's elements are on their way to registers. Shared memory for a second
// step would cost more, by the workgroups that no longer fit beside each other, than it saves in barriers.
//
// The including kernel, whose subgroups have 32 invocations, defines the tile (BM, BN, BK, WM, WN), A_ROW(i),
// A_DEPTH(start, k), B_DEPTH(start, k), B_COLUMN(j), FIRST_STEP(start), NEXT_STEP, A_BORDERS, B_BORDERS, LINE_WORD(i) and
// DEPTH_WORD(start, k), which `lib/matmul.glsl` explains, A_ALONG_K and B_ALONG_N, the directions in which elements are
// neighbours, A_EIGHT(place) and B_EIGHT(place), eight neighbours in that direction as a uvec4, and STORE(i, j, value) or,
// with C_QUADS, STORE_QUAD(i, j, v0, v1, v2, v3).

#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require

// Eight more, so that lines begin in different banks.
const uint A_LINE = (A_ALONG_K != 0 ? BK : BM) / 8 + 1, A_LINES = A_ALONG_K != 0 ? BM : BK;
const uint B_LINE = (B_ALONG_N != 0 ? BN : BK) / 8 + 1, B_LINES = B_ALONG_N != 0 ? BK : BN;
const uint A_SIZE = A_LINE * A_LINES, B_SIZE = B_LINE * B_LINES;
const uint ACROSS = BN / WN, SUBGROUPS = BM / WM * ACROSS, LANES = 32, THREADS = LANES * SUBGROUPS;
const uint A_TURNS = BM * BK / 8 / THREADS, B_TURNS = BN * BK / 8 / THREADS;
#ifndef FIRST_STEP
#define FIRST_STEP(start)
#define NEXT_STEP
#endif
// Of 16 numbers of C, and four more.
const uint PART_LINE = 5;

// The tile of A and that of B behind it; in the end, parts of C.
shared uvec4 tiles[A_SIZE + B_SIZE];

uvec4 fetched_a[A_TURNS], fetched_b[B_TURNS];
IDX places_a[A_TURNS], places_b[B_TURNS];
#if A_BORDERS
uint words_a[A_TURNS];
#define A_EXISTS(t, start, k) ((words_a[t] & DEPTH_WORD(start, k)) == 0)
#else
#define A_EXISTS(t, start, k) true
#endif
#if B_BORDERS
uint words_b[B_TURNS];
#define B_EXISTS(t, start, k) ((words_b[t] & DEPTH_WORD(start, k)) == 0)
#else
#define B_EXISTS(t, start, k) true
#endif

// The line that load `e` is a part of, and where in it the load begins. Where two lines of four loads serve eight lanes,
// they are lines four apart: these lie in different banks.
#define LINE(e, line) (line == 5 ? (e) / 32 * 8 + (e) / 8 % 4 + (e) / 4 % 2 * 4 : (e) / (line - 1))
#define WITHIN(e, line) ((e) % (line - 1))

// Rows and columns beyond the matrices repeat the last ones: their sums are not stored.
void find_places(uint lane, IDX row, IDX column, IDX m, IDX n) {
  [[unroll]] for (uint t = 0; t < A_TURNS; t++) {
    uint e = lane + t * THREADS;
    IDX i = A_ALONG_K != 0 ? min(row + LINE(e, A_LINE), m - 1) : min(row + WITHIN(e, A_LINE) * 8, (m - 1) / 8 * 8);
    places_a[t] = A_ROW(i);
#if A_BORDERS
    words_a[t] = LINE_WORD(i);
#endif
  }
  [[unroll]] for (uint t = 0; t < B_TURNS; t++) {
    uint e = lane + t * THREADS;
    IDX j = B_ALONG_N != 0 ? min(column + WITHIN(e, B_LINE) * 8, (n - 1) / 8 * 8) : min(column + LINE(e, B_LINE), n - 1);
    places_b[t] = B_COLUMN(j);
#if B_BORDERS
    words_b[t] = LINE_WORD(j);
#endif
  }
}

// A step of `count` elements along k from `start`; zeros to a shorter one than BK, and beyond borders.
void fetch(uint lane, IDX start, uint count) {
  [[unroll]] for (uint t = 0; t < A_TURNS; t++) {
    uint e = lane + t * THREADS, k = A_ALONG_K != 0 ? WITHIN(e, A_LINE) * 8 : LINE(e, A_LINE);
    fetched_a[t] = uvec4(0);
    if ((count == BK || k < count) && A_EXISTS(t, start, k)) {
      fetched_a[t] = A_EIGHT(places_a[t] + A_DEPTH(start, k));
    }
  }
  [[unroll]] for (uint t = 0; t < B_TURNS; t++) {
    uint e = lane + t * THREADS, k = B_ALONG_N != 0 ? LINE(e, B_LINE) : WITHIN(e, B_LINE) * 8;
    fetched_b[t] = uvec4(0);
    if ((count == BK || k < count) && B_EXISTS(t, start, k)) {
      fetched_b[t] = B_EIGHT(places_b[t] + B_DEPTH(start, k));
    }
  }
}

void put(uint lane) {
  [[unroll]] for (uint t = 0; t < A_TURNS; t++) {
    uint e = lane + t * THREADS;
    tiles[LINE(e, A_LINE) * A_LINE + WITHIN(e, A_LINE)] = fetched_a[t];
  }
  [[unroll]] for (uint t = 0; t < B_TURNS; t++) {
    uint e = lane + t * THREADS;
    tiles[A_SIZE + LINE(e, B_LINE) * B_LINE + WITHIN(e, B_LINE)] = fetched_b[t];
  }
}

#define MATRIX_A coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseA>
#define MATRIX_B coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseB>
#define MATRIX_C coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator>

void matmul(IDX row, IDX column, IDX m, IDX n, IDX start, IDX end) {
  uint lane = gl_SubgroupID * LANES + gl_SubgroupInvocationID;
  uint warp_row = gl_SubgroupID / ACROSS * WM, warp_column = gl_SubgroupID % ACROSS * WN;
  MATRIX_C sums[WM / 16][WN / 16];
  [[unroll]] for (uint i = 0; i < WM / 16; i++) {
    [[unroll]] for (uint j = 0; j < WN / 16; j++) sums[i][j] = MATRIX_C(0.0);
  }
  find_places(lane, row, column, m, n);
  // A step that is not whole comes first, from the end.
  uint rest = start < end ? uint((end - start - 1) % BK) + 1 : 0;
  bool whole = rest == BK;
  FIRST_STEP(start)
  fetch(lane, whole ? start : end - rest, rest);
  put(lane);
  barrier();
  if (!whole) end -= rest;
  for (IDX at = whole ? start + BK : start;; at += BK) {
    if (at < end) {
      NEXT_STEP
      fetch(lane, at, BK);
    }
    [[unroll]] for (uint k = 0; k < BK; k += 16) {
      MATRIX_A a[WM / 16];
      [[unroll]] for (uint i = 0; i < WM / 16; i++) {
        uint at_row = warp_row + i * 16;
#if A_ALONG_K
        coopMatLoad(a[i], tiles, at_row * A_LINE + k / 8, A_LINE, gl_CooperativeMatrixLayoutRowMajor);
#else
        coopMatLoad(a[i], tiles, k * A_LINE + at_row / 8, A_LINE, gl_CooperativeMatrixLayoutColumnMajor);
#endif
      }
      [[unroll]] for (uint j = 0; j < WN / 16; j++) {
        uint at_column = warp_column + j * 16;
        MATRIX_B b;
#if B_ALONG_N
        coopMatLoad(b, tiles, A_SIZE + k * B_LINE + at_column / 8, B_LINE, gl_CooperativeMatrixLayoutRowMajor);
#else
        coopMatLoad(b, tiles, A_SIZE + at_column * B_LINE + k / 8, B_LINE, gl_CooperativeMatrixLayoutColumnMajor);
#endif
        [[unroll]] for (uint i = 0; i < WM / 16; i++) sums[i][j] = coopMatMulAdd(a[i], b, sums[i][j]);
      }
    }
    barrier();
    if (at >= end) break;
    put(lane);
    barrier();
  }
  // How a matrix lies in the lanes is the device's own affair: through shared memory each gets four neighbours to store.
  uint base = gl_SubgroupID * 16 * PART_LINE;
  [[unroll]] for (uint i = 0; i < WM / 16; i++) {
    [[unroll]] for (uint j = 0; j < WN / 16; j++) {
      coopMatStore(sums[i][j], tiles, base, PART_LINE, gl_CooperativeMatrixLayoutRowMajor);
      barrier();
      [[unroll]] for (uint e = 0; e < 64; e += LANES) {
        uint quad = e + gl_SubgroupInvocationID;
        vec4 values = uintBitsToFloat(tiles[base + quad / 4 * PART_LINE + quad % 4]);
        IDX at_row = row + warp_row + i * 16 + quad / 4, at_column = column + warp_column + j * 16 + quad % 4 * 4;
#if C_QUADS
        if (at_row < m && at_column < n) {
          STORE_QUAD(at_row, at_column, values.x, values.y, values.z, values.w);
        }
#else
        [[unroll]] for (uint w = 0; w < 4; w++) {
          if (at_row < m && at_column + w < n) STORE(at_row, at_column + w, values[w]);
        }
#endif
      }
      barrier();
    }
  }
}
