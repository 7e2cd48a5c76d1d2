// Attention of 16-bit floats by cooperative matrices (GL_KHR_cooperative_matrix) of 16×16 with sums in f32, in one pass over the keys;
// lib/attention.glsl says how. A workgroup has QUERIES queries and goes through the keys in steps of KEYS, a subgroup has ROWS of the
// queries. The next step's keys and values are on their way to registers while one step is computed. Scores stay in registers: their
// rows are reduced, and they become weights there, by GL_NV_cooperative_matrix2.
//
// Domain: that of lib/attention.glsl.
// Error: that of sums in f32. Weights are rounded to the type of the values, relative to the largest so far of their query.
// Source: that of lib/attention.glsl.
//
// The kernel, whose subgroups have 32 invocations, defines QUERIES, KEYS and ROWS, multiples of 16, DEPTH and VALUES, the elements of a key
// and of a value, multiples of 16, Q_EIGHT(offset), K_EIGHT(offset) and V_EIGHT(offset), eight neighbours along a head as a uvec4, SCORES
// and WEIGHTS, 1 where scores and weights of values are more than products and weights of scores, and of lib/attention.glsl's definitions q_batch(i), k_batch,
// v_batch, c_batch, q_row(i), c_row, score, WEIGHT, MEAN(sum, total) and STORE_VALUES(at, d, v), for vec4s of f32.

#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_NV_cooperative_matrix2 : require

#define MATRIX_A coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseA>
#define MATRIX_B coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseB>
#define MATRIX_C coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator>
#define ROW_MAJOR gl_CooperativeMatrixLayoutRowMajor
#define COLUMN_MAJOR gl_CooperativeMatrixLayoutColumnMajor

const uint SUBGROUPS = QUERIES / ROWS, THREADS = LANES * SUBGROUPS, BLOCKS = ROWS / 16;
const uint DEPTH8 = DEPTH / 8, VALUES8 = VALUES / 8;
const uint KEY_LOADS = (KEYS * DEPTH8 + THREADS - 1) / THREADS, VALUE_LOADS = (KEYS * VALUES8 + THREADS - 1) / THREADS;
// Lines of shared memory in uvec4s, one or two more than they hold so that they begin in different banks: of a key or a query, of a value,
// and of 16 columns of a result.
const uint KEY_LINE = DEPTH8 + 1, VALUE_LINE = VALUES8 + 1, RESULT_LINE = 6;
const uint ROWS_SIZE = 16 * max(KEY_LINE, RESULT_LINE), KEYS_SIZE = KEYS * KEY_LINE;
const float LOG2_E = 1.44269504f;

// A step's keys, and after them its values; before the first step each subgroup's queries, after the last one its results.
shared uvec4 tiles[max(KEYS_SIZE + KEYS * VALUE_LINE, SUBGROUPS * ROWS_SIZE)];

uvec4 fetched_keys[KEY_LOADS], fetched_values[VALUE_LOADS];
IDX k_base, v_base;
uint thread;

// Loads what `put` writes to shared memory. Keys beyond the `count` repeat the last one: no load waits for a comparison.
void fetch(IDX at, uint count) {
  [[unroll]] for (uint i = 0; i < KEY_LOADS; i++) {
    uint e = thread + i * THREADS;
    fetched_keys[i] = K_EIGHT(k_base + (at + min(e / DEPTH8, count - 1)) * p.k_key + e % DEPTH8 * 8);
  }
  [[unroll]] for (uint i = 0; i < VALUE_LOADS; i++) {
    uint e = thread + i * THREADS;
    fetched_values[i] = V_EIGHT(v_base + (at + min(e / VALUES8, count - 1)) * p.v_key + e % VALUES8 * 8);
  }
}

