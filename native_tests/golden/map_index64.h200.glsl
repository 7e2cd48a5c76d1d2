// 4194305 workgroups, chunk 0
#include "lib/convert.glsl"
IDX workgroup() { return IDX(gl_WorkGroupID.y) * gl_NumWorkGroups.x + gl_WorkGroupID.x; }
IDX turned() { return p.reversed != 0 ? IDX(gl_NumWorkGroups.y) * gl_NumWorkGroups.x - 1 - workgroup() : workgroup(); }
#include "lib/ops/arithmetic.glsl"
float element(IDX i, float x0) {
  precise float v0 = float(x0);
  precise float v1 = float(AT(float, p.input1, IDX(0)));
  precise float v2 = nx_add(v0, v1);
  return float(v2);
}
layout(local_size_x = 128) in;
void single(IDX i) {   AT(float, p.result, i) = element(i, AT(float, p.input0, i)); }
void main() {
  IDX tile = turned();
  IDX quad = tile * 256 + INVOCATION, whole = p.count / 4;
  if ((tile + 1) * 256 <= whole) {
    vec4 q0_0 = LOAD_QUAD(float, p.input0, (quad + 0));  
    vec4 q1_0 = LOAD_QUAD(float, p.input0, (quad + 128));  
    SET_QUAD(float, p.result, (quad + 0), vec4(element((quad + 0) * 4 + 0, q0_0[0]), element((quad + 0) * 4 + 1, q0_0[1]), element((quad + 0) * 4 + 2, q0_0[2]), element((quad + 0) * 4 + 3, q0_0[3])));
    SET_QUAD(float, p.result, (quad + 128), vec4(element((quad + 128) * 4 + 0, q1_0[0]), element((quad + 128) * 4 + 1, q1_0[1]), element((quad + 128) * 4 + 2, q1_0[2]), element((quad + 128) * 4 + 3, q1_0[3])));
    return;
  }
  for (uint k = 0; k < 2; k++, quad += 128) {
    if (quad < whole) { vec4 q0_0 = LOAD_QUAD(float, p.input0, quad);   SET_QUAD(float, p.result, quad, vec4(element(quad * 4 + 0, q0_0[0]), element(quad * 4 + 1, q0_0[1]), element(quad * 4 + 2, q0_0[2]), element(quad * 4 + 3, q0_0[3]))); }
    if (quad == whole) for (IDX i = whole * 4; i < p.count; i++) single(i);
  }
}
