// 33 workgroups, chunk 0
#include "lib/convert.glsl"
IDX workgroup() { return IDX(gl_WorkGroupID.y) * gl_NumWorkGroups.x + gl_WorkGroupID.x; }
IDX turned() { return p.reversed != 0 ? IDX(gl_NumWorkGroups.y) * gl_NumWorkGroups.x - 1 - workgroup() : workgroup(); }
#include "lib/ops/arithmetic.glsl"
float element(IDX i, float x1) {
  IDX place0 = p.offset0;
  IDX rest_i = i;
  IDX rest_i_1 = QUOTIENT(rest_i, p.dim1);
  IDX at1 = rest_i - rest_i_1 * p.dim1; rest_i = rest_i_1;
  place0 += at1 * p.stride0_1;
  IDX at0 = rest_i;
  place0 += at0 * p.stride0_0;
  precise float v0 = float(AT(float, p.input0, place0));
  precise float v1 = float(x1);
  precise float v2 = nx_add(v0, v1);
  return float(v2);
}
layout(local_size_x = 256) in;
void single(IDX i) {   AT(float, p.result, i) = element(i, AT(float, p.input1, i)); }
void main() {
  IDX tile = turned();
  IDX first = tile * 1024 + INVOCATION;
  if ((tile + 1) * 1024 <= p.count) {
    single(first + 0);
    single(first + 256);
    single(first + 512);
    single(first + 768);
  } else {
    for (IDX i = first; i < p.count && tile * 1024 < p.count; i += 256) single(i);
  }
}
