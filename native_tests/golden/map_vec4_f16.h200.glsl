// 3 workgroups, chunk 0
#include "lib/convert.glsl"
IDX workgroup() { return IDX(gl_WorkGroupID.y) * gl_NumWorkGroups.x + gl_WorkGroupID.x; }
IDX turned() { return p.reversed != 0 ? IDX(gl_NumWorkGroups.y) * gl_NumWorkGroups.x - 1 - workgroup() : workgroup(); }
#include "lib/ops/arithmetic.glsl"
uint16_t element(IDX i, uint16_t x0, uint16_t x1) {
  precise float v0 = f16_to_float(uint(x0));
  precise float v1 = f16_to_float(uint(x1));
  precise float v2 = to_f16(nx_multiply(v0, v1));
  return uint16_t(float_to_f16(v2));
}
layout(local_size_x = 256) in;
void single(IDX i) {   AT(uint16_t, p.result, i) = element(i, AT(uint16_t, p.input0, i), AT(uint16_t, p.input1, i)); }
void main() {
  IDX tile = turned();
  IDX quad = tile * 512 + INVOCATION, whole = p.count / 4;
  if ((tile + 1) * 512 <= whole) {
    u16vec4 q0_0 = LOAD_QUAD(uint16_t, p.input0, (quad + 0)); u16vec4 q0_1 = LOAD_QUAD(uint16_t, p.input1, (quad + 0));  
    u16vec4 q1_0 = LOAD_QUAD(uint16_t, p.input0, (quad + 256)); u16vec4 q1_1 = LOAD_QUAD(uint16_t, p.input1, (quad + 256));  
    SET_QUAD(uint16_t, p.result, (quad + 0), u16vec4(element((quad + 0) * 4 + 0, q0_0[0], q0_1[0]), element((quad + 0) * 4 + 1, q0_0[1], q0_1[1]), element((quad + 0) * 4 + 2, q0_0[2], q0_1[2]), element((quad + 0) * 4 + 3, q0_0[3], q0_1[3])));
    SET_QUAD(uint16_t, p.result, (quad + 256), u16vec4(element((quad + 256) * 4 + 0, q1_0[0], q1_1[0]), element((quad + 256) * 4 + 1, q1_0[1], q1_1[1]), element((quad + 256) * 4 + 2, q1_0[2], q1_1[2]), element((quad + 256) * 4 + 3, q1_0[3], q1_1[3])));
    return;
  }
  for (uint k = 0; k < 2; k++, quad += 256) {
    if (quad < whole) { u16vec4 q0_0 = LOAD_QUAD(uint16_t, p.input0, quad); u16vec4 q0_1 = LOAD_QUAD(uint16_t, p.input1, quad);   SET_QUAD(uint16_t, p.result, quad, u16vec4(element(quad * 4 + 0, q0_0[0], q0_1[0]), element(quad * 4 + 1, q0_0[1], q0_1[1]), element(quad * 4 + 2, q0_0[2], q0_1[2]), element(quad * 4 + 3, q0_0[3], q0_1[3]))); }
    if (quad == whole) for (IDX i = whole * 4; i < p.count; i++) single(i);
  }
}
