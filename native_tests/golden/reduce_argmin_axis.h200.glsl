// 64 workgroups, chunk 100
#include "lib/convert.glsl"
IDX workgroup() { return IDX(gl_WorkGroupID.y) * gl_NumWorkGroups.x + gl_WorkGroupID.x; }
IDX turned() { return p.reversed != 0 ? IDX(gl_NumWorkGroups.y) * gl_NumWorkGroups.x - 1 - workgroup() : workgroup(); }
layout(local_size_x = 256) in;
#define LAST_WINS true
#include "lib/reduce.glsl"
void element(IDX o, IDX r, float x0, out float e0, out uint e1) {
  precise float v0 = float(x0);
  e0 = float(v0);
  e1 = r;
}
shared float shared0[256];
shared uint shared1[256];
void bases(IDX o, out IDX place0) {
  place0 = p.offset0;
  IDX rest_o = o;
  IDX at0 = rest_o;
  place0 += at0 * p.stride0_0;
}
void four(IDX r, IDX place0, out vec4 q0) {
  IDX rest_r = r;
  IDX at1 = rest_r;
  place0 += at1;
  q0 = LOAD_QUAD(float, p.input0, place0 / 4);
}
void one(IDX r, IDX place0, out float q0) {
  IDX rest_r = r;
  IDX at1 = rest_r;
  place0 += at1;
  q0 = AT(float, p.input0, place0);
}
void main() {
  uint lane = INVOCATION, x = lane % 8, y = lane / 8;
  IDX group = turned();
  IDX chunk = group % p.chunks;
  IDX o = ((group / p.chunks) * 8 + x) * 1;
  IDX end = min((chunk + 1) * p.chunk, p.reduced);
  precise float a0_0 = highest_float(); precise uint a1_0 = ~uint(0); precise float a0_1 = highest_float(); precise uint a1_1 = ~uint(0); precise float a0_2 = highest_float(); precise uint a1_2 = ~uint(0); precise float a0_3 = highest_float(); precise uint a1_3 = ~uint(0);
  if (o < p.outputs) {
    IDX base0_0; bases(o + 0, base0_0);
    IDX r = chunk * p.chunk + y * 4;
    for (; r + 387 < end; r += 512) {
      vec4 q0_0; four(r + 0, base0_0, q0_0);
      vec4 q1_0; four(r + 128, base0_0, q1_0);
      vec4 q2_0; four(r + 256, base0_0, q2_0);
      vec4 q3_0; four(r + 384, base0_0, q3_0);
      float x0_0_0; uint x0_0_1; element(o + 0, r + 0, q0_0[0], x0_0_0, x0_0_1);
      float x0_1_0; uint x0_1_1; element(o + 0, r + 1, q0_0[1], x0_1_0, x0_1_1);
      float x0_2_0; uint x0_2_1; element(o + 0, r + 2, q0_0[2], x0_2_0, x0_2_1);
      float x0_3_0; uint x0_3_1; element(o + 0, r + 3, q0_0[3], x0_3_0, x0_3_1);
      float x1_0_0; uint x1_0_1; element(o + 0, r + 128, q1_0[0], x1_0_0, x1_0_1);
      float x1_1_0; uint x1_1_1; element(o + 0, r + 129, q1_0[1], x1_1_0, x1_1_1);
      float x1_2_0; uint x1_2_1; element(o + 0, r + 130, q1_0[2], x1_2_0, x1_2_1);
      float x1_3_0; uint x1_3_1; element(o + 0, r + 131, q1_0[3], x1_3_0, x1_3_1);
      float x2_0_0; uint x2_0_1; element(o + 0, r + 256, q2_0[0], x2_0_0, x2_0_1);
      float x2_1_0; uint x2_1_1; element(o + 0, r + 257, q2_0[1], x2_1_0, x2_1_1);
      float x2_2_0; uint x2_2_1; element(o + 0, r + 258, q2_0[2], x2_2_0, x2_2_1);
      float x2_3_0; uint x2_3_1; element(o + 0, r + 259, q2_0[3], x2_3_0, x2_3_1);
      float x3_0_0; uint x3_0_1; element(o + 0, r + 384, q3_0[0], x3_0_0, x3_0_1);
      float x3_1_0; uint x3_1_1; element(o + 0, r + 385, q3_0[1], x3_1_0, x3_1_1);
      float x3_2_0; uint x3_2_1; element(o + 0, r + 386, q3_0[2], x3_2_0, x3_2_1);
      float x3_3_0; uint x3_3_1; element(o + 0, r + 387, q3_0[3], x3_3_0, x3_3_1);
      combine_argmin(a0_0, a1_0, x0_0_0, x0_0_1);
      combine_argmin(a0_1, a1_1, x0_1_0, x0_1_1);
      combine_argmin(a0_2, a1_2, x0_2_0, x0_2_1);
      combine_argmin(a0_3, a1_3, x0_3_0, x0_3_1);
      combine_argmin(a0_0, a1_0, x1_0_0, x1_0_1);
      combine_argmin(a0_1, a1_1, x1_1_0, x1_1_1);
      combine_argmin(a0_2, a1_2, x1_2_0, x1_2_1);
      combine_argmin(a0_3, a1_3, x1_3_0, x1_3_1);
      combine_argmin(a0_0, a1_0, x2_0_0, x2_0_1);
      combine_argmin(a0_1, a1_1, x2_1_0, x2_1_1);
      combine_argmin(a0_2, a1_2, x2_2_0, x2_2_1);
      combine_argmin(a0_3, a1_3, x2_3_0, x2_3_1);
      combine_argmin(a0_0, a1_0, x3_0_0, x3_0_1);
      combine_argmin(a0_1, a1_1, x3_1_0, x3_1_1);
      combine_argmin(a0_2, a1_2, x3_2_0, x3_2_1);
      combine_argmin(a0_3, a1_3, x3_3_0, x3_3_1);
    }
    for (; r + 3 < end; r += 128) {
      vec4 q0_0; four(r + 0, base0_0, q0_0);
      float x0_0_0; uint x0_0_1; element(o + 0, r + 0, q0_0[0], x0_0_0, x0_0_1);
      float x0_1_0; uint x0_1_1; element(o + 0, r + 1, q0_0[1], x0_1_0, x0_1_1);
      float x0_2_0; uint x0_2_1; element(o + 0, r + 2, q0_0[2], x0_2_0, x0_2_1);
      float x0_3_0; uint x0_3_1; element(o + 0, r + 3, q0_0[3], x0_3_0, x0_3_1);
      combine_argmin(a0_0, a1_0, x0_0_0, x0_0_1);
      combine_argmin(a0_1, a1_1, x0_1_0, x0_1_1);
      combine_argmin(a0_2, a1_2, x0_2_0, x0_2_1);
      combine_argmin(a0_3, a1_3, x0_3_0, x0_3_1);
    }
    for (; r < end; r++) { float q0_0; one(r, base0_0, q0_0); float x0_0_0; uint x0_0_1; element(o + 0, r + 0, q0_0, x0_0_0, x0_0_1); combine_argmin(a0_0, a1_0, x0_0_0, x0_0_1); }
    combine_argmin(a0_0, a1_0, a0_1, a1_1);
    combine_argmin(a0_2, a1_2, a0_3, a1_3);
    combine_argmin(a0_0, a1_0, a0_2, a1_2);
  }
  shared0[0 + lane] = a0_0; shared1[0 + lane] = a1_0;
  for (uint s = 16; s > 0; s >>= 1) {
    barrier();
    if (y < s) { combine_argmin(a0_0, a1_0, shared0[0 + lane + s * 8], shared1[0 + lane + s * 8]); shared0[0 + lane] = a0_0; shared1[0 + lane] = a1_0; }
  }
  if (y == 0 && o < p.outputs) {
    AT(int64_t, p.result, o + 0) = int64_t(to_s64(a1_0));
  }
}
