// 240 workgroups, chunk 68
#include "lib/convert.glsl"
IDX workgroup() { return IDX(gl_WorkGroupID.y) * gl_NumWorkGroups.x + gl_WorkGroupID.x; }
IDX turned() { return p.reversed != 0 ? IDX(gl_NumWorkGroups.y) * gl_NumWorkGroups.x - 1 - workgroup() : workgroup(); }
layout(local_size_x = 256) in;
#define LAST_WINS false
#include "lib/reduce.glsl"
void element(IDX o, IDX r, out int e0) {
  IDX place0 = p.offset0;
  IDX rest_o = o;
  IDX at0 = rest_o;
  place0 += at0 * p.stride0_0;
  IDX rest_r = r;
  IDX at1 = rest_r;
  place0 += at1 * p.stride0_1;
  precise int v0 = int(AT(int8_t, p.input0, place0));
  e0 = int(v0);
}
shared int shared0[256];
void main() {
  uint lane = INVOCATION, x = lane % 32, y = lane / 32;
  IDX group = turned();
  IDX chunk = group % p.chunks;
  IDX o = ((group / p.chunks) * 32 + x) * 1;
  IDX end = min((chunk + 1) * p.chunk, p.reduced);
  precise int a0_0 = lowest_int();
  if (o < p.outputs) {
    
    IDX r = chunk * p.chunk + y * 1;
    for (; r + 56 < end; r += 64) {
      
      
      
      
      
      
      
      
      int x0_0_0; element(o + 0, r + 0, x0_0_0);
      int x1_0_0; element(o + 0, r + 8, x1_0_0);
      int x2_0_0; element(o + 0, r + 16, x2_0_0);
      int x3_0_0; element(o + 0, r + 24, x3_0_0);
      int x4_0_0; element(o + 0, r + 32, x4_0_0);
      int x5_0_0; element(o + 0, r + 40, x5_0_0);
      int x6_0_0; element(o + 0, r + 48, x6_0_0);
      int x7_0_0; element(o + 0, r + 56, x7_0_0);
      combine_max(a0_0, x0_0_0);
      combine_max(a0_0, x1_0_0);
      combine_max(a0_0, x2_0_0);
      combine_max(a0_0, x3_0_0);
      combine_max(a0_0, x4_0_0);
      combine_max(a0_0, x5_0_0);
      combine_max(a0_0, x6_0_0);
      combine_max(a0_0, x7_0_0);
    }
    for (; r < end; r += 8) {
      
      int x0_0_0; element(o + 0, r + 0, x0_0_0);
      combine_max(a0_0, x0_0_0);
    }
  }
  shared0[0 + lane] = a0_0;
  for (uint s = 4; s > 0; s >>= 1) {
    barrier();
    if (y < s) { combine_max(a0_0, shared0[0 + lane + s * 32]); shared0[0 + lane] = a0_0; }
  }
  if (y == 0 && o < p.outputs) {
    AT(int, p.partial_out0, chunk * p.outputs + o + 0) = a0_0;
  }
}
// 8 workgroups, chunk 15
#include "lib/convert.glsl"
IDX workgroup() { return IDX(gl_WorkGroupID.y) * gl_NumWorkGroups.x + gl_WorkGroupID.x; }
IDX turned() { return workgroup(); }
layout(local_size_x = 256) in;
#define LAST_WINS false
#include "lib/reduce.glsl"
void element(IDX o, IDX r, out int e0) {
  e0 = AT(int, p.partial0, r * p.outputs + o);
}
shared int shared0[256];
void main() {
  uint lane = INVOCATION, x = lane % 64, y = lane / 64;
  IDX group = turned();
  IDX chunk = group % p.chunks;
  IDX o = ((group / p.chunks) * 64 + x) * 1;
  IDX end = min((chunk + 1) * p.chunk, p.reduced);
  precise int a0_0 = lowest_int();
  if (o < p.outputs) {
    
    IDX r = chunk * p.chunk + y * 1;
    for (; r + 28 < end; r += 32) {
      
      
      
      
      
      
      
      
      int x0_0_0; element(o + 0, r + 0, x0_0_0);
      int x1_0_0; element(o + 0, r + 4, x1_0_0);
      int x2_0_0; element(o + 0, r + 8, x2_0_0);
      int x3_0_0; element(o + 0, r + 12, x3_0_0);
      int x4_0_0; element(o + 0, r + 16, x4_0_0);
      int x5_0_0; element(o + 0, r + 20, x5_0_0);
      int x6_0_0; element(o + 0, r + 24, x6_0_0);
      int x7_0_0; element(o + 0, r + 28, x7_0_0);
      combine_max(a0_0, x0_0_0);
      combine_max(a0_0, x1_0_0);
      combine_max(a0_0, x2_0_0);
      combine_max(a0_0, x3_0_0);
      combine_max(a0_0, x4_0_0);
      combine_max(a0_0, x5_0_0);
      combine_max(a0_0, x6_0_0);
      combine_max(a0_0, x7_0_0);
    }
    for (; r < end; r += 4) {
      
      int x0_0_0; element(o + 0, r + 0, x0_0_0);
      combine_max(a0_0, x0_0_0);
    }
  }
  shared0[0 + lane] = a0_0;
  for (uint s = 2; s > 0; s >>= 1) {
    barrier();
    if (y < s) { combine_max(a0_0, shared0[0 + lane + s * 64]); shared0[0 + lane] = a0_0; }
  }
  if (y == 0 && o < p.outputs) {
    AT(int8_t, p.result, o + 0) = int8_t(to_s8(a0_0));
  }
}
