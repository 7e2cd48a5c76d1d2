// 32 workgroups, chunk 134217728
#include "lib/convert.glsl"
IDX workgroup() { return IDX(gl_WorkGroupID.y) * gl_NumWorkGroups.x + gl_WorkGroupID.x; }
IDX turned() { return workgroup(); }
layout(local_size_x = 8) in;
#define LAST_WINS false
#include "lib/reduce.glsl"
void element(IDX o, IDX r, int x0, out int e0) {
  precise int v0 = int(x0);
  e0 = int(v0);
}
#include "lib/exchange.glsl"
void bases(IDX o, out IDX place0) {
  place0 = p.offset0;
}
void four(IDX r, IDX place0, out ivec4 q0) {
  IDX rest_r = r;
  IDX at0 = rest_r;
  place0 += at0;
  q0 = LOAD_QUAD(int, p.input0, place0 / 4);
}
void one(IDX r, IDX place0, out int q0) {
  IDX rest_r = r;
  IDX at0 = rest_r;
  place0 += at0;
  q0 = AT(int, p.input0, place0);
}
void main() {
  uint lane = INVOCATION, x = lane % 1, y = lane / 1;
  IDX group = turned();
  IDX chunk = group % p.chunks;
  IDX o = ((group / p.chunks) * 1 + x) * 1;
  IDX end = min((chunk + 1) * p.chunk, p.reduced);
  precise int a0_0 = int(0); precise int a0_1 = int(0); precise int a0_2 = int(0); precise int a0_3 = int(0);
  if (o < p.outputs) {
    IDX base0_0; bases(o + 0, base0_0);
    IDX r = chunk * p.chunk + y * 4;
    for (; r + 99 < end; r += 128) {
      ivec4 q0_0; four(r + 0, base0_0, q0_0);
      ivec4 q1_0; four(r + 32, base0_0, q1_0);
      ivec4 q2_0; four(r + 64, base0_0, q2_0);
      ivec4 q3_0; four(r + 96, base0_0, q3_0);
      int x0_0_0; element(o + 0, r + 0, q0_0[0], x0_0_0);
      int x0_1_0; element(o + 0, r + 1, q0_0[1], x0_1_0);
      int x0_2_0; element(o + 0, r + 2, q0_0[2], x0_2_0);
      int x0_3_0; element(o + 0, r + 3, q0_0[3], x0_3_0);
      int x1_0_0; element(o + 0, r + 32, q1_0[0], x1_0_0);
      int x1_1_0; element(o + 0, r + 33, q1_0[1], x1_1_0);
      int x1_2_0; element(o + 0, r + 34, q1_0[2], x1_2_0);
      int x1_3_0; element(o + 0, r + 35, q1_0[3], x1_3_0);
      int x2_0_0; element(o + 0, r + 64, q2_0[0], x2_0_0);
      int x2_1_0; element(o + 0, r + 65, q2_0[1], x2_1_0);
      int x2_2_0; element(o + 0, r + 66, q2_0[2], x2_2_0);
      int x2_3_0; element(o + 0, r + 67, q2_0[3], x2_3_0);
      int x3_0_0; element(o + 0, r + 96, q3_0[0], x3_0_0);
      int x3_1_0; element(o + 0, r + 97, q3_0[1], x3_1_0);
      int x3_2_0; element(o + 0, r + 98, q3_0[2], x3_2_0);
      int x3_3_0; element(o + 0, r + 99, q3_0[3], x3_3_0);
      combine_sum(a0_0, x0_0_0);
      combine_sum(a0_1, x0_1_0);
      combine_sum(a0_2, x0_2_0);
      combine_sum(a0_3, x0_3_0);
      combine_sum(a0_0, x1_0_0);
      combine_sum(a0_1, x1_1_0);
      combine_sum(a0_2, x1_2_0);
      combine_sum(a0_3, x1_3_0);
      combine_sum(a0_0, x2_0_0);
      combine_sum(a0_1, x2_1_0);
      combine_sum(a0_2, x2_2_0);
      combine_sum(a0_3, x2_3_0);
      combine_sum(a0_0, x3_0_0);
      combine_sum(a0_1, x3_1_0);
      combine_sum(a0_2, x3_2_0);
      combine_sum(a0_3, x3_3_0);
    }
    for (; r + 3 < end; r += 32) {
      ivec4 q0_0; four(r + 0, base0_0, q0_0);
      int x0_0_0; element(o + 0, r + 0, q0_0[0], x0_0_0);
      int x0_1_0; element(o + 0, r + 1, q0_0[1], x0_1_0);
      int x0_2_0; element(o + 0, r + 2, q0_0[2], x0_2_0);
      int x0_3_0; element(o + 0, r + 3, q0_0[3], x0_3_0);
      combine_sum(a0_0, x0_0_0);
      combine_sum(a0_1, x0_1_0);
      combine_sum(a0_2, x0_2_0);
      combine_sum(a0_3, x0_3_0);
    }
    for (; r < end; r++) { int q0_0; one(r, base0_0, q0_0); int x0_0_0; element(o + 0, r + 0, q0_0, x0_0_0); combine_sum(a0_0, x0_0_0); }
    combine_sum(a0_0, a0_1);
    combine_sum(a0_2, a0_3);
    combine_sum(a0_0, a0_2);
  }
  { int s0 = from_lane(a0_0, 4); combine_sum(a0_0, s0); }
  { int s0 = from_lane(a0_0, 2); combine_sum(a0_0, s0); }
  { int s0 = from_lane(a0_0, 1); combine_sum(a0_0, s0); }
  if (y == 0 && o < p.outputs) {
    AT(int, p.partial_out0, chunk * p.outputs + o + 0) = a0_0;
  }
}
// 1 workgroups, chunk 32
#include "lib/convert.glsl"
IDX workgroup() { return IDX(gl_WorkGroupID.y) * gl_NumWorkGroups.x + gl_WorkGroupID.x; }
IDX turned() { return workgroup(); }
layout(local_size_x = 8) in;
#define LAST_WINS false
#include "lib/reduce.glsl"
void element(IDX o, IDX r, out int e0) {
  e0 = AT(int, p.partial0, r * p.outputs + o);
}
#include "lib/exchange.glsl"
void main() {
  uint lane = INVOCATION, x = lane % 1, y = lane / 1;
  IDX group = turned();
  IDX chunk = group % p.chunks;
  IDX o = ((group / p.chunks) * 1 + x) * 1;
  IDX end = min((chunk + 1) * p.chunk, p.reduced);
  precise int a0_0 = int(0);
  if (o < p.outputs) {
    
    IDX r = chunk * p.chunk + y * 1;
    for (; r + 24 < end; r += 32) {
      
      
      
      
      int x0_0_0; element(o + 0, r + 0, x0_0_0);
      int x1_0_0; element(o + 0, r + 8, x1_0_0);
      int x2_0_0; element(o + 0, r + 16, x2_0_0);
      int x3_0_0; element(o + 0, r + 24, x3_0_0);
      combine_sum(a0_0, x0_0_0);
      combine_sum(a0_0, x1_0_0);
      combine_sum(a0_0, x2_0_0);
      combine_sum(a0_0, x3_0_0);
    }
    for (; r < end; r += 8) {
      
      int x0_0_0; element(o + 0, r + 0, x0_0_0);
      combine_sum(a0_0, x0_0_0);
    }
  }
  { int s0 = from_lane(a0_0, 4); combine_sum(a0_0, s0); }
  { int s0 = from_lane(a0_0, 2); combine_sum(a0_0, s0); }
  { int s0 = from_lane(a0_0, 1); combine_sum(a0_0, s0); }
  if (y == 0 && o < p.outputs) {
    AT(int, p.result, o + 0) = int(a0_0);
  }
}
