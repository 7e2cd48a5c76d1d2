// Attention: for each query the mean of all values, weighted by exp of the scores of query and keys, in one pass over the keys. No score
// is stored.
//
// Algorithm: a workgroup goes through the keys in steps. It keeps for each query the largest score so far, the sum of exp(score -
//   largest), and the weighted sum of the values, and scales both sums down when a larger score comes. Parts of the keys are combined in
//   the same way by COMBINE, as attention_combine.glsl does.
// Domain: all numbers. Scores of -Inf have no weight; a query of such scores alone, or with a score of NaN or +Inf, is NaN.
// Error: that of the sums of type SUM, an ulp for each exp, and half an ulp for each time that the largest score changes.
// Source: M. Milakov, N. Gimelshein, "Online normalizer calculation for softmax" (2018); T. Dao et al., "FlashAttention" (2022).
//
// QUERIES queries of a workgroup are ROW_THREADS × ROWS; COLUMN_THREADS threads share each of these. For scores KEY_THREADS threads share a
// key, of whose vectors each has every KEY_THREADS-th; for values a thread has every VALUE_THREADS-th vector and every SLICES-th key.
//
// The kernel defines these, all of them powers of two, and
//   DEPTH, VALUES          elements of a key and of a value,
//   STAGED                 1 where keys and values go through shared memory, which many queries read,
//   PREFETCHED             1 where a thread loads all that it has of a step's keys and values at once,
//   LOOP                   the attribute of loops over the elements of a head and the keys of a step,
//   LANES                  threads that share a query within a subgroup; more than 1 needs lib/exchange.glsl,
//   SPLIT                  1 where the keys are in parts, and SPLITS of COMBINE how many parts,
//   SUM, SUM4, TOTAL       the types of sums of products, four of them, and of sums of weights,
//   MULTIPLY_ADD(a, b, c)  on SUM,
//   q_at(b, base, step, d), k_at, v_at   the four elements from d on of what begins at `base` of a buffer, zero beyond the end,
//   q_batch(i), k_batch, v_batch, c_batch, q_row(i), c_row   offsets,
//   score(i, row, key, s)  the score at index i of all batches, queries and keys, that of a key of a row, from the product s,
//   WEIGHT(i, row, key, w) the weight of a value, from that of its score, linear in w,
//   MEAN(sum, total)       the quotients of four sums, of type TOTAL4,
//   NEW_KEY, NEW_VALUE     1 where the kernel puts a key, a value, of each batch at NEW_KEY_POSITION, by PUT_KEY(to, from) of an element, and
//                          takes it from p.k_new in place of p.k, both of type KEY_BUFFER,
//   STORE_VALUES(at, d, v) for the result's four elements from d on, of type TOTAL4.

#if COMBINE

#define PARTIAL_SUMS p.sums
#define PARTIAL_MAXIMA p.maxima
#define PARTIAL_TOTALS p.totals
#include "lib/attention_combine.glsl"

// A query's column of four is a thread's.
void main() {
  IDX group = workgroup();
  if (group >= p.groups) return;
  IDX item = group * THREADS + INVOCATION;
  IDX queries = p.batches * p.queries;
  if (item >= queries * VALUES4) return;
  IDX query = item / VALUES4;
  uint d = uint(item % VALUES4);
  TOTAL4 mean = combined(query, d, queries);
  IDX batch = QUERIES == 1 ? query : query / p.queries;
  STORE_VALUES(c_batch(batch) + c_row(query - batch * p.queries), d * 4, mean);
}

#else

const uint DEPTH4 = (DEPTH + 3) / 4, VALUES4 = (VALUES + 3) / 4;

// Four partial sums. The macros of memory paste the name of a type, which SUM has to be replaced by first.
#define SET_SUMS(T, at, x) SET_VEC4(T, p.sums, at, x)

