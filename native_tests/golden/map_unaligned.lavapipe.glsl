// 4 workgroups, chunk 1024
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
  IDX count = p.count, end = min((tile + 1) * p.chunk, count);
  for (IDX i = tile * p.chunk + INVOCATION; i < end; i += 8) { single(i); }
}
