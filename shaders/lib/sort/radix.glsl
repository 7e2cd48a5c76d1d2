// One pass of a stable radix sort over 8 bits of long rows, each of which is split in blocks (D. Merrill, A. Grimshaw,
// "High performance and scalable radix sorting", 2011): a histogram of each block, prefix sums of them over the blocks (of
// up to MAX_SUMMED_BLOCKS blocks every one of them adds up the counts itself), and the elements written where the sums say. No workgroup
// waits for another.
//
// The kernel defines what sort/key.glsl asks for (not for SUMS) and one of HISTOGRAM, SUMS and SCATTER; for SCATTER
// also MAX_SUMMED_BLOCKS, ITEMS (the elements of a thread in a tile) and WRITE(to, from, i): the row's element i, which stands at `from`, goes
// to `to`. SUBGROUP is the number of invocations of a subgroup where those may vote.

#ifndef SUMS
#include "lib/sort/key.glsl"
#endif

#define THREADS 256u
#define DIGITS 256u

#ifdef SUBGROUP
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_KHR_shader_subgroup_ballot : require
#extension GL_KHR_shader_subgroup_shuffle : require

#define SUBGROUPS (THREADS / SUBGROUP)

shared uint partial_sums[SUBGROUPS];

// The sum of x over the threads before this one, and over all.
uint exclusive(uint thread, uint x, out uint total) {
  uint before = subgroupExclusiveAdd(x);
  if (gl_SubgroupInvocationID == SUBGROUP - 1u) partial_sums[gl_SubgroupID] = before + x;
  barrier();
  total = 0u;
  for (uint i = 0u; i < SUBGROUPS; ++i) {
    if (i == gl_SubgroupID) before += total;
    total += partial_sums[i];
  }
  barrier();
  return before;
}
#else
shared uint thread_sums[THREADS];
shared uint partial_sums[16];

// The sum of x over the threads before this one, and over all.
uint exclusive(uint thread, uint x, out uint total) {
  thread_sums[thread] = x;
  barrier();
  if (thread < 16u) {
    uint sum = 0u;
    [[dont_unroll]] for (uint i = 0u; i < 16u; ++i) sum += thread_sums[thread * 16u + i];
    partial_sums[thread] = sum;
  }
  barrier();
  uint before = 0u;
  total = 0u;
  [[dont_unroll]] for (uint i = 0u; i < 16u; ++i) {
    if (i == thread / 16u) before = total;
    total += partial_sums[i];
  }
  for (uint i = thread & ~15u; i < thread; ++i) before += thread_sums[i];
  barrier();
  return before;
}
#endif

#ifndef SUMS
// Of the digit in the key, in bits.
uint shift() { return uint(p.order) >> 8; }
#endif

// The histograms of a row: by digit, then by block.
IDX count_at(IDX row, uint digit, IDX block) { return (row * DIGITS + digit) * p.blocks + block; }

#ifdef HISTOGRAM
shared uint histogram[DIGITS];

void main() {
  IDX group = workgroup();
  if (group >= p.groups) return;
  uint thread = INVOCATION;
  IDX row = group / p.blocks, block = group % p.blocks;
  histogram[thread] = 0u;
  barrier();
  uint begin = uint(block * p.block_len), end = uint(min(IDX(begin) + p.block_len, p.n));
  for (uint i = begin + thread; i < end; i += THREADS) {
    RAW key = key_of(RAW(AT(STORED, p.source, position(row, i, p.inner, p.n))));
    atomicAdd(histogram[key_digit(key, shift())], 1u);
  }
  barrier();
  AT(uint, p.counts, count_at(row, thread, block)) = histogram[thread];
}
#endif

#ifdef SUMS
// A workgroup for each digit of each row: its counts become their sums over the blocks before.
void main() {
  IDX group = workgroup();
  if (group >= p.groups) return;
  uint thread = INVOCATION, before = 0u;
  for (uint i = 0u; i < uint(p.blocks); i += THREADS) {
    bool has = i + thread < uint(p.blocks);
    IDX at = group * p.blocks + i + thread;
    uint x = 0u, total;
    if (has) x = AT(uint, p.counts, at);
    uint sum = exclusive(thread, x, total);
    if (has) AT(uint, p.counts, at) = before + sum;
    before += total;
  }
  if (thread == 0u) AT(uint, p.totals, group) = before;
}
#endif

