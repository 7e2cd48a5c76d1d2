// Owns what the functions of chain kernels rest on: how the invocations of a chain's workgroup meet, and the elementary functions of
// log-densities.
//
// Algorithm: one workgroup computes one chain. Where it is one subgroup, its invocations meet without a barrier of the workgroup.
// Domain: plain_log's and plain_exp's; the logarithm of a negative number is NaN. log1p is plain_log of the rounded sum, with what rounding
//   dropped.
// Error: exp, log and log1p are within 5 ulp, division is the device's. Sums are not compensated: many invocations share them.
//
// The kernel defines THREADS, ONE_SUBGROUP where that many invocations are one subgroup, and SHARED_BUFFERS where they share what they wrote to
// buffers, too.

#include "lib/math/plain.glsl"

layout(local_size_x = THREADS) in;

// What invocations of the workgroup wrote is seen by the others after this. A barrier of the workgroup orders its own memory.
void meet() {
#ifdef ONE_SUBGROUP
#ifdef SHARED_BUFFERS
  subgroupMemoryBarrier();
#else
  subgroupMemoryBarrierShared();
#endif
  subgroupBarrier();
#else
#ifdef SHARED_BUFFERS
  memoryBarrierShared();
  groupMemoryBarrier();
#endif
  barrier();
#endif
}

#define CHAIN_LOGARITHMS(T, INF, NAN) \
  T chain_log(T x) { return x < T(0) ? NAN : plain_log(x); } \
  T chain_log1p(T x) { \
    precise T u = T(1) + x; \
    precise T lost = x - (u - T(1)); \
    T v = plain_log(u) + lost / u; \
    return u > T(0) && u < INF ? v : x > T(0) ? x : is_zero(u) ? -INF : NAN; \
  }
CHAIN_LOGARITHMS(float, F32_INF, F32_NAN)
#ifdef HAS_FLOAT64
CHAIN_LOGARITHMS(double, F64_INF, F64_NAN)
#endif

#define nx_exp plain_exp
#define nx_log chain_log
#define nx_log1p chain_log1p
#define nx_divide(a, b) ((a) / (b))
