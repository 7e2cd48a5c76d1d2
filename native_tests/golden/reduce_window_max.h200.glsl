// 352 workgroups, chunk 9
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
void element(IDX o, IDX r, float x0, out uint e0) {
  precise float v0 = float(x0);
  e0 = max_key(v0);
}
#define PARTS 1
#define RESULTS 1
#define PART0 uint
#define IDENTITY0 uint(0)
#define COMBINE_PARTS combine_max_key
#define STORE_OUTPUT(a, index) AT(float, p.result, index) = float(of_max_key(a##_0));
#define STORED_OUTPUT(a) float(of_max_key(a##_0))
layout(local_size_x = 256) in;
void main() {
  IDX o = (traversed_group() * 256 + INVOCATION) * 1;
  if (o < p.outputs) {
  IDX index0 = p.offset0;
  IDX rest_o = o;
  IDX rest_o_1 = DIVIDED(rest_o, p.dim1, p.magic1);
  IDX at1 = rest_o - rest_o_1 * p.dim1; rest_o = rest_o_1;
  index0 += at1 * p.stride0_1;
  IDX at0 = rest_o;
  index0 += at0 * p.stride0_0;
  precise uint a0_0 = uint(0);
  float x0 = AT(float, p.input0, index0);
  float x1 = AT(float, p.input0, index0 + 1);
  float x2 = AT(float, p.input0, index0 + 2);
  IDX x3 = index0 + 1 * p.stride0_2;
  float x4 = AT(float, p.input0, x3);
  float x5 = AT(float, p.input0, x3 + 1);
  float x6 = AT(float, p.input0, x3 + 2);
  IDX x7 = index0 + 2 * p.stride0_2;
  float x8 = AT(float, p.input0, x7);
  float x9 = AT(float, p.input0, x7 + 1);
  float x10 = AT(float, p.input0, x7 + 2);
  { uint x_0; element(o + 0, 0, x0, x_0); combine_max_key(a0_0, x_0); }
  { uint x_0; element(o + 0, 1, x1, x_0); combine_max_key(a0_0, x_0); }
  { uint x_0; element(o + 0, 2, x2, x_0); combine_max_key(a0_0, x_0); }
  { uint x_0; element(o + 0, 3, x4, x_0); combine_max_key(a0_0, x_0); }
  { uint x_0; element(o + 0, 4, x5, x_0); combine_max_key(a0_0, x_0); }
  { uint x_0; element(o + 0, 5, x6, x_0); combine_max_key(a0_0, x_0); }
  { uint x_0; element(o + 0, 6, x8, x_0); combine_max_key(a0_0, x_0); }
  { uint x_0; element(o + 0, 7, x9, x_0); combine_max_key(a0_0, x_0); }
  { uint x_0; element(o + 0, 8, x10, x_0); combine_max_key(a0_0, x_0); }
  STORE_OUTPUT(a0, o + 0)
  }
}
