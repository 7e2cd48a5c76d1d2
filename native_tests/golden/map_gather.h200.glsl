// 65 workgroups, chunk 0
#include "lib/convert.glsl"
IDX workgroup() { return IDX(gl_WorkGroupID.y) * gl_NumWorkGroups.x + gl_WorkGroupID.x; }
IDX turned() { return p.reversed != 0 ? IDX(gl_NumWorkGroups.y) * gl_NumWorkGroups.x - 1 - workgroup() : workgroup(); }
#include "lib/indices.glsl"
float element(IDX i) {
  IDX place0 = p.offset0;
  IDX place1 = p.offset1;
  IDX rest_i = i;
  IDX rest_i_1 = QUOTIENT(rest_i, p.dim1);
  IDX at1 = rest_i - rest_i_1 * p.dim1; rest_i = rest_i_1;
  place0 += at1 * p.stride0_1;
  place1 += at1 * p.stride1_1;
  IDX at0 = rest_i;
  place0 += at0 * p.stride0_0;
  place1 += at0 * p.stride1_0;
  precise float v0 = float(AT(float, p.input0, place0));
  precise int64_t v1 = int64_t(AT(int64_t, p.input1, place1));
  precise float v2 = float(AT(float, p.input0, place0 + clamp_index(v1, p.extentv2_0) * p.stepv2_0));
  return float(v2);
}
layout(local_size_x = 128) in;
void single(IDX i) {   AT(float, p.result, i) = element(i); }
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
