// The results of attention from those of parts of the keys, each of which has for a query the largest score, the sum of exp(score - largest), and
// the sums of the values with these weights.
//
// Algorithm: both sums of each part are scaled to the largest score of all parts, and added up in the order of the parts.
// Domain: all numbers, as in attention.glsl.
// Error: that of the sums, an ulp for each exp, and half an ulp for each part.
// Source: T. Dao et al., "Flash-Decoding for long-context inference" (2023).
//
// The kernel defines
//   SPLITS                 how many parts there are,
//   VALUES                 elements of a value,
//   SUM, SUM4, TOTAL       the types of sums of products, four of them, and of sums of weights,
//   MEAN(sum, total)       the quotients of four sums, of type TOTAL4; that of one is SUM_OVER(sum, DIVISOR(total)), of type TOTAL,
//   PARTIAL_SUMS, PARTIAL_MAXIMA, PARTIAL_TOTALS   the buffers of what the parts have, part after part, whose rows of sums are whole vectors.

const uint VALUES4 = (VALUES + 3) / 4, PARTS_AT_ONCE = min(SPLITS, 8);

// The place of a part of one of so many queries; that of the last part for those beyond it.
IDX part_at(uint part, IDX query, IDX queries) { return min(part, SPLITS - 1) * queries + query; }

#ifdef ELEMENTS
// The prologue of a kernel that reads ELEMENTS elements of QUERIES queries as one row. It further defines
//   PROLOGUE_THREADS       its invocations,
//   QUERY_LANES            invocations of a subgroup that share a query's scales, a power of two; more than 1 needs lib/exchange.glsl,
//   SET_ELEMENT(i, x)      for the element i of the row, from x of type TOTAL.

// Elements of an invocation whose first parts are loaded before the scales are known.
const uint AHEAD = min((ELEMENTS + PROLOGUE_THREADS - 1) / PROLOGUE_THREADS, 2);

shared float scales[QUERIES * SPLITS];
shared TOTAL divisors[QUERIES];

// What the parts from `first` on have for an element of the row.
void load_parts(uint i, uint first, out SUM sums[PARTS_AT_ONCE]) {
  uint query = i / VALUES, d = i % VALUES;
  [[unroll]] for (uint part = 0; part < PARTS_AT_ONCE; part++) {
    sums[part] = AT(SUM, PARTIAL_SUMS, part_at(first + part, query, QUERIES) * (VALUES4 * 4) + d);
  }
}

const uint PARTS_OF_LANE = (SPLITS + QUERY_LANES - 1) / QUERY_LANES;

// The scales of a query's parts, and what its sums are divided by. Of each QUERY_LANES parts one is this lane's.
void find_scales(uint query, uint lane) {
  float largest = -F32_INF, maxima[PARTS_OF_LANE];
  TOTAL total = TOTAL(0), totals[PARTS_OF_LANE];
  [[unroll]] for (uint k = 0; k < PARTS_OF_LANE; k++) {
    IDX at = part_at(k * QUERY_LANES + lane, query, QUERIES);
    maxima[k] = AT(float, PARTIAL_MAXIMA, at);
    totals[k] = AT(TOTAL, PARTIAL_TOTALS, at);
    largest = max(largest, maxima[k]);
  }
#if QUERY_LANES > 1
  [[unroll]] for (uint s = 1; s < QUERY_LANES; s *= 2) largest = max(largest, from_lane(largest, s));
#endif
  largest = largest == -F32_INF ? 0.0f : largest;
  [[unroll]] for (uint k = 0; k < PARTS_OF_LANE; k++) {
    uint part = k * QUERY_LANES + lane;
    if (part < SPLITS) {
      float scale = nx_exp(maxima[k] - largest);
      scales[query * SPLITS + part] = scale;
      total += TOTAL(scale) * totals[k];
    }
  }
#if QUERY_LANES > 1
  [[unroll]] for (uint s = 1; s < QUERY_LANES; s *= 2) total += from_lane(total, s);
#endif
  if (lane == 0) divisors[query] = DIVISOR(total);
}

// Sets an element of the row from what its first parts have.
void combine_element(uint i, SUM sums[PARTS_AT_ONCE]) {
  uint query = i / VALUES;
  SUM sum = SUM(0);
  for (uint first = 0; first < SPLITS; first += PARTS_AT_ONCE) {
    if (first > 0) load_parts(i, first, sums);
    [[unroll]] for (uint part = 0; part < PARTS_AT_ONCE; part++) {
      if (first + part < SPLITS) sum += SUM(scales[query * SPLITS + first + part]) * sums[part];
    }
  }
  SET_ELEMENT(i, SUM_OVER(sum, divisors[query]));
}

void prologue() {
  SUM sums[AHEAD][PARTS_AT_ONCE];
  [[unroll]] for (uint k = 0; k < AHEAD; k++) {
    load_parts(min(INVOCATION + k * PROLOGUE_THREADS, ELEMENTS - 1), 0, sums[k]);
  }
  for (uint i = INVOCATION; i < QUERIES * QUERY_LANES; i += PROLOGUE_THREADS) find_scales(i / QUERY_LANES, i % QUERY_LANES);
  barrier();
  [[unroll]] for (uint k = 0; k < AHEAD; k++) {
    uint i = INVOCATION + k * PROLOGUE_THREADS;
    if (i < ELEMENTS) combine_element(i, sums[k]);
  }
  for (uint i = INVOCATION + AHEAD * PROLOGUE_THREADS; i < ELEMENTS; i += PROLOGUE_THREADS) {
    load_parts(i, 0, sums[0]);
    combine_element(i, sums[0]);
  }
}

#else

// The largest score of all parts, or 0 where all are -Inf.
float largest_score(IDX query, IDX queries) {
  float largest = -F32_INF;
  [[unroll]] for (uint part = 0; part < SPLITS; part++) {
    largest = max(largest, AT(float, PARTIAL_MAXIMA, part_at(part, query, queries)));
  }
  return largest == -F32_INF ? 0.0f : largest;
}

// Four sums. The macros of memory paste the name of a type, which SUM has to be replaced by first.
#define LOAD_SUMS(T, at) LOAD_VEC4(T, PARTIAL_SUMS, at)

// The result's four elements from 4·d on, of one of so many queries.
TOTAL4 combined(IDX query, uint d, IDX queries) {
  float largest = largest_score(query, queries);
  SUM4 sum = SUM4(0);
  TOTAL total = TOTAL(0);
  // Several parts at once, so that their loads overlap.
  [[dont_unroll]] for (uint first = 0; first < SPLITS; first += PARTS_AT_ONCE) {
    float maxima[PARTS_AT_ONCE];
    TOTAL totals[PARTS_AT_ONCE];
    SUM4 sums[PARTS_AT_ONCE];
    [[unroll]] for (uint part = 0; part < PARTS_AT_ONCE; part++) {
      IDX at = part_at(first + part, query, queries);
      maxima[part] = AT(float, PARTIAL_MAXIMA, at);
      totals[part] = AT(TOTAL, PARTIAL_TOTALS, at);
      sums[part] = LOAD_SUMS(SUM, at * VALUES4 + d);
    }
    [[unroll]] for (uint part = 0; part < PARTS_AT_ONCE; part++) {
      if (first + part >= SPLITS) break;
      float scale = nx_exp(maxima[part] - largest);
      total += TOTAL(scale) * totals[part];
      sum += SUM(scale) * sums[part];
    }
  }
  return MEAN(sum, total);
}
#endif