const uint ROW_THREADS = QUERIES / ROWS, THREADS = ROW_THREADS * COLUMN_THREADS;
const uint KEYS_OF_THREAD = KEYS * KEY_THREADS / COLUMN_THREADS, KEY_STEP = COLUMN_THREADS / KEY_THREADS;
const uint KEY_VECTORS = (DEPTH4 + KEY_THREADS - 1) / KEY_THREADS;
const uint SLICES = COLUMN_THREADS / VALUE_THREADS;
const uint VECTORS = (VALUES4 + VALUE_THREADS - 1) / VALUE_THREADS;
const uint PARTS = COLUMN_THREADS / LANES;

#if !PREFETCHED
// One vector more, so that rows begin in different banks.
shared vec4 queries_tile[QUERIES][DEPTH4 + 1];
#endif
#if STAGED
shared vec4 keys_tile[KEYS][DEPTH4 + 1];
shared vec4 values_tile[KEYS][VALUES4];
#endif
shared float weights_tile[QUERIES][KEYS + 1];
#if COLUMN_THREADS > LANES
shared float maxima[QUERIES][PARTS];
shared TOTAL totals[QUERIES][PARTS];
#endif
// Threads of a subgroup that have the same vectors of the values add their sums first.
#if LANES > VALUE_THREADS
#define SLICE_LANES LANES
#else
#define SLICE_LANES VALUE_THREADS
#endif
#if COLUMN_THREADS > SLICE_LANES
shared SUM4 slice_sums[ROW_THREADS * COLUMN_THREADS / SLICE_LANES][VALUE_THREADS];
#endif

IDX k_base, v_base, score_base;
uint thread, row_thread, column_thread;
#if NEW_KEY
IDX new_key, new_k_base;
#endif
#if NEW_VALUE
IDX new_value, new_v_base;
#endif

// The four elements of a key from d on.
vec4 key_at(IDX key, uint d) {
#if NEW_KEY
  bool is_new = key == new_key;
  IDX base = is_new ? new_k_base : k_base + key * p.k_key, step = is_new ? p.k_new_depth : p.k_depth;
  return k_at(EITHER(KEY_BUFFER, is_new, p.k_new, p.k), base, step, d);
#else
  return k_at(p.k, k_base + key * p.k_key, p.k_depth, d);
#endif
}

// The four elements of a value from d on.
vec4 value_at(IDX key, uint d) {
#if NEW_VALUE
  bool is_new = key == new_value;
  IDX base = is_new ? new_v_base : v_base + key * p.v_key, step = is_new ? p.v_new_depth : p.v_depth;
  return v_at(EITHER(VALUE_BUFFER, is_new, p.v_new, p.v), base, step, d);
#else
  return v_at(p.v, v_base + key * p.v_key, p.v_depth, d);
#endif
}

// Puts the new key and the new value where they belong, if that is one of the keys from `start` to `end`. Nothing reads them from there.
void put_new(IDX start, IDX end) {
#if NEW_KEY
  if (start <= new_key && new_key < end) {
    IDX to = k_base + new_key * p.k_key;
    [[dont_unroll]] for (uint d = thread; d < DEPTH; d += THREADS) PUT_KEY(to + d * p.k_depth, new_k_base + d * p.k_new_depth);
  }
#endif
#if NEW_VALUE
  if (start <= new_value && new_value < end) {
    IDX to = v_base + new_value * p.v_key;
    [[dont_unroll]] for (uint d = thread; d < VALUES; d += THREADS) PUT_VALUE(to + d * p.v_depth, new_v_base + d * p.v_new_depth);
  }
#endif
}

#if PREFETCHED
vec4 own_queries[ROWS][KEY_VECTORS], own_keys[KEYS_OF_THREAD][KEY_VECTORS], own_values[KEYS / SLICES][VECTORS];

