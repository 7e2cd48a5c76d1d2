#version 460
// C (m×n) = A (m×k) · B (k×n), row-major. Each workgroup computes one 16×16 block of C by lib/matmul.glsl.
#extension GL_GOOGLE_include_directive : require
#include "lib/extensions.glsl"
#define IDX uint
#define BM 16u
#define BN 16u
#define BK 16u
#define TM 1u
#define TN 1u
#define ELEMENT REAL
#define ACCUMULATOR REAL
#define MULTIPLY_ADD(a, b, c) ((a) * (b) + (c))
#define WIDTH 1
#define VECTOR REAL
#define A_ALONG_K 1
#define B_ALONG_N 1
#define A_ROW(i) (i) * push.k
#define A_DEPTH(start, k) ((start) + (k))
#define A_AT(offset) a[offset]
#define B_DEPTH(start, k) ((start) + (k)) * push.n
#define B_COLUMN(j) (j)
#define B_AT(offset) b[offset]
#define STORE(i, j, value) c[(i) * push.n + (j)] = value

layout(local_size_x = 16, local_size_y = 16) in;
layout(set = 0, binding = 0, std430) readonly buffer A { REAL a[]; };
layout(set = 0, binding = 1, std430) readonly buffer B { REAL b[]; };
layout(set = 0, binding = 2, std430) writeonly buffer C { REAL c[]; };
layout(push_constant) uniform Push { uint m, n, k; } push;

#include "lib/matmul.glsl"

void main() {
  matmul(gl_LocalInvocationIndex, gl_WorkGroupID.y * BM, gl_WorkGroupID.x * BN, push.m, push.n, 0, push.k);
}
