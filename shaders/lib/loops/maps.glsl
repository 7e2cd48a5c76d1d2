// The loops of a map group, in which each workgroup goes through a chunk of one part.
//
// The kernel defines before it includes this:
//   THREADS   threads of a workgroup
//   SINGLE    defined where a thread makes one element, without a loop
// and functions for each part: `scalar(i)` makes the element i, and `vector(v)` the four neighbours from 4 v on.

layout(local_size_x = THREADS) in;

// The elements of a chunk one by one.
#ifdef SINGLE
#define SCALARS(group, count, chunk, scalar, vector) \
  IDX i = group * chunk + INVOCATION; \
  if (i < count) scalar(i);
#else
#define SCALARS(group, count, chunk, scalar, vector) \
  IDX end = min((group + 1) * chunk, count); \
  for (IDX i = group * chunk + INVOCATION; i < end; i += THREADS) scalar(i);
#endif

// A chunk of vectors. Behind the last whole vector one thread makes the elements that are left.
#define VECTORS(group, count, chunk, scalar, vector) \
  IDX whole = count / 4, end = min((group + 1) * chunk, whole + 1); \
  for (IDX v = group * chunk + INVOCATION; v < end; v += THREADS) { \
    if (v < whole) { vector(v); } else for (IDX i = whole * 4; i < count; i++) scalar(i); \
  }
