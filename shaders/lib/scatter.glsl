// Writes or adds rows of updates to the slices of a tensor that indices choose. `targets` holds where each row goes; once
// sorted, the rows of one target are neighbours in their order, and `places` holds which row is where.
//
// The kernel that includes this defines: for KEYS TARGET(j), where row j goes; for the others PLACE(target, k), where an
// element of a row goes in the result, and WRITE(place, row, k), which puts it there, or UPDATE(row, k), the element as
// the accumulator's type, and what starts, adds to, saves and loads accumulators and FLUSHes them to the result.

#if STAGE != KEYS
uint target_at(IDX j) { return AT(uint, p.targets, j); }
uint row_at(IDX j) { return AT(uint, p.places, j); }
#endif

#if STAGE == KEYS
void run(IDX j) { AT(uint, p.targets, j) = uint(TARGET(j)); }
#endif

#if STAGE == PUT
// The last row of a target wins.
void run(IDX t) {
  IDX j = t / p.width, k = t % p.width;
  uint target = target_at(j);
  if (j + 1 < p.rows && target_at(j + 1) == target) return;
  WRITE(PLACE(target, k), row_at(j), k);
}
#endif

// A thread sums one column of a chunk of rows. Targets whose rows are all within the chunk are finished; of one that
// began before it goes to `head`, and of one that begins in it and goes on after it to `tail`.
#if STAGE == SUMS
void run(IDX t) {
  IDX chunk = t / p.width, k = t % p.width;
  IDX j = chunk * p.chunk, end = min(j + p.chunk, p.rows);
  bool began_before = j > 0 && target_at(j - 1) == target_at(j);
  while (j < end) {
    uint target = target_at(j);
    START
    for (; j < end && target_at(j) == target; j++) { ADD(UPDATE(row_at(j), k)) }
    if (began_before) {
      SAVE(head, t)
    } else if (j == end && end < p.rows && target_at(end) == target) {
      SAVE(tail, t)
    } else {
      FLUSH(PLACE(target, k))
    }
    began_before = false;
  }
}
#endif

// A thread takes up the tail of its chunk and adds the heads of the chunks that the target's rows go on in.
#if STAGE == JOIN
void run(IDX t) {
  IDX chunk = t / p.width, k = t % p.width;
  IDX first = chunk * p.chunk, end = first + p.chunk;
  if (end >= p.rows) return;
  uint target = target_at(end - 1);
  bool goes_on = target_at(end) == target;
  bool begins_here = target_at(first) != target || first == 0 || target_at(first - 1) != target;
  if (!goes_on || !begins_here) return;
  START
  LOAD(tail, t)
  for (IDX place = t; goes_on; ) {
    place += p.width;
    ADD_SAVED(head, place)
    end += p.chunk;
    goes_on = end < p.rows && target_at(end - 1) == target && target_at(end) == target;
  }
  FLUSH(PLACE(target, k))
}
#endif

void main() {
  IDX group = workgroup();
  IDX t = group * THREADS + INVOCATION;
  if (t < p.threads) run(t);
}
