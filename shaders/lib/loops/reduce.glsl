// The loops of a reduction: each thread combines elements in accumulators of its own, threads that share an output combine theirs, and
// one of them stores the output.
//
// The kernel defines before it includes this (see ReduceSchedule in src/program/emit/schedule.rs):
//   OUTPUT_THREADS, REDUCTION_THREADS   threads of a workgroup with outputs of their own, and threads that share an output
//   OUTPUT_VECTORS      vectors of four outputs of a thread; 0 where it makes one output
//   REDUCED_VECTORS     1 where a thread reads vectors along the reduced axes, otherwise 0
//   UNROLLED            elements of an output, or vectors along the reduced axes, that a thread loads before it combines them
//   EXACT               1 where UNROLLED are all elements, or vectors, of a thread
//   CHUNKED             1 where p.chunks workgroups share an output, p.chunk elements each
//   SHARED_EXCHANGE     where more threads share an output than LANES
//   LANES               threads of a subgroup that share an output; more than 1 needs lib/exchange.glsl
//   NEIGHBOURS_SHARE    1 where neighbouring threads share an output, 0 where they have neighbouring ones
//   RESULTS             sums that the kernel adds up; 1 for any other reduction
//   PARTS, PART0 ..., IDENTITY0 ...     the parts of an accumulator, one to four: types and identities
//   COMBINE_PARTS       the function that combines two accumulators in the first
//   STORE_OUTPUT(a, index)              stores the accumulator a as the output of an index, or as its partial result
//   element(o, r, stored ..., parts)    what an element contributes: o is the output's index, r the one along the reduced axes
//   ADDS_PRODUCTS       1 where add_element(o, r, stored ..., sum) adds to a sum of lib/products.glsl instead
//   REDUCES_RESULTS     where an epilogue reduces the outputs, with start_results() and lib/loops/results.glsl: RESULT_GROUPS workgroups go
//                       through all of them
//   PROLOGUE            what the invocations of a workgroup compute together before they read anything; may be empty
//   BASES, LOAD_VECTOR, LOAD_SCALAR, VECTOR_STORED, SCALAR_STORED   the inputs of src/program/emit/vectors.rs

#include "lib/loops/repeat.glsl"

#define THREADS (OUTPUT_THREADS * REDUCTION_THREADS)
layout(local_size_x = THREADS) in;

// An accumulator a is the variables a_0, a_1 and so on.
#if PARTS == 4
#define EACH_PART(M, x) M(x, 0) M(x, 1) M(x, 2) M(x, 3)
#define PARTS_OF(x) x##_0, x##_1, x##_2, x##_3
#elif PARTS == 3
#define EACH_PART(M, x) M(x, 0) M(x, 1) M(x, 2)
#define PARTS_OF(x) x##_0, x##_1, x##_2
#elif PARTS == 2
#define EACH_PART(M, x) M(x, 0) M(x, 1)
#define PARTS_OF(x) x##_0, x##_1
#elif PARTS == 1
#define EACH_PART(M, x) M(x, 0)
#define PARTS_OF(x) x##_0
#else
#error "An accumulator has one to four parts: MAX_PARTS of src/program/emit/accumulator.rs"
#endif
#define DECLARE_PART(x, i) PART##i x##_##i;
#define START_PART(a, i) precise PART##i a##_##i = IDENTITY##i;
#define DECLARE(x) EACH_PART(DECLARE_PART, x)
#define START(a) EACH_PART(START_PART, a)
#define COMBINE(a, x) COMBINE_PARTS(PARTS_OF(a), PARTS_OF(x));

