// Writes or adds rows of updates to the slices of a tensor that indices choose. `targets` holds where each row goes; once
// sorted, the rows of one target are neighbours in their order, and `places` holds which row is where.
//
// The kernel that includes this defines, for KEYS, target_of(j): where row j goes. For the others it defines
//   place_of(target, k)  where element k of a row goes in the result,
//   VALUE                the type in which that is written, which for sums is theirs,
//   update_of(row, k)    element k of a row of updates, but for JOIN,
//   write(place, x)      a VALUE to the result,
// and for SUMS and JOIN
//   PARTS                how many VALUEs a sum is made of,
//   PART(b, i)           one of them in a buffer,
//   ZERO                 a VALUE,
//   element_of(place)    the tensor's element as a VALUE.

#define NONE ~0u
// What a thread loads EACH of stays in registers only without loops, and is on its way together only without branches: it
// also loads what it may not need.
#define REPEAT [[unroll]]

#if STAGE == KEYS
void run(IDX j) { AT(uint, p.targets, j) = uint(target_of(j)); }
#else
// Where a row goes; behind the rows, as where nothing was left, nowhere.
uint target_at(IDX j) {
  uint target = AT(uint, p.targets, min(j, p.rows - 1u));
  return j < p.rows ? target : NONE;
}

// Which row that is; behind the rows, the last one.
uint row_at(IDX j) {
#if STAGE == JOIN
  // What chunks left lies in the order of the targets.
  return uint(min(j, p.rows - 1u));
#else
  return AT(uint, p.places, min(j, p.rows - 1u));
#endif
}
#endif

#if STAGE == PUT
// The last row of a target wins.
void run(IDX t) {
  IDX j = t / p.width * EACH, k = t % p.width;
  uint targets[EACH + 1u];
  uint rows[EACH];
  VALUE x[EACH];
  REPEAT for (uint e = 0u; e <= EACH; e++) targets[e] = target_at(j + e);
  REPEAT for (uint e = 0u; e < EACH; e++) rows[e] = row_at(j + e);
  REPEAT for (uint e = 0u; e < EACH; e++) x[e] = update_of(rows[e], k);
  REPEAT for (uint e = 0u; e < EACH; e++)
    if (targets[e] != targets[e + 1u]) write(place_of(targets[e], k), x[e]);
}
#endif

// A thread sums one column of a chunk of rows. Targets whose rows are all within the chunk are finished. Of the others each
// chunk leaves two sums, or NONE: its head, of a target that began before it, and its tail, of one that begins in it and
// goes on after it. Those are the rows of the next pass, in the same order, where at most one NONE lies between two of
// a target: of a target that goes through a chunk the head alone is left.
#if STAGE == SUMS || STAGE == JOIN

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
#if STAGE == SUMS
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
  IDX place;
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
      write(open.place, finished(open.sum));
    }
  }
}

void run(IDX t) {
  IDX i = t / p.width, k = t % p.width, begin = i * p.chunk, end = min(begin + p.chunk, p.rows);
  // Where no row is before the first one, its place wraps around to behind the last.
  Chunk chunk = Chunk(i, target_at(begin - 1u), target_at(begin - 2u), target_at(end), target_at(end + 1u), NONE, NONE);
  Open open = Open(NONE, 0, ZERO, sum_of(ZERO));
  for (IDX j = begin; j < end; j += EACH) {
    uint targets[EACH];
    uint rows[EACH];
    IDX places[EACH];
    VALUE elements[EACH];
    Sum terms[EACH];
    uint all = NONE;
    REPEAT for (uint e = 0u; e < EACH; e++) {
      uint next = target_at(j + e);
      targets[e] = j + e < end ? next : NONE;
      all &= targets[e];
    }
    REPEAT for (uint e = 0u; e < EACH; e++) rows[e] = row_at(j + e);
    if (all == NONE) continue;
    REPEAT for (uint e = 0u; e < EACH; e++) {
      terms[e] = term_of(rows[e], k);
      places[e] = place_of(targets[e] == NONE ? 0u : targets[e], k);
      elements[e] = element_of(places[e]);
    }
    REPEAT for (uint e = 0u; e < EACH; e++) {
      if (targets[e] == NONE) continue;
      if (targets[e] != open.target) {
        close(chunk, open, k);
        open = Open(targets[e], places[e], elements[e], sum_of(ZERO));
      }
      add(open.sum, terms[e]);
    }
  }
  close(chunk, open, k);
  if (k == 0) {
    AT(uint, p.left, 2u * i) = chunk.head;
    AT(uint, p.left, 2u * i + 1u) = chunk.tail;
  }
}
#endif

void main() {
  IDX group = workgroup();
  IDX t = group * THREADS + INVOCATION;
  if (t < p.threads) run(t);
}
