#version 450
#extension GL_GOOGLE_include_directive : require
// Whether the device's own comparisons tell subnormals from each other and from zero, in the functions that rest on that: each
// invocation takes one pair of numbers, which ascend, and compares their indices, too. The kernel does not ask to preserve
// subnormals.
#define COMPARES_SUBNORMALS
#define IDX uint
#define LAST_WINS true
#include "lib/float_bits.glsl"
#include "lib/reduce.glsl"

layout(local_size_x = 64) in;
layout(set = 0, binding = 0) buffer Data { float values[8]; uint right[64]; };

bool same(float a, float b) { return floatBitsToUint(a) == floatBitsToUint(b); }

void main() {
  uint i = gl_GlobalInvocationID.x / 8u, j = gl_GlobalInvocationID.x % 8u;
  float a = values[i], b = values[j], low = values[min(i, j)], high = values[max(i, j)];
  bool all_right = nx_less(a, b) == (i < j) && nx_less_equal(a, b) == (i <= j) && nx_equal(a, b) == (i == j);
  all_right = all_right && same(nx_max(a, b), high) && same(nx_min(a, b), low) && same(nx_clip(a, low, high), a);
  // argmax and argmin give the last index of equal elements.
  float greatest = a, least = a;
  uint greatest_at = 0u, least_at = 0u;
  combine_argmax(greatest, greatest_at, b, 1u);
  combine_argmin(least, least_at, b, 1u);
  all_right = all_right && greatest_at == uint(i <= j) && least_at == uint(j <= i);
  right[gl_GlobalInvocationID.x] = uint(all_right);
}
