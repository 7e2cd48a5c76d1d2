// One pass of a discrete Fourier transform, as general.glsl has it, for lengths that are powers of two: each invocation
// keeps THREAD_POINTS points of a transform in registers, with a stride of LENGTH / THREAD_POINTS, and all points are exchanged
// through shared memory between radices.
//
// The including kernel defines what butterflies.glsl asks for and
//   LENGTH, TILE, SPAN   as general.glsl has them, constants here; THREADS is LENGTH * TILE / THREAD_POINTS
//   CONTIGUOUS_IN, CONTIGUOUS_OUT
//                        whether neighbouring invocations read (write) points of one transform, else of neighbouring ones
//   load_point, store_point   (below)
//   STAGES               calls of stage_<radix>(i, ns), from ns = 1 on, and swap_<radix>(ns) between them
// and the parameters p: groups, columns, outer_columns, stride, inner.

#include "lib/fourier/butterflies.glsl"

// Point and result `at`, an index into points × inner, of the transforms number `outer`.
C load_point(IDX outer, IDX at);
void store_point(IDX outer, IDX at, C value);

#define THREAD_POINTS 16u
#define TRANSFORM_THREADS (LENGTH / THREAD_POINTS)

C v[THREAD_POINTS];

// What an invocation works on: v[m] is point i + m * TRANSFORM_THREADS of transform t.
struct ThreadWork { uint t, i; };
ThreadWork thread_work(bool contiguous) {
  uint thread = INVOCATION;
  return contiguous ? ThreadWork(thread / TRANSFORM_THREADS, thread % TRANSFORM_THREADS) : ThreadWork(thread % TILE, thread / TILE);
}

// The slot of a point, of LENGTH * TILE with one more after every 16: neighbours in either direction use different banks.
uint slot(uint k, uint t) {
  uint at = CONTIGUOUS_IN ? t * LENGTH + k : k * TILE + t;
  return at + (at >> 4u);
}

// The powers of root(k, n) are products of those to powers of two, of four factors at most. There are overloads for every radix.
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
    [[unroll]] for (uint k = 0u; k < THREAD_POINTS / RADIX; k++) { \
      C w[RADIX]; \
      [[unroll]] for (uint q = 0u; q < RADIX; q++) w[q] = v[k + q * (THREAD_POINTS / RADIX)]; \
      if (ns > 1u) { \
        C twiddles[RADIX]; \
        powers(twiddles, (i + k * TRANSFORM_THREADS) % ns, ns * RADIX); \
        [[unroll]] for (uint q = 1u; q < RADIX; q++) w[q] = c_multiply(w[q], twiddles[q]); \
      } \
      butterfly(w); \
      [[unroll]] for (uint q = 0u; q < RADIX; q++) v[k + q * (THREAD_POINTS / RADIX)] = w[q]; \
    } \
  }
STAGE(2u)
STAGE(4u)
STAGE(8u)
STAGE(16u)

#if LENGTH > 16
shared C values[LENGTH * TILE / 16u * 17u];

// After a stage of this radix: what invocation `from` has, and what `to` takes.
void swap(uint radix, uint ns, ThreadWork from, ThreadWork to) {
  [[unroll]] for (uint k = 0u; k < THREAD_POINTS / radix; k++) {
    uint b = from.i + k * TRANSFORM_THREADS, low = b % ns, at = (b - low) * radix + low;
    [[unroll]] for (uint q = 0u; q < radix; q++) values[slot(at + q * ns, from.t)] = v[k + q * (THREAD_POINTS / radix)];
  }
  barrier();
  [[unroll]] for (uint m = 0u; m < THREAD_POINTS; m++) v[m] = values[slot(to.i + m * TRANSFORM_THREADS, to.t)];
}
#endif

void transform() {
  IDX group = workgroup();
  if (group >= p.groups) return;
  ThreadWork from = thread_work(CONTIGUOUS_IN), to = thread_work(CONTIGUOUS_OUT);
  // Invocations beyond the last transform read that one, and write nothing.
  IDX column = min(group * TILE + from.t, p.columns - 1);
  IDX outer = column / p.outer_columns, at = column - outer * p.outer_columns;
  [[unroll]] for (uint m = 0u; m < THREAD_POINTS; m++) v[m] = load_point(outer, at + (from.i + m * TRANSFORM_THREADS) * p.outer_columns);
  // The first pass has no twiddle factors.
  if (SPAN != LENGTH) {
    IDX phase = at % p.stride / p.inner;
    C first = root(phase * from.i, SPAN), twiddles[THREAD_POINTS];
    powers(twiddles, phase * TRANSFORM_THREADS, SPAN);
    v[0] = c_multiply(v[0], first);
    [[unroll]] for (uint m = 1u; m < THREAD_POINTS; m++) v[m] = c_multiply(v[m], c_multiply(first, twiddles[m]));
  }
  STAGES
  column = group * TILE + to.t;
  if (column >= p.columns) return;
  outer = column / p.outer_columns;
  at = column - outer * p.outer_columns;
  IDX low = at % p.stride, result = (at - low) * LENGTH + low;
  [[unroll]] for (uint m = 0u; m < THREAD_POINTS; m++) store_point(outer, result + (to.i + m * TRANSFORM_THREADS) * p.stride, v[m]);
}
