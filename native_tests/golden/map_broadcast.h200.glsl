// 33 workgroups, chunk 0
#include "lib/convert.glsl"
IDX workgroup() { return IDX(gl_WorkGroupID.y) * gl_NumWorkGroups.x + gl_WorkGroupID.x; }
IDX turned() { return p.reversed != 0 ? IDX(gl_NumWorkGroups.y) * gl_NumWorkGroups.x - 1 - workgroup() : workgroup(); }
#include "lib/ops/arithmetic.glsl"
float element(IDX i, float x0, float x1) {
  precise float v0 = float(x0);
  precise float v1 = float(x1);
  precise float v2 = nx_add(v0, v1);
  return float(v2);
}
void bases(IDX o, out IDX place0, out IDX place1) {
  place0 = p.offset0;
  place1 = p.offset1;
  IDX rest_o = o;
  IDX rest_o_1 = QUOTIENT(rest_o, p.dim1);
  IDX at1 = rest_o - rest_o_1 * p.dim1; rest_o = rest_o_1;
  place0 += at1;
  IDX at0 = rest_o;
  place0 += at0 * p.stride0_0;
  place1 += at0 * p.stride1_0;
}
void four(IDX r, IDX place0, out vec4 q0, IDX place1, out float q1) {
  q0 = LOAD_QUAD(float, p.input0, place0 / 4);
  q1 = AT(float, p.input1, place1);
}
void one(IDX r, IDX place0, out float q0, IDX place1, out float q1) {
  q0 = AT(float, p.input0, place0);
  q1 = AT(float, p.input1, place1);
}
layout(local_size_x = 128) in;
void single(IDX i) { IDX base0_0, base0_1; bases(i, base0_0, base0_1); float q0_0; float q0_1; one(0, base0_0, q0_0, base0_1, q0_1); AT(float, p.result, i) = element(i, q0_0, q0_1); }
void main() {
  IDX tile = turned();
  IDX quad = tile * 256 + INVOCATION, whole = p.count / 4;
  if ((tile + 1) * 256 <= whole) {
     IDX base0_0, base0_1; bases((quad + 0) * 4, base0_0, base0_1); vec4 q0_0; float q0_1; four(0, base0_0, q0_0, base0_1, q0_1);
     IDX base1_0, base1_1; bases((quad + 128) * 4, base1_0, base1_1); vec4 q1_0; float q1_1; four(0, base1_0, q1_0, base1_1, q1_1);
    SET_QUAD(float, p.result, (quad + 0), vec4(element((quad + 0) * 4 + 0, q0_0[0], q0_1), element((quad + 0) * 4 + 1, q0_0[1], q0_1), element((quad + 0) * 4 + 2, q0_0[2], q0_1), element((quad + 0) * 4 + 3, q0_0[3], q0_1)));
    SET_QUAD(float, p.result, (quad + 128), vec4(element((quad + 128) * 4 + 0, q1_0[0], q1_1), element((quad + 128) * 4 + 1, q1_0[1], q1_1), element((quad + 128) * 4 + 2, q1_0[2], q1_1), element((quad + 128) * 4 + 3, q1_0[3], q1_1)));
    return;
  }
  for (uint k = 0; k < 2; k++, quad += 128) {
    if (quad < whole) {  IDX base0_0, base0_1; bases(quad * 4, base0_0, base0_1); vec4 q0_0; float q0_1; four(0, base0_0, q0_0, base0_1, q0_1); SET_QUAD(float, p.result, quad, vec4(element(quad * 4 + 0, q0_0[0], q0_1), element(quad * 4 + 1, q0_0[1], q0_1), element(quad * 4 + 2, q0_0[2], q0_1), element(quad * 4 + 3, q0_0[3], q0_1))); }
    if (quad == whole) for (IDX i = whole * 4; i < p.count; i++) single(i);
  }
}
