// Prefix sums, products, maxima or minima along rows, in chunks: the total of each chunk, the totals' own prefixes, and the
// elements' prefixes on top of those (the "reduce, then scan" of G. Blelloch, "Prefix sums and their applications", 1990). Within
// a workgroup the threads of a row scan their totals in log2(ROW_THREADS) steps (W. D. Hillis, G. L. Steele, "Data parallel
// algorithms", 1986).
//
// Domain: rows of any length, p.stride elements apart; a row in reverse begins at its last element, with the stride's two's complement.
// Error: that of join(). Sums have one order on every run: within a thread from left to right, then by the tree.
//
// A workgroup takes GROUP_ROWS rows, and one chunk of each: ROW_THREADS threads a row, ITEMS consecutive elements a thread, tile after
// tile. The kernel defines these and
//   CONTIGUOUS       whether the elements of a row are neighbours: neighbouring threads share a row then, else an index,
//   ACC              the accumulator, with identity() and join(a, b),
//   LOAD(i)          an element as an ACC,
//   STORE(i, prefix) its prefix,
//   TOTAL(i)         the total of a chunk; p.chunks follow each other for each row,
// and one of
//   TOTALS           writes the total of each chunk,
//   PREFIXES         writes the prefix of each element; with CARRY on top of the prefix of the chunk before.
// RELOAD: there are too many ITEMS for registers, so they are loaded twice.

shared ACC thread_totals[GROUP_ROWS * ROW_THREADS];

void main() {
  IDX group = workgroup();
  if (group >= p.groups) return;
  uint local = INVOCATION;
  uint group_row = CONTIGUOUS ? local / ROW_THREADS : local % GROUP_ROWS;
  uint thread = CONTIGUOUS ? local % ROW_THREADS : local / GROUP_ROWS;
  // The distance between neighbouring threads of a row in shared memory.
  const uint neighbour = CONTIGUOUS ? 1u : GROUP_ROWS;
  IDX chunk = group % p.chunks, row = (group / p.chunks) * GROUP_ROWS + group_row;
  bool in_bounds = row < p.rows;
  IDX start = (row / p.inner) * (p.n * p.inner) + row % p.inner + p.first;
  IDX begin = chunk * p.chunk, end = min(begin + p.chunk, p.n);
  ACC carry = identity();
#ifdef CARRY
  if (in_bounds && chunk > 0) carry = TOTAL(row * p.chunks + chunk - 1);
#endif
  for (IDX tile = begin; tile < end; tile += ROW_THREADS * ITEMS) {
    IDX i = tile + thread * ITEMS;
    ACC total = identity();
#ifdef RELOAD
    IDX last = in_bounds ? min(i + ITEMS, end) : i;
    for (IDX k = i; k < last; ++k) total = join(total, LOAD(start + k * p.stride));
#else
    ACC items[ITEMS];
    for (uint k = 0u; k < ITEMS; ++k) {
      if (in_bounds && i + k < end) total = join(total, LOAD(start + (i + k) * p.stride));
      items[k] = total;
    }
#endif
    ACC before = carry;
    if (ROW_THREADS > 1u) {
      thread_totals[local] = total;
      barrier();
      [[dont_unroll]] for (uint distance = 1u; distance < ROW_THREADS; distance *= 2u) {
        if (thread >= distance) total = join(thread_totals[local - distance * neighbour], total);
        barrier();
        thread_totals[local] = total;
        barrier();
      }
      if (thread > 0u) before = join(carry, thread_totals[local - neighbour]);
      carry = join(carry, thread_totals[local + (ROW_THREADS - 1u - thread) * neighbour]);
      barrier();
    } else {
      carry = join(carry, total);
    }
#if defined(PREFIXES) && defined(RELOAD)
    for (IDX k = i; k < last; ++k) {
      before = join(before, LOAD(start + k * p.stride));
      STORE(start + k * p.stride, before);
    }
#elif defined(PREFIXES)
    for (uint k = 0u; k < ITEMS; ++k) {
      if (in_bounds && i + k < end) STORE(start + (i + k) * p.stride, join(before, items[k]));
    }
#endif
  }
#ifdef TOTALS
  if (in_bounds && thread == 0u) TOTAL(row * p.chunks + chunk) = carry;
#endif
}
