// 32 workgroups, chunk 192
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
#define PROLOGUE 
void bases(IDX o, out IDX index0, out IDX index1) {
  index0 = p.offset0;
  index1 = p.offset1;
  IDX rest_o = o;
  IDX at0 = rest_o;
  index1 += at0;
}
#define BASES(w, o) IDX base0_##w, base1_##w; bases(o, base0_##w, base1_##w);
void load_vector(IDX r, IDX index0, IDX index1, out float q0, out vec4 q1) {
  IDX rest_r = r;
  IDX at1 = rest_r;
  index0 += at1 * p.stride0_1;
  index1 += at1 * p.stride1_1;
  q0 = AT(float, p.input0, index0);
  q1 = LOAD_VEC4(float, p.input1, index1 / 4);
}
#define LOAD_VECTOR(k, w, r) float q0_##k##_##w; vec4 q1_##k##_##w; load_vector(r, base0_##w, base1_##w, q0_##k##_##w, q1_##k##_##w);
void load_scalar(IDX r, IDX index0, IDX index1, out float q0, out float q1) {
  IDX rest_r = r;
  IDX at1 = rest_r;
  index0 += at1 * p.stride0_1;
  index1 += at1 * p.stride1_1;
  q0 = AT(float, p.input0, index0);
  q1 = AT(float, p.input1, index1);
}
#define LOAD_SCALAR(k, w, r) float q0_##k##_##w; float q1_##k##_##w; load_scalar(r, base0_##w, base1_##w, q0_##k##_##w, q1_##k##_##w);
#define VECTOR_STORED(k, w, c) , q0_##k##_##w, q1_##k##_##w[c]
#define SCALAR_STORED(k, w) , q0_##k##_##w, q1_##k##_##w
#define PARTS 1
#define RESULTS 1
#define PART0 double
#define IDENTITY0 double(0)
#define COMBINE_PARTS combine_sum
#define OUTPUT_THREADS 8
#define REDUCTION_THREADS 1
#define OUTPUT_VECTORS 4
#define REDUCED_VECTORS 0
#define UNROLLED 1
#define EXACT 0
#define CHUNKED 1
#define LANES 1
#define NEIGHBOURS_SHARE 0
#define STORE_OUTPUT(a, index) AT(double, p.partial_out0, chunk * p.outputs + index) = a##_0;
#include "lib/loops/reduce.glsl"
// 128 workgroups, chunk 4
#include "lib/convert.glsl"
#include "lib/grid.glsl"
#define DIVIDED(a, b, magic) QUOTIENT(a, b)
IDX traversed_group() { return workgroup(); }
#include "lib/ops/arithmetic.glsl"
#define LAST_WINS false
#include "lib/reduce.glsl"
#define ADDS_PRODUCTS 0
void element(IDX o, IDX r, out double e0) {
  e0 = AT(double, p.partial0, r * p.outputs + o);
}
#define PROLOGUE 
#define BASES(w, o) 
#define LOAD_VECTOR(k, w, r) 
#define LOAD_SCALAR(k, w, r) 
#define VECTOR_STORED(k, w, c) 
#define SCALAR_STORED(k, w) 
#define PARTS 1
#define RESULTS 1
#define PART0 double
#define IDENTITY0 double(0)
#define COMBINE_PARTS combine_sum
#define OUTPUT_THREADS 8
#define REDUCTION_THREADS 1
#define OUTPUT_VECTORS 0
#define REDUCED_VECTORS 0
#define UNROLLED 4
#define EXACT 0
#define CHUNKED 0
#define LANES 1
#define NEIGHBOURS_SHARE 0
#define STORE_OUTPUT(a, index) AT(float, p.result, index) = float(to_f32(a##_0));
#include "lib/loops/reduce.glsl"
