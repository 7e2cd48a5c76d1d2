// 2 workgroups, chunk 0
#include "lib/convert.glsl"
IDX workgroup() { return IDX(gl_WorkGroupID.y) * gl_NumWorkGroups.x + gl_WorkGroupID.x; }
IDX turned() { return p.reversed != 0 ? IDX(gl_NumWorkGroups.y) * gl_NumWorkGroups.x - 1 - workgroup() : workgroup(); }
#include "lib/indices.glsl"
float element(IDX i, float x0, out IDX target) {
  IDX place2 = p.offset2;
  place2 += clamp_index(int64_t(AT(int64_t, p.input1, IDX(0))), p.extent0) * p.step0;
  IDX rest_i = i;
  IDX rest_i_1 = QUOTIENT(rest_i, p.dim1);
  IDX at1 = rest_i - rest_i_1 * p.dim1; rest_i = rest_i_1;
  place2 += at1 * p.stride2_1;
  IDX at0 = rest_i;
  place2 += at0 * p.stride2_0;
  target = place2;
  precise float v0 = float(x0);
  precise int64_t v1 = int64_t(AT(int64_t, p.input1, IDX(0)));
  precise float v2 = v0;
  return float(v2);
}
layout(local_size_x = 128) in;
void single(IDX i) {   IDX at; float value = element(i, AT(float, p.input0, i), at); AT(float, p.result, at) = value; }
void main() {
  IDX tile = turned();
  IDX first = tile * 512 + INVOCATION;
  if ((tile + 1) * 512 <= p.count) {
    single(first + 0);
    single(first + 128);
    single(first + 256);
    single(first + 384);
  } else {
    for (IDX i = first; i < p.count && tile * 512 < p.count; i += 128) single(i);
  }
}
