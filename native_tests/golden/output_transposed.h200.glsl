// 9 workgroups, chunk 0
#include "lib/convert.glsl"
IDX workgroup() { return IDX(gl_WorkGroupID.y) * gl_NumWorkGroups.x + gl_WorkGroupID.x; }
IDX turned() { return p.reversed != 0 ? IDX(gl_NumWorkGroups.y) * gl_NumWorkGroups.x - 1 - workgroup() : workgroup(); }
float element(IDX i, float x0, out IDX target) {
  IDX place1 = p.offset1;
  IDX rest_i = i;
  IDX rest_i_1 = QUOTIENT(rest_i, p.dim1);
  IDX at1 = rest_i - rest_i_1 * p.dim1; rest_i = rest_i_1;
  place1 += at1 * p.stride1_1;
  IDX at0 = rest_i;
  place1 += at0 * p.stride1_0;
  target = place1;
  precise float v0 = float(x0);
  precise float v1 = v0;
  return float(v1);
}
layout(local_size_x = 256) in;
void single(IDX i) {   IDX at; float value = element(i, AT(float, p.input0, i), at); AT(float, p.result, at) = value; }
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