// EACH_LANE is for each accumulator a_w_c of a thread, that of the element c of its vector w. An addition waits for the one before it,
// hence neighbours along the reduced axes have accumulators of their own, too.
#if OUTPUT_VECTORS == 4
#define EACH_VECTOR(M, k) M(k, 0) M(k, 1) M(k, 2) M(k, 3)
#define EACH_OF_VECTOR(M, k, w) M(k, w, 0) M(k, w, 1) M(k, w, 2) M(k, w, 3)
#define EACH_LANE(M, k) EACH_OF_VECTOR(M, k, 0) EACH_OF_VECTOR(M, k, 1) EACH_OF_VECTOR(M, k, 2) EACH_OF_VECTOR(M, k, 3)
#else
#define EACH_VECTOR(M, k) M(k, 0)
#if OUTPUT_VECTORS == 1 || REDUCED_VECTORS == 1
#define EACH_LANE(M, k) M(k, 0, 0) M(k, 0, 1) M(k, 0, 2) M(k, 0, 3)
#else
#define EACH_LANE(M, k) M(k, 0, 0)
#endif
#endif
#if OUTPUT_VECTORS > 0
#define OUTPUTS (4 * OUTPUT_VECTORS)
#define EACH_OUTPUT(M) EACH_LANE(M, 0)
#define OUTPUT_OF(w, c) o + (4 * w + c)
#define REDUCED_OF(k, c) r + STEP * k
#else
#define OUTPUTS 1
#define EACH_OUTPUT(M) M(0, 0, 0)
#define OUTPUT_OF(w, c) o
#define REDUCED_OF(k, c) r + (STEP * k + c)
#endif

// Elements along the reduced axes from one of a thread to its next.
#if REDUCED_VECTORS == 1
#define WIDTH 4
#else
#define WIDTH 1
#endif
#define STEP (REDUCTION_THREADS * WIDTH)

