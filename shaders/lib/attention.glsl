// Attention: for each query the mean of all values, weighted by exp of the scores of query and keys, in one pass over the keys. No score
// is stored.
//
// Algorithm: a workgroup goes through the keys in steps. It keeps for each query the largest score so far, the sum of exp(score -
//   largest), and the weighted sum of the values, and scales both sums down when a larger score comes. Parts of the keys are combined in
//   the same way by COMBINE.
// Domain: all numbers. Scores of -Inf have no weight; a query of such scores alone, or with a score of NaN or +Inf, is NaN.
// Error: that of the sums of type SUM, an ulp for each exp, and half an ulp for each time that the largest score changes.
// Source: M. Milakov, N. Gimelshein, "Online normalizer calculation for softmax" (2018); T. Dao et al., "FlashAttention" (2022).
//
// QUERIES queries of a workgroup are ROW_THREADS × ROWS; COLUMN_THREADS threads share each of these. For scores a thread has every
// COLUMN_THREADS-th key of a step; for values it has every VALUE_THREADS-th vector and every SLICES-th key.
//
// The kernel defines these, all of them powers of two, and
//   DEPTH, VALUES          elements of a key and of a value,
//   STAGED                 1 where keys and values go through shared memory, which many queries read,
//   LOOP                   the attribute of loops over the elements of a head and the keys of a step,
//   LANES                  threads that share a query within a subgroup; more than 1 needs lib/exchange.glsl,
//   SPLIT                  1 where the keys are in parts,
//   SUM, SUM4, TOTAL       the types of sums of products, four of them, and of sums of weights,
//   MULTIPLY_ADD(a, b, c)  on SUM,
//   q_at(base, d), k_at, v_at   the four elements from d on of what begins at `base`, zero beyond the end,
//   q_batch(i), k_batch, v_batch, c_batch, q_row(i), c_row   offsets,
//   score(i, s)            the score at index i of all batches, queries and keys, from the product s,
//   WEIGHT(i, w)           the weight of a value, from that of its score, linear in w,
//   MEAN(sum, total)       the quotients of four sums, of type TOTAL4,
//   STORE_VALUES(at, d, v) for the result's four elements from d on, of type TOTAL4.

const uint DEPTH4 = (DEPTH + 3) / 4, VALUES4 = (VALUES + 3) / 4;

#if COMBINE

// A query's column of four is a thread's.
void main() {
  IDX group = workgroup();
  if (group >= p.groups) return;
  IDX item = group * THREADS + INVOCATION;
  IDX queries = p.batches * p.queries;
  if (item >= queries * VALUES4) return;
  IDX query = item / VALUES4;
  uint d = uint(item % VALUES4);
  float largest = -F32_INF;
  for (IDX split = 0; split < p.splits; split++) largest = max(largest, AT(float, p.maxima, split * queries + query));
  float base = largest == -F32_INF ? 0.0f : largest;
  SUM4 sum = SUM4(0);
  TOTAL total = TOTAL(0);
  for (IDX split = 0; split < p.splits; split++) {
    IDX at = split * queries + query;
    float scale = nx_exp(AT(float, p.maxima, at) - base);
    total += TOTAL(scale) * AT(TOTAL, p.totals, at);
    [[unroll]] for (uint c = 0; c < 4; c++) sum[c] += SUM(scale) * AT(SUM, p.sums, (at * VALUES4 + d) * 4 + c);
  }
  IDX batch = query / p.queries;
  STORE_VALUES(c_batch(batch) + c_row(query - batch * p.queries), d * 4, MEAN(sum, total));
}

#else

const uint ROW_THREADS = QUERIES / ROWS, THREADS = ROW_THREADS * COLUMN_THREADS;
const uint KEYS_OF_THREAD = KEYS / COLUMN_THREADS;
const uint SLICES = COLUMN_THREADS / VALUE_THREADS;
const uint VECTORS = (VALUES4 + VALUE_THREADS - 1) / VALUE_THREADS;
const uint PARTS = COLUMN_THREADS / LANES;

