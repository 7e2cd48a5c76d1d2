// Prefix sums, products, maxima or minima along an axis, in chunks: the total of each chunk, the totals' own prefixes, and
// the elements on top of those (the "reduce, then scan" of G. Blelloch, "Prefix sums and their applications", 1990).
//
// A workgroup takes ACROSS rows side by side, and one chunk of each: ALONG threads a row, ITEMS consecutive elements a
// thread, tile after tile. The kernel defines these, ALONG_FIRST (whether neighbouring threads share a row or an index),
// ACC with identity() and join(a, b), LOAD(at), STORE(at, sum), PARTIAL(at), and one of
//   TOTALS    writes each chunk's total as PARTIAL
//   PREFIXES  writes each element's prefix; CARRY: on top of the prefix of the chunk before
// RELOADS: ITEMS are many, and loaded twice.

shared ACC terms[ACROSS * ALONG];

void main() {
  IDX group = workgroup();
  if (group >= p.groups) return;
  uint lane = INVOCATION;
  uint r = ALONG_FIRST ? lane / ALONG : lane % ACROSS, y = ALONG_FIRST ? lane % ALONG : lane / ACROSS;
  const uint step = ALONG_FIRST ? 1u : ACROSS;
  IDX chunk = group % p.chunks, row = (group / p.chunks) * ACROSS + r;
  bool has = row < p.rows;
  // Backwards, the stride's two's complement is added.
  IDX start = (row / p.inner) * (p.n * p.inner) + row % p.inner + p.start;
  IDX begin = chunk * p.chunk, end = min(begin + p.chunk, p.n);
  ACC carry = identity();
#ifdef CARRY
  if (has && chunk > 0) carry = PARTIAL(row * p.chunks + chunk - 1);
#endif
  for (IDX tile = begin; tile < end; tile += ALONG * ITEMS) {
    IDX i = tile + y * ITEMS;
    ACC sum = identity();
#ifdef RELOADS
    IDX last = has ? min(i + ITEMS, end) : i;
    for (IDX k = i; k < last; ++k) sum = join(sum, LOAD(start + k * p.step));
#else
    ACC items[ITEMS];
    for (uint k = 0u; k < ITEMS; ++k) {
      if (has && i + k < end) sum = join(sum, LOAD(start + (i + k) * p.step));
      items[k] = sum;
    }
#endif
    ACC before = carry;
    if (ALONG > 1u) {
      // Over the threads of a row (W. D. Hillis, G. L. Steele, "Data parallel algorithms", 1986).
      terms[lane] = sum;
      barrier();
      [[dont_unroll]] for (uint d = 1u; d < ALONG; d *= 2u) {
        if (y >= d) sum = join(terms[lane - d * step], sum);
        barrier();
        terms[lane] = sum;
        barrier();
      }
      if (y > 0u) before = join(carry, terms[lane - step]);
      carry = join(carry, terms[lane + (ALONG - 1u - y) * step]);
      barrier();
    } else {
      carry = join(carry, sum);
    }
#if defined(PREFIXES) && defined(RELOADS)
    for (IDX k = i; k < last; ++k) {
      before = join(before, LOAD(start + k * p.step));
      STORE(start + k * p.step, before);
    }
#elif defined(PREFIXES)
    for (uint k = 0u; k < ITEMS; ++k) {
      if (has && i + k < end) STORE(start + (i + k) * p.step, join(before, items[k]));
    }
#endif
  }
#ifdef TOTALS
  if (has && y == 0u) PARTIAL(row * p.chunks + chunk) = carry;
#endif
}
