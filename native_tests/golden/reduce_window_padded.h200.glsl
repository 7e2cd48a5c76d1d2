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
#include "lib/ops/arithmetic.glsl"
#define LAST_WINS false
#include "lib/reduce.glsl"
#define ADDS_PRODUCTS 1
#include "lib/products.glsl"
void add_element(IDX o, IDX r, float x0, float x1, inout double sum) {
  precise float v0 = float(x0);
  precise float v1 = float(x1);
  precise double v2 = nx_multiply(to_f64(v0), to_f64(v1));
  add_product(product_factor(v0), v1, sum);
}
#define PARTS 1
#define RESULTS 1
#define PART0 double
#define IDENTITY0 double(0)
#define COMBINE_PARTS combine_sum
#define STORE_OUTPUT(a, index) AT(float, p.result, index) = float(to_f32(a##_0));
#define STORED_OUTPUT(a) float(to_f32(a##_0))
layout(local_size_x = 256) in;
void main() {
  IDX o = (traversed_group() * 256 + INVOCATION) * 4;
  if (o < p.outputs) {
  IDX index0 = p.offset0;
  IDX index1 = p.offset1;
  IDX index2 = p.offset2;
  IDX index3 = p.offset3;
  IDX rest_o = o;
  IDX rest_o_3 = DIVIDED(rest_o, p.dim3, p.magic3);
  IDX at3 = rest_o - rest_o_3 * p.dim3; rest_o = rest_o_3;
  index1 += at3 * p.stride1_3;
  index3 += at3 * p.stride3_3;
  IDX rest_o_2 = DIVIDED(rest_o, p.dim2, p.magic2);
  IDX at2 = rest_o - rest_o_2 * p.dim2; rest_o = rest_o_2;
  index1 += at2 * p.stride1_2;
  index2 += at2 * p.stride2_2;
  IDX rest_o_1 = DIVIDED(rest_o, p.dim1, p.magic1);
  IDX at1 = rest_o - rest_o_1 * p.dim1; rest_o = rest_o_1;
  index0 += at1 * p.stride0_1;
  index1 += at1 * p.stride1_1;
  IDX at0 = rest_o;
  index1 += at0 * p.stride1_0;
  precise double a0_0 = double(0);
  precise double a1_0 = double(0);
  precise double a2_0 = double(0);
  precise double a3_0 = double(0);
  float x0 = AT(float, p.input0, index0);
  bool x1 = index2 < p.bound2;
  bool x2 = index3 < p.bound3;
  float x3 = (x1 && x2 ? AT(float, p.input1, index1) : uintBitsToFloat(uvec2(0u, 0u).x));
  bool x4 = index3 + 1 < p.bound3;
  float x5 = (x1 && x4 ? AT(float, p.input1, index1 + 1) : uintBitsToFloat(uvec2(0u, 0u).x));
  bool x6 = index3 + 2 < p.bound3;
  float x7 = (x1 && x6 ? AT(float, p.input1, index1 + 2) : uintBitsToFloat(uvec2(0u, 0u).x));
  bool x8 = index3 + 3 < p.bound3;
  float x9 = (x1 && x8 ? AT(float, p.input1, index1 + 3) : uintBitsToFloat(uvec2(0u, 0u).x));
  float x10 = AT(float, p.input0, index0 + 1);
  bool x11 = index3 + 4 < p.bound3;
  float x12 = (x1 && x11 ? AT(float, p.input1, index1 + 4) : uintBitsToFloat(uvec2(0u, 0u).x));
  float x13 = AT(float, p.input0, index0 + 2);
  bool x14 = index3 + 5 < p.bound3;
  float x15 = (x1 && x14 ? AT(float, p.input1, index1 + 5) : uintBitsToFloat(uvec2(0u, 0u).x));
  float x16 = AT(float, p.input0, index0 + 3);
  bool x17 = index2 + 1 < p.bound2;
  IDX x18 = index1 + 1 * p.stride1_4;
  float x19 = (x17 && x2 ? AT(float, p.input1, x18) : uintBitsToFloat(uvec2(0u, 0u).x));
  float x20 = (x17 && x4 ? AT(float, p.input1, x18 + 1) : uintBitsToFloat(uvec2(0u, 0u).x));
  float x21 = (x17 && x6 ? AT(float, p.input1, x18 + 2) : uintBitsToFloat(uvec2(0u, 0u).x));
  float x22 = (x17 && x8 ? AT(float, p.input1, x18 + 3) : uintBitsToFloat(uvec2(0u, 0u).x));
  float x23 = AT(float, p.input0, index0 + 4);
  float x24 = (x17 && x11 ? AT(float, p.input1, x18 + 4) : uintBitsToFloat(uvec2(0u, 0u).x));
  float x25 = AT(float, p.input0, index0 + 5);
  float x26 = (x17 && x14 ? AT(float, p.input1, x18 + 5) : uintBitsToFloat(uvec2(0u, 0u).x));
  float x27 = AT(float, p.input0, index0 + 6);
  bool x28 = index2 + 2 < p.bound2;
  IDX x29 = index1 + 2 * p.stride1_4;
  float x30 = (x28 && x2 ? AT(float, p.input1, x29) : uintBitsToFloat(uvec2(0u, 0u).x));
  float x31 = (x28 && x4 ? AT(float, p.input1, x29 + 1) : uintBitsToFloat(uvec2(0u, 0u).x));
  float x32 = (x28 && x6 ? AT(float, p.input1, x29 + 2) : uintBitsToFloat(uvec2(0u, 0u).x));
  float x33 = (x28 && x8 ? AT(float, p.input1, x29 + 3) : uintBitsToFloat(uvec2(0u, 0u).x));
  add_element(o + 0, 0, x0, x3, a0_0);
  add_element(o + 1, 0, x0, x5, a1_0);
  add_element(o + 2, 0, x0, x7, a2_0);
  add_element(o + 3, 0, x0, x9, a3_0);
  add_element(o + 0, 1, x10, x5, a0_0);
  add_element(o + 1, 1, x10, x7, a1_0);
  add_element(o + 2, 1, x10, x9, a2_0);
  add_element(o + 3, 1, x10, x12, a3_0);
  add_element(o + 0, 2, x13, x7, a0_0);
  add_element(o + 1, 2, x13, x9, a1_0);
  add_element(o + 2, 2, x13, x12, a2_0);
  add_element(o + 3, 2, x13, x15, a3_0);
  add_element(o + 0, 3, x16, x19, a0_0);
  add_element(o + 1, 3, x16, x20, a1_0);
  add_element(o + 2, 3, x16, x21, a2_0);
  add_element(o + 3, 3, x16, x22, a3_0);
  add_element(o + 0, 4, x23, x20, a0_0);
  add_element(o + 1, 4, x23, x21, a1_0);
  add_element(o + 2, 4, x23, x22, a2_0);
  add_element(o + 3, 4, x23, x24, a3_0);
  add_element(o + 0, 5, x25, x21, a0_0);
  add_element(o + 1, 5, x25, x22, a1_0);
  add_element(o + 2, 5, x25, x24, a2_0);
  add_element(o + 3, 5, x25, x26, a3_0);
  add_element(o + 0, 6, x27, x30, a0_0);
  add_element(o + 1, 6, x27, x31, a1_0);
  add_element(o + 2, 6, x27, x32, a2_0);
  add_element(o + 3, 6, x27, x33, a3_0);
  float x34 = AT(float, p.input0, index0 + 7);
  float x35 = (x28 && x11 ? AT(float, p.input1, x29 + 4) : uintBitsToFloat(uvec2(0u, 0u).x));
  float x36 = AT(float, p.input0, index0 + 8);
  float x37 = (x28 && x14 ? AT(float, p.input1, x29 + 5) : uintBitsToFloat(uvec2(0u, 0u).x));
  add_element(o + 0, 7, x34, x31, a0_0);
  add_element(o + 1, 7, x34, x32, a1_0);
  add_element(o + 2, 7, x34, x33, a2_0);
  add_element(o + 3, 7, x34, x35, a3_0);
  add_element(o + 0, 8, x36, x32, a0_0);
  add_element(o + 1, 8, x36, x33, a1_0);
  add_element(o + 2, 8, x36, x35, a2_0);
  add_element(o + 3, 8, x36, x37, a3_0);
  a0_0 = product_sum(a0_0);
  a1_0 = product_sum(a1_0);
  a2_0 = product_sum(a2_0);
  a3_0 = product_sum(a3_0);
  SET_VEC4(float, p.result, o / 4, vec4(STORED_OUTPUT(a0), STORED_OUTPUT(a1), STORED_OUTPUT(a2), STORED_OUTPUT(a3)));
  }
}
