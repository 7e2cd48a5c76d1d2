// 9 workgroups, chunk 0
#include "lib/convert.glsl"
#include "lib/complex/convert.glsl"
IDX workgroup() { return IDX(gl_WorkGroupID.y) * gl_NumWorkGroups.x + gl_WorkGroupID.x; }
IDX turned() { return p.reversed != 0 ? IDX(gl_NumWorkGroups.y) * gl_NumWorkGroups.x - 1 - workgroup() : workgroup(); }
#include "lib/complex/exp.glsl"
vec2 element(IDX i, vec2 x0) {
  precise vec2 v0 = vec2(x0);
  precise vec2 v1 = to_c64(nx_exp(to_c128(v0)));
  return vec2(v1);
}
layout(local_size_x = 128) in;
void single(IDX i) {   AT(vec2, p.result, i) = element(i, AT(vec2, p.input0, i)); }
void main() {
  IDX tile = turned();
  for (IDX k = 0, i = tile * 512 + INVOCATION; k < 4 && i < p.count; k++, i += 128) single(i);
}
