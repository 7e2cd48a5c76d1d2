// 50257 workgroups, chunk 768
#include "lib/convert.glsl"
#include "lib/grid.glsl"
#define DIVIDED(a, b, magic) QUOTIENT(a, b)
IDX traversed_group() { return workgroup(); }
#include "lib/ops/arithmetic.glsl"
float epilogue(IDX i, float x0) {
  precise float v0 = float(x0);
  precise float v1 = v0;
  return float(v1);
}
void reduce_result(IDX i, float x);
void store_result(IDX i, float x) {
  reduce_result(i, epilogue(i, x));
}
void store_results(IDX i, float x0, float x1, float x2, float x3) {
  reduce_result(i + 0, epilogue(i + 0, x0));
  reduce_result(i + 1, epilogue(i + 1, x1));
  reduce_result(i + 2, epilogue(i + 2, x2));
  reduce_result(i + 3, epilogue(i + 3, x3));
}
void store_element(IDX i, float x) {
  store_result(i, x);
}
void store_elements(IDX i, float x0, float x1, float x2, float x3) {
  store_results(i, x0, x1, x2, x3);
}
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
  index0 += at0 * p.stride0_0;
  index1 += at0 * p.stride1_0;
}
#define BASES(w, o) IDX base0_##w, base1_##w; bases(o, base0_##w, base1_##w);
void load_vector(IDX r, IDX index0, IDX index1, out vec4 q0, out vec4 q1) {
  IDX rest_r = r;
  IDX at1 = rest_r;
  index0 += at1;
  index1 += at1;
  q0 = LOAD_VEC4(float, p.input0, index0 / 4);
  q1 = LOAD_VEC4(float, p.input1, index1 / 4);
}
#define LOAD_VECTOR(k, w, r) vec4 q0_##k##_##w; vec4 q1_##k##_##w; load_vector(r, base0_##w, base1_##w, q0_##k##_##w, q1_##k##_##w);
void load_scalar(IDX r, IDX index0, IDX index1, out float q0, out float q1) {
  IDX rest_r = r;
  IDX at1 = rest_r;
  index0 += at1;
  index1 += at1;
  q0 = AT(float, p.input0, index0);
  q1 = AT(float, p.input1, index1);
}
#define LOAD_SCALAR(k, w, r) float q0_##k##_##w; float q1_##k##_##w; load_scalar(r, base0_##w, base1_##w, q0_##k##_##w, q1_##k##_##w);
#define VECTOR_STORED(k, w, c) , q0_##k##_##w[c], q1_##k##_##w[c]
#define SCALAR_STORED(k, w) , q0_##k##_##w, q1_##k##_##w
#define PARTS 1
#define RESULTS 1
#define PART0 double
#define IDENTITY0 double(0)
#define COMBINE_PARTS combine_sum
#define OUTPUT_THREADS 1
#define REDUCTION_THREADS 8
#define OUTPUT_VECTORS 0
#define REDUCED_VECTORS 1
#define UNROLLED 4
#define EXACT 0
#define CHUNKED 0
#define LANES 8
#define NEIGHBOURS_SHARE 0
#define STORE_OUTPUT(a, index) store_element(index, float(to_f32(a##_0)));
#define REDUCES_RESULTS 
#define RESULT_GROUPS p.epilogue_groups
#define RESULTS_OF_SUBGROUP 
float own_0; uint own_1;
shared float results_0[1]; shared uint results_1[1];
void start_results() { own_0 = lowest_float(); own_1 = ~uint(0); }
void reduce_result(IDX r, float x) {
  float e0; uint e1;
  float v0 = float(x);
  e0 = float(v0);
  e1 = r;
  combine_argmax(own_0, own_1, e0, e1);
}
void put_results(uint slot) { results_0[slot] = own_0; results_1[slot] = own_1; }
void combine_results(uint slot, uint next, uint left) {
  for (uint other = slot + next; other < left; other += next) { float x0 = results_0[other]; uint x1 = results_1[other]; combine_argmax(own_0, own_1, x0, x1); }
  results_0[slot] = own_0; results_1[slot] = own_1;
}
void store_partial(IDX group) { AT(float, p.epilogue_partial_out0, group) = own_0; AT(uint, p.epilogue_partial_out1, group) = own_1; }
#include "lib/loops/results.glsl"
#include "lib/loops/reduce.glsl"
