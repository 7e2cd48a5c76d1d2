// 11250 workgroups, chunk 9
#include "lib/convert.glsl"
IDX workgroup() { return IDX(gl_WorkGroupID.y) * gl_NumWorkGroups.x + gl_WorkGroupID.x; }
IDX turned() { return workgroup(); }
layout(local_size_x = 8) in;
#define LAST_WINS false
#include "lib/reduce.glsl"
void element(IDX o, IDX r, out float e0) {
  IDX place0 = p.offset0;
  IDX rest_o = o;
  IDX rest_o_1 = QUOTIENT(rest_o, p.dim1);
  IDX at1 = rest_o - rest_o_1 * p.dim1; rest_o = rest_o_1;
  place0 += at1 * p.stride0_1;
  IDX at0 = rest_o;
  place0 += at0 * p.stride0_0;
  IDX rest_r = r;
  IDX rest_r_3 = rest_r / IDX(3);
  IDX at3 = rest_r - rest_r_3 * IDX(3); rest_r = rest_r_3;
  place0 += at3 * p.stride0_3;
  IDX at2 = rest_r;
  place0 += at2 * p.stride0_2;
  precise float v0 = float(AT(float, p.input0, place0));
  e0 = float(v0);
}
void main() {
  uint lane = INVOCATION, x = lane % 8, y = lane / 8;
  IDX group = turned();
  IDX chunk = group % p.chunks;
  IDX o = ((group / p.chunks) * 8 + x) * 1;
  IDX end = min((chunk + 1) * p.chunk, p.reduced);
  precise float a0_0 = lowest_float();
  if (o < p.outputs) {
    
    IDX r = 0;
      
      
      
      
      float x0_0_0; element(o + 0, r + 0, x0_0_0);
      float x1_0_0; element(o + 0, r + 1, x1_0_0);
      float x2_0_0; element(o + 0, r + 2, x2_0_0);
      float x3_0_0; element(o + 0, r + 3, x3_0_0);
      combine_max(a0_0, x0_0_0);
      combine_max(a0_0, x1_0_0);
      combine_max(a0_0, x2_0_0);
      combine_max(a0_0, x3_0_0);
      
      
      
      
      float x4_0_0; element(o + 0, r + 4, x4_0_0);
      float x5_0_0; element(o + 0, r + 5, x5_0_0);
      float x6_0_0; element(o + 0, r + 6, x6_0_0);
      float x7_0_0; element(o + 0, r + 7, x7_0_0);
      combine_max(a0_0, x4_0_0);
      combine_max(a0_0, x5_0_0);
      combine_max(a0_0, x6_0_0);
      combine_max(a0_0, x7_0_0);
      
      float x8_0_0; element(o + 0, r + 8, x8_0_0);
      combine_max(a0_0, x8_0_0);
  }
  if (y == 0 && o < p.outputs) {
    AT(float, p.result, o + 0) = float(a0_0);
  }
}
