// 782 workgroups, chunk 6
#include "lib/convert.glsl"
IDX workgroup() { return IDX(gl_WorkGroupID.y) * gl_NumWorkGroups.x + gl_WorkGroupID.x; }
IDX turned() { return p.reversed != 0 ? IDX(gl_NumWorkGroups.y) * gl_NumWorkGroups.x - 1 - workgroup() : workgroup(); }
layout(local_size_x = 256) in;
#define LAST_WINS false
#include "lib/reduce.glsl"
void element(IDX o, IDX r, out double e0) {
  IDX place0 = p.offset0;
  IDX rest_o = o;
  IDX at0 = rest_o;
  place0 += at0 * p.stride0_0;
  IDX rest_r = r;
  IDX at1 = rest_r;
  place0 += at1 * p.stride0_1;
  precise float v0 = float(AT(float, p.input0, place0));
  e0 = double(v0);
}
shared double shared0[256];
void main() {
  uint lane = INVOCATION, x = lane % 128, y = lane / 128;
  IDX group = turned();
  IDX chunk = group % p.chunks;
  IDX o = ((group / p.chunks) * 128 + x) * 1;
  IDX end = min((chunk + 1) * p.chunk, p.reduced);
  precise double a0_0 = double(0);
  if (o < p.outputs) {
    
    IDX r = chunk * p.chunk + y * 1;
    for (; r + 14 < end; r += 16) {
      
      
      
      
      
      
      
      
      double x0_0_0; element(o + 0, r + 0, x0_0_0);
      double x1_0_0; element(o + 0, r + 2, x1_0_0);
      double x2_0_0; element(o + 0, r + 4, x2_0_0);
      double x3_0_0; element(o + 0, r + 6, x3_0_0);
      double x4_0_0; element(o + 0, r + 8, x4_0_0);
      double x5_0_0; element(o + 0, r + 10, x5_0_0);
      double x6_0_0; element(o + 0, r + 12, x6_0_0);
      double x7_0_0; element(o + 0, r + 14, x7_0_0);
      combine_sum(a0_0, x0_0_0);
      combine_sum(a0_0, x1_0_0);
      combine_sum(a0_0, x2_0_0);
      combine_sum(a0_0, x3_0_0);
      combine_sum(a0_0, x4_0_0);
      combine_sum(a0_0, x5_0_0);
      combine_sum(a0_0, x6_0_0);
      combine_sum(a0_0, x7_0_0);
    }
    for (; r < end; r += 2) {
      
      double x0_0_0; element(o + 0, r + 0, x0_0_0);
      combine_sum(a0_0, x0_0_0);
    }
  }
  shared0[0 + lane] = a0_0;
  for (uint s = 1; s > 0; s >>= 1) {
    barrier();
    if (y < s) { combine_sum(a0_0, shared0[0 + lane + s * 128]); shared0[0 + lane] = a0_0; }
  }
  if (y == 0 && o < p.outputs) {
    AT(float, p.result, o + 0) = float(to_f32(a0_0));
  }
}
