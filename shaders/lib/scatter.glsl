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
//   COLUMNS               the neighbours in a row that a thread takes: p.vectors times as many are a row. JOIN takes one,
//   offset_of(target, k)  where element k of a row goes in the result,
//   VALUE                 the type in which that is written, which for sums is theirs,
//   UPDATES               COLUMNS elements of updates as they are stored, but for JOIN,
//   updates_at(row, v)    vector v of a row of updates, but for JOIN,
//   update_of(x, c)       element c of UPDATES as a VALUE, but for JOIN,
//   write(offset, x)      COLUMNS VALUEs to the result,
// and for SUMS and JOIN
//   PARTS                 how many VALUEs a sum is made of,
//   PART(b, i)            one of them in a buffer,
//   ZERO                  a VALUE,
//   ELEMENTS              COLUMNS elements of the tensor as they are stored,
//   elements_at(offset)   those at an offset,
//   element_of(x, c)      element c of ELEMENTS as a VALUE.
// SUMS also takes REACH, a multiple of IN_FLIGHT and no longer than a chunk.

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
  IDX j = t / p.vectors * IN_FLIGHT, v = t % p.vectors;
  uint targets[IN_FLIGHT + 1u];
  uint rows[IN_FLIGHT];
  UPDATES x[IN_FLIGHT];
  REPEAT for (uint e = 0u; e <= IN_FLIGHT; e++) targets[e] = target_at(j + e);
  REPEAT for (uint e = 0u; e < IN_FLIGHT; e++) rows[e] = row_at(j + e);
  REPEAT for (uint e = 0u; e < IN_FLIGHT; e++) x[e] = updates_at(rows[e], v);
  REPEAT for (uint e = 0u; e < IN_FLIGHT; e++) {
    if (targets[e] == targets[e + 1u]) continue;
    VALUE values[COLUMNS];
    REPEAT for (uint c = 0u; c < COLUMNS; c++) values[c] = update_of(x[e], c);
    write(offset_of(targets[e], v * COLUMNS), values);
  }
}
#endif

// A thread sums COLUMNS columns of a chunk of rows. Targets with all of their rows in the chunk are finished, and so is the one whose rows
// begin in it and go on for up to REACH rows behind it. Of the others each chunk leaves two open sums, or NONE: its head, of a
// target that began before it, and its tail, of one that begins in it and goes on after it. Those are the rows of the next
// pass, in the same order, where at most one NONE lies between two of a target: of a target that goes through a chunk the head
// alone is left. In the passes over open sums no chunk takes rows behind it: each stands for many of the updates'.
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

// What a row adds, as it is stored, and element c of it.
#ifdef SUMS
#define TERMS UPDATES
TERMS terms_at(uint row, IDX v) { return updates_at(row, v); }
Sum term_of(TERMS x, uint c) { return sum_of(update_of(x, c)); }
#else
#define TERMS Sum
TERMS terms_at(uint row, IDX v) {
#if PARTS == 1
  return Sum(PART(p.from0, IDX(row) * p.vectors + v));
#else
  return Sum(PART(p.from0, IDX(row) * p.vectors + v), PART(p.from1, IDX(row) * p.vectors + v));
#endif
}
Sum term_of(TERMS x, uint c) { return x; }
#endif

// The rows of a chunk, and what it leaves of them.
struct Chunk {
  IDX i, begin, end;
  // The targets whose sums it leaves open as its head and as its tail: in a pass over open sums one of two may be NONE.
  uint heads[2], tails[2];
  // The target whose first rows in the chunk belong to the chunk before, and the one whose rows behind the chunk belong to it.
  uint given, taken;
  uint head, tail;
};

// Whether the chunk before a boundary finishes the sum of the rows on both sides of it: they begin in that chunk, and end soon.
bool is_taken(IDX boundary) {
#ifdef SUMS
  uint target = target_at(boundary);
  return target == target_at(boundary - 1u) && target != target_at(boundary - 1u - p.chunk) &&
         target != target_at(boundary + REACH);
#else
  return false;
#endif
}

