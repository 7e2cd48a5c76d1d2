// 100352 workgroups, chunk 9
#include "lib/convert.glsl"
#include "lib/grid.glsl"
#define DIVIDED(a, b, magic) QUOTIENT(a, b)
IDX traversed_group() { return workgroup(); }
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
layout(local_size_x = 8) in;
void main() {
  IDX o = (traversed_group() * 8 + INVOCATION) * 1;
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
  float x0 = AT(float, p.input0, index0);
  bool x1 = index2 < p.bound2;
  bool x2 = index3 < p.bound3;
  float x3 = (x1 && x2 ? AT(float, p.input1, index1) : uintBitsToFloat(uvec2(0u, 0u).x));
  float x4 = AT(float, p.input0, index0 + 1);
  bool x5 = index3 + 1 < p.bound3;
  float x6 = (x1 && x5 ? AT(float, p.input1, index1 + 1) : uintBitsToFloat(uvec2(0u, 0u).x));
  float x7 = AT(float, p.input0, index0 + 2);
  bool x8 = index3 + 2 < p.bound3;
  float x9 = (x1 && x8 ? AT(float, p.input1, index1 + 2) : uintBitsToFloat(uvec2(0u, 0u).x));
  float x10 = AT(float, p.input0, index0 + 3);
  bool x11 = index2 + 1 < p.bound2;
  IDX x12 = index1 + 1 * p.stride1_4;
  float x13 = (x11 && x2 ? AT(float, p.input1, x12) : uintBitsToFloat(uvec2(0u, 0u).x));
  float x14 = AT(float, p.input0, index0 + 4);
  float x15 = (x11 && x5 ? AT(float, p.input1, x12 + 1) : uintBitsToFloat(uvec2(0u, 0u).x));
  float x16 = AT(float, p.input0, index0 + 5);
  float x17 = (x11 && x8 ? AT(float, p.input1, x12 + 2) : uintBitsToFloat(uvec2(0u, 0u).x));
  float x18 = AT(float, p.input0, index0 + 6);
  bool x19 = index2 + 2 < p.bound2;
  IDX x20 = index1 + 2 * p.stride1_4;
  float x21 = (x19 && x2 ? AT(float, p.input1, x20) : uintBitsToFloat(uvec2(0u, 0u).x));
  float x22 = AT(float, p.input0, index0 + 7);
  float x23 = (x19 && x5 ? AT(float, p.input1, x20 + 1) : uintBitsToFloat(uvec2(0u, 0u).x));
  float x24 = AT(float, p.input0, index0 + 8);
  float x25 = (x19 && x8 ? AT(float, p.input1, x20 + 2) : uintBitsToFloat(uvec2(0u, 0u).x));
  add_element(o + 0, 0, x0, x3, a0_0);
  add_element(o + 0, 1, x4, x6, a0_0);
  add_element(o + 0, 2, x7, x9, a0_0);
  add_element(o + 0, 3, x10, x13, a0_0);
  add_element(o + 0, 4, x14, x15, a0_0);
  add_element(o + 0, 5, x16, x17, a0_0);
  add_element(o + 0, 6, x18, x21, a0_0);
  add_element(o + 0, 7, x22, x23, a0_0);
  add_element(o + 0, 8, x24, x25, a0_0);
  a0_0 = product_sum(a0_0);
  STORE_OUTPUT(a0, o + 0)
  }
}
