// 4 workgroups, chunk 256
#include "lib/convert.glsl"
#include "lib/grid.glsl"
#define DIVIDED(a, b, magic) QUOTIENT(a, b)
IDX traversed_group() { return workgroup(); }
#include "lib/ops/compare.glsl"
uint8_t element(IDX i, float x0, double x1) {
  precise float v0 = float(x0);
  precise double v1 = double(x1);
  uint v2 = uint(nx_less(to_f64(v0), v1)) + uint(gl_WorkGroupID.z);
  return uint8_t(v2);
}
#define BASES(w, o) 
#define LOAD_VECTOR(k, w, r) 
#define LOAD_SCALAR(k, w, r) 
#define VECTOR_STORED(k, w, c) 
#define SCALAR_STORED(k, w) 
#define LOAD_LINEAR(w, v) vec4 l0_##w = LOAD_VEC4(float, p.input0, v); dvec4 l1_##w = LOAD_VEC4(double, p.input1, v); 
#define LINEAR_VECTORS(w, c) , l0_##w[c], l1_##w[c]
#define LINEAR_SCALARS(i) , AT(float, p.input0, i), AT(double, p.input1, i)
#define RESULT uint8_t
#define RESULT_AT(i) AT(uint8_t, p.result, i)
#define STORE_RESULTS(v, a, b, c, d) SET_VEC4(uint8_t, p.result, v, u8vec4(a, b, c, d))
#define THREADS 8
#define SCALARS_PER_THREAD 4
#define VECTORS_PER_THREAD 2
#define CHUNKED 
#define VECTORS 
#include "lib/loops/map.glsl"
