// The loops of an element-wise kernel. `count` elements of the iteration space are made one by one, or in vectors of four neighbours
// with scalars at the end.
//
// The kernel defines before it includes this:
//   THREADS                    threads of a workgroup
//   CHUNKED, SINGLE, UNROLLED, ROLLED   one of them: see MapTraversal in src/program/emit/schedule.rs
//   VECTORS                    defined where threads make vectors
//   VECTORS_PER_THREAD, SCALARS_PER_THREAD
//   RESULT, RESULT_AT(i), STORE_RESULTS(v, a, b, c, d)   the result's storage type, an element of it, and storing its vector v
//   OUTPUT_STRIDED             defined where the result's index is computed: `element` has it as another parameter, `target`
//   element(i, stored ...)     the result at the index i, from the stored elements of the inputs that the loop loads
//   LOAD_LINEAR(w, v), LINEAR_VECTORS(w, c), LINEAR_SCALARS(i)   inputs that are read at i itself: declarations of the vector v as the
//                              w-th of the thread, and the arguments of its element c or of the element i
//   BASES, LOAD_VECTOR, LOAD_SCALAR, VECTOR_STORED, SCALAR_STORED   the inputs of src/program/emit/vectors.rs

#include "lib/loops/repeat.glsl"

layout(local_size_x = THREADS) in;

void make_scalar(IDX i) {
  BASES(0, i) LOAD_SCALAR(0, 0, 0)
#ifdef OUTPUT_STRIDED
  IDX target;
  RESULT value = element(i LINEAR_SCALARS(i) SCALAR_STORED(0, 0), target);
  RESULT_AT(target) = value;
#else
  RESULT_AT(i) = element(i LINEAR_SCALARS(i) SCALAR_STORED(0, 0));
#endif
}

// The vector v of results is the w-th of the thread.
#define LOAD(w, v) LOAD_LINEAR(w, v) BASES(w, v * 4) LOAD_VECTOR(0, w, 0)
#define ELEMENT(w, v, c) element(v * 4 + c LINEAR_VECTORS(w, c) VECTOR_STORED(0, w, c))
#define STORE(w, v) STORE_RESULTS(v, ELEMENT(w, v, 0), ELEMENT(w, v, 1), ELEMENT(w, v, 2), ELEMENT(w, v, 3));

void main() {
  IDX group = traversed_group();
#ifdef CHUNKED
#ifdef VECTORS
  IDX count = p.count / 4, end = min((group + 1) * p.chunk, count);
  for (IDX v = group * p.chunk + INVOCATION; v < end; v += THREADS) { LOAD(0, v) STORE(0, v) }
  if (group * p.chunk <= count && end == count) {
    for (IDX i = 4 * count + INVOCATION; i < p.count; i += THREADS) make_scalar(i);
  }
#else
  IDX end = min((group + 1) * p.chunk, p.count);
  for (IDX i = group * p.chunk + INVOCATION; i < end; i += THREADS) make_scalar(i);
#endif
#elif defined SINGLE
  IDX i = group * THREADS + INVOCATION;
  if (i < p.count) make_scalar(i);
#elif defined ROLLED
#define GROUP_SCALARS (THREADS * SCALARS_PER_THREAD)
  IDX i = group * GROUP_SCALARS + INVOCATION;
  for (IDX k = 0; k < SCALARS_PER_THREAD && i < p.count; k++, i += THREADS) make_scalar(i);
#elif defined VECTORS
#define GROUP_VECTORS (THREADS * VECTORS_PER_THREAD)
#define LOAD_NEXT(k) LOAD(k, (vector + k * THREADS))
#define STORE_NEXT(k) STORE(k, (vector + k * THREADS))
  IDX vector = group * GROUP_VECTORS + INVOCATION, whole = p.count / 4;
  if ((group + 1) * GROUP_VECTORS <= whole) {
    // All loads come first, so that they overlap.
    EACH(VECTORS_PER_THREAD, LOAD_NEXT)
    EACH(VECTORS_PER_THREAD, STORE_NEXT)
    return;
  }
  for (uint k = 0; k < VECTORS_PER_THREAD; k++, vector += THREADS) {
    if (vector < whole) { LOAD(0, vector) STORE(0, vector) }
    if (vector == whole) for (IDX i = whole * 4; i < p.count; i++) make_scalar(i);
  }
#else
#define GROUP_SCALARS (THREADS * SCALARS_PER_THREAD)
#define MAKE_NEXT(k) make_scalar(first + k * THREADS);
  IDX first = group * GROUP_SCALARS + INVOCATION;
  if ((group + 1) * GROUP_SCALARS <= p.count) {
    EACH(SCALARS_PER_THREAD, MAKE_NEXT)
  } else {
    for (IDX i = first; i < p.count && group * GROUP_SCALARS < p.count; i += THREADS) make_scalar(i);
  }
#endif
}
