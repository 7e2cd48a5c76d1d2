// Writes or adds rows of updates to the slices of a tensor that indices choose. `targets` holds where each row goes; once
// sorted, the rows of one target are neighbours in their order, and `places` holds which row is where.
//
// The kernel that includes this defines: for KEYS target_of(j), where row j goes; for the others PLACE(target, k), where an
// element of a row goes in the result; for PUT the type UPDATE of an element, update_of(row, k), and WRITE(place, x). For SUMS
// and JOIN the type SUM of sums, target_of(place), the tensor's element as one, TERMS, the terms of EACH rows, and
// what LOADs those, STARTs, RESETs, ADDs to, SAVEs and FLUSHes to the result the sum.

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
#endif

#if STAGE == PUT || STAGE == SUMS
uint row_at(IDX j) { return AT(uint, p.places, min(j, p.rows - 1u)); }
#endif

#if STAGE == PUT
// The last row of a target wins.
void run(IDX t) {
  IDX j = t / p.width * EACH, k = t % p.width;
  uint targets[EACH + 1u];
  uint rows[EACH];
  UPDATE x[EACH];
  REPEAT for (uint e = 0u; e <= EACH; e++) targets[e] = target_at(j + e);
  REPEAT for (uint e = 0u; e < EACH; e++) rows[e] = row_at(j + e);
  REPEAT for (uint e = 0u; e < EACH; e++) x[e] = update_of(rows[e], k);
  REPEAT for (uint e = 0u; e < EACH; e++)
    if (targets[e] != targets[e + 1u]) WRITE(PLACE(targets[e], k), x[e]);
}
#endif

// A thread sums one column of a chunk of rows. Targets whose rows are all within the chunk are finished. Of the others each
// chunk leaves two sums, or NONE: its head, of a target that began before it, and its tail, of one that begins in it and
// goes on after it. Those are the rows of the next pass, in the same order, where at most one NONE lies between two of
// a target: of a target that goes through a chunk the head alone is left.
#if STAGE == SUMS || STAGE == JOIN
#define CLOSE \
  if (target != NONE) { \
    if (target == before || target == before_that) { head = target; SAVE(2u * chunk) } \
    else if (target == after || target == after_that) { tail = target; SAVE(2u * chunk + 1u) } \
    else FLUSH(place, old) \
  }

void run(IDX t) {
  IDX chunk = t / p.width, k = t % p.width, begin = chunk * p.chunk, end = min(begin + p.chunk, p.rows), place = 0;
  uint before = target_at(begin - 1u), before_that = target_at(begin - 2u);
  uint after = target_at(end), after_that = target_at(end + 1u);
  uint target = NONE, head = NONE, tail = NONE;
  SUM old;
  START
  for (IDX j = begin; j < end; j += EACH) {
    uint targets[EACH];
    IDX places[EACH];
    SUM olds[EACH];
    TERMS
    uint all = NONE;
    REPEAT for (uint e = 0u; e < EACH; e++) {
      uint next = target_at(j + e);
      targets[e] = j + e < end ? next : NONE;
      all &= targets[e];
    }
#if STAGE == SUMS
    uint rows[EACH];
    REPEAT for (uint e = 0u; e < EACH; e++) rows[e] = row_at(j + e);
#endif
    if (all == NONE) continue;
    REPEAT for (uint e = 0u; e < EACH; e++) {
      LOAD(e, min(j + e, p.rows - 1u))
      places[e] = PLACE(targets[e] == NONE ? 0u : targets[e], k);
      olds[e] = target_of(places[e]);
    }
    REPEAT for (uint e = 0u; e < EACH; e++) {
      if (targets[e] == NONE) continue;
      if (targets[e] != target) {
        CLOSE
        RESET
        target = targets[e];
        place = places[e];
        old = olds[e];
      }
      ADD(e)
    }
  }
  CLOSE
  if (k == 0) {
    AT(uint, p.left, 2u * chunk) = head;
    AT(uint, p.left, 2u * chunk + 1u) = tail;
  }
}
#endif

void main() {
  IDX group = workgroup();
  IDX t = group * THREADS + INVOCATION;
  if (t < p.threads) run(t);
}
