// 512 workgroups, chunk 999
#include "lib/convert.glsl"
IDX workgroup() { return IDX(gl_WorkGroupID.y) * gl_NumWorkGroups.x + gl_WorkGroupID.x; }
IDX turned() { return p.reversed != 0 ? IDX(gl_NumWorkGroups.y) * gl_NumWorkGroups.x - 1 - workgroup() : workgroup(); }
layout(local_size_x = 256) in;
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
shared uint shared0[256];
void main() {
  uint lane = INVOCATION, x = lane % 1, y = lane / 1;
  IDX group = turned();
  IDX chunk = group % p.chunks;
  IDX o = ((group / p.chunks) * 1 + x) * 1;
  IDX end = min((chunk + 1) * p.chunk, p.reduced);
  precise uint a0_0 = uint(1);
  if (o < p.outputs) {
    
    IDX r = chunk * p.chunk + y * 1;
    for (; r + 1792 < end; r += 2048) {
      
      
      
      
      
      
      
      
      uint x0_0_0; element(o + 0, r + 0, x0_0_0);
      uint x1_0_0; element(o + 0, r + 256, x1_0_0);
      uint x2_0_0; element(o + 0, r + 512, x2_0_0);
      uint x3_0_0; element(o + 0, r + 768, x3_0_0);
      uint x4_0_0; element(o + 0, r + 1024, x4_0_0);
      uint x5_0_0; element(o + 0, r + 1280, x5_0_0);
      uint x6_0_0; element(o + 0, r + 1536, x6_0_0);
      uint x7_0_0; element(o + 0, r + 1792, x7_0_0);
      combine_all(a0_0, x0_0_0);
      combine_all(a0_0, x1_0_0);
      combine_all(a0_0, x2_0_0);
      combine_all(a0_0, x3_0_0);
      combine_all(a0_0, x4_0_0);
      combine_all(a0_0, x5_0_0);
      combine_all(a0_0, x6_0_0);
      combine_all(a0_0, x7_0_0);
    }
    for (; r < end; r += 256) {
      
      uint x0_0_0; element(o + 0, r + 0, x0_0_0);
      combine_all(a0_0, x0_0_0);
    }
  }
  shared0[0 + lane] = a0_0;
  for (uint s = 128; s > 0; s >>= 1) {
    barrier();
    if (y < s) { combine_all(a0_0, shared0[0 + lane + s * 1]); shared0[0 + lane] = a0_0; }
  }
  if (y == 0 && o < p.outputs) {
    AT(uint8_t, p.result, o + 0) = uint8_t(to_u8(a0_0));
  }
}
