// 1 workgroups, chunk 1024
#include "lib/convert.glsl"
IDX workgroup() { return IDX(gl_WorkGroupID.y) * gl_NumWorkGroups.x + gl_WorkGroupID.x; }
IDX turned() { return workgroup(); }
float element(IDX i, float x0, out IDX target) {
  IDX place1 = p.offset1;
  IDX rest_i = i;
  IDX at0 = rest_i;
  place1 += at0 * p.stride1_0;
  target = place1;
  precise float v0 = float(x0);
  precise float v1 = v0;
  return float(v1);
}
layout(local_size_x = 8) in;
void single(IDX i) {   IDX at; float value = element(i, AT(float, p.input0, i), at); AT(float, p.result, at) = value; }
void main() {
  IDX tile = turned();
  IDX count = p.count, end = min((tile + 1) * p.chunk, count);
  for (IDX i = tile * p.chunk + INVOCATION; i < end; i += 8) { single(i); }
}