void put(uint count) {
  [[unroll]] for (uint i = 0; i < KEY_LOADS; i++) {
    uint e = thread + i * THREADS, key = e / DEPTH8;
    if (key < KEYS) tiles[key * KEY_LINE + e % DEPTH8] = key < count ? fetched_keys[i] : uvec4(0);
  }
  [[unroll]] for (uint i = 0; i < VALUE_LOADS; i++) {
    uint e = thread + i * THREADS, key = e / VALUES8;
    if (key < KEYS) tiles[KEYS_SIZE + key * VALUE_LINE + e % VALUES8] = key < count ? fetched_values[i] : uvec4(0);
  }
}

float largest_of(const in float a, const in float b) { return max(a, b); }
float sum_of(const in float a, const in float b) { return a + b; }

// The score of an element of a block, whose first row and key are `first` and `at`. Rows beyond the last one repeat it, and are not stored;
// keys beyond have no weight. No load waits for a comparison.
float score_of(const in uint row, const in uint column, const in float s, const in IDX first, const in IDX last,
    const in IDX at) {
  IDX i = min(first + row, last), key = min(at + column, p.keys - 1);
  float x = score(i * p.keys + key, i, key, s);
  return at + column < p.keys ? x : -F32_INF;
}

float weight_of(const in uint row, const in uint column, const in float w, const in IDX first, const in IDX last,
    const in IDX at) {
  IDX i = min(first + row, last), key = min(at + column, p.keys - 1);
  return WEIGHT(i * p.keys + key, i, key, w);
}

