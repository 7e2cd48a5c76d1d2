// 2048 workgroups, chunk 2048
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
#define PROLOGUE 
void bases(IDX o, out IDX index0) {
  index0 = p.offset0;
}
#define BASES(w, o) IDX base0_##w; bases(o, base0_##w);
void load_vector(IDX r, IDX index0, out dvec4 q0) {
  IDX rest_r = r;
  IDX at0 = rest_r;
  index0 += at0;
  q0 = LOAD_VEC4(double, p.input0, index0 / 4);
}
#define LOAD_VECTOR(k, w, r) dvec4 q0_##k##_##w; load_vector(r, base0_##w, q0_##k##_##w);
void load_scalar(IDX r, IDX index0, out double q0) {
  IDX rest_r = r;
  IDX at0 = rest_r;
  index0 += at0;
  q0 = AT(double, p.input0, index0);
}
#define LOAD_SCALAR(k, w, r) double q0_##k##_##w; load_scalar(r, base0_##w, q0_##k##_##w);
#define VECTOR_STORED(k, w, c) , q0_##k##_##w[c]
#define SCALAR_STORED(k, w) , q0_##k##_##w
#define PARTS 2
#define RESULTS 1
#define PART0 double
#define IDENTITY0 double(0)
#define PART1 double
#define IDENTITY1 double(0)
#define COMBINE_PARTS combine_sum
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
// 1 workgroups, chunk 2048
#include "lib/convert.glsl"
#include "lib/grid.glsl"
uint divided(uint a, uvec2 magic) {
  uint high, low;
  umulExtended(a, magic.x, high, low);
  return (high + a) >> magic.y;
}
#define DIVIDED(a, b, magic) divided(a, magic)
IDX traversed_group() { return workgroup(); }
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
#define PARTS 2
#define RESULTS 1
#define PART0 double
#define IDENTITY0 double(0)
#define PART1 double
#define IDENTITY1 double(0)
#define COMBINE_PARTS combine_sum
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
#define STORE_OUTPUT(a, index) AT(double, p.result, index) = double(finish_sum(a##_0, a##_1));
#include "lib/loops/reduce.glsl"
