// Owns what the functions of chain kernels rest on: how the invocations of a chain's workgroup meet, and the elementary functions of
// log-densities.
//
// Algorithm: one workgroup computes one chain. Where it is one subgroup, its invocations meet without a barrier of the workgroup.
// Domain: plain_log's and plain_exp's; the logarithm of a negative number is NaN.
// Error: exp and log are within 4 ulp, division is the device's. Sums are not compensated: many invocations share them.
//
// The kernel defines THREADS, and ONE_SUBGROUP where that many invocations are one subgroup.

#include "lib/math/plain.glsl"

layout(local_size_x = THREADS) in;

// What invocations of the workgroup wrote is seen by the others after this.
void meet() {
#ifdef ONE_SUBGROUP
  subgroupMemoryBarrier();
  subgroupBarrier();
#else
  memoryBarrierShared();
  groupMemoryBarrier();
  barrier();
#endif
}

float chain_log(float x) { return x < 0.0f ? F32_NAN : plain_log(x); }
#ifdef HAS_FLOAT64
double chain_log(double x) { return x < 0.0lf ? F64_NAN : plain_log(x); }
#endif

#define nx_exp plain_exp
#define nx_log chain_log
#define nx_divide(a, b) ((a) / (b))