// Loads what this thread has of the queries.
void fetch_queries(IDX q_base) {
  [[unroll]] for (uint i = 0; i < ROWS; i++) {
    IDX row = q_base + q_row(min(IDX(i), p.queries - 1));
    [[unroll]] for (uint v = 0; v < KEY_VECTORS; v++) {
      own_queries[i][v] = q_at(p.q, row, p.q_depth, min(column_thread % KEY_THREADS + v * KEY_THREADS, DEPTH4 - 1) * 4);
    }
  }
}

// Loads what this thread has of the step at `at`. Keys beyond the `count` repeat the last one: no load waits for a comparison.
void fetch_own(IDX at, uint count) {
  [[unroll]] for (uint j = 0; j < KEYS_OF_THREAD; j++) {
    IDX key = at + min(column_thread / KEY_THREADS + j * KEY_STEP, count - 1);
    [[unroll]] for (uint i = 0; i < KEY_VECTORS; i++) {
      uint d = min(column_thread % KEY_THREADS + i * KEY_THREADS, DEPTH4 - 1);
      own_keys[j][i] = key_at(key, d * 4);
    }
  }
  [[unroll]] for (uint step = 0; step < KEYS / SLICES; step++) {
    IDX key = at + min(column_thread / VALUE_THREADS + step * SLICES, count - 1);
    [[unroll]] for (uint v = 0; v < VECTORS; v++) {
      uint d = min(column_thread % VALUE_THREADS + v * VALUE_THREADS, VALUES4 - 1);
      own_values[step][v] = value_at(key, d * 4);
    }
  }
}
#endif

// The vector `d` of a key of the step at `at`, which is the vector `i` of the thread's key `j`.
vec4 key_vector(IDX at, uint key, uint d, uint j, uint i) {
#if STAGED
  return keys_tile[key][d];
#elif PREFETCHED
  return own_keys[j][i];
#else
  return key_at(at + key, d * 4);
#endif
}

// The vector `d` of a value of the step at `at`, which is the vector `v` of the thread's value `step`.
vec4 value_vector(IDX at, uint key, uint d, uint step, uint v) {
#if STAGED
  return values_tile[key][d];
#elif PREFETCHED
  return own_values[step][v];
#else
  return value_at(at + key, d * 4);
#endif
}

#if STAGED
const uint KEY_LOADS = (KEYS * DEPTH4 + THREADS - 1) / THREADS, VALUE_LOADS = (KEYS * VALUES4 + THREADS - 1) / THREADS;
vec4 fetched_keys[KEY_LOADS], fetched_values[VALUE_LOADS];

// Loads what `put` writes to shared memory. Keys beyond the `count` repeat the last one: no load waits for a comparison.
void fetch(IDX at, uint count) {
  [[unroll]] for (uint i = 0; i < KEY_LOADS; i++) {
    uint e = thread + i * THREADS;
    fetched_keys[i] = key_at(at + min(e / DEPTH4, count - 1), e % DEPTH4 * 4);
  }
  [[unroll]] for (uint i = 0; i < VALUE_LOADS; i++) {
    uint e = thread + i * THREADS;
    fetched_values[i] = value_at(at + min(e / VALUES4, count - 1), e % VALUES4 * 4);
  }
}

void put(uint count) {
  [[unroll]] for (uint i = 0; i < KEY_LOADS; i++) {
    uint e = thread + i * THREADS, key = e / DEPTH4;
    if (key < KEYS) keys_tile[key][e % DEPTH4] = key < count ? fetched_keys[i] : vec4(0);
  }
  [[unroll]] for (uint i = 0; i < VALUE_LOADS; i++) {
    uint e = thread + i * THREADS, key = e / VALUES4;
    if (key < KEYS) values_tile[key][e % VALUES4] = key < count ? fetched_values[i] : vec4(0);
  }
}
#endif

