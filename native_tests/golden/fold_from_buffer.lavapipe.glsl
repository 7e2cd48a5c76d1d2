// 2 workgroups, chunk 30
#include "lib/convert.glsl"
IDX workgroup() { return IDX(gl_WorkGroupID.y) * gl_NumWorkGroups.x + gl_WorkGroupID.x; }
IDX turned() { return workgroup(); }
#include "lib/ops/arithmetic.glsl"
float next(IDX o, IDX r, float accumulator) {
  IDX place0 = p.offset0;
  IDX rest_o = o;
  IDX at0 = rest_o;
  place0 += at0 * p.stride0_0;
  IDX rest_r = r;
  IDX at1 = rest_r;
  place0 += at1 * p.stride0_1;
  precise float v0 = float(AT(float, p.input0, place0));
  precise int v1 = int(AT(int, p.input1, IDX(0)));
  precise float v2 = accumulator;
  precise float v3 = nx_multiply(v2, v0);
  return v3;
}
layout(local_size_x = 64) in;
void main() {
  IDX o = workgroup() * 64 + INVOCATION;
  if (o >= p.outputs) return;
  float accumulator = to_f32(int(AT(int, p.input1, IDX(0))));
  for (IDX r = 0; r < p.reduced; r++) accumulator = next(o, r, accumulator);
  AT(float, p.result, o) = float(accumulator);
}