// STEPS(n) is n elements, or vectors, of each output: all loads come first, so that they overlap.
#define START_LANE(k, w, c) START(a_##w##_##c)
#define START_VECTOR(k, w) BASES(w, o + 4 * w)
#define LOAD_LANES(k, w) LOAD_VECTOR(k, w, r + STEP * k)
#define TAKE_LANE(k, w, c) DECLARE(x_##k##_##w##_##c) \
  element(OUTPUT_OF(w, c), REDUCED_OF(k, c) VECTOR_STORED(k, w, c), PARTS_OF(x_##k##_##w##_##c));
#define COMBINE_LANE(k, w, c) COMBINE(a_##w##_##c, x_##k##_##w##_##c)
#define LOAD(k) EACH_VECTOR(LOAD_LANES, k)
#define TAKE(k) EACH_LANE(TAKE_LANE, k)
#define COMBINE_TAKEN(k) EACH_LANE(COMBINE_LANE, k)
#if ADDS_PRODUCTS
#define ADD_LANE(k, w, c) add_element(OUTPUT_OF(w, c), REDUCED_OF(k, c) VECTOR_STORED(k, w, c), PARTS_OF(a_##w##_##c));
#define ADD(k) EACH_LANE(ADD_LANE, k)
#define STEPS(n) EACH(n, LOAD) EACH(n, ADD)
#elif RESULTS > 1
// Registers do not hold what all elements contribute to all sums.
#define ADD_UP(k) { TAKE(k) COMBINE_TAKEN(k) }
#define STEPS(n) EACH(n, LOAD) EACH(n, ADD_UP)
#else
#define STEPS(n) EACH(n, LOAD) EACH(n, TAKE) EACH(n, COMBINE_TAKEN)
#endif

// Neighbours along the reduced axes are this many threads apart.
#if NEIGHBOURS_SHARE
#define APART 1
#else
#define APART OUTPUT_THREADS
#endif
#if OUTPUT_VECTORS == 1 && LANES >= 4
#define HALVES 1
#else
#define HALVES 0
#endif
#if LANES > 1
#include "lib/exchange.glsl"
#define HANDED_PART(a, i) PART##i handed_##i = from_lane(a##_##i, distance);
#define HAND_ON(d, w, c) { const uint distance = d; EACH_PART(HANDED_PART, a_##w##_##c) COMBINE(a_##w##_##c, handed) }
// Of its four outputs a thread hands on those that it does not go on with, two and then one. That is a third of what handing on all takes.
#if HALVES
#define HANDED_OF(low, high, i) \
  PART##i handed_##i = from_lane(upper ? low##_##i : high##_##i, distance); \
  low##_##i = upper ? high##_##i : low##_##i;
#define HANDED_OF_02(a, i) HANDED_OF(a##_0, a##_2, i)
#define HANDED_OF_13(a, i) HANDED_OF(a##_1, a##_3, i)
#define HANDED_OF_01(a, i) HANDED_OF(a##_0, a##_1, i)
#define HALVE(d, handed_of, c) \
  { const uint distance = d; bool upper = (lane & d) != 0; EACH_PART(handed_of, a_0) COMBINE(a_0_##c, handed) }
#define HALVE_OUTPUTS HALVE(APART, HANDED_OF_02, 0) HALVE(APART, HANDED_OF_13, 1) HALVE(2 * APART, HANDED_OF_01, 0)
#define HALVED_LANES 4
#else
#define HALVED_LANES 1
#endif
#define EXCHANGE_LANES(k, w, c) \
  if (LANES > 1 && HALVED_LANES < 2) { HAND_ON(APART, w, c) } \
  if (LANES > 2 && HALVED_LANES < 4) { HAND_ON(2 * APART, w, c) } \
  if (LANES > 4) { HAND_ON(4 * APART, w, c) } \
  if (LANES > 8) { HAND_ON(8 * APART, w, c) } \
  if (LANES > 16) { HAND_ON(16 * APART, w, c) } \
  if (LANES > 32) { HAND_ON(32 * APART, w, c) } \
  if (LANES > 64) { HAND_ON(64 * APART, w, c) }
#endif
#if defined SHARED_EXCHANGE
// Of the threads that have exchanged by shuffles one goes on.
#define PARTIALS (REDUCTION_THREADS / LANES)
#define SHARED (OUTPUT_THREADS * PARTIALS)
// What a thread adds between two barriers, whose loads overlap: halving takes an H200 0.2 to 0.9 µs longer.
#define PARTIALS_AT_ONCE 8
#define SHARED_PART(x, i) shared PART##i x##_##i[SHARED * OUTPUTS];
EACH_PART(SHARED_PART, shared)
#define SLOT(w, c) (4 * w + c) * SHARED + slot
#define PUT_PART(a, i) shared_##i[at] = a##_##i;
#define GET_PART(x, i) PART##i x##_##i = shared_##i[at];
#define PUT(k, w, c) { uint at = SLOT(w, c); EACH_PART(PUT_PART, a_##w##_##c) }
#define GET(k, w, c) { uint at = SLOT(w, c) + other * OUTPUT_THREADS; EACH_PART(GET_PART, x) COMBINE(a_##w##_##c, x) }
#endif

// What is stored may be computed from more loads, which wait for the store before them: each output has a thread of its own.
#if defined SHARED_EXCHANGE && OUTPUT_VECTORS == 1 && REDUCTION_THREADS >= OUTPUTS
#define SPREAD_STORES 1
#else
#define SPREAD_STORES 0
#endif
#if ADDS_PRODUCTS
#define STORE(a, index) a##_0 = product_sum(a##_0); STORE_OUTPUT(a, index)
#else
#define STORE(a, index) STORE_OUTPUT(a, index)
#endif
#define STORE_LANE(k, w, c) STORE(a_##w##_##c, OUTPUT_OF(w, c))
// Threads with outputs in common that store any.
#if HALVES || SPREAD_STORES
#define STORING_THREADS OUTPUTS
#else
#define STORING_THREADS 1
#endif

void main() {
  uint lane = INVOCATION;
#if NEIGHBOURS_SHARE
  uint x = lane / REDUCTION_THREADS, y = lane % REDUCTION_THREADS;
#else
  uint x = lane % OUTPUT_THREADS, y = lane / OUTPUT_THREADS;
#endif
  PROLOGUE
  IDX group = traversed_group();
#if CHUNKED
  IDX chunk = group % p.chunks, start = chunk * p.chunk, end = min(start + p.chunk, p.reduced);
  group /= p.chunks;
#else
  const IDX start = 0;
  IDX end = p.reduced;
#endif
#ifdef REDUCES_RESULTS
  const IDX first_group = group;
  start_results();
  for (; first_group < RESULT_GROUPS && group * (OUTPUT_THREADS * OUTPUTS) < p.outputs; group += RESULT_GROUPS) {
#endif
  IDX o = (group * OUTPUT_THREADS + x) * OUTPUTS;
  EACH_LANE(START_LANE, 0)
  if (o < p.outputs) {
    EACH_VECTOR(START_VECTOR, 0)
    IDX r = start + y * WIDTH;
#if EXACT
    STEPS(UNROLLED)
    r = end;
#else
    for (; r + (STEP * (UNROLLED - 1) + WIDTH - 1) < end; r += STEP * UNROLLED) { STEPS(UNROLLED) }
    for (; r + (WIDTH - 1) < end; r += STEP) { STEPS(1) }
#endif
#if REDUCED_VECTORS == 1
    // What is left of the last vector is one thread's.
    for (; r < end; r++) {
      LOAD_SCALAR(0, 0, r)
#if ADDS_PRODUCTS
      add_element(o, r SCALAR_STORED(0, 0), PARTS_OF(a_0_0));
#else
      DECLARE(rest)
      element(o, r SCALAR_STORED(0, 0), PARTS_OF(rest));
      COMBINE(a_0_0, rest)
#endif
    }
    COMBINE(a_0_0, a_0_1)
    COMBINE(a_0_2, a_0_3)
    COMBINE(a_0_0, a_0_2)
#endif
  }
#if HALVES
  HALVE_OUTPUTS
  EXCHANGE_LANES(0, 0, 0)
  // The output that the thread has gone on with.
  uint own = (y & 1) * 2 + (y >> 1 & 1);
#if defined SHARED_EXCHANGE
  if (y % LANES < OUTPUTS) {
    uint at = (y / LANES * OUTPUTS + own) * OUTPUT_THREADS + x;
    EACH_PART(PUT_PART, a_0_0)
  }
  barrier();
  if (y < OUTPUTS && o < p.outputs) {
    uint at = y * OUTPUT_THREADS + x;
    EACH_PART(GET_PART, total)
    [[unroll]] for (uint other = 1; other < PARTIALS; other++) {
      at += OUTPUTS * OUTPUT_THREADS;
      EACH_PART(GET_PART, x)
      COMBINE(total, x)
    }
    STORE(total, o + y)
  }
#else
  if (y < OUTPUTS && o < p.outputs) { STORE(a_0_0, o + own) }
#endif
#else
#if LANES > 1
  EACH_OUTPUT(EXCHANGE_LANES)
#endif
#if defined SHARED_EXCHANGE
  bool goes_on = y % LANES == 0;
  uint slot = x + y / LANES * OUTPUT_THREADS;
  if (goes_on) { EACH_OUTPUT(PUT) }
  for (uint left = PARTIALS, next; left > 1; left = next) {
    next = max(left / PARTIALS_AT_ONCE, 1);
    barrier();
    if (goes_on && y / LANES < next) {
      for (uint other = next; other < left; other += next) { EACH_OUTPUT(GET) }
      EACH_OUTPUT(PUT)
    }
  }
#endif
#if SPREAD_STORES
  barrier();
  if (y < OUTPUTS && o < p.outputs) {
    uint at = y * SHARED + x;
    EACH_PART(GET_PART, total)
    STORE(total, o + y)
  }
#else
  if (y == 0 && o < p.outputs) { EACH_OUTPUT(STORE_LANE) }
#endif
#endif
#ifdef REDUCES_RESULTS
#if defined SHARED_EXCHANGE
    barrier();
#endif
  }
  finish_results(first_group, y < STORING_THREADS, y * OUTPUT_THREADS + x, OUTPUT_THREADS * STORING_THREADS);
#endif
}