// The products of this thread's queries and keys of the step at `at`.
void multiply(IDX at, uint count, out SUM products[ROWS][KEYS_OF_THREAD]) {
  [[unroll]] for (uint i = 0; i < ROWS; i++) {
    [[unroll]] for (uint j = 0; j < KEYS_OF_THREAD; j++) products[i][j] = SUM(0);
  }
  // Keys beyond the last one repeat it: no load waits for a comparison.
  uint last = STAGED != 0 ? KEYS - 1 : count - 1;
  LOOP for (uint vector = 0; vector < KEY_VECTORS; vector++) {
    uint d = column_thread % KEY_THREADS + vector * KEY_THREADS;
    if (DEPTH4 % KEY_THREADS != 0 && d >= DEPTH4) break;
    vec4 q[ROWS];
    [[unroll]] for (uint i = 0; i < ROWS; i++) {
#if PREFETCHED
      q[i] = own_queries[i][vector];
#else
      q[i] = queries_tile[row_thread + i * ROW_THREADS][d];
#endif
    }
    [[unroll]] for (uint j = 0; j < KEYS_OF_THREAD; j++) {
      vec4 k = key_vector(at, min(column_thread / KEY_THREADS + j * KEY_STEP, last), d, j, vector);
      [[unroll]] for (uint i = 0; i < ROWS; i++) {
        [[unroll]] for (uint c = 0; c < 4; c++) products[i][j] = MULTIPLY_ADD(SUM(q[i][c]), SUM(k[c]), products[i][j]);
      }
    }
  }
#if KEY_THREADS > 1
  [[unroll]] for (uint i = 0; i < ROWS; i++) {
    [[unroll]] for (uint j = 0; j < KEYS_OF_THREAD; j++) {
      [[unroll]] for (uint s = 1; s < KEY_THREADS; s *= 2) products[i][j] += from_lane(products[i][j], s);
    }
  }
#endif
}

// The largest of what the threads of each query have.
void exchange_maxima(inout float largest[ROWS]) {
#if LANES > 1
  [[unroll]] for (uint i = 0; i < ROWS; i++) {
    [[unroll]] for (uint s = KEY_THREADS; s < LANES; s *= 2) largest[i] = max(largest[i], from_lane(largest[i], s));
  }
#endif
#if COLUMN_THREADS > LANES
  [[unroll]] for (uint i = 0; i < ROWS; i++) maxima[row_thread + i * ROW_THREADS][column_thread / LANES] = largest[i];
  barrier();
  [[unroll]] for (uint i = 0; i < ROWS; i++) {
    LOOP for (uint part = 0; part < PARTS; part++) {
      largest[i] = max(largest[i], maxima[row_thread + i * ROW_THREADS][part]);
    }
  }
#endif
}

// The sums of what the threads of each query have.
void exchange_totals(inout TOTAL total[ROWS]) {
#if LANES > 1
  [[unroll]] for (uint i = 0; i < ROWS; i++) {
    [[unroll]] for (uint s = KEY_THREADS; s < LANES; s *= 2) total[i] += from_lane(total[i], s);
  }
#endif
#if COLUMN_THREADS > LANES
  [[unroll]] for (uint i = 0; i < ROWS; i++) totals[row_thread + i * ROW_THREADS][column_thread / LANES] = total[i];
  barrier();
  [[unroll]] for (uint i = 0; i < ROWS; i++) {
    total[i] = TOTAL(0);
    LOOP for (uint part = 0; part < PARTS; part++) total[i] += totals[row_thread + i * ROW_THREADS][part];
  }
#endif
}

SUM4 sums[ROWS][VECTORS];
float largest[ROWS];
TOTAL total[ROWS];

