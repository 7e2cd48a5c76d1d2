// 4 workgroups, chunk 256
#include "lib/convert.glsl"
IDX workgroup() { return IDX(gl_WorkGroupID.y) * gl_NumWorkGroups.x + gl_WorkGroupID.x; }
IDX turned() { return workgroup(); }
#include "lib/ops/arithmetic.glsl"
float element(IDX i, float x0, float x1) {
  precise float v0 = float(x0);
  precise float v1 = float(x1);
  precise float v2 = nx_add(v0, v1);
  return float(v2);
}
layout(local_size_x = 8) in;
void single(IDX i) {   AT(float, p.result, i) = element(i, AT(float, p.input0, i), AT(float, p.input1, i)); }
void main() {
  IDX tile = turned();
  IDX count = p.count / 4, end = min((tile + 1) * p.chunk, count);
  for (IDX i = tile * p.chunk + INVOCATION; i < end; i += 8) { vec4 q0_0 = LOAD_QUAD(float, p.input0, i); vec4 q0_1 = LOAD_QUAD(float, p.input1, i);   SET_QUAD(float, p.result, i, vec4(element(i * 4 + 0, q0_0[0], q0_1[0]), element(i * 4 + 1, q0_0[1], q0_1[1]), element(i * 4 + 2, q0_0[2], q0_1[2]), element(i * 4 + 3, q0_0[3], q0_1[3]))); }
  if (tile * p.chunk <= count && end == count) {
    for (IDX i = 4 * count + INVOCATION; i < p.count; i += 8) single(i);
  }
}
