// One pass of a discrete Fourier transform: transforms of LENGTH points, TILE of them in a workgroup's shared memory.
//
// Stockham's autosort algorithm (C. Van Loan, "Computational Frameworks for the Fast Fourier Transform", 1992, 1.7), in
// the form of N. K. Govindaraju et al., "High performance discrete Fourier transforms on graphics processors" (2008):
// a pass of radix R over n points whose first Ns-fold transforms are done reads, for each column j < n / R, the points
// j + r n / R, multiplies them by exp(-2 pi i (j mod Ns) r / (Ns R)), transforms them and writes them to
// (j div Ns) Ns R + (j mod Ns) + q Ns. Within the workgroup the same is done with small radices. An axis whose points
// have a stride of `inner` elements needs nothing but Ns starting at `inner`: the columns then are those of all its neighbours.
//
// The including kernel defines
//   R, C            the real and the complex type
//   LENGTH, TILE    points of a transform, transforms of a workgroup; SPAN is Ns R
//   CAPACITY        the most elements of a workgroup (at least LENGTH * TILE), THREADS its invocations
//   load_point, store_point   (below)
//   STAGES          calls of stage_<radix>(ns), from ns = TILE on, whose radices multiply to LENGTH
// and the parameters p: groups, columns, outer_columns (columns at one index of the outer extent), stride (Ns), inner.

#include "lib/fourier/butterflies.glsl"

// Point and result `at`, an index into points × inner, of the transforms number `outer`.
C load_point(IDX outer, IDX at);
void store_point(IDX outer, IDX at, C value);

// Element k of transform t is value k * TILE + t of one half; each stage reads one half and writes the other.
shared C values[2 * CAPACITY];
// The LENGTH-th roots of unity.
shared C roots[CAPACITY];
uint from = 0u;

#define STAGE(RADIX) \
  void stage_##RADIX(uint ns) { \
    uint count = LENGTH * TILE / uint(RADIX), step = LENGTH * TILE / (ns * uint(RADIX)), to = CAPACITY - from; \
    for (uint b = INVOCATION; b < count; b += THREADS) { \
      uint low = b % ns, phase = low / TILE * step; \
      C v[RADIX]; \
      v[0] = values[from + b]; \
      [[unroll]] for (uint r = 1u; r < uint(RADIX); r++) v[r] = c_multiply(values[from + b + r * count], roots[phase * r]); \
      butterfly(v); \
      uint at = to + (b - low) * uint(RADIX) + low; \
      [[unroll]] for (uint q = 0u; q < uint(RADIX); q++) values[at + q * ns] = v[q]; \
    } \
    from = to; \
    barrier(); \
  }
STAGE(2)
STAGE(3)
STAGE(4)
STAGE(5)
STAGE(8)

// Any radix, by the definition: an invocation computes single outputs.
void stage_any(uint ns, uint radix) {
  uint count = LENGTH * TILE / radix, step = LENGTH * TILE / (ns * radix), to = CAPACITY - from;
  for (uint out_at = INVOCATION; out_at < LENGTH * TILE; out_at += THREADS) {
    uint index = out_at % (ns * radix), low = index % ns, b = out_at / (ns * radix) * ns + low;
    uint phase = index / TILE * step, e = phase;
    C sum = values[from + b];
    for (uint r = 1u; r < radix; r++) {
      sum += c_multiply(values[from + b + r * count], roots[e]);
      e += phase;
      if (e >= LENGTH) e -= LENGTH;
    }
    values[to + out_at] = sum;
  }
  from = to;
  barrier();
}

// For each column: its index in the outer extent, its first point, its first result, and its phase.
shared IDX outers[TILES], sources[TILES], results[TILES], phases[TILES];

void transform() {
  IDX group = workgroup();
  if (group >= p.groups) return;
  uint thread = INVOCATION;
  IDX first = group * TILE;
  for (uint t = thread; t < TILE; t += THREADS) {
    IDX column = first + t, outer = column / p.outer_columns, j = column - outer * p.outer_columns, low = j % p.stride;
    outers[t] = outer;
    sources[t] = j;
    results[t] = (j - low) * LENGTH + low;
    phases[t] = low / p.inner;
  }
  for (uint k = thread; k < LENGTH; k += THREADS) roots[k] = root(k, LENGTH);
  barrier();
  uint live = uint(min(IDX(TILE), p.columns - first));
  // Neighbouring invocations should touch neighbouring elements: those of one transform where these are neighbours.
  bool contiguous = p.outer_columns == 1;
  for (uint x = thread; x < LENGTH * TILE; x += THREADS) {
    uint t = contiguous ? x / LENGTH : x % TILE, r = contiguous ? x % LENGTH : x / TILE;
    C v = C(0);
    if (t < live) {
      v = load_point(outers[t], sources[t] + r * p.outer_columns);
      if (p.stride != p.inner) v = c_multiply(v, root(phases[t] * r, SPAN));
    }
    values[r * TILE + t] = v;
  }
  barrier();
  STAGES
  contiguous = p.stride == 1;
  for (uint x = thread; x < LENGTH * TILE; x += THREADS) {
    uint t = contiguous ? x / LENGTH : x % TILE, q = contiguous ? x % LENGTH : x / TILE;
    if (t < live) store_point(outers[t], results[t] + q * p.stride, values[from + q * TILE + t]);
  }
}
