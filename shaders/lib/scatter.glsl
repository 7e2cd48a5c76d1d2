// Writes or adds rows of updates to the slices of a tensor that indices choose. p.targets holds the slice of each row; once sorted,
// the rows of one slice, which is their target, are neighbours in their order, and p.order holds which row of the updates each is.
//
// Domain: fewer than 2^32 - 1 targets, up to 2^30 rows. Error: sums are those of a tree over the rows of a target, in chunks, whose
// nodes are as exact as combine_sum (lib/reduce.glsl): one order on every run.
//
// The kernel that includes this defines one of KEYS, PUT, SUMS and JOIN, and THREADS, the size of a workgroup. For KEYS it defines
//   target_of(j)          the target of row j,
// and for the others
//   IN_FLIGHT             the rows that a thread loads before it uses the first,
//   offset_of(target, k)  where element k of a row goes in the result,
//   VALUE                 the type in which that is written, which for sums is theirs,
//   update_of(row, k)     element k of a row of updates, but for JOIN,
//   write(offset, x)      a VALUE to the result,
// and for SUMS and JOIN
//   PARTS                 how many VALUEs a sum is made of,
//   PART(b, i)            one of them in a buffer,
//   ZERO                  a VALUE,
//   element_of(offset)    the tensor's element as a VALUE.

#define NONE ~0u
// What a thread loads of IN_FLIGHT rows stays in registers only without loops, and is in flight at once only without branches: it
// also loads what it may not need.
#define REPEAT [[unroll]]

#ifdef KEYS
void run(IDX j) { AT(uint, p.targets, j) = uint(target_of(j)); }
#else
// The target of a row: NONE behind the rows, and where a chunk left no sum.
uint target_at(IDX j) {
  uint target = AT(uint, p.targets, min(j, p.rows - 1u));
  return j < p.rows ? target : NONE;
}

// The position of that row's elements; behind the rows, that of the last one.
uint row_at(IDX j) {
#ifdef JOIN
  // What chunks left lies in the order of the targets.
  return uint(min(j, p.rows - 1u));
#else
  return AT(uint, p.order, min(j, p.rows - 1u));
#endif
}
#endif

#ifdef PUT
// The last row of a target wins.
void run(IDX t) {
  IDX j = t / p.width * IN_FLIGHT, k = t % p.width;
  uint targets[IN_FLIGHT + 1u];
  uint rows[IN_FLIGHT];
  VALUE x[IN_FLIGHT];
  REPEAT for (uint e = 0u; e <= IN_FLIGHT; e++) targets[e] = target_at(j + e);
  REPEAT for (uint e = 0u; e < IN_FLIGHT; e++) rows[e] = row_at(j + e);
  REPEAT for (uint e = 0u; e < IN_FLIGHT; e++) x[e] = update_of(rows[e], k);
  REPEAT for (uint e = 0u; e < IN_FLIGHT; e++)
    if (targets[e] != targets[e + 1u]) write(offset_of(targets[e], k), x[e]);
}
#endif

// A thread sums one column of a chunk of rows. Targets with all of their rows in the chunk are finished. Of the others each
// chunk leaves two open sums, or NONE: its head, of a target that began before it, and its tail, of one that begins in it and
// goes on after it. Those are the rows of the next pass, in the same order, where at most one NONE lies between two of
// a target: of a target that goes through a chunk the head alone is left.
#if defined(SUMS) || defined(JOIN)

#if PARTS == 1
struct Sum { VALUE sum; };
Sum sum_of(VALUE x) { return Sum(x); }
void add(inout Sum a, Sum x) { combine_sum(a.sum, x.sum); }
VALUE finished(Sum a) { return a.sum; }
void leave(IDX i, Sum a) { PART(p.to0, i) = a.sum; }
#else
// `rest` is what rounding dropped from `sum`.
struct Sum { VALUE sum, rest; };
Sum sum_of(VALUE x) { return Sum(x, ZERO); }
void add(inout Sum a, Sum x) { combine_sum(a.sum, a.rest, x.sum, x.rest); }
VALUE finished(Sum a) { return finish_sum(a.sum, a.rest); }
void leave(IDX i, Sum a) { PART(p.to0, i) = a.sum; PART(p.to1, i) = a.rest; }
#endif

// What element k of a row adds.
Sum term_of(uint row, IDX k) {
#ifdef SUMS
  return sum_of(update_of(row, k));
#elif PARTS == 1
  return Sum(PART(p.from0, IDX(row) * p.width + k));
#else
  return Sum(PART(p.from0, IDX(row) * p.width + k), PART(p.from1, IDX(row) * p.width + k));
#endif
}

// The targets of the two rows before a chunk, of which one may be NONE, and of the two after it; and what it leaves.
struct Chunk {
  IDX i;
  uint before, before_that, after, after_that;
  uint head, tail;
};

// The target whose rows a thread is at, if any, and its sum so far.
struct Open {
  uint target;
  IDX offset;
  VALUE element;
  Sum sum;
};

// Finishes a target, or leaves its sum to the next pass.
void close(inout Chunk chunk, Open open, IDX k) {
  uint target = open.target;
  if (target != NONE) {
    if (target == chunk.before || target == chunk.before_that) {
      chunk.head = target;
      leave(2u * chunk.i * p.width + k, open.sum);
    } else if (target == chunk.after || target == chunk.after_that) {
      chunk.tail = target;
      leave((2u * chunk.i + 1u) * p.width + k, open.sum);
    } else {
      add(open.sum, sum_of(open.element));
      write(open.offset, finished(open.sum));
    }
  }
}

void run(IDX t) {
  IDX i = t / p.width, k = t % p.width, begin = i * p.chunk, end = min(begin + p.chunk, p.rows);
  // Where no row is before the first one, its position wraps around to behind the last.
  Chunk chunk = Chunk(i, target_at(begin - 1u), target_at(begin - 2u), target_at(end), target_at(end + 1u), NONE, NONE);
  Open open = Open(NONE, 0, ZERO, sum_of(ZERO));
  for (IDX j = begin; j < end; j += IN_FLIGHT) {
    uint targets[IN_FLIGHT];
    uint rows[IN_FLIGHT];
    IDX offsets[IN_FLIGHT];
    VALUE elements[IN_FLIGHT];
    Sum terms[IN_FLIGHT];
    uint all = NONE;
    REPEAT for (uint e = 0u; e < IN_FLIGHT; e++) {
      uint next = target_at(j + e);
      targets[e] = j + e < end ? next : NONE;
      all &= targets[e];
    }
    REPEAT for (uint e = 0u; e < IN_FLIGHT; e++) rows[e] = row_at(j + e);
    if (all == NONE) continue;
    REPEAT for (uint e = 0u; e < IN_FLIGHT; e++) {
      terms[e] = term_of(rows[e], k);
      offsets[e] = offset_of(targets[e] == NONE ? 0u : targets[e], k);
      elements[e] = element_of(offsets[e]);
    }
    REPEAT for (uint e = 0u; e < IN_FLIGHT; e++) {
      if (targets[e] == NONE) continue;
      if (targets[e] != open.target) {
        close(chunk, open, k);
        open = Open(targets[e], offsets[e], elements[e], sum_of(ZERO));
      }
      add(open.sum, terms[e]);
    }
  }
  close(chunk, open, k);
  if (k == 0) {
    AT(uint, p.to_targets, 2u * i) = chunk.head;
    AT(uint, p.to_targets, 2u * i + 1u) = chunk.tail;
  }
}
#endif

void main() {
  IDX group = workgroup();
  IDX t = group * THREADS + INVOCATION;
  if (t < p.threads) run(t);
}
