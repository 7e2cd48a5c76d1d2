// 512 workgroups, chunk 768
#include "lib/convert.glsl"
#include "lib/grid.glsl"
#define DIVIDED(a, b, magic) QUOTIENT(a, b)
IDX traversed_group() { return workgroup(); }
#include "lib/ops/arithmetic.glsl"
#define LAST_WINS false
#include "lib/reduce.glsl"
#define ADDS_PRODUCTS 1
#include "lib/products.glsl"
void add_element(IDX o, IDX r, uint16_t x0, uint16_t x1, inout double sum) {
  precise float v0 = bf16_to_float(uint(x0));
  precise float v1 = bf16_to_float(uint(x1));
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
void load_vector(IDX r, IDX index0, IDX index1, out u16vec4 q0, out u16vec4 q1) {
  IDX rest_r = r;
  IDX at1 = rest_r;
  index0 += at1;
  index1 += at1;
  q0 = LOAD_VEC4(uint16_t, p.input0, index0 / 4);
  q1 = LOAD_VEC4(uint16_t, p.input1, index1 / 4);
}
#define LOAD_VECTOR(k, w, r) u16vec4 q0_##k##_##w; u16vec4 q1_##k##_##w; load_vector(r, base0_##w, base1_##w, q0_##k##_##w, q1_##k##_##w);
void load_scalar(IDX r, IDX index0, IDX index1, out uint16_t q0, out uint16_t q1) {
  IDX rest_r = r;
  IDX at1 = rest_r;
  index0 += at1;
  index1 += at1;
  q0 = AT(uint16_t, p.input0, index0);
  q1 = AT(uint16_t, p.input1, index1);
}
#define LOAD_SCALAR(k, w, r) uint16_t q0_##k##_##w; uint16_t q1_##k##_##w; load_scalar(r, base0_##w, base1_##w, q0_##k##_##w, q1_##k##_##w);
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
#define STORE_OUTPUT(a, index) AT(uint16_t, p.result, index) = uint16_t(bf16_bits(to_bf16(a##_0)));
#include "lib/loops/reduce.glsl"