// Weighs the `count` keys from `at` on by the scores that the products give, in shared memory, and scales the sums.
void weigh(IDX at, uint count, IDX first, SUM products[ROWS][KEYS_OF_THREAD]) {
  float scores[ROWS][KEYS_OF_THREAD], new_largest[ROWS];
  [[unroll]] for (uint i = 0; i < ROWS; i++) {
    IDX row = first + row_thread + i * ROW_THREADS;
    new_largest[i] = largest[i];
    [[unroll]] for (uint j = 0; j < KEYS_OF_THREAD; j++) {
      uint key = column_thread / KEY_THREADS + j * KEY_STEP;
      scores[i][j] = -F32_INF;
      if (row < p.queries && key < count) {
        scores[i][j] = score((score_base + row) * p.keys + at + key, score_base + row, at + key, float(products[i][j]));
      }
      new_largest[i] = max(new_largest[i], scores[i][j]);
    }
  }
  exchange_maxima(new_largest);
  [[unroll]] for (uint i = 0; i < ROWS; i++) {
    IDX row = first + row_thread + i * ROW_THREADS;
    float base = new_largest[i] == -F32_INF ? 0.0f : new_largest[i];
    float scale = nx_exp(largest[i] - base);
    largest[i] = new_largest[i];
    total[i] *= TOTAL(scale);
    [[unroll]] for (uint v = 0; v < VECTORS; v++) sums[i][v] *= SUM(scale);
    float step_total = 0.0f;
    [[unroll]] for (uint j = 0; j < KEYS_OF_THREAD; j++) {
      uint key = column_thread / KEY_THREADS + j * KEY_STEP;
      float weight = nx_exp(scores[i][j] - base);
      step_total += weight;
      if (row < p.queries && key < count) {
        weight = WEIGHT((score_base + row) * p.keys + at + key, score_base + row, at + key, weight);
      }
      if (column_thread % KEY_THREADS == 0) weights_tile[row_thread + i * ROW_THREADS][key] = weight;
    }
    total[i] += TOTAL(step_total);
  }
}

// Adds the values of the `count` keys from `at` on by their weights.
void add_values(IDX at, uint count) {
  uint first = column_thread % VALUE_THREADS, last = STAGED != 0 ? KEYS - 1 : count - 1;
  LOOP for (uint step = 0; step < KEYS / SLICES; step++) {
    uint key = column_thread / VALUE_THREADS + step * SLICES;
    float w[ROWS];
    [[unroll]] for (uint i = 0; i < ROWS; i++) w[i] = weights_tile[row_thread + i * ROW_THREADS][key];
    [[unroll]] for (uint v = 0; v < VECTORS; v++) {
      uint d = first + v * VALUE_THREADS;
      if (d >= VALUES4) continue;
      vec4 value = value_vector(at, min(key, last), d, step, v);
      if (STAGED == 0 && key > last) value = vec4(0);
      [[unroll]] for (uint i = 0; i < ROWS; i++) {
        [[unroll]] for (uint c = 0; c < 4; c++) {
          sums[i][v][c] = MULTIPLY_ADD(SUM(w[i]), SUM(value[c]), sums[i][v][c]);
        }
      }
    }
  }
}

// Adds the sums of all slices of keys to those of the first.
void add_slices() {
#if COLUMN_THREADS > VALUE_THREADS
  [[unroll]] for (uint i = 0; i < ROWS; i++) {
    [[unroll]] for (uint v = 0; v < VECTORS; v++) {
#if LANES > VALUE_THREADS
      [[unroll]] for (uint s = VALUE_THREADS; s < LANES; s *= 2) {
        [[unroll]] for (uint c = 0; c < 4; c++) sums[i][v][c] += from_lane(sums[i][v][c], s);
      }
#endif
#if COLUMN_THREADS > SLICE_LANES
      if (i + v > 0) barrier();
      if (thread % SLICE_LANES < VALUE_THREADS) slice_sums[thread / SLICE_LANES][thread % VALUE_THREADS] = sums[i][v];
      barrier();
      if (column_thread < VALUE_THREADS) {
        LOOP for (uint slice = 1; slice < COLUMN_THREADS / SLICE_LANES; slice++) {
          sums[i][v] += slice_sums[thread / SLICE_LANES + slice][column_thread];
        }
      }
#endif
    }
  }
#endif
}

