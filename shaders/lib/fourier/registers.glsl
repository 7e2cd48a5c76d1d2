// One pass of a discrete Fourier transform, as general.glsl has it, for lengths that are powers of two: each invocation
// keeps EACH points of a transform in registers, those EACH-th parts of it apart, and all points change hands through
// shared memory between radices.
//
// The including kernel defines what butterflies.glsl asks for and
//   LENGTH, TILE, SPAN   as general.glsl has them, constants here; THREADS is LENGTH * TILE / EACH
//   ALONG_IN, ALONG_OUT  whether neighbouring invocations read (write) points of one transform, else of neighbouring ones
//   load_point, store_point   (below)
//   STAGES               calls of stage_<radix>(i, ns), from ns = 1 on, and swap_<radix>(ns) between them
// and the parameters p: groups, columns, across, stride, inner.

#include "lib/fourier/butterflies.glsl"

// Point and result `at`, an index into points × inner, of the transforms number `outer`.
C load_point(IDX outer, IDX at);
void store_point(IDX outer, IDX at, C value);

#define EACH 16u
#define LANES (LENGTH / EACH)

C v[EACH];

// What of which transform an invocation works on: v[m] is its point i + m * LANES.
struct Work { uint t, i; };
Work work(bool along) {
  uint thread = INVOCATION;
  return along ? Work(thread / LANES, thread % LANES) : Work(thread % TILE, thread / TILE);
}

// Of LENGTH * TILE cells one more after every 16: neighbours in either direction use different banks.
uint cell(uint k, uint t) {
  uint at = ALONG_IN ? t * LENGTH + k : k * TILE + t;
  return at + (at >> 4u);
}

// The powers of root(k, n) are products of those to powers of two, of which no more than four meet. There are overloads for
// every radix.
#define STAGE(RADIX) \
  void powers(out C w[RADIX], IDX k, IDX n) { \
    w[0] = C(1, 0); \
    [[unroll]] for (uint q = 1u; q < RADIX; q++) { \
      uint rest = q & (q - 1u); \
      if (rest == 0u) w[q] = root(k * q, n); \
      else w[q] = c_multiply(w[rest], w[q - rest]); \
    } \
  } \
  void stage_##RADIX(uint i, uint ns) { \
    [[unroll]] for (uint k = 0u; k < EACH / RADIX; k++) { \
      C w[RADIX]; \
      [[unroll]] for (uint q = 0u; q < RADIX; q++) w[q] = v[k + q * (EACH / RADIX)]; \
      if (ns > 1u) { \
        C turns[RADIX]; \
        powers(turns, (i + k * LANES) % ns, ns * RADIX); \
        [[unroll]] for (uint q = 1u; q < RADIX; q++) w[q] = c_multiply(w[q], turns[q]); \
      } \
      butterfly(w); \
      [[unroll]] for (uint q = 0u; q < RADIX; q++) v[k + q * (EACH / RADIX)] = w[q]; \
    } \
  }
STAGE(2u)
STAGE(4u)
STAGE(8u)
STAGE(16u)

#if LENGTH > 16
shared C cells[LENGTH * TILE / 16u * 17u];

// After a stage of this radix: what invocation `from` has, and what `to` takes.
void swap(uint radix, uint ns, Work from, Work to) {
  [[unroll]] for (uint k = 0u; k < EACH / radix; k++) {
    uint b = from.i + k * LANES, low = b % ns, at = (b - low) * radix + low;
    [[unroll]] for (uint q = 0u; q < radix; q++) cells[cell(at + q * ns, from.t)] = v[k + q * (EACH / radix)];
  }
  barrier();
  [[unroll]] for (uint m = 0u; m < EACH; m++) v[m] = cells[cell(to.i + m * LANES, to.t)];
}
#endif

void transform() {
  IDX group = IDX(gl_WorkGroupID.y) * gl_NumWorkGroups.x + gl_WorkGroupID.x;
  if (group >= p.groups) return;
  Work from = work(ALONG_IN), to = work(ALONG_OUT);
  // What there is not is read as the last transform, and not written.
  IDX column = min(group * TILE + from.t, p.columns - 1);
  IDX outer = column / p.across, at = column - outer * p.across;
  [[unroll]] for (uint m = 0u; m < EACH; m++) v[m] = load_point(outer, at + (from.i + m * LANES) * p.across);
  // The first pass has no turns.
  if (SPAN != LENGTH) {
    IDX phase = at % p.stride / p.inner;
    C first = root(phase * from.i, SPAN), turns[EACH];
    powers(turns, phase * LANES, SPAN);
    v[0] = c_multiply(v[0], first);
    [[unroll]] for (uint m = 1u; m < EACH; m++) v[m] = c_multiply(v[m], c_multiply(first, turns[m]));
  }
  STAGES
  column = group * TILE + to.t;
  if (column >= p.columns) return;
  outer = column / p.across;
  at = column - outer * p.across;
  IDX low = at % p.stride, result = (at - low) * LENGTH + low;
  [[unroll]] for (uint m = 0u; m < EACH; m++) store_point(outer, result + (to.i + m * LANES) * p.stride, v[m]);
}
