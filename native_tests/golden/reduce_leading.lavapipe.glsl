// 32 workgroups, chunk 128
#include "lib/convert.glsl"
IDX workgroup() { return IDX(gl_WorkGroupID.y) * gl_NumWorkGroups.x + gl_WorkGroupID.x; }
IDX turned() { return workgroup(); }
layout(local_size_x = 8) in;
#define LAST_WINS false
#include "lib/reduce.glsl"
void element(IDX o, IDX r, float x0, out double e0) {
  precise float v0 = float(x0);
  e0 = double(v0);
}
void bases(IDX o, out IDX place0) {
  place0 = p.offset0;
  IDX rest_o = o;
  IDX at0 = rest_o;
  place0 += at0;
}
void four(IDX r, IDX place0, out vec4 q0) {
  IDX rest_r = r;
  IDX at1 = rest_r;
  place0 += at1 * p.stride0_1;
  q0 = LOAD_QUAD(float, p.input0, place0 / 4);
}
void one(IDX r, IDX place0, out float q0) {
  IDX rest_r = r;
  IDX at1 = rest_r;
  place0 += at1 * p.stride0_1;
  q0 = AT(float, p.input0, place0);
}
void main() {
  uint lane = INVOCATION, x = lane % 8, y = lane / 8;
  IDX group = turned();
  IDX chunk = group % p.chunks;
  IDX o = ((group / p.chunks) * 8 + x) * 16;
  IDX end = min((chunk + 1) * p.chunk, p.reduced);
  precise double a0_0 = double(0); precise double a0_1 = double(0); precise double a0_2 = double(0); precise double a0_3 = double(0); precise double a0_4 = double(0); precise double a0_5 = double(0); precise double a0_6 = double(0); precise double a0_7 = double(0); precise double a0_8 = double(0); precise double a0_9 = double(0); precise double a0_10 = double(0); precise double a0_11 = double(0); precise double a0_12 = double(0); precise double a0_13 = double(0); precise double a0_14 = double(0); precise double a0_15 = double(0);
  if (o < p.outputs) {
    IDX base0_0; bases(o + 0, base0_0); IDX base1_0; bases(o + 4, base1_0); IDX base2_0; bases(o + 8, base2_0); IDX base3_0; bases(o + 12, base3_0);
    IDX r = chunk * p.chunk + y * 1;
    for (; r + 0 < end; r += 1) {
      vec4 q0_0; four(r + 0, base0_0, q0_0); vec4 q1_0; four(r + 0, base1_0, q1_0); vec4 q2_0; four(r + 0, base2_0, q2_0); vec4 q3_0; four(r + 0, base3_0, q3_0);
      double x0_0_0; element(o + 0, r + 0, q0_0[0], x0_0_0);
      double x0_1_0; element(o + 1, r + 0, q0_0[1], x0_1_0);
      double x0_2_0; element(o + 2, r + 0, q0_0[2], x0_2_0);
      double x0_3_0; element(o + 3, r + 0, q0_0[3], x0_3_0);
      double x0_4_0; element(o + 4, r + 0, q1_0[0], x0_4_0);
      double x0_5_0; element(o + 5, r + 0, q1_0[1], x0_5_0);
      double x0_6_0; element(o + 6, r + 0, q1_0[2], x0_6_0);
      double x0_7_0; element(o + 7, r + 0, q1_0[3], x0_7_0);
      double x0_8_0; element(o + 8, r + 0, q2_0[0], x0_8_0);
      double x0_9_0; element(o + 9, r + 0, q2_0[1], x0_9_0);
      double x0_10_0; element(o + 10, r + 0, q2_0[2], x0_10_0);
      double x0_11_0; element(o + 11, r + 0, q2_0[3], x0_11_0);
      double x0_12_0; element(o + 12, r + 0, q3_0[0], x0_12_0);
      double x0_13_0; element(o + 13, r + 0, q3_0[1], x0_13_0);
      double x0_14_0; element(o + 14, r + 0, q3_0[2], x0_14_0);
      double x0_15_0; element(o + 15, r + 0, q3_0[3], x0_15_0);
      combine_sum(a0_0, x0_0_0);
      combine_sum(a0_1, x0_1_0);
      combine_sum(a0_2, x0_2_0);
      combine_sum(a0_3, x0_3_0);
      combine_sum(a0_4, x0_4_0);
      combine_sum(a0_5, x0_5_0);
      combine_sum(a0_6, x0_6_0);
      combine_sum(a0_7, x0_7_0);
      combine_sum(a0_8, x0_8_0);
      combine_sum(a0_9, x0_9_0);
      combine_sum(a0_10, x0_10_0);
      combine_sum(a0_11, x0_11_0);
      combine_sum(a0_12, x0_12_0);
      combine_sum(a0_13, x0_13_0);
      combine_sum(a0_14, x0_14_0);
      combine_sum(a0_15, x0_15_0);
    }
    for (; r < end; r += 1) {
      vec4 q0_0; four(r + 0, base0_0, q0_0); vec4 q1_0; four(r + 0, base1_0, q1_0); vec4 q2_0; four(r + 0, base2_0, q2_0); vec4 q3_0; four(r + 0, base3_0, q3_0);
      double x0_0_0; element(o + 0, r + 0, q0_0[0], x0_0_0);
      double x0_1_0; element(o + 1, r + 0, q0_0[1], x0_1_0);
      double x0_2_0; element(o + 2, r + 0, q0_0[2], x0_2_0);
      double x0_3_0; element(o + 3, r + 0, q0_0[3], x0_3_0);
      double x0_4_0; element(o + 4, r + 0, q1_0[0], x0_4_0);
      double x0_5_0; element(o + 5, r + 0, q1_0[1], x0_5_0);
      double x0_6_0; element(o + 6, r + 0, q1_0[2], x0_6_0);
      double x0_7_0; element(o + 7, r + 0, q1_0[3], x0_7_0);
      double x0_8_0; element(o + 8, r + 0, q2_0[0], x0_8_0);
      double x0_9_0; element(o + 9, r + 0, q2_0[1], x0_9_0);
      double x0_10_0; element(o + 10, r + 0, q2_0[2], x0_10_0);
      double x0_11_0; element(o + 11, r + 0, q2_0[3], x0_11_0);
      double x0_12_0; element(o + 12, r + 0, q3_0[0], x0_12_0);
      double x0_13_0; element(o + 13, r + 0, q3_0[1], x0_13_0);
      double x0_14_0; element(o + 14, r + 0, q3_0[2], x0_14_0);
      double x0_15_0; element(o + 15, r + 0, q3_0[3], x0_15_0);
      combine_sum(a0_0, x0_0_0);
      combine_sum(a0_1, x0_1_0);
      combine_sum(a0_2, x0_2_0);
      combine_sum(a0_3, x0_3_0);
      combine_sum(a0_4, x0_4_0);
      combine_sum(a0_5, x0_5_0);
      combine_sum(a0_6, x0_6_0);
      combine_sum(a0_7, x0_7_0);
      combine_sum(a0_8, x0_8_0);
      combine_sum(a0_9, x0_9_0);
      combine_sum(a0_10, x0_10_0);
      combine_sum(a0_11, x0_11_0);
      combine_sum(a0_12, x0_12_0);
      combine_sum(a0_13, x0_13_0);
      combine_sum(a0_14, x0_14_0);
      combine_sum(a0_15, x0_15_0);
    }
  }
  if (y == 0 && o < p.outputs) {
    AT(double, p.partial_out0, chunk * p.outputs + o + 0) = a0_0;
    AT(double, p.partial_out0, chunk * p.outputs + o + 1) = a0_1;
    AT(double, p.partial_out0, chunk * p.outputs + o + 2) = a0_2;
    AT(double, p.partial_out0, chunk * p.outputs + o + 3) = a0_3;
    AT(double, p.partial_out0, chunk * p.outputs + o + 4) = a0_4;
    AT(double, p.partial_out0, chunk * p.outputs + o + 5) = a0_5;
    AT(double, p.partial_out0, chunk * p.outputs + o + 6) = a0_6;
    AT(double, p.partial_out0, chunk * p.outputs + o + 7) = a0_7;
    AT(double, p.partial_out0, chunk * p.outputs + o + 8) = a0_8;
    AT(double, p.partial_out0, chunk * p.outputs + o + 9) = a0_9;
    AT(double, p.partial_out0, chunk * p.outputs + o + 10) = a0_10;
    AT(double, p.partial_out0, chunk * p.outputs + o + 11) = a0_11;
    AT(double, p.partial_out0, chunk * p.outputs + o + 12) = a0_12;
    AT(double, p.partial_out0, chunk * p.outputs + o + 13) = a0_13;
    AT(double, p.partial_out0, chunk * p.outputs + o + 14) = a0_14;
    AT(double, p.partial_out0, chunk * p.outputs + o + 15) = a0_15;
  }
}
// 64 workgroups, chunk 8
#include "lib/convert.glsl"
IDX workgroup() { return IDX(gl_WorkGroupID.y) * gl_NumWorkGroups.x + gl_WorkGroupID.x; }
IDX turned() { return workgroup(); }
layout(local_size_x = 8) in;
#define LAST_WINS false
#include "lib/reduce.glsl"
void element(IDX o, IDX r, out double e0) {
  e0 = AT(double, p.partial0, r * p.outputs + o);
}
void main() {
  uint lane = INVOCATION, x = lane % 8, y = lane / 8;
  IDX group = turned();
  IDX chunk = group % p.chunks;
  IDX o = ((group / p.chunks) * 8 + x) * 1;
  IDX end = min((chunk + 1) * p.chunk, p.reduced);
  precise double a0_0 = double(0);
  if (o < p.outputs) {
    
    IDX r = chunk * p.chunk + y * 1;
    for (; r + 3 < end; r += 4) {
      
      
      
      
      double x0_0_0; element(o + 0, r + 0, x0_0_0);
      double x1_0_0; element(o + 0, r + 1, x1_0_0);
      double x2_0_0; element(o + 0, r + 2, x2_0_0);
      double x3_0_0; element(o + 0, r + 3, x3_0_0);
      combine_sum(a0_0, x0_0_0);
      combine_sum(a0_0, x1_0_0);
      combine_sum(a0_0, x2_0_0);
      combine_sum(a0_0, x3_0_0);
    }
    for (; r < end; r += 1) {
      
      double x0_0_0; element(o + 0, r + 0, x0_0_0);
      combine_sum(a0_0, x0_0_0);
    }
  }
  if (y == 0 && o < p.outputs) {
    AT(float, p.result, o + 0) = float(to_f32(a0_0));
  }
}