// One vector more, so that rows begin in different banks.
shared vec4 queries_tile[QUERIES][DEPTH4 + 1];
#if STAGED
shared vec4 keys_tile[KEYS][DEPTH4 + 1];
shared vec4 values_tile[KEYS][VALUES4];
#endif
shared float weights_tile[QUERIES][KEYS + 1];
#if COLUMN_THREADS > LANES
shared float maxima[QUERIES][PARTS];
shared TOTAL totals[QUERIES][PARTS];
#endif
#if COLUMN_THREADS > VALUE_THREADS
shared SUM4 slice_sums[THREADS];
#endif

IDX k_base, v_base, score_base;
uint thread, row_thread, column_thread;

vec4 key_vector(IDX at, uint key, uint d) {
#if STAGED
  return keys_tile[key][d];
#else
  return k_at(k_base + (at + key) * p.k_key, d * 4);
#endif
}

vec4 value_vector(IDX at, uint key, uint d) {
#if STAGED
  return values_tile[key][d];
#else
  return v_at(v_base + (at + key) * p.v_key, d * 4);
#endif
}

#if STAGED
const uint KEY_LOADS = (KEYS * DEPTH4 + THREADS - 1) / THREADS, VALUE_LOADS = (KEYS * VALUES4 + THREADS - 1) / THREADS;
vec4 fetched_keys[KEY_LOADS], fetched_values[VALUE_LOADS];