void main() {
  IDX group = workgroup();
  if (group >= p.groups) return;
  IDX tile_count = (p.queries + (QUERIES - 1)) / QUERIES, batch = group / tile_count;
  uint lane = gl_SubgroupInvocationID, rows_at = gl_SubgroupID * ROWS_SIZE;
  IDX first = (group - batch * tile_count) * QUERIES + gl_SubgroupID * ROWS;
  thread = gl_SubgroupID * LANES + lane;
  k_base = k_batch(batch);
  v_base = v_batch(batch);
  IDX q_base = q_batch(batch);
  fetch(0, uint(min(p.keys, IDX(KEYS))));
  MATRIX_A queries[BLOCKS][DEPTH / 16], weights[BLOCKS][KEYS / 16];
  // Of each query the largest score in all columns, and the sum of the weights of each sixteenth key in one.
  MATRIX_C sums[BLOCKS][VALUES / 16], largest[BLOCKS], total[BLOCKS];
  [[unroll]] for (uint block = 0; block < BLOCKS; block++) {
    [[unroll]] for (uint e = lane; e < 16 * DEPTH8; e += LANES) {
      IDX row = min(first + block * 16 + e / DEPTH8, p.queries - 1);
      tiles[rows_at + e / DEPTH8 * KEY_LINE + e % DEPTH8] = Q_EIGHT(q_base + q_row(row) + e % DEPTH8 * 8);
    }
    subgroupBarrier();
    [[unroll]] for (uint d = 0; d < DEPTH / 16; d++) {
      coopMatLoad(queries[block][d], tiles, rows_at + d * 2, KEY_LINE, ROW_MAJOR);
    }
    subgroupBarrier();
    [[unroll]] for (uint c = 0; c < VALUES / 16; c++) sums[block][c] = MATRIX_C(0.0);
    largest[block] = MATRIX_C(-F32_INF);
    total[block] = MATRIX_C(0.0);
  }
  [[dont_unroll]] for (IDX at = 0; at < p.keys; at += KEYS) {
    uint count = uint(min(p.keys - at, IDX(KEYS)));
    // The step before has been multiplied.
    barrier();
    put(count);
    if (p.keys - at > KEYS) fetch(at + KEYS, uint(min(p.keys - at - KEYS, IDX(KEYS))));
    barrier();
    MATRIX_C scores[BLOCKS][KEYS / 16];
    [[unroll]] for (uint j = 0; j < KEYS / 16; j++) {
      [[unroll]] for (uint block = 0; block < BLOCKS; block++) scores[block][j] = MATRIX_C(0.0);
      [[unroll]] for (uint d = 0; d < DEPTH / 16; d++) {
        MATRIX_B keys;
        coopMatLoad(keys, tiles, j * 16 * KEY_LINE + d * 2, KEY_LINE, COLUMN_MAJOR);
        [[unroll]] for (uint block = 0; block < BLOCKS; block++) {
          scores[block][j] = coopMatMulAdd(queries[block][d], keys, scores[block][j]);
        }
      }
    }
    [[unroll]] for (uint block = 0; block < BLOCKS; block++) {
      IDX row = batch * p.queries + first + block * 16, last = batch * p.queries + p.queries - 1;
      MATRIX_C next = largest[block];
      [[unroll]] for (uint j = 0; j < KEYS / 16; j++) {
        if (SCORES != 0 || count < KEYS) {
          coopMatPerElementNV(scores[block][j], scores[block][j], score_of, row, last, at + j * 16);
        }
        [[unroll]] for (uint e = 0; e < next.length(); e++) next[e] = max(next[e], scores[block][j][e]);
      }
      coopMatReduceNV(next, next, gl_CooperativeMatrixReduceRowNV, largest_of);
      // The device's exp2 has more digits than the weights.
      MATRIX_C scale;
      [[unroll]] for (uint e = 0; e < next.length(); e++) {
        float base = next[e] == -F32_INF ? 0.0f : next[e];
        scale[e] = exp2((largest[block][e] - base) * LOG2_E);
        largest[block][e] = next[e];
        next[e] = base;
      }
      total[block] *= scale;
      [[unroll]] for (uint c = 0; c < VALUES / 16; c++) sums[block][c] *= scale;
      [[unroll]] for (uint j = 0; j < KEYS / 16; j++) {
        [[unroll]] for (uint e = 0; e < next.length(); e++) {
          float weight = exp2((scores[block][j][e] - next[e]) * LOG2_E);
          total[block][e] += weight;
          scores[block][j][e] = weight;
        }
        if (WEIGHTS != 0) {
          coopMatPerElementNV(scores[block][j], scores[block][j], weight_of, row, last, at + j * 16);
        }
        weights[block][j] = MATRIX_A(scores[block][j]);
      }
    }
    [[unroll]] for (uint k = 0; k < KEYS / 16; k++) {
      [[unroll]] for (uint c = 0; c < VALUES / 16; c++) {
        MATRIX_B values;
        coopMatLoad(values, tiles, KEYS_SIZE + k * 16 * VALUE_LINE + c * 2, VALUE_LINE, ROW_MAJOR);
        [[unroll]] for (uint block = 0; block < BLOCKS; block++) {
          sums[block][c] = coopMatMulAdd(weights[block][k], values, sums[block][c]);
        }
      }
    }
  }
  barrier();
  // Two lanes store a query's results.
  uint line = rows_at + lane / 2 * RESULT_LINE, side = lane % 2;
  [[unroll]] for (uint block = 0; block < BLOCKS; block++) {
    coopMatReduceNV(total[block], total[block], gl_CooperativeMatrixReduceRowNV, sum_of);
    IDX row = first + block * 16 + lane / 2, c_base = c_batch(batch) + c_row(min(row, p.queries - 1));
    coopMatStore(total[block], tiles, rows_at, RESULT_LINE, ROW_MAJOR);
    subgroupBarrier();
    float whole = uintBitsToFloat(tiles[line].x);
    subgroupBarrier();
    // One matrix at a time: an index that is no constant to the driver would have it keep all sums in memory, from the first step on.
    [[unroll]] for (uint c = 0; c < VALUES / 16; c++) {
      coopMatStore(sums[block][c], tiles, rows_at, RESULT_LINE, ROW_MAJOR);
      subgroupBarrier();
      [[unroll]] for (uint i = 0; i < 2; i++) {
        vec4 sum = uintBitsToFloat(tiles[line + i * 2 + side]);
        if (row < p.queries) STORE_VALUES(c_base, c * 16 + i * 8 + side * 4, MEAN(sum, whole));
      }
      subgroupBarrier();
    }
  }
}