Chunk chunk_of(IDX i) {
  // Where no row is before the first one, its position wraps around to behind the last.
  IDX begin = i * p.chunk, end = begin + p.chunk;
  bool given = is_taken(begin), taken = is_taken(end);
  Chunk chunk;
  chunk.i = i;
  chunk.begin = begin;
  chunk.end = end;
  chunk.given = given ? target_at(begin) : NONE;
  chunk.taken = taken ? target_at(end) : NONE;
  chunk.heads = uint[2](target_at(begin - 1u), target_at(begin - 2u));
  chunk.tails = uint[2](target_at(end), target_at(end + 1u));
  if (taken) chunk.tails = uint[2](NONE, NONE);
  chunk.head = NONE;
  chunk.tail = NONE;
  return chunk;
}

// The target whose rows a thread is at, if any, and its sums so far.
struct Open {
  uint target;
  IDX offset;
  ELEMENTS elements;
  Sum sums[COLUMNS];
};

// Finishes a target, or leaves its sums to the next pass.
void close(inout Chunk chunk, Open open, IDX k) {
  uint target = open.target;
  if (target == NONE) return;
  bool head = target == chunk.heads[0] || target == chunk.heads[1];
  bool tail = !head && (target == chunk.tails[0] || target == chunk.tails[1]);
  if (head || tail) {
    if (head) chunk.head = target;
    else chunk.tail = target;
    IDX to = (2u * chunk.i + (head ? 0u : 1u)) * p.width + k;
    REPEAT for (uint c = 0u; c < COLUMNS; c++) leave(to + c, open.sums[c]);
  } else {
    VALUE values[COLUMNS];
    REPEAT for (uint c = 0u; c < COLUMNS; c++) {
      add(open.sums[c], sum_of(element_of(open.elements, c)));
      values[c] = finished(open.sums[c]);
    }
    write(open.offset, values);
  }
}

void run(IDX t) {
  IDX v = t % p.vectors, k = v * COLUMNS;
  Chunk chunk = chunk_of(t / p.vectors);
  Open open;
  open.target = NONE;
  IDX stop = min(chunk.taken == NONE ? chunk.end : chunk.end + REACH, p.rows);
  for (IDX j = chunk.begin; j < stop; j += IN_FLIGHT) {
    uint targets[IN_FLIGHT];
    uint rows[IN_FLIGHT];
    uint all = NONE;
    REPEAT for (uint e = 0u; e < IN_FLIGHT; e++) targets[e] = target_at(j + e);
    REPEAT for (uint e = 0u; e < IN_FLIGHT; e++) rows[e] = row_at(j + e);
    REPEAT for (uint e = 0u; e < IN_FLIGHT; e++) {
      bool has = targets[e] != chunk.given && (j + e < chunk.end || targets[e] == chunk.taken);
      // What is not the chunk's is loaded as well, from where a neighbour loads.
      if (!has) {
        targets[e] = NONE;
        rows[e] = rows[0];
      }
      all &= targets[e];
    }
    if (all == NONE) continue;
    IDX offsets[IN_FLIGHT];
    ELEMENTS elements[IN_FLIGHT];
    TERMS terms[IN_FLIGHT];
    REPEAT for (uint e = 0u; e < IN_FLIGHT; e++) {
      terms[e] = terms_at(rows[e], v);
      offsets[e] = offset_of(targets[e] == NONE ? 0u : targets[e], k);
      elements[e] = elements_at(offsets[e]);
    }
    REPEAT for (uint e = 0u; e < IN_FLIGHT; e++) {
      if (targets[e] == NONE) continue;
      if (targets[e] != open.target) {
        close(chunk, open, k);
        open.target = targets[e];
        open.offset = offsets[e];
        open.elements = elements[e];
        REPEAT for (uint c = 0u; c < COLUMNS; c++) open.sums[c] = sum_of(ZERO);
      }
      REPEAT for (uint c = 0u; c < COLUMNS; c++) add(open.sums[c], term_of(terms[e], c));
    }
  }
  close(chunk, open, k);
  if (v == 0) {
    AT(uint, p.to_targets, 2u * chunk.i) = chunk.head;
    AT(uint, p.to_targets, 2u * chunk.i + 1u) = chunk.tail;
  }
}
#endif

void main() {
  IDX group = workgroup();
  IDX t = group * THREADS + INVOCATION;
  if (t < p.threads) run(t);
}