// Loads what `put` writes to shared memory. Keys beyond the `count` repeat the last one: no load waits for a comparison.
void fetch(IDX at, uint count) {
  [[unroll]] for (uint i = 0; i < KEY_LOADS; i++) {
    uint e = thread + i * THREADS;
    fetched_keys[i] = k_at(k_base + (at + min(e / DEPTH4, count - 1)) * p.k_key, e % DEPTH4 * 4);
  }
  [[unroll]] for (uint i = 0; i < VALUE_LOADS; i++) {
    uint e = thread + i * THREADS;
    fetched_values[i] = v_at(v_base + (at + min(e / VALUES4, count - 1)) * p.v_key, e % VALUES4 * 4);
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
  LOOP for (uint d = 0; d < DEPTH4; d++) {
    vec4 q[ROWS];
    [[unroll]] for (uint i = 0; i < ROWS; i++) q[i] = queries_tile[row_thread + i * ROW_THREADS][d];
    [[unroll]] for (uint j = 0; j < KEYS_OF_THREAD; j++) {
      vec4 k = key_vector(at, min(column_thread + j * COLUMN_THREADS, last), d);
      [[unroll]] for (uint i = 0; i < ROWS; i++) {
        [[unroll]] for (uint c = 0; c < 4; c++) products[i][j] = MULTIPLY_ADD(SUM(q[i][c]), SUM(k[c]), products[i][j]);
      }
    }
  }
}

// The largest of what the threads of each query have.
void exchange_maxima(inout float largest[ROWS]) {
#if LANES > 1
  [[unroll]] for (uint i = 0; i < ROWS; i++) {
    [[unroll]] for (uint s = 1; s < LANES; s *= 2) largest[i] = max(largest[i], from_lane(largest[i], s));
  }
#endif
#if COLUMN_THREADS > LANES
  [[unroll]] for (uint i = 0; i < ROWS; i++) maxima[row_thread + i * ROW_THREADS][column_thread / LANES] = largest[i];
  barrier();
  [[unroll]] for (uint i = 0; i < ROWS; i++) {
    [[dont_unroll]] for (uint part = 0; part < PARTS; part++) {
      largest[i] = max(largest[i], maxima[row_thread + i * ROW_THREADS][part]);
    }
  }
#endif
}

// The sums of what the threads of each query have.
void exchange_totals(inout TOTAL total[ROWS]) {
#if LANES > 1
  [[unroll]] for (uint i = 0; i < ROWS; i++) {
    [[unroll]] for (uint s = 1; s < LANES; s *= 2) total[i] += from_lane(total[i], s);
  }
#endif
#if COLUMN_THREADS > LANES
  [[unroll]] for (uint i = 0; i < ROWS; i++) totals[row_thread + i * ROW_THREADS][column_thread / LANES] = total[i];
  barrier();
  [[unroll]] for (uint i = 0; i < ROWS; i++) {
    total[i] = TOTAL(0);
    [[dont_unroll]] for (uint part = 0; part < PARTS; part++) total[i] += totals[row_thread + i * ROW_THREADS][part];
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
      uint key = column_thread + j * COLUMN_THREADS;
      scores[i][j] = -F32_INF;
      if (row < p.queries && key < count) {
        scores[i][j] = score((score_base + row) * p.keys + at + key, float(products[i][j]));
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
      uint key = column_thread + j * COLUMN_THREADS;
      float weight = nx_exp(scores[i][j] - base);
      step_total += weight;
      if (row < p.queries && key < count) weight = WEIGHT((score_base + row) * p.keys + at + key, weight);
      weights_tile[row_thread + i * ROW_THREADS][key] = weight;
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
      vec4 value = value_vector(at, min(key, last), d);
      if (STAGED == 0 && key > last) value = vec4(0);
      [[unroll]] for (uint i = 0; i < ROWS; i++) {
        [[unroll]] for (uint c = 0; c < 4; c++) {
          sums[i][v][c] = MULTIPLY_ADD(SUM(w[i]), SUM(value[c]), sums[i][v][c]);
        }
      }
    }
  }
}

// Adds the sums of all slices of keys to those of the first, in their order.
void add_slices() {
#if COLUMN_THREADS > VALUE_THREADS
  [[unroll]] for (uint i = 0; i < ROWS; i++) {
    [[unroll]] for (uint v = 0; v < VECTORS; v++) {
      barrier();
      slice_sums[thread] = sums[i][v];
      barrier();
      if (column_thread < VALUE_THREADS) {
        [[dont_unroll]] for (uint slice = 1; slice < SLICES; slice++) {
          sums[i][v] += slice_sums[thread + slice * VALUE_THREADS];
        }
      }
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
      [[unroll]] for (uint c = 0; c < 4; c++) AT(SUM, p.sums, (at * VALUES4 + d) * 4 + c) = sums[i][v][c];
#else
      STORE_VALUES(c_batch(batch) + c_row(row), d * 4, MEAN(sums[i][v], total[i]));
#endif
    }
  }
}

void main() {
  IDX group = workgroup();
  if (group >= p.groups) return;
  IDX tiles = (p.queries + (QUERIES - 1)) / QUERIES;
  IDX split = SPLIT != 0 ? group % p.splits : 0, tile = SPLIT != 0 ? group / p.splits : group;
  IDX batch = tile / tiles, first = (tile - batch * tiles) * QUERIES;
  thread = INVOCATION;
  row_thread = thread / COLUMN_THREADS;
  column_thread = thread % COLUMN_THREADS;
  k_base = k_batch(batch);
  v_base = v_batch(batch);
  score_base = batch * p.queries;
  IDX q_base = q_batch(batch);
  [[dont_unroll]] for (uint e = thread; e < QUERIES * DEPTH4; e += THREADS) {
    uint row = e / DEPTH4, d = e % DEPTH4;
    queries_tile[row][d] = first + row < p.queries ? q_at(q_base + q_row(first + row), d * 4) : vec4(0);
  }
  [[unroll]] for (uint i = 0; i < ROWS; i++) {
    largest[i] = -F32_INF;
    total[i] = TOTAL(0);
    [[unroll]] for (uint v = 0; v < VECTORS; v++) sums[i][v] = SUM4(0);
  }
  IDX start = SPLIT != 0 ? split * p.chunk : 0, end = SPLIT != 0 ? min(p.keys, (split + 1) * p.chunk) : p.keys;
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
    barrier();
    SUM products[ROWS][KEYS_OF_THREAD];
    multiply(at, count, products);
    weigh(at, count, first, products);
    barrier();
    add_values(at, count);
#if STAGED
    barrier();
#endif
  }
  exchange_totals(total);
  add_slices();
  store(batch, split, first);
}

#endif
