// 2048 workgroups, chunk 2048
#include "lib/convert.glsl"
IDX workgroup() { return IDX(gl_WorkGroupID.y) * gl_NumWorkGroups.x + gl_WorkGroupID.x; }
IDX turned() { return p.reversed != 0 ? IDX(gl_NumWorkGroups.y) * gl_NumWorkGroups.x - 1 - workgroup() : workgroup(); }
layout(local_size_x = 256) in;
#define LAST_WINS false
#include "lib/reduce.glsl"
void element(IDX o, IDX r, double x0, out double e0, out double e1) {
  precise double v0 = double(x0);
  e0 = double(v0);
  e1 = double(0);
}
shared double shared0[256];
shared double shared1[256];
void bases(IDX o, out IDX place0) {
  place0 = p.offset0;
}
void four(IDX r, IDX place0, out dvec4 q0) {
  IDX rest_r = r;
  IDX at0 = rest_r;
  place0 += at0;
  q0 = LOAD_QUAD(double, p.input0, place0 / 4);
}
void one(IDX r, IDX place0, out double q0) {
  IDX rest_r = r;
  IDX at0 = rest_r;
  place0 += at0;
  q0 = AT(double, p.input0, place0);
}
void main() {
  uint lane = INVOCATION, x = lane % 1, y = lane / 1;
  IDX group = turned();
  IDX chunk = group % p.chunks;
  IDX o = ((group / p.chunks) * 1 + x) * 1;
  IDX end = min((chunk + 1) * p.chunk, p.reduced);
  precise double a0_0 = double(0); precise double a1_0 = double(0); precise double a0_1 = double(0); precise double a1_1 = double(0); precise double a0_2 = double(0); precise double a1_2 = double(0); precise double a0_3 = double(0); precise double a1_3 = double(0);
  if (o < p.outputs) {
    IDX base0_0; bases(o + 0, base0_0);
    IDX r = chunk * p.chunk + y * 4;
    for (; r + 3075 < end; r += 4096) {
      dvec4 q0_0; four(r + 0, base0_0, q0_0);
      dvec4 q1_0; four(r + 1024, base0_0, q1_0);
      dvec4 q2_0; four(r + 2048, base0_0, q2_0);
      dvec4 q3_0; four(r + 3072, base0_0, q3_0);
      double x0_0_0; double x0_0_1; element(o + 0, r + 0, q0_0[0], x0_0_0, x0_0_1);
      double x0_1_0; double x0_1_1; element(o + 0, r + 1, q0_0[1], x0_1_0, x0_1_1);
      double x0_2_0; double x0_2_1; element(o + 0, r + 2, q0_0[2], x0_2_0, x0_2_1);
      double x0_3_0; double x0_3_1; element(o + 0, r + 3, q0_0[3], x0_3_0, x0_3_1);
      double x1_0_0; double x1_0_1; element(o + 0, r + 1024, q1_0[0], x1_0_0, x1_0_1);
      double x1_1_0; double x1_1_1; element(o + 0, r + 1025, q1_0[1], x1_1_0, x1_1_1);
      double x1_2_0; double x1_2_1; element(o + 0, r + 1026, q1_0[2], x1_2_0, x1_2_1);
      double x1_3_0; double x1_3_1; element(o + 0, r + 1027, q1_0[3], x1_3_0, x1_3_1);
      double x2_0_0; double x2_0_1; element(o + 0, r + 2048, q2_0[0], x2_0_0, x2_0_1);
      double x2_1_0; double x2_1_1; element(o + 0, r + 2049, q2_0[1], x2_1_0, x2_1_1);
      double x2_2_0; double x2_2_1; element(o + 0, r + 2050, q2_0[2], x2_2_0, x2_2_1);
      double x2_3_0; double x2_3_1; element(o + 0, r + 2051, q2_0[3], x2_3_0, x2_3_1);
      double x3_0_0; double x3_0_1; element(o + 0, r + 3072, q3_0[0], x3_0_0, x3_0_1);
      double x3_1_0; double x3_1_1; element(o + 0, r + 3073, q3_0[1], x3_1_0, x3_1_1);
      double x3_2_0; double x3_2_1; element(o + 0, r + 3074, q3_0[2], x3_2_0, x3_2_1);
      double x3_3_0; double x3_3_1; element(o + 0, r + 3075, q3_0[3], x3_3_0, x3_3_1);
      combine_sum(a0_0, a1_0, x0_0_0, x0_0_1);
      combine_sum(a0_1, a1_1, x0_1_0, x0_1_1);
      combine_sum(a0_2, a1_2, x0_2_0, x0_2_1);
      combine_sum(a0_3, a1_3, x0_3_0, x0_3_1);
      combine_sum(a0_0, a1_0, x1_0_0, x1_0_1);
      combine_sum(a0_1, a1_1, x1_1_0, x1_1_1);
      combine_sum(a0_2, a1_2, x1_2_0, x1_2_1);
      combine_sum(a0_3, a1_3, x1_3_0, x1_3_1);
      combine_sum(a0_0, a1_0, x2_0_0, x2_0_1);
      combine_sum(a0_1, a1_1, x2_1_0, x2_1_1);
      combine_sum(a0_2, a1_2, x2_2_0, x2_2_1);
      combine_sum(a0_3, a1_3, x2_3_0, x2_3_1);
      combine_sum(a0_0, a1_0, x3_0_0, x3_0_1);
      combine_sum(a0_1, a1_1, x3_1_0, x3_1_1);
      combine_sum(a0_2, a1_2, x3_2_0, x3_2_1);
      combine_sum(a0_3, a1_3, x3_3_0, x3_3_1);
    }
    for (; r + 3 < end; r += 1024) {
      dvec4 q0_0; four(r + 0, base0_0, q0_0);
      double x0_0_0; double x0_0_1; element(o + 0, r + 0, q0_0[0], x0_0_0, x0_0_1);
      double x0_1_0; double x0_1_1; element(o + 0, r + 1, q0_0[1], x0_1_0, x0_1_1);
      double x0_2_0; double x0_2_1; element(o + 0, r + 2, q0_0[2], x0_2_0, x0_2_1);
      double x0_3_0; double x0_3_1; element(o + 0, r + 3, q0_0[3], x0_3_0, x0_3_1);
      combine_sum(a0_0, a1_0, x0_0_0, x0_0_1);
      combine_sum(a0_1, a1_1, x0_1_0, x0_1_1);
      combine_sum(a0_2, a1_2, x0_2_0, x0_2_1);
      combine_sum(a0_3, a1_3, x0_3_0, x0_3_1);
    }
    for (; r < end; r++) { double q0_0; one(r, base0_0, q0_0); double x0_0_0; double x0_0_1; element(o + 0, r + 0, q0_0, x0_0_0, x0_0_1); combine_sum(a0_0, a1_0, x0_0_0, x0_0_1); }
    combine_sum(a0_0, a1_0, a0_1, a1_1);
    combine_sum(a0_2, a1_2, a0_3, a1_3);
    combine_sum(a0_0, a1_0, a0_2, a1_2);
  }
  shared0[0 + lane] = a0_0; shared1[0 + lane] = a1_0;
  for (uint s = 128; s > 0; s >>= 1) {
    barrier();
    if (y < s) { combine_sum(a0_0, a1_0, shared0[0 + lane + s * 1], shared1[0 + lane + s * 1]); shared0[0 + lane] = a0_0; shared1[0 + lane] = a1_0; }
  }
  if (y == 0 && o < p.outputs) {
    AT(double, p.partial_out0, chunk * p.outputs + o + 0) = a0_0;
    AT(double, p.partial_out1, chunk * p.outputs + o + 0) = a1_0;
  }
}
// 1 workgroups, chunk 2048
#include "lib/convert.glsl"
IDX workgroup() { return IDX(gl_WorkGroupID.y) * gl_NumWorkGroups.x + gl_WorkGroupID.x; }
IDX turned() { return workgroup(); }
layout(local_size_x = 256) in;
#define LAST_WINS false
#include "lib/reduce.glsl"
void element(IDX o, IDX r, out double e0, out double e1) {
  e0 = AT(double, p.partial0, r * p.outputs + o);
  e1 = AT(double, p.partial1, r * p.outputs + o);
}
shared double shared0[256];
shared double shared1[256];
void main() {
  uint lane = INVOCATION, x = lane % 1, y = lane / 1;
  IDX group = turned();
  IDX chunk = group % p.chunks;
  IDX o = ((group / p.chunks) * 1 + x) * 1;
  IDX end = min((chunk + 1) * p.chunk, p.reduced);
  precise double a0_0 = double(0); precise double a1_0 = double(0);
  if (o < p.outputs) {
    
    IDX r = chunk * p.chunk + y * 1;
    for (; r + 768 < end; r += 1024) {
      
      
      
      
      double x0_0_0; double x0_0_1; element(o + 0, r + 0, x0_0_0, x0_0_1);
      double x1_0_0; double x1_0_1; element(o + 0, r + 256, x1_0_0, x1_0_1);
      double x2_0_0; double x2_0_1; element(o + 0, r + 512, x2_0_0, x2_0_1);
      double x3_0_0; double x3_0_1; element(o + 0, r + 768, x3_0_0, x3_0_1);
      combine_sum(a0_0, a1_0, x0_0_0, x0_0_1);
      combine_sum(a0_0, a1_0, x1_0_0, x1_0_1);
      combine_sum(a0_0, a1_0, x2_0_0, x2_0_1);
      combine_sum(a0_0, a1_0, x3_0_0, x3_0_1);
    }
    for (; r < end; r += 256) {
      
      double x0_0_0; double x0_0_1; element(o + 0, r + 0, x0_0_0, x0_0_1);
      combine_sum(a0_0, a1_0, x0_0_0, x0_0_1);
    }
  }
  shared0[0 + lane] = a0_0; shared1[0 + lane] = a1_0;
  for (uint s = 128; s > 0; s >>= 1) {
    barrier();
    if (y < s) { combine_sum(a0_0, a1_0, shared0[0 + lane + s * 1], shared1[0 + lane + s * 1]); shared0[0 + lane] = a0_0; shared1[0 + lane] = a1_0; }
  }
  if (y == 0 && o < p.outputs) {
    AT(double, p.result, o + 0) = double(finish_sum(a0_0, a1_0));
  }
}
