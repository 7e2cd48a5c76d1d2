// The results of attention from those of parts of the keys, each of which has for a query the largest score, the sum of exp(score - largest), and
// the sums of the values with these weights.
//
// Algorithm: parts are taken eight at a time. Both sums of each are scaled to the largest score so far, and added to those of the parts before, which
//   are scaled down when a larger score comes.
// Domain: all numbers, as in attention.glsl.
// Error: that of the sums, an ulp for each exp, and half an ulp for each part and each time that the largest score changes.
// Source: T. Dao et al., "Flash-Decoding for long-context inference" (2023).
//
// The kernel defines
//   SPLITS                 how many parts there are,
//   VALUES                 elements of a value,
//   SUM, SUM4, TOTAL       the types of sums of products, four of them, and of sums of weights,
//   MEAN(sum, total)       the quotients of four sums, of type TOTAL4,
//   PARTIAL_SUMS, PARTIAL_MAXIMA, PARTIAL_TOTALS   the buffers of what the parts have, part after part, whose rows of sums are whole vectors.

const uint VALUES4 = (VALUES + 3) / 4, PARTS_AT_ONCE = min(SPLITS, 8);

// Four sums. The macros of memory paste the name of a type, which SUM has to be replaced by first.
#define LOAD_SUMS(T, at) LOAD_VEC4(T, PARTIAL_SUMS, at)

// The result's four elements from 4·d on, of one of so many queries.
TOTAL4 combined(IDX query, uint d, IDX queries) {
  float largest = -F32_INF;
  SUM4 sum = SUM4(0);
  TOTAL total = TOTAL(0);
  // Several parts at once, so that their loads overlap. Those beyond the last one repeat it, and are not added.
  [[dont_unroll]] for (uint first = 0; first < SPLITS; first += PARTS_AT_ONCE) {
    float maxima[PARTS_AT_ONCE];
    TOTAL totals[PARTS_AT_ONCE];
    SUM4 sums[PARTS_AT_ONCE];
    float next = largest;
    [[unroll]] for (uint part = 0; part < PARTS_AT_ONCE; part++) {
      IDX at = min(first + part, SPLITS - 1) * queries + query;
      maxima[part] = AT(float, PARTIAL_MAXIMA, at);
      totals[part] = AT(TOTAL, PARTIAL_TOTALS, at);
      sums[part] = LOAD_SUMS(SUM, at * VALUES4 + d);
    }
    [[unroll]] for (uint part = 0; part < PARTS_AT_ONCE; part++) next = max(next, maxima[part]);
    float base = next == -F32_INF ? 0.0f : next, scale = nx_exp(largest - base);
    largest = next;
    total *= TOTAL(scale);
    sum *= SUM(scale);
    [[unroll]] for (uint part = 0; part < PARTS_AT_ONCE; part++) {
      if (first + part >= SPLITS) break;
      scale = nx_exp(maxima[part] - base);
      total += TOTAL(scale) * totals[part];
      sum += SUM(scale) * sums[part];
    }
  }
  return MEAN(sum, total);
}
