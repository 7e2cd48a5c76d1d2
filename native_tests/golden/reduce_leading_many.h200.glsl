// 512 workgroups, chunk 64
#include "lib/convert.glsl"
IDX workgroup() { return IDX(gl_WorkGroupID.y) * gl_NumWorkGroups.x + gl_WorkGroupID.x; }
IDX turned() { return p.reversed != 0 ? IDX(gl_NumWorkGroups.y) * gl_NumWorkGroups.x - 1 - workgroup() : workgroup(); }
layout(local_size_x = 256) in;
#define LAST_WINS false
#include "lib/reduce.glsl"
void element(IDX o, IDX r, uint16_t x0, out double e0) {
  precise float v0 = bf16_to_float(uint(x0));
  e0 = double(v0);
}
shared double shared0[1024];
void bases(IDX o, out IDX place0) {
  place0 = p.offset0;
  IDX rest_o = o;
  IDX at0 = rest_o;
  place0 += at0;
}
void four(IDX r, IDX place0, out u16vec4 q0) {
  IDX rest_r = r;
  IDX at1 = rest_r;
  place0 += at1 * p.stride0_1;
  q0 = LOAD_QUAD(uint16_t, p.input0, place0 / 4);
}
void one(IDX r, IDX place0, out uint16_t q0) {
  IDX rest_r = r;
  IDX at1 = rest_r;
  place0 += at1 * p.stride0_1;
  q0 = AT(uint16_t, p.input0, place0);
}
void main() {
  uint lane = INVOCATION, x = lane % 64, y = lane / 64;
  IDX group = turned();
  IDX chunk = group % p.chunks;
  IDX o = ((group / p.chunks) * 64 + x) * 4;
  IDX end = min((chunk + 1) * p.chunk, p.reduced);
  precise double a0_0 = double(0); precise double a0_1 = double(0); precise double a0_2 = double(0); precise double a0_3 = double(0);
  if (o < p.outputs) {
    IDX base0_0; bases(o + 0, base0_0);
    IDX r = chunk * p.chunk + y * 1;
    for (; r + 12 < end; r += 16) {
      u16vec4 q0_0; four(r + 0, base0_0, q0_0);
      u16vec4 q1_0; four(r + 4, base0_0, q1_0);
      u16vec4 q2_0; four(r + 8, base0_0, q2_0);
      u16vec4 q3_0; four(r + 12, base0_0, q3_0);
      double x0_0_0; element(o + 0, r + 0, q0_0[0], x0_0_0);
      double x0_1_0; element(o + 1, r + 0, q0_0[1], x0_1_0);
      double x0_2_0; element(o + 2, r + 0, q0_0[2], x0_2_0);
      double x0_3_0; element(o + 3, r + 0, q0_0[3], x0_3_0);
      double x1_0_0; element(o + 0, r + 4, q1_0[0], x1_0_0);
      double x1_1_0; element(o + 1, r + 4, q1_0[1], x1_1_0);
      double x1_2_0; element(o + 2, r + 4, q1_0[2], x1_2_0);
      double x1_3_0; element(o + 3, r + 4, q1_0[3], x1_3_0);
      double x2_0_0; element(o + 0, r + 8, q2_0[0], x2_0_0);
      double x2_1_0; element(o + 1, r + 8, q2_0[1], x2_1_0);
      double x2_2_0; element(o + 2, r + 8, q2_0[2], x2_2_0);
      double x2_3_0; element(o + 3, r + 8, q2_0[3], x2_3_0);
      double x3_0_0; element(o + 0, r + 12, q3_0[0], x3_0_0);
      double x3_1_0; element(o + 1, r + 12, q3_0[1], x3_1_0);
      double x3_2_0; element(o + 2, r + 12, q3_0[2], x3_2_0);
      double x3_3_0; element(o + 3, r + 12, q3_0[3], x3_3_0);
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
    for (; r < end; r += 4) {
      u16vec4 q0_0; four(r + 0, base0_0, q0_0);
      double x0_0_0; element(o + 0, r + 0, q0_0[0], x0_0_0);
      double x0_1_0; element(o + 1, r + 0, q0_0[1], x0_1_0);
      double x0_2_0; element(o + 2, r + 0, q0_0[2], x0_2_0);
      double x0_3_0; element(o + 3, r + 0, q0_0[3], x0_3_0);
      combine_sum(a0_0, x0_0_0);
      combine_sum(a0_1, x0_1_0);
      combine_sum(a0_2, x0_2_0);
      combine_sum(a0_3, x0_3_0);
    }
  }
  shared0[0 + lane] = a0_0; shared0[256 + lane] = a0_1; shared0[512 + lane] = a0_2; shared0[768 + lane] = a0_3;
  for (uint s = 2; s > 0; s >>= 1) {
    barrier();
    if (y < s) { combine_sum(a0_0, shared0[0 + lane + s * 64]); combine_sum(a0_1, shared0[256 + lane + s * 64]); combine_sum(a0_2, shared0[512 + lane + s * 64]); combine_sum(a0_3, shared0[768 + lane + s * 64]); shared0[0 + lane] = a0_0; shared0[256 + lane] = a0_1; shared0[512 + lane] = a0_2; shared0[768 + lane] = a0_3; }
  }
  if (y == 0 && o < p.outputs) {
    AT(uint16_t, p.result, o + 0) = uint16_t(float_to_bf16(to_bf16(a0_0)));
    AT(uint16_t, p.result, o + 1) = uint16_t(float_to_bf16(to_bf16(a0_1)));
    AT(uint16_t, p.result, o + 2) = uint16_t(float_to_bf16(to_bf16(a0_2)));
    AT(uint16_t, p.result, o + 3) = uint16_t(float_to_bf16(to_bf16(a0_3)));
  }
}