#ifdef SCATTER
#define TILE (THREADS * ITEMS)
// One word in 33 is left out, so that threads with neighbouring pieces use different banks.
#define PAD(i) ((i) + ((i) >> 5))

shared uint next[DIGITS];
shared uint first[DIGITS];

uint digit_at(IDX row, uint i) {
  return key_digit(key_of(RAW(AT(STORED, p.source, position(row, i, p.inner, p.n)))), shift());
}

#ifdef SUBGROUP
// Counters of the subgroups, two digits a word, then the tile's tokens: a digit, and its position in the tile.
shared uint pool[max(PAD(TILE), SUBGROUPS * DIGITS / 2u)];

// Which invocations of the subgroup have this digit too.
uint peers_of(uint digit) {
  uint peers = ~0u;
  REPEAT for (uint bit = 0u; bit < 8u; ++bit) {
    bool one = (digit & (1u << bit)) != 0u;
    uint ones = subgroupBallot(one).x;
    peers &= one ? ones : ~ones;
  }
  return peers & (SUBGROUP == 32u ? ~0u : (1u << (SUBGROUP & 31u)) - 1u);
}

// Brings the tokens of the tile's elements in the order of their digits, stably (S. Ashkiani et al., "GPU multisplit",
// 2016): those with the same digit are counted within a subgroup, over the subgroups, and below the digit.
void arrange(uint thread, IDX row, uint tile, uint count) {
  uint tokens[ITEMS], ranks[ITEMS];
  for (uint i = thread; i < SUBGROUPS * DIGITS / 2u; i += THREADS) pool[i] = 0u;
  barrier();
  uint mine = gl_SubgroupID * (DIGITS / 2u);
  REPEAT for (uint k = 0u; k < ITEMS; ++k) {
    // What is missing in the last tile sorts behind everything else.
    uint j = (gl_SubgroupID * ITEMS + k) * SUBGROUP + gl_SubgroupInvocationID, digit = DIGITS - 1u;
    if (j < count) digit = digit_at(row, tile + j);
    tokens[k] = (digit << 16) | j;
  }
  REPEAT for (uint k = 0u; k < ITEMS; ++k) {
    uint digit = tokens[k] >> 16, up = (digit & 1u) * 16u, peers = peers_of(digit), leader = findLSB(peers), earlier = 0u;
    if (gl_SubgroupInvocationID == leader) earlier = atomicAdd(pool[mine + digit / 2u], bitCount(peers) << up);
    earlier = (subgroupShuffle(earlier, leader) >> up) & 0xffffu;
    ranks[k] = earlier + bitCount(peers & ((1u << gl_SubgroupInvocationID) - 1u));
    subgroupMemoryBarrierShared();
  }
  barrier();
  if (thread < DIGITS / 2u) {
    uint sum = 0u;
    for (uint i = thread; i < SUBGROUPS * DIGITS / 2u; i += DIGITS / 2u) {
      uint counted = pool[i];
      pool[i] = sum;
      sum += counted;
    }
    first[2u * thread] = sum & 0xffffu;
    first[2u * thread + 1u] = sum >> 16;
  }
  barrier();
  uint total, below = exclusive(thread, first[thread], total);
  first[thread] = below;
  barrier();
  REPEAT for (uint k = 0u; k < ITEMS; ++k) {
    uint digit = tokens[k] >> 16;
    ranks[k] += first[digit] + ((pool[mine + digit / 2u] >> ((digit & 1u) * 16u)) & 0xffffu);
  }
  barrier();
  REPEAT for (uint k = 0u; k < ITEMS; ++k) pool[PAD(ranks[k])] = tokens[k];
  barrier();
}
#else
// Counters of the threads for half a digit, sixteen bits each, then the tile's tokens: a digit, and its position in the tile.
shared uint pool[PAD(TILE > 2048u ? TILE : 2048u)];

