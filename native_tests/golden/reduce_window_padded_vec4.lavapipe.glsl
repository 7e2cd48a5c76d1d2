// 6272 workgroups, chunk 9
#include "lib/convert.glsl"
#include "lib/grid.glsl"
#define DIVIDED(a, b, magic) QUOTIENT(a, b)
IDX traversed_group() { return workgroup(); }
#define LAST_WINS false
#include "lib/reduce.glsl"
#define ADDS_PRODUCTS 0
void element(IDX o, IDX r, uint16_t x0, out uint e0) {
  precise float v0 = bf16_to_float(uint(x0));
  e0 = max_key(v0);
}
#define PROLOGUE 
void bases(IDX o, out IDX index0, out IDX index1, out IDX index2) {
  index0 = p.offset0;
  index1 = p.offset1;
  index2 = p.offset2;
  IDX rest_o = o;
  IDX rest_o_2 = DIVIDED(rest_o, p.dim2, p.magic2);
  IDX at2 = rest_o - rest_o_2 * p.dim2; rest_o = rest_o_2;
  index0 += at2;
  index1 += at2 * p.stride1_2;
  index2 += at2 * p.stride2_2;
  IDX rest_o_1 = DIVIDED(rest_o, p.dim1, p.magic1);
  IDX at1 = rest_o - rest_o_1 * p.dim1; rest_o = rest_o_1;
  index0 += at1 * p.stride0_1;
  index1 += at1 * p.stride1_1;
  index2 += at1 * p.stride2_1;
  IDX at0 = rest_o;
  index0 += at0 * p.stride0_0;
  index1 += at0 * p.stride1_0;
  index2 += at0 * p.stride2_0;
}
#define BASES(w, o) IDX base0_##w, base1_##w, base2_##w; bases(o, base0_##w, base1_##w, base2_##w);
void load_vector(IDX r, IDX index0, IDX index1, IDX index2, out u16vec4 q0) {
  IDX rest_r = r;
  IDX rest_r_4 = DIVIDED(rest_r, p.dim4, p.magic4);
  IDX at4 = rest_r - rest_r_4 * p.dim4; rest_r = rest_r_4;
  index0 += at4 * p.stride0_4;
  index1 += at4 * p.stride1_4;
  index2 += at4 * p.stride2_4;
  IDX at3 = rest_r;
  index0 += at3 * p.stride0_3;
  index1 += at3 * p.stride1_3;
  index2 += at3 * p.stride2_3;
  q0 = (index1 < p.bound1 && index2 < p.bound2 ? LOAD_VEC4(uint16_t, p.input0, index0 / 4) : u16vec4(uint16_t(uvec2(65408u, 0u).x), uint16_t(uvec2(65408u, 0u).x), uint16_t(uvec2(65408u, 0u).x), uint16_t(uvec2(65408u, 0u).x)));
}
#define LOAD_VECTOR(k, w, r) u16vec4 q0_##k##_##w; load_vector(r, base0_##w, base1_##w, base2_##w, q0_##k##_##w);
void load_scalar(IDX r, IDX index0, IDX index1, IDX index2, out uint16_t q0) {
  IDX rest_r = r;
  IDX rest_r_4 = DIVIDED(rest_r, p.dim4, p.magic4);
  IDX at4 = rest_r - rest_r_4 * p.dim4; rest_r = rest_r_4;
  index0 += at4 * p.stride0_4;
  index1 += at4 * p.stride1_4;
  index2 += at4 * p.stride2_4;
  IDX at3 = rest_r;
  index0 += at3 * p.stride0_3;
  index1 += at3 * p.stride1_3;
  index2 += at3 * p.stride2_3;
  q0 = (index1 < p.bound1 && index2 < p.bound2 ? AT(uint16_t, p.input0, index0) : uint16_t(uvec2(65408u, 0u).x));
}
#define LOAD_SCALAR(k, w, r) uint16_t q0_##k##_##w; load_scalar(r, base0_##w, base1_##w, base2_##w, q0_##k##_##w);
#define VECTOR_STORED(k, w, c) , q0_##k##_##w[c]
#define SCALAR_STORED(k, w) , q0_##k##_##w
#define PARTS 1
#define RESULTS 1
#define PART0 uint
#define IDENTITY0 uint(0)
#define COMBINE_PARTS combine_max_key
#define OUTPUT_THREADS 8
#define REDUCTION_THREADS 1
#define OUTPUT_VECTORS 4
#define REDUCED_VECTORS 0
#define UNROLLED 1
#define EXACT 0
#define CHUNKED 0
#define LANES 1
#define NEIGHBOURS_SHARE 0
#define STORE_OUTPUT(a, index) AT(uint16_t, p.result, index) = uint16_t(float_to_bf16(of_max_key(a##_0)));
#include "lib/loops/reduce.glsl"
