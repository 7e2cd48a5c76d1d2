// The first `keep` elements of each piece of a row in their order, without sorting the rest: what may be among them is
// gathered in shared memory and, when that is full, sorted by a bitonic network and cut to the first of it; the last one
// kept bounds what comes later (J. Johnson, M. Douze, H. Jegou, "Billion-scale similarity search with GPUs", 2017, section
// 4). Elements that are equal have the order of their places, so that no two are alike and none of this need be stable.
//
// The kernel defines what sort/key.glsl asks for, THREADS, EACH (the elements of a thread at once), ROOM (a power of two,
// at least THREADS and THREADS * EACH + p.keep), and WRITE(to, from, i): element i of the row goes there. With ALONE a
// workgroup is one subgroup.

#include "lib/sort/key.glsl"

shared RAW keys[ROOM];
shared uint places[ROOM];

// START lets threads gather behind the first `count`, COUNT tells them how many there are then.
#ifdef ALONE
#define BARRIER subgroupBarrier
#define START(count)
#define COUNT(count)

// Gathers what lanes have.
void gather(bool has, RAW key, uint i, inout uint count) {
  uvec4 ballot = subgroupBallot(has);
  if (has) {
    uint to = count + subgroupBallotExclusiveBitCount(ballot);
    keys[to] = key;
    places[to] = i;
  }
  count += subgroupBallotBitCount(ballot);
}
#else
shared uint held;

#define BARRIER barrier
#define START(count) if (INVOCATION == 0u) held = count; barrier()
#define COUNT(count) barrier(); count = held; barrier()

// Gathers what threads have, in any order.
void gather(bool has, RAW key, uint i, inout uint count) {
  if (!has) return;
  uint to = atomicAdd(held, 1u);
  keys[to] = key;
  places[to] = i;
}
#endif

RAW key_at(IDX row, uint i) { return key_of(RAW(AT(STORED, p.source, place(row, i, p.inner, p.n)))); }

bool before(RAW a, uint i, RAW b, uint j) { return key_less(a, b) || (a == b && i < j); }

// Sorts the first `count` of what is gathered.
void sort(uint lane, uint count) {
  uint size = 1u;
  while (size < count) size *= 2u;
  for (uint e = count + lane; e < size; e += THREADS) {
    keys[e] = LAST;
    places[e] = ~0u;
  }
  for (uint width = 2u; width <= size; width *= 2u) {
    for (uint step = width / 2u; step > 0u; step /= 2u) {
      BARRIER();
      for (uint e = lane; e < size / 2u; e += THREADS) {
        uint low = 2u * e - (e & (step - 1u)), high = 2u * step == width ? low ^ (width - 1u) : low + step;
        RAW a = keys[low], b = keys[high];
        uint i = places[low], j = places[high];
        if (before(b, j, a, i)) {
          keys[low] = b;
          keys[high] = a;
          places[low] = j;
          places[high] = i;
        }
      }
    }
  }
  BARRIER();
}

void main() {
  IDX group = workgroup();
  if (group >= p.groups) return;
  uint lane = INVOCATION, n = uint(p.n), keep = uint(p.keep), pieces = uint(p.pieces);
  IDX row = group / p.pieces;
  uint piece = uint(group % p.pieces), some = n / pieces, more = n % pieces;
  uint begin = piece * some + min(piece, more), end = begin + some + uint(piece < more);
  // What comes behind these is not among the first.
  RAW bound = LAST;
  uint bound_place = ~0u;
  if (keep <= THREADS) {
    // As many threads as are kept have an element that is not behind the last of theirs.
    RAW best = LAST;
    uint best_place = ~0u, until = min(end, begin + uint(p.probe));
    for (uint i = begin + lane; i < until; i += THREADS) {
      RAW key = key_at(row, i);
      if (before(key, i, best, best_place)) {
        best = key;
        best_place = i;
      }
    }
    keys[lane] = best;
    places[lane] = best_place;
    sort(lane, THREADS);
    bound = keys[keep - 1u];
    bound_place = places[keep - 1u];
    BARRIER();
  }
  uint count = 0u;
  for (uint chunk = begin; chunk < end;) {
    START(count);
    do {
      RAW key[EACH];
      REPEAT for (uint k = 0u; k < EACH; ++k) {
        uint i = chunk + k * THREADS + lane;
        key[k] = i < end ? key_at(row, i) : LAST;
      }
      REPEAT for (uint k = 0u; k < EACH; ++k) {
        uint i = chunk + k * THREADS + lane;
        gather(i < end && !before(bound, bound_place, key[k], i), key[k], i, count);
      }
      chunk += THREADS * EACH;
      COUNT(count);
    } while (chunk < end && count + THREADS * EACH <= ROOM);
    sort(lane, count);
    if (count >= keep) {
      count = keep;
      bound = keys[keep - 1u];
      bound_place = places[keep - 1u];
    }
    BARRIER();
  }
  for (uint i = lane; i < keep; i += THREADS) {
    uint from = places[i];
    WRITE(place(row, piece * keep + i, p.inner_to, p.pieces * p.keep), place(row, from, p.inner, p.n), from);
  }
}
