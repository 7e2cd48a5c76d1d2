// The loops of a workgroup program, in which all invocations of one workgroup compute one step after the other on small tensors.
//
// The kernel defines THREADS, a power of two, before it includes this.

layout(local_size_x = THREADS) in;

// What invocations of the workgroup wrote is seen by the others after this.
void meet() {
  groupMemoryBarrier();
  barrier();
}

void swap(inout uvec2 a, inout uvec2 b) { uvec2 other = a; a = b; b = other; }

// The address of that byte of scratch memory.
uvec2 in_scratch(uint offset) {
  uvec2 start = uvec2(p.scratch);
  uint carry, low = uaddCarry(start.x, offset, carry);
  return uvec2(low, start.y + carry);
}

// Each of `count` elements of a step: make(i).
#define MAP_STEP(count, make) \
  for (IDX i = INVOCATION; i < (count); i += THREADS) make(i);

// A reduction to `outputs` elements, each of `reduced` that `lanes` invocations share, a power of two. An accumulator has one part or two:
// `identity` is what a part starts with, `partial` shared memory with one part for each invocation.
//   element(o, r, parts)   gives what the element r of the output o contributes
//   combine(parts, parts)  adds the second accumulator to the first
//   put(o, parts)          stores an output
#define REDUCE_STEP_1(outputs, reduced, lanes, T0, identity0, partial0, element, combine, put) \
  for (IDX first = 0; first < (outputs); first += THREADS / lanes) { \
    IDX o = first + INVOCATION / lanes; \
    uint lane = INVOCATION % lanes; \
    precise T0 a0 = identity0; \
    if (o < (outputs)) for (IDX r = lane; r < (reduced); r += lanes) { T0 x0; element(o, r, x0); combine(a0, x0); } \
    if (lanes > 1) { \
      partial0[INVOCATION] = a0; \
      for (uint s = lanes / 2; s > 0; s >>= 1) { \
        barrier(); \
        if (lane < s) { combine(a0, partial0[INVOCATION + s]); partial0[INVOCATION] = a0; } \
      } \
      barrier(); \
    } \
    if (o < (outputs) && lane == 0) put(o, a0); \
  }

#define REDUCE_STEP_2(outputs, reduced, lanes, T0, identity0, partial0, T1, identity1, partial1, element, combine, put) \
  for (IDX first = 0; first < (outputs); first += THREADS / lanes) { \
    IDX o = first + INVOCATION / lanes; \
    uint lane = INVOCATION % lanes; \
    precise T0 a0 = identity0; \
    precise T1 a1 = identity1; \
    if (o < (outputs)) for (IDX r = lane; r < (reduced); r += lanes) { T0 x0; T1 x1; element(o, r, x0, x1); combine(a0, a1, x0, x1); } \
    if (lanes > 1) { \
      partial0[INVOCATION] = a0; partial1[INVOCATION] = a1; \
      for (uint s = lanes / 2; s > 0; s >>= 1) { \
        barrier(); \
        if (lane < s) { \
          combine(a0, a1, partial0[INVOCATION + s], partial1[INVOCATION + s]); \
          partial0[INVOCATION] = a0; partial1[INVOCATION] = a1; \
        } \
      } \
      barrier(); \
    } \
    if (o < (outputs) && lane == 0) put(o, a0, a1); \
  }
