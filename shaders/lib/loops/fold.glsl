// The loop of a reduction by a function, whose order is the function's: each thread makes one output.
//
// The kernel defines before it includes this:
//   THREADS                        threads of a workgroup
//   ACCUMULATOR, START             the accumulator's type and first value
//   next(o, r, accumulator)        the accumulator with the element r of the output o
//   STORE_OUTPUT(accumulator, o)   stores an output

layout(local_size_x = THREADS) in;

void main() {
  IDX o = workgroup() * THREADS + INVOCATION;
  if (o >= p.outputs) return;
  ACCUMULATOR accumulator = START;
  for (IDX r = 0; r < p.reduced; r++) accumulator = next(o, r, accumulator);
  STORE_OUTPUT(accumulator, o)
}
