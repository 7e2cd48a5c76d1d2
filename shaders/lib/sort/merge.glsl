// Sorts rows that fit in a workgroup's shared memory, several of them where they do, stably: each thread sorts ITEMS neighbours in its
// registers, then runs of twice the width are merged in every iteration, and each thread makes ITEMS neighbours, having
// found where they begin in both runs (O. Green, R. McColl, D. Bader, "GPU merge path", 2012).
//
// The kernel defines what sort/key.glsl asks for, THREADS, ITEMS (a power of two), and WRITE(to, from, i): element i of the
// row goes there.

#include "lib/sort/key.glsl"

#define TILE (THREADS * ITEMS)
// One word in 33 is left out, so that threads with neighbouring pieces use different banks.
#define PAD(i) ((i) + ((i) >> 5))

// One more, which is read where a run ends and counts for nothing.
shared RAW keys[PAD(TILE) + 1];
shared uint indices[PAD(TILE) + 1];

void main() {
  IDX group = workgroup();
  if (group >= p.groups) return;
  uint thread = INVOCATION, n = uint(p.n), keep = uint(p.keep);
  // A thread's neighbours are of one row: what that lacks sorts behind everything else.
  uint width = (n + ITEMS - 1u) & ~(ITEMS - 1u);
  IDX first = group * p.group_rows;
  uint rows = uint(min(p.group_rows, p.rows - first)), count = rows * width;
  // Neighbouring threads take neighbouring elements: of one row, or of rows that alternate.
  bool interleaved = p.inner > 1;
  for (uint e = thread; e < count; e += THREADS) {
    uint r = interleaved ? e % rows : e / width, i = interleaved ? e / rows : e % width, to = PAD(r * width + i);
    keys[to] = i < n ? key_of(RAW(AT(STORED, p.source, position(first + r, i, p.inner, p.n)))) : LAST;
    indices[to] = i;
  }
  barrier();
  RAW key[ITEMS];
  uint from[ITEMS];
  uint mine = thread * ITEMS, row = mine / width * width, at = mine - row;
  bool has = mine < count;
  REPEAT for (uint k = 0u; k < ITEMS; ++k) {
    key[k] = keys[PAD(mine + k)];
    from[k] = indices[PAD(mine + k)];
  }
  REPEAT for (uint iteration = 0u; iteration < ITEMS; ++iteration) {
    REPEAT for (uint k = iteration & 1u; k + 1u < ITEMS; k += 2u) {
      RAW a = key[k], b = key[k + 1u];
      uint i = from[k], j = from[k + 1u];
      bool swapped = key_less(b, a);
      key[k] = swapped ? b : a;
      key[k + 1u] = swapped ? a : b;
      from[k] = swapped ? j : i;
      from[k + 1u] = swapped ? i : j;
    }
  }
  for (uint run = ITEMS;; run *= 2u) {
    barrier();
    REPEAT for (uint k = 0u; k < ITEMS; ++k) {
      keys[PAD(mine + k)] = key[k];
      indices[PAD(mine + k)] = from[k];
    }
    barrier();
    if (run >= width) break;
    if (!has) continue;
    // The runs begin at `left` and `right`, and this thread's elements so far behind the first of both.
    uint left = row + (at & ~(2u * run - 1u)), right = min(left + run, row + width), end = min(right + run, row + width);
    uint ahead = mine - left, low = ahead - min(ahead, end - right), high = min(ahead, right - left);
    // The equal elements of the left run stand before those of the right one.
    while (low < high) {
      uint middle = (low + high) / 2u;
      if (key_less(keys[PAD(right + ahead - 1u - middle)], keys[PAD(left + middle)])) high = middle;
      else low = middle + 1u;
    }
    uint a = left + low, b = right + ahead - low;
    RAW key_a = keys[PAD(a)], key_b = keys[PAD(b)];
    REPEAT for (uint k = 0u; k < ITEMS; ++k) {
      bool is_a = b >= end || (a < right && !key_less(key_b, key_a));
      key[k] = is_a ? key_a : key_b;
      from[k] = indices[PAD(is_a ? a : b)];
      a += uint(is_a);
      b += uint(!is_a);
      RAW next = keys[PAD(is_a ? a : b)];
      if (is_a) key_a = next;
      else key_b = next;
    }
  }
  for (uint e = thread; e < rows * keep; e += THREADS) {
    uint r = interleaved ? e % rows : e / keep, i = interleaved ? e / rows : e % keep;
    uint from = indices[PAD(r * width + i)];
    WRITE(position(first + r, i, p.inner, p.keep), position(first + r, from, p.inner, p.n), from);
  }
}