void store(IDX batch, IDX split, IDX first) {
  if (column_thread >= VALUE_THREADS) return;
  [[unroll]] for (uint i = 0; i < ROWS; i++) {
    IDX row = first + row_thread + i * ROW_THREADS;
    if (row >= p.queries) continue;
#if SPLIT
    IDX at = split * (p.batches * p.queries) + batch * p.queries + row;
    if (column_thread == 0) {
      AT(float, p.maxima, at) = largest[i];
      AT(TOTAL, p.totals, at) = total[i];
    }
#endif
    [[unroll]] for (uint v = 0; v < VECTORS; v++) {
      uint d = column_thread + v * VALUE_THREADS;
      if (d >= VALUES4) continue;
#if SPLIT
      SET_SUMS(SUM, at * VALUES4 + d, sums[i][v]);
#else
      STORE_VALUES(c_batch(batch) + c_row(row), d * 4, MEAN(sums[i][v], total[i]));
#endif
    }
  }
}

void main() {
  IDX group = workgroup();
  if (group >= p.groups) return;
  IDX tiles = QUERIES == 1 ? 1 : (p.queries + (QUERIES - 1)) / QUERIES;
  IDX split = SPLIT != 0 ? group % p.splits : 0, tile = SPLIT != 0 ? group / p.splits : group;
  IDX batch = tile / tiles, first = (tile - batch * tiles) * QUERIES;
  thread = INVOCATION;
  row_thread = thread / COLUMN_THREADS;
  column_thread = thread % COLUMN_THREADS;
  k_base = k_batch(batch);
  v_base = v_batch(batch);
  score_base = batch * p.queries;
#if NEW_KEY
  new_key = NEW_KEY_POSITION;
  new_k_base = k_new_batch(batch);
#endif
#if NEW_VALUE
  new_value = NEW_VALUE_POSITION;
  new_v_base = v_new_batch(batch);
#endif
  IDX q_base = q_batch(batch), start = SPLIT != 0 ? split * p.chunk : 0;
  IDX end = SPLIT != 0 ? min(p.keys, (split + 1) * p.chunk) : p.keys;
#if PREFETCHED
  if (start < end) fetch_own(start, uint(min(end - start, IDX(KEYS))));
  fetch_queries(q_base);
#else
  [[dont_unroll]] for (uint e = thread; e < QUERIES * DEPTH4; e += THREADS) {
    uint row = e / DEPTH4, d = e % DEPTH4;
    queries_tile[row][d] = first + row < p.queries ? q_at(p.q, q_base + q_row(first + row), p.q_depth, d * 4) : vec4(0);
  }
#endif
  // The workgroups of a batch's other queries have the same keys.
  if (first == 0) put_new(start, end);
  [[unroll]] for (uint i = 0; i < ROWS; i++) {
    largest[i] = -F32_INF;
    total[i] = TOTAL(0);
    [[unroll]] for (uint v = 0; v < VECTORS; v++) sums[i][v] = SUM4(0);
  }
#if STAGED
  if (start < end) fetch(start, uint(min(end - start, IDX(KEYS))));
#endif
  [[dont_unroll]] for (IDX at = start; at < end; at += KEYS) {
    uint count = uint(min(end - at, IDX(KEYS)));
#if STAGED
    put(count);
    // The next step's are on their way while this one is computed.
    if (end - at > KEYS) fetch(at + KEYS, uint(min(end - at - KEYS, IDX(KEYS))));
#endif
    // What the threads of several subgroups exchange waits for the step before, too.
#if !(PREFETCHED && COLUMN_THREADS > LANES)
    barrier();
#endif
    SUM products[ROWS][KEYS_OF_THREAD];
    multiply(at, count, products);
    weigh(at, count, first, products);
    barrier();
    add_values(at, count);
#if STAGED
    barrier();
#elif PREFETCHED
    if (end - at > KEYS) fetch_own(at + KEYS, uint(min(end - at - KEYS, IDX(KEYS))));
#endif
  }
  exchange_totals(total);
  add_slices();
  store(batch, split, first);
}

#endif
