// 32 workgroups, chunk 1024
#include "lib/convert.glsl"
IDX workgroup() { return IDX(gl_WorkGroupID.y) * gl_NumWorkGroups.x + gl_WorkGroupID.x; }
IDX turned() { return workgroup(); }
#include "lib/ops/compare.glsl"
float element(IDX i, float x0) {
  IDX place1 = p.offset1;
  IDX rest_i = i;
  IDX rest_i_1 = QUOTIENT(rest_i, p.dim1);
  IDX at1 = rest_i - rest_i_1 * p.dim1; rest_i = rest_i_1;
  place1 += at1 * p.stride1_1;
  IDX at0 = rest_i;
  place1 += at0 * p.stride1_0;
  precise float v0 = float(x0);
  precise float v1 = float(uintBitsToFloat(p.scalar1.x));
  precise float v2 = to_f32(place1);
  precise uint v3 = uint(nx_less(v0, v2));
  precise float v4 = !is_zero(v3) ? v0 : v1;
  return float(v4);
}
layout(local_size_x = 8) in;
void single(IDX i) {   AT(float, p.result, i) = element(i, AT(float, p.input0, i)); }
void main() {
  IDX tile = turned();
  IDX count = p.count, end = min((tile + 1) * p.chunk, count);
  for (IDX i = tile * p.chunk + INVOCATION; i < end; i += 8) { single(i); }
}
