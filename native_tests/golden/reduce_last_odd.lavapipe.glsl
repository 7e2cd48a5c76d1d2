// 64 workgroups, chunk 999
#include "lib/convert.glsl"
IDX workgroup() { return IDX(gl_WorkGroupID.y) * gl_NumWorkGroups.x + gl_WorkGroupID.x; }
IDX turned() { return workgroup(); }
layout(local_size_x = 8) in;
#define LAST_WINS false
#include "lib/reduce.glsl"
void element(IDX o, IDX r, out uint e0) {
  IDX place0 = p.offset0;
  IDX rest_o = o;
  IDX at0 = rest_o;
  place0 += at0 * p.stride0_0;
  IDX rest_r = r;
  IDX at1 = rest_r;
  place0 += at1 * p.stride0_1;
  precise uint v0 = uint(AT(uint8_t, p.input0, place0));
  e0 = uint(!is_zero(v0));
}
void main() {
  uint lane = INVOCATION, x = lane % 8, y = lane / 8;
  IDX group = turned();
  IDX chunk = group % p.chunks;
  IDX o = ((group / p.chunks) * 8 + x) * 1;
  IDX end = min((chunk + 1) * p.chunk, p.reduced);
  precise uint a0_0 = uint(1);
  if (o < p.outputs) {
    
    IDX r = chunk * p.chunk + y * 1;
    for (; r + 3 < end; r += 4) {
      
      
      
      
      uint x0_0_0; element(o + 0, r + 0, x0_0_0);
      uint x1_0_0; element(o + 0, r + 1, x1_0_0);
      uint x2_0_0; element(o + 0, r + 2, x2_0_0);
      uint x3_0_0; element(o + 0, r + 3, x3_0_0);
      combine_all(a0_0, x0_0_0);
      combine_all(a0_0, x1_0_0);
      combine_all(a0_0, x2_0_0);
      combine_all(a0_0, x3_0_0);
    }
    for (; r < end; r += 1) {
      
      uint x0_0_0; element(o + 0, r + 0, x0_0_0);
      combine_all(a0_0, x0_0_0);
    }
  }
  if (y == 0 && o < p.outputs) {
    AT(uint8_t, p.result, o + 0) = uint8_t(to_u8(a0_0));
  }
}
