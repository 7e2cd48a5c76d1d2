// 4 workgroups, chunk 64
#include "lib/convert.glsl"
#include "lib/complex/convert.glsl"
IDX workgroup() { return IDX(gl_WorkGroupID.y) * gl_NumWorkGroups.x + gl_WorkGroupID.x; }
IDX turned() { return p.reversed != 0 ? IDX(gl_NumWorkGroups.y) * gl_NumWorkGroups.x - 1 - workgroup() : workgroup(); }
layout(local_size_x = 256) in;
#define LAST_WINS false
#include "lib/reduce.glsl"
#include "lib/complex/reduce.glsl"
void element(IDX o, IDX r, vec2 x0, out dvec2 e0) {
  precise vec2 v0 = vec2(x0);
  e0 = dvec2(v0);
}
shared dvec2 shared0[256];
void bases(IDX o, out IDX place0) {
  place0 = p.offset0;
  IDX rest_o = o;
  IDX at0 = rest_o;
  place0 += at0 * p.stride0_0;
}
void four(IDX r, IDX place0, out mat4x2 q0) {
  IDX rest_r = r;
  IDX at1 = rest_r;
  place0 += at1;
  q0 = LOAD_QUAD(vec2, p.input0, place0 / 4);
}
void one(IDX r, IDX place0, out vec2 q0) {
  IDX rest_r = r;
  IDX at1 = rest_r;
  place0 += at1;
  q0 = AT(vec2, p.input0, place0);
}
void main() {
  uint lane = INVOCATION, x = lane % 16, y = lane / 16;
  IDX group = turned();
  IDX chunk = group % p.chunks;
  IDX o = ((group / p.chunks) * 16 + x) * 1;
  IDX end = min((chunk + 1) * p.chunk, p.reduced);
  precise dvec2 a0_0 = dvec2(1, 0); precise dvec2 a0_1 = dvec2(1, 0); precise dvec2 a0_2 = dvec2(1, 0); precise dvec2 a0_3 = dvec2(1, 0);
  if (o < p.outputs) {
    IDX base0_0; bases(o + 0, base0_0);
    IDX r = chunk * p.chunk + y * 4;
    for (; r + 195 < end; r += 256) {
      mat4x2 q0_0; four(r + 0, base0_0, q0_0);
      mat4x2 q1_0; four(r + 64, base0_0, q1_0);
      mat4x2 q2_0; four(r + 128, base0_0, q2_0);
      mat4x2 q3_0; four(r + 192, base0_0, q3_0);
      dvec2 x0_0_0; element(o + 0, r + 0, q0_0[0], x0_0_0);
      dvec2 x0_1_0; element(o + 0, r + 1, q0_0[1], x0_1_0);
      dvec2 x0_2_0; element(o + 0, r + 2, q0_0[2], x0_2_0);
      dvec2 x0_3_0; element(o + 0, r + 3, q0_0[3], x0_3_0);
      dvec2 x1_0_0; element(o + 0, r + 64, q1_0[0], x1_0_0);
      dvec2 x1_1_0; element(o + 0, r + 65, q1_0[1], x1_1_0);
      dvec2 x1_2_0; element(o + 0, r + 66, q1_0[2], x1_2_0);
      dvec2 x1_3_0; element(o + 0, r + 67, q1_0[3], x1_3_0);
      dvec2 x2_0_0; element(o + 0, r + 128, q2_0[0], x2_0_0);
      dvec2 x2_1_0; element(o + 0, r + 129, q2_0[1], x2_1_0);
      dvec2 x2_2_0; element(o + 0, r + 130, q2_0[2], x2_2_0);
      dvec2 x2_3_0; element(o + 0, r + 131, q2_0[3], x2_3_0);
      dvec2 x3_0_0; element(o + 0, r + 192, q3_0[0], x3_0_0);
      dvec2 x3_1_0; element(o + 0, r + 193, q3_0[1], x3_1_0);
      dvec2 x3_2_0; element(o + 0, r + 194, q3_0[2], x3_2_0);
      dvec2 x3_3_0; element(o + 0, r + 195, q3_0[3], x3_3_0);
      combine_product(a0_0, x0_0_0);
      combine_product(a0_1, x0_1_0);
      combine_product(a0_2, x0_2_0);
      combine_product(a0_3, x0_3_0);
      combine_product(a0_0, x1_0_0);
      combine_product(a0_1, x1_1_0);
      combine_product(a0_2, x1_2_0);
      combine_product(a0_3, x1_3_0);
      combine_product(a0_0, x2_0_0);
      combine_product(a0_1, x2_1_0);
      combine_product(a0_2, x2_2_0);
      combine_product(a0_3, x2_3_0);
      combine_product(a0_0, x3_0_0);
      combine_product(a0_1, x3_1_0);
      combine_product(a0_2, x3_2_0);
      combine_product(a0_3, x3_3_0);
    }
    for (; r + 3 < end; r += 64) {
      mat4x2 q0_0; four(r + 0, base0_0, q0_0);
      dvec2 x0_0_0; element(o + 0, r + 0, q0_0[0], x0_0_0);
      dvec2 x0_1_0; element(o + 0, r + 1, q0_0[1], x0_1_0);
      dvec2 x0_2_0; element(o + 0, r + 2, q0_0[2], x0_2_0);
      dvec2 x0_3_0; element(o + 0, r + 3, q0_0[3], x0_3_0);
      combine_product(a0_0, x0_0_0);
      combine_product(a0_1, x0_1_0);
      combine_product(a0_2, x0_2_0);
      combine_product(a0_3, x0_3_0);
    }
    for (; r < end; r++) { vec2 q0_0; one(r, base0_0, q0_0); dvec2 x0_0_0; element(o + 0, r + 0, q0_0, x0_0_0); combine_product(a0_0, x0_0_0); }
    combine_product(a0_0, a0_1);
    combine_product(a0_2, a0_3);
    combine_product(a0_0, a0_2);
  }
  shared0[0 + lane] = a0_0;
  for (uint s = 8; s > 0; s >>= 1) {
    barrier();
    if (y < s) { combine_product(a0_0, shared0[0 + lane + s * 16]); shared0[0 + lane] = a0_0; }
  }
  if (y == 0 && o < p.outputs) {
    AT(vec2, p.result, o + 0) = vec2(to_c64(a0_0));
  }
}
