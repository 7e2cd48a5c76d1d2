// 250 workgroups, chunk 2048
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
#define ADDS_PRODUCTS 0
void element(IDX o, IDX r, float x0, float x1, out double e0, out double e1) {
  precise float v0 = float(x0);
  precise float v1 = float(x1);
  precise float v2 = nx_multiply(v0, v1);
  e0 = double(v2);
  e1 = double(v0);
}
#define PROLOGUE 
void bases(IDX o, out IDX index0, out IDX index1) {
  index0 = p.offset0;
  index1 = p.offset1;
}
#define BASES(w, o) IDX base0_##w, base1_##w; bases(o, base0_##w, base1_##w);
void load_vector(IDX r, IDX index0, IDX index1, out vec4 q0, out vec4 q1) {
  IDX rest_r = r;
  IDX rest_r_1 = DIVIDED(rest_r, p.dim1, p.magic1);
  IDX at1 = rest_r - rest_r_1 * p.dim1; rest_r = rest_r_1;
  index0 += at1;
  index1 += at1;
  IDX at0 = rest_r;
  index0 += at0 * p.stride0_0;
  index1 += at0 * p.stride1_0;
  q0 = LOAD_VEC4(float, p.input0, index0 / 4);
  q1 = LOAD_VEC4(float, p.input1, index1 / 4);
}
#define LOAD_VECTOR(k, w, r) vec4 q0_##k##_##w; vec4 q1_##k##_##w; load_vector(r, base0_##w, base1_##w, q0_##k##_##w, q1_##k##_##w);
void load_scalar(IDX r, IDX index0, IDX index1, out float q0, out float q1) {
  IDX rest_r = r;
  IDX rest_r_1 = DIVIDED(rest_r, p.dim1, p.magic1);
  IDX at1 = rest_r - rest_r_1 * p.dim1; rest_r = rest_r_1;
  index0 += at1;
  index1 += at1;
  IDX at0 = rest_r;
  index0 += at0 * p.stride0_0;
  index1 += at0 * p.stride1_0;
  q0 = AT(float, p.input0, index0);
  q1 = AT(float, p.input1, index1);
}
#define LOAD_SCALAR(k, w, r) float q0_##k##_##w; float q1_##k##_##w; load_scalar(r, base0_##w, base1_##w, q0_##k##_##w, q1_##k##_##w);
#define VECTOR_STORED(k, w, c) , q0_##k##_##w[c], q1_##k##_##w[c]
#define SCALAR_STORED(k, w) , q0_##k##_##w, q1_##k##_##w
void combine_sums(inout double a0, inout double a1, double x0, double x1) {
  combine_sum(a0, x0);
  combine_sum(a1, x1);
}
#define PARTS 2
#define RESULTS 2
#define PART0 double
#define IDENTITY0 double(0)
#define PART1 double
#define IDENTITY1 double(0)
#define COMBINE_PARTS combine_sums
#define OUTPUT_THREADS 1
#define REDUCTION_THREADS 256
#define OUTPUT_VECTORS 0
#define REDUCED_VECTORS 1
#define UNROLLED 4
#define EXACT 0
#define CHUNKED 1
#define SHARED_EXCHANGE 
#define LANES 32
#define NEIGHBOURS_SHARE 1
#define STORE_OUTPUT(a, index) AT(double, p.partial_out0, chunk * p.outputs + index) = a##_0; AT(double, p.partial_out1, chunk * p.outputs + index) = a##_1;
#include "lib/loops/reduce.glsl"
// 1 workgroups, chunk 250
#include "lib/convert.glsl"
#include "lib/grid.glsl"
uint divided(uint a, uvec2 magic) {
  uint high, low;
  umulExtended(a, magic.x, high, low);
  return (high + a) >> magic.y;
}
#define DIVIDED(a, b, magic) divided(a, magic)
IDX traversed_group() { return workgroup(); }
#include "lib/ops/arithmetic.glsl"
#define LAST_WINS false
#include "lib/reduce.glsl"
#define ADDS_PRODUCTS 0
void element(IDX o, IDX r, out double e0, out double e1) {
  e0 = AT(double, p.partial0, r * p.outputs + o);
  e1 = AT(double, p.partial1, r * p.outputs + o);
}
#define PROLOGUE 
#define BASES(w, o) 
#define LOAD_VECTOR(k, w, r) 
#define LOAD_SCALAR(k, w, r) 
#define VECTOR_STORED(k, w, c) 
#define SCALAR_STORED(k, w) 
void combine_sums(inout double a0, inout double a1, double x0, double x1) {
  combine_sum(a0, x0);
  combine_sum(a1, x1);
}
#define PARTS 2
#define RESULTS 2
#define PART0 double
#define IDENTITY0 double(0)
#define PART1 double
#define IDENTITY1 double(0)
#define COMBINE_PARTS combine_sums
#define OUTPUT_THREADS 1
#define REDUCTION_THREADS 256
#define OUTPUT_VECTORS 0
#define REDUCED_VECTORS 0
#define UNROLLED 4
#define EXACT 0
#define CHUNKED 0
#define SHARED_EXCHANGE 
#define LANES 32
#define NEIGHBOURS_SHARE 1
#define STORE_OUTPUT(a, index) AT(float, p.result, index) = float(to_f32(a##_0)); AT(float, p.result1, index) = float(to_f32(a##_1));
#include "lib/loops/reduce.glsl"
