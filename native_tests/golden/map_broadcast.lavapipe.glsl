// 32 workgroups, chunk 256
#include "lib/convert.glsl"
#include "lib/grid.glsl"
#define DIVIDED(a, b, magic) QUOTIENT(a, b)
IDX traversed_group() { return workgroup(); }
#include "lib/ops/arithmetic.glsl"
float element(IDX i, float x0, float x1) {
  precise float v0 = float(x0);
  precise float v1 = float(x1);
  precise float v2 = nx_add(v0, v1);
  return float(v2);
}
void bases(IDX o, out IDX index0, out IDX index1) {
  index0 = p.offset0;
  index1 = p.offset1;
  IDX rest_o = o;
  IDX rest_o_1 = DIVIDED(rest_o, p.dim1, p.magic1);
  IDX at1 = rest_o - rest_o_1 * p.dim1; rest_o = rest_o_1;
  index0 += at1;
  IDX at0 = rest_o;
  index0 += at0 * p.stride0_0;
  index1 += at0 * p.stride1_0;
}
#define BASES(w, o) IDX base0_##w, base1_##w; bases(o, base0_##w, base1_##w);
void load_vector(IDX r, IDX index0, IDX index1, out vec4 q0, out float q1) {
  q0 = LOAD_VEC4(float, p.input0, index0 / 4);
  q1 = AT(float, p.input1, index1);
}
#define LOAD_VECTOR(k, w, r) vec4 q0_##k##_##w; float q1_##k##_##w; load_vector(r, base0_##w, base1_##w, q0_##k##_##w, q1_##k##_##w);
void load_scalar(IDX r, IDX index0, IDX index1, out float q0, out float q1) {
  q0 = AT(float, p.input0, index0);
  q1 = AT(float, p.input1, index1);
}
#define LOAD_SCALAR(k, w, r) float q0_##k##_##w; float q1_##k##_##w; load_scalar(r, base0_##w, base1_##w, q0_##k##_##w, q1_##k##_##w);
#define VECTOR_STORED(k, w, c) , q0_##k##_##w[c], q1_##k##_##w
#define SCALAR_STORED(k, w) , q0_##k##_##w, q1_##k##_##w
#define LOAD_LINEAR(w, v) 
#define LINEAR_VECTORS(w, c) 
#define LINEAR_SCALARS(i) 
#define RESULT float
#define RESULT_AT(i) AT(float, p.result, i)
#define STORE_RESULTS(v, a, b, c, d) SET_VEC4(float, p.result, v, vec4(a, b, c, d))
#define THREADS 8
#define SCALARS_PER_THREAD 4
#define VECTORS_PER_THREAD 2
#define CHUNKED 
#define VECTORS 
#include "lib/loops/map.glsl"
