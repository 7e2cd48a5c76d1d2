// The first `keep` elements of each piece of a row in their order, without sorting the rest: what may be among them is
// gathered in shared memory and, when that is full, sorted by a bitonic network and cut to the first of it; the last one
// kept bounds what comes later (J. Johnson, M. Douze, H. Jegou, "Billion-scale similarity search with GPUs", 2017, section
// 4). Elements that are equal have the order of their indices, so that no two are alike and none of this need be stable.
//
// The kernel defines what sort/key.glsl asks for, THREADS, ITEMS (the elements of a thread at once), ROOM (a power of two,
// at least THREADS and THREADS * ITEMS + p.keep), and WRITE(to, from, i): element i of the row goes there. With ONE_SUBGROUP a
// workgroup is one subgroup. With MERGED the last workgroup of a row that is done selects from what all have left: LEFT(i) is
// an element of that and ARRIVALS(row) the number of workgroups that are done, both coherent, and WRITE_MERGED(to, from) takes
// what was left to the result, whose rows alternate by p.inner_merged.

#include "lib/sort/key.glsl"

shared RAW keys[ROOM];
shared uint indices[ROOM];

// START lets threads gather behind the first `count`, COUNT tells them how many there are then.
#ifdef ONE_SUBGROUP
#define BARRIER subgroupBarrier
#define START(count)
#define COUNT(count)

// Gathers what threads have, in their order.
void gather(bool has, RAW key, uint i, inout uint count) {
  uvec4 ballot = subgroupBallot(has);
  if (has) {
    uint to = count + subgroupBallotExclusiveBitCount(ballot);
    keys[to] = key;
    indices[to] = i;
  }
  count += subgroupBallotBitCount(ballot);
}
#else
shared uint gathered;

#define BARRIER barrier
#define START(count) if (INVOCATION == 0u) gathered = count; barrier()
#define COUNT(count) barrier(); count = gathered; barrier()

// Gathers what threads have, in any order.
void gather(bool has, RAW key, uint i, inout uint count) {
  if (!has) return;
  uint to = atomicAdd(gathered, 1u);
  keys[to] = key;
  indices[to] = i;
}
#endif

#ifdef MERGED
bool merging = false;
shared bool is_last;
#endif

RAW key_at(IDX row, uint i) {
#ifdef MERGED
  if (merging) return key_of(RAW(LEFT(position(row, i, 1, p.pieces * p.keep))));
#endif
  return key_of(RAW(AT(STORED, p.source, position(row, i, p.inner, p.n))));
}

bool before(RAW a, uint i, RAW b, uint j) { return key_less(a, b) || (a == b && i < j); }

// Sorts the first `count` of what is gathered.
void sort(uint thread, uint count) {
  uint size = 1u;
  while (size < count) size *= 2u;
  for (uint e = count + thread; e < size; e += THREADS) {
    keys[e] = LAST;
    indices[e] = ~0u;
  }
  for (uint width = 2u; width <= size; width *= 2u) {
    for (uint step = width / 2u; step > 0u; step /= 2u) {
      BARRIER();
      for (uint e = thread; e < size / 2u; e += THREADS) {
        uint low = 2u * e - (e & (step - 1u)), high = 2u * step == width ? low ^ (width - 1u) : low + step;
        RAW a = keys[low], b = keys[high];
        uint i = indices[low], j = indices[high];
        if (before(b, j, a, i)) {
          keys[low] = b;
          keys[high] = a;
          indices[low] = j;
          indices[high] = i;
        }
      }
    }
  }
  BARRIER();
}

// Sorts the elements from `begin` to `end` of a row, up to the first `keep`, to the front of `indices`.
void select(IDX row, uint begin, uint end, uint keep) {
  uint thread = INVOCATION;
  // What comes behind these is not among the first.
  RAW bound = LAST;
  uint bound_index = ~0u;
  if (keep <= THREADS) {
    // `keep` threads have an element that is not behind the last of their best ones.
    RAW best = LAST;
    uint best_index = ~0u, until = min(end, begin + uint(p.probe));
    for (uint i = begin + thread; i < until; i += THREADS) {
      RAW key = key_at(row, i);
      if (before(key, i, best, best_index)) {
        best = key;
        best_index = i;
      }
    }
    keys[thread] = best;
    indices[thread] = best_index;
    sort(thread, THREADS);
    bound = keys[keep - 1u];
    bound_index = indices[keep - 1u];
    BARRIER();
  }
  uint count = 0u;
  for (uint chunk = begin; chunk < end;) {
    START(count);
    do {
      RAW key[ITEMS];
      REPEAT for (uint k = 0u; k < ITEMS; ++k) {
        uint i = chunk + k * THREADS + thread;
        key[k] = i < end ? key_at(row, i) : LAST;
      }
      REPEAT for (uint k = 0u; k < ITEMS; ++k) {
        uint i = chunk + k * THREADS + thread;
        gather(i < end && !before(bound, bound_index, key[k], i), key[k], i, count);
      }
      chunk += THREADS * ITEMS;
      COUNT(count);
    } while (chunk < end && count + THREADS * ITEMS <= ROOM);
    sort(thread, count);
    if (count >= keep) {
      count = keep;
      bound = keys[keep - 1u];
      bound_index = indices[keep - 1u];
    }
    BARRIER();
  }
}

void main() {
  IDX group = workgroup();
  if (group >= p.groups) return;
  uint thread = INVOCATION, n = uint(p.n), keep = uint(p.keep), pieces = uint(p.pieces);
  IDX row = group / p.pieces;
  uint piece = uint(group % p.pieces), some = n / pieces, more = n % pieces;
  uint begin = piece * some + min(piece, more), end = begin + some + uint(piece < more);
  // The text of select stands once, as drivers take long for it.
  while (true) {
    select(row, begin, end, keep);
#ifdef MERGED
    if (merging) {
      for (uint i = thread; i < keep; i += THREADS) {
        WRITE_MERGED(position(row, i, p.inner_merged, p.keep), position(row, indices[i], 1, p.pieces * p.keep));
      }
      return;
    }
#endif
    for (uint i = thread; i < keep; i += THREADS) {
      uint from = indices[i];
      WRITE(position(row, piece * keep + i, p.inner_to, p.pieces * p.keep), position(row, from, p.inner, p.n), from);
    }
#ifdef MERGED
    memoryBarrierBuffer();
    barrier();
    if (thread == 0u) is_last = atomicAdd(ARRIVALS(row), 1u) == pieces - 1u;
    barrier();
    if (!is_last) return;
    memoryBarrierBuffer();
    merging = true;
    begin = 0u;
    end = pieces * keep;
#else
    return;
#endif
  }
}
