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
void element(IDX o, IDX r, double x0, out double e0, out double e1) {
  precise double v0 = double(x0);
  e0 = double(v0);
  e1 = double(0);
}
#define PARTS 2
#define RESULTS 1
#define PART0 double
#define IDENTITY0 double(0)
#define PART1 double
#define IDENTITY1 double(0)
#define COMBINE_PARTS combine_sum
#define STORE_OUTPUT(a, index) AT(double, p.result, index) = double(finish_sum(a##_0, a##_1));
#define STORED_OUTPUT(a) double(finish_sum(a##_0, a##_1))
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
  precise double a0_0 = double(0);
  precise double a0_1 = double(0);
  double x0 = AT(double, p.input0, index0);
  double x1 = AT(double, p.input0, index0 + 1);
  double x2 = AT(double, p.input0, index0 + 2);
  IDX x3 = index0 + 1 * p.stride0_2;
  double x4 = AT(double, p.input0, x3);
  double x5 = AT(double, p.input0, x3 + 1);
  double x6 = AT(double, p.input0, x3 + 2);
  IDX x7 = index0 + 2 * p.stride0_2;
  double x8 = AT(double, p.input0, x7);
  double x9 = AT(double, p.input0, x7 + 1);
  double x10 = AT(double, p.input0, x7 + 2);
  { double x_0; double x_1; element(o + 0, 0, x0, x_0, x_1); combine_sum(a0_0, a0_1, x_0, x_1); }
  { double x_0; double x_1; element(o + 0, 1, x1, x_0, x_1); combine_sum(a0_0, a0_1, x_0, x_1); }
  { double x_0; double x_1; element(o + 0, 2, x2, x_0, x_1); combine_sum(a0_0, a0_1, x_0, x_1); }
  { double x_0; double x_1; element(o + 0, 3, x4, x_0, x_1); combine_sum(a0_0, a0_1, x_0, x_1); }
  { double x_0; double x_1; element(o + 0, 4, x5, x_0, x_1); combine_sum(a0_0, a0_1, x_0, x_1); }
  { double x_0; double x_1; element(o + 0, 5, x6, x_0, x_1); combine_sum(a0_0, a0_1, x_0, x_1); }
  { double x_0; double x_1; element(o + 0, 6, x8, x_0, x_1); combine_sum(a0_0, a0_1, x_0, x_1); }
  { double x_0; double x_1; element(o + 0, 7, x9, x_0, x_1); combine_sum(a0_0, a0_1, x_0, x_1); }
  { double x_0; double x_1; element(o + 0, 8, x10, x_0, x_1); combine_sum(a0_0, a0_1, x_0, x_1); }
  STORE_OUTPUT(a0, o + 0)
  }
}