// Brings the tile's tokens in the order of four bits of their digits, stably: each thread takes ITEMS consecutive ones.
void split(uint thread, uint shift) {
  uint tokens[ITEMS], earlier[ITEMS];
  REPEAT for (uint k = 0u; k < ITEMS; ++k) tokens[k] = pool[PAD(thread * ITEMS + k)];
  barrier();
  REPEAT for (uint d = 0u; d < 8u; ++d) pool[PAD(d * THREADS + thread)] = 0u;
  REPEAT for (uint k = 0u; k < ITEMS; ++k) {
    uint d = (tokens[k] >> shift) & 15u, at = PAD((d & 7u) * THREADS + thread), up = (d >> 3) * 16u;
    uint counter = pool[at];
    earlier[k] = (counter >> up) & 0xffffu;
    pool[at] = counter + (1u << up);
  }
  barrier();
  // Sums over the digits 0 to 7 run in the lower halves, over 8 to 15 in the upper ones.
  uint sum = 0u, total;
  REPEAT for (uint i = 0u; i < 8u; ++i) sum += pool[PAD(thread * 8u + i)];
  uint before = exclusive(thread, sum, total);
  before += total << 16;
  REPEAT for (uint i = 0u; i < 8u; ++i) {
    uint counter = pool[PAD(thread * 8u + i)];
    pool[PAD(thread * 8u + i)] = before;
    before += counter;
  }
  barrier();
  REPEAT for (uint k = 0u; k < ITEMS; ++k) {
    uint d = (tokens[k] >> shift) & 15u;
    earlier[k] += (pool[PAD((d & 7u) * THREADS + thread)] >> ((d >> 3) * 16u)) & 0xffffu;
  }
  barrier();
  REPEAT for (uint k = 0u; k < ITEMS; ++k) pool[PAD(earlier[k])] = tokens[k];
  barrier();
}

void arrange(uint thread, IDX row, uint tile, uint count) {
  // What is missing in the last tile sorts behind everything else.
  REPEAT for (uint k = 0u; k < ITEMS; ++k) {
    uint j = thread + k * THREADS, digit = DIGITS - 1u;
    if (j < count) digit = digit_at(row, tile + j);
    pool[PAD(j)] = (digit << 16) | j;
  }
  barrier();
  [[dont_unroll]] for (uint half_digit = 16u; half_digit < 24u; half_digit += 4u) split(thread, half_digit);
}
#endif

void main() {
  IDX group = workgroup();
  if (group >= p.groups) return;
  uint thread = INVOCATION, all;
  IDX row = group / p.blocks, block = group % p.blocks;
  uint before = 0u, total = 0u;
  if (uint(p.blocks) <= MAX_SUMMED_BLOCKS) {
    for (uint b = 0u; b < uint(p.blocks); ++b) {
      uint counted = AT(uint, p.counts, count_at(row, thread, b));
      total += counted;
      if (b < block) before += counted;
    }
  } else {
    before = AT(uint, p.counts, count_at(row, thread, block));
    total = AT(uint, p.totals, row * DIGITS + thread);
  }
  next[thread] = exclusive(thread, total, all) + before;
  uint begin = uint(block * p.block_len), end = uint(min(IDX(begin) + p.block_len, p.n));
  for (uint tile = begin; tile < end; tile += TILE) {
    uint count = min(TILE, end - tile);
    arrange(thread, row, tile, count);
    // `first` is where a digit's elements go, less the position of the first of them in the tile.
    REPEAT for (uint k = 0u; k < ITEMS; ++k) {
      uint j = thread + k * THREADS, digit = pool[PAD(j)] >> 16;
      if (j == 0u || pool[PAD(j - 1u)] >> 16 != digit) first[digit] = next[digit] - j;
    }
    barrier();
    REPEAT for (uint k = 0u; k < ITEMS; ++k) {
      uint j = thread + k * THREADS;
      if (j >= count) continue;
      uint token = pool[PAD(j)], digit = token >> 16, to = first[digit] + j, i = tile + (token & 0xffffu);
      if (j + 1u == count || pool[PAD(j + 1u)] >> 16 != digit) next[digit] = to + 1u;
      if (to < uint(p.keep)) WRITE(position(row, to, p.inner_to, p.keep), position(row, i, p.inner, p.n), i);
    }
    barrier();
  }
}
#endif
