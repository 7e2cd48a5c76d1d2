// Sums of PANEL = 16 values over the SUBGROUP lanes of a subgroup: with each exchange of lanes half as many values are left
// to each, which takes 16 exchanges for 16 sums.

#define HALVE(x, COUNT, MASK) \
  for (uint i = 0; i < COUNT; i++) { \
    bool upper = (gl_SubgroupInvocationID & uint(MASK)) != 0u; \
    SCALAR give = upper ? x[i] : x[i + COUNT], keep = upper ? x[i + COUNT] : x[i]; \
    x[i] = keep + subgroupShuffleXor(give, uint(MASK)); \
  }

// Afterwards a lane has the sums FIRST_KEPT(lane) to FIRST_KEPT(lane) + KEPT - 1 in x[0] to x[KEPT - 1].
#define FIRST_KEPT(lane) ((lane) * PANEL / SUBGROUP)
#if SUBGROUP == 4
#define KEPT 4
#define SUBGROUP_SUMS(x) HALVE(x, 8, 2) HALVE(x, 4, 1)
#elif SUBGROUP == 8
#define KEPT 2
#define SUBGROUP_SUMS(x) HALVE(x, 8, 4) HALVE(x, 4, 2) HALVE(x, 2, 1)
#elif SUBGROUP == 16
#define KEPT 1
#define SUBGROUP_SUMS(x) HALVE(x, 8, 8) HALVE(x, 4, 4) HALVE(x, 2, 2) HALVE(x, 1, 1)
#elif SUBGROUP == 32
#define KEPT 1
#define SUBGROUP_SUMS(x) \
  HALVE(x, 8, 16) HALVE(x, 4, 8) HALVE(x, 2, 4) HALVE(x, 1, 2) x[0] += subgroupShuffleXor(x[0], 1u);
#else
#define KEPT 1
#define SUBGROUP_SUMS(x) \
  HALVE(x, 8, 32) HALVE(x, 4, 16) HALVE(x, 2, 8) HALVE(x, 1, 4) \
  x[0] += subgroupShuffleXor(x[0], 2u); \
  x[0] += subgroupShuffleXor(x[0], 1u);
#endif

// The values of a lane when subgroups' sums are summed: value OWN(lane, i) for i < OWNED, with SHARERS lanes for each.
#if SUBGROUP < 16
#define OWNED (PANEL / SUBGROUP)
#define SHARERS 1
#define OWN(lane, i) ((lane) + (i) * SUBGROUP)
#define BROADCAST_OWNED(x) { \
    SCALAR own[OWNED]; \
    for (uint i = 0; i < OWNED; i++) own[i] = x[i]; \
    for (uint k = 0; k < PANEL; k++) x[k] = subgroupShuffle(own[k / SUBGROUP], k % SUBGROUP); \
  }
#else
#define OWNED 1
#define SHARERS (SUBGROUP / PANEL)
#define OWN(lane, i) ((lane) % PANEL)
#if SUBGROUP == 16
#define SHARED_SUM(x)
#elif SUBGROUP == 32
#define SHARED_SUM(x) x += subgroupShuffleXor(x, 16u);
#else
#define SHARED_SUM(x) x += subgroupShuffleXor(x, 16u); x += subgroupShuffleXor(x, 32u);
#endif
#define BROADCAST_OWNED(x) { \
    SCALAR own = x[0]; \
    SHARED_SUM(own) \
    for (uint k = 0; k < PANEL; k++) x[k] = subgroupShuffle(own, k); \
  }
#endif
