// 784 workgroups, chunk 9
#include "lib/convert.glsl"
#include "lib/grid.glsl"
uint divided(uint a, uvec2 magic) {
  uint high, low;
  umulExtended(a, magic.x, high, low);
  return (high + a) >> magic.y;
}
#define DIVIDED(a, b, magic) divided(a, magic)
IDX traversed_group() { return p.reversed != 0 ? p.reversed - 1 - workgroup() : workgroup(); }
#define LAST_WINS false
#include "lib/reduce.glsl"
#define ADDS_PRODUCTS 0
void element(IDX o, IDX r, uint16_t x0, out uint e0) {
  precise float v0 = bf16_to_float(uint(x0));
  e0 = max_key(v0);
}
#define PARTS 1
#define RESULTS 1
#define PART0 uint
#define IDENTITY0 uint(0)
#define COMBINE_PARTS combine_max_key
#define STORE_OUTPUT(a, index) AT(uint16_t, p.result, index) = uint16_t(float_to_bf16(of_max_key(a##_0)));
#define STORED_OUTPUT(a) uint16_t(float_to_bf16(of_max_key(a##_0)))
layout(local_size_x = 256) in;
void main() {
  IDX o = (traversed_group() * 256 + INVOCATION) * 4;
  if (o < p.outputs) {
  IDX index0 = p.offset0;
  IDX index1 = p.offset1;
  IDX index2 = p.offset2;
  IDX rest_o = o;
  IDX rest_o_2 = DIVIDED(rest_o, p.dim2, p.magic2);
  IDX at2 = rest_o - rest_o_2 * p.dim2; rest_o = rest_o_2;
  index0 += at2 * p.stride0_2;
  IDX rest_o_1 = DIVIDED(rest_o, p.dim1, p.magic1);
  IDX at1 = rest_o - rest_o_1 * p.dim1; rest_o = rest_o_1;
  index0 += at1 * p.stride0_1;
  index2 += at1 * p.stride2_1;
  IDX at0 = rest_o;
  index0 += at0 * p.stride0_0;
  index1 += at0 * p.stride1_0;
  precise uint a0_0 = uint(0);
  precise uint a1_0 = uint(0);
  precise uint a2_0 = uint(0);
  precise uint a3_0 = uint(0);
  bool x0 = index1 < p.bound1;
  bool x1 = index2 < p.bound2;
  u16vec4 x2 = (x0 && x1 ? LOAD_VEC4(uint16_t, p.input0, (index0) / 4) : u16vec4(uint16_t(uvec2(65408u, 0u).x), uint16_t(uvec2(65408u, 0u).x), uint16_t(uvec2(65408u, 0u).x), uint16_t(uvec2(65408u, 0u).x)));
  bool x3 = index2 + 1 < p.bound2;
  IDX x4 = index0 + 1 * p.stride0_4;
  u16vec4 x5 = (x0 && x3 ? LOAD_VEC4(uint16_t, p.input0, (x4) / 4) : u16vec4(uint16_t(uvec2(65408u, 0u).x), uint16_t(uvec2(65408u, 0u).x), uint16_t(uvec2(65408u, 0u).x), uint16_t(uvec2(65408u, 0u).x)));
  bool x6 = index2 + 2 < p.bound2;
  IDX x7 = index0 + 2 * p.stride0_4;
  u16vec4 x8 = (x0 && x6 ? LOAD_VEC4(uint16_t, p.input0, (x7) / 4) : u16vec4(uint16_t(uvec2(65408u, 0u).x), uint16_t(uvec2(65408u, 0u).x), uint16_t(uvec2(65408u, 0u).x), uint16_t(uvec2(65408u, 0u).x)));
  bool x9 = index1 + 1 < p.bound1;
  IDX x10 = index0 + 1 * p.stride0_3;
  u16vec4 x11 = (x9 && x1 ? LOAD_VEC4(uint16_t, p.input0, (x10) / 4) : u16vec4(uint16_t(uvec2(65408u, 0u).x), uint16_t(uvec2(65408u, 0u).x), uint16_t(uvec2(65408u, 0u).x), uint16_t(uvec2(65408u, 0u).x)));
  IDX x12 = index0 + 1 * p.stride0_3 + 1 * p.stride0_4;
  u16vec4 x13 = (x9 && x3 ? LOAD_VEC4(uint16_t, p.input0, (x12) / 4) : u16vec4(uint16_t(uvec2(65408u, 0u).x), uint16_t(uvec2(65408u, 0u).x), uint16_t(uvec2(65408u, 0u).x), uint16_t(uvec2(65408u, 0u).x)));
  IDX x14 = index0 + 1 * p.stride0_3 + 2 * p.stride0_4;
  u16vec4 x15 = (x9 && x6 ? LOAD_VEC4(uint16_t, p.input0, (x14) / 4) : u16vec4(uint16_t(uvec2(65408u, 0u).x), uint16_t(uvec2(65408u, 0u).x), uint16_t(uvec2(65408u, 0u).x), uint16_t(uvec2(65408u, 0u).x)));
  bool x16 = index1 + 2 < p.bound1;
  IDX x17 = index0 + 2 * p.stride0_3;
  u16vec4 x18 = (x16 && x1 ? LOAD_VEC4(uint16_t, p.input0, (x17) / 4) : u16vec4(uint16_t(uvec2(65408u, 0u).x), uint16_t(uvec2(65408u, 0u).x), uint16_t(uvec2(65408u, 0u).x), uint16_t(uvec2(65408u, 0u).x)));
  IDX x19 = index0 + 2 * p.stride0_3 + 1 * p.stride0_4;
  u16vec4 x20 = (x16 && x3 ? LOAD_VEC4(uint16_t, p.input0, (x19) / 4) : u16vec4(uint16_t(uvec2(65408u, 0u).x), uint16_t(uvec2(65408u, 0u).x), uint16_t(uvec2(65408u, 0u).x), uint16_t(uvec2(65408u, 0u).x)));
  IDX x21 = index0 + 2 * p.stride0_3 + 2 * p.stride0_4;
  u16vec4 x22 = (x16 && x6 ? LOAD_VEC4(uint16_t, p.input0, (x21) / 4) : u16vec4(uint16_t(uvec2(65408u, 0u).x), uint16_t(uvec2(65408u, 0u).x), uint16_t(uvec2(65408u, 0u).x), uint16_t(uvec2(65408u, 0u).x)));
  { uint x_0; element(o + 0, 0, x2[0], x_0); combine_max_key(a0_0, x_0); }
  { uint x_0; element(o + 1, 0, x2[1], x_0); combine_max_key(a1_0, x_0); }
  { uint x_0; element(o + 2, 0, x2[2], x_0); combine_max_key(a2_0, x_0); }
  { uint x_0; element(o + 3, 0, x2[3], x_0); combine_max_key(a3_0, x_0); }
  { uint x_0; element(o + 0, 1, x5[0], x_0); combine_max_key(a0_0, x_0); }
  { uint x_0; element(o + 1, 1, x5[1], x_0); combine_max_key(a1_0, x_0); }
  { uint x_0; element(o + 2, 1, x5[2], x_0); combine_max_key(a2_0, x_0); }
  { uint x_0; element(o + 3, 1, x5[3], x_0); combine_max_key(a3_0, x_0); }
  { uint x_0; element(o + 0, 2, x8[0], x_0); combine_max_key(a0_0, x_0); }
  { uint x_0; element(o + 1, 2, x8[1], x_0); combine_max_key(a1_0, x_0); }
  { uint x_0; element(o + 2, 2, x8[2], x_0); combine_max_key(a2_0, x_0); }
  { uint x_0; element(o + 3, 2, x8[3], x_0); combine_max_key(a3_0, x_0); }
  { uint x_0; element(o + 0, 3, x11[0], x_0); combine_max_key(a0_0, x_0); }
  { uint x_0; element(o + 1, 3, x11[1], x_0); combine_max_key(a1_0, x_0); }
  { uint x_0; element(o + 2, 3, x11[2], x_0); combine_max_key(a2_0, x_0); }
  { uint x_0; element(o + 3, 3, x11[3], x_0); combine_max_key(a3_0, x_0); }
  { uint x_0; element(o + 0, 4, x13[0], x_0); combine_max_key(a0_0, x_0); }
  { uint x_0; element(o + 1, 4, x13[1], x_0); combine_max_key(a1_0, x_0); }
  { uint x_0; element(o + 2, 4, x13[2], x_0); combine_max_key(a2_0, x_0); }
  { uint x_0; element(o + 3, 4, x13[3], x_0); combine_max_key(a3_0, x_0); }
  { uint x_0; element(o + 0, 5, x15[0], x_0); combine_max_key(a0_0, x_0); }
  { uint x_0; element(o + 1, 5, x15[1], x_0); combine_max_key(a1_0, x_0); }
  { uint x_0; element(o + 2, 5, x15[2], x_0); combine_max_key(a2_0, x_0); }
  { uint x_0; element(o + 3, 5, x15[3], x_0); combine_max_key(a3_0, x_0); }
  { uint x_0; element(o + 0, 6, x18[0], x_0); combine_max_key(a0_0, x_0); }
  { uint x_0; element(o + 1, 6, x18[1], x_0); combine_max_key(a1_0, x_0); }
  { uint x_0; element(o + 2, 6, x18[2], x_0); combine_max_key(a2_0, x_0); }
  { uint x_0; element(o + 3, 6, x18[3], x_0); combine_max_key(a3_0, x_0); }
  { uint x_0; element(o + 0, 7, x20[0], x_0); combine_max_key(a0_0, x_0); }
  { uint x_0; element(o + 1, 7, x20[1], x_0); combine_max_key(a1_0, x_0); }
  { uint x_0; element(o + 2, 7, x20[2], x_0); combine_max_key(a2_0, x_0); }
  { uint x_0; element(o + 3, 7, x20[3], x_0); combine_max_key(a3_0, x_0); }
  { uint x_0; element(o + 0, 8, x22[0], x_0); combine_max_key(a0_0, x_0); }
  { uint x_0; element(o + 1, 8, x22[1], x_0); combine_max_key(a1_0, x_0); }
  { uint x_0; element(o + 2, 8, x22[2], x_0); combine_max_key(a2_0, x_0); }
  { uint x_0; element(o + 3, 8, x22[3], x_0); combine_max_key(a3_0, x_0); }
  SET_VEC4(uint16_t, p.result, o / 4, u16vec4(STORED_OUTPUT(a0), STORED_OUTPUT(a1), STORED_OUTPUT(a2), STORED_OUTPUT(a3)));
  }
}
