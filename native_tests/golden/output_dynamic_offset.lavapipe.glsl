// 1 workgroups, chunk 1024
#include "lib/convert.glsl"
#include "lib/grid.glsl"
#define DIVIDED(a, b, magic) QUOTIENT(a, b)
IDX traversed_group() { return workgroup(); }
#include "lib/indices.glsl"
float element(IDX i, float x0, out IDX target) {
  IDX index2 = p.offset2;
  index2 += clamp_index(int64_t(AT(int64_t, p.input1, IDX(0))), p.extent0) * p.step0;
  IDX rest_i = i;
  IDX rest_i_1 = DIVIDED(rest_i, p.dim1, p.magic1);
  IDX at1 = rest_i - rest_i_1 * p.dim1; rest_i = rest_i_1;
  index2 += at1 * p.stride2_1;
  IDX at0 = rest_i;
  index2 += at0 * p.stride2_0;
  target = index2;
  precise float v0 = float(x0);
  int64_t v1 = int64_t(AT(int64_t, p.input1, IDX(0)));
  precise float v2 = v0;
  return float(v2);
}
#define BASES(w, o) 
#define LOAD_VECTOR(k, w, r) 
#define LOAD_SCALAR(k, w, r) 
#define VECTOR_STORED(k, w, c) 
#define SCALAR_STORED(k, w) 
#define LOAD_LINEAR(w, v) vec4 l0_##w = LOAD_VEC4(float, p.input0, v); 
#define LINEAR_VECTORS(w, c) , l0_##w[c]
#define LINEAR_SCALARS(i) , AT(float, p.input0, i)
#define RESULT float
#define RESULT_AT(i) AT(float, p.result, i)
#define STORE_RESULTS(v, a, b, c, d) SET_VEC4(float, p.result, v, vec4(a, b, c, d))
#define THREADS 8
#define SCALARS_PER_THREAD 4
#define VECTORS_PER_THREAD 2
#define CHUNKED 
#define OUTPUT_STRIDED 
#include "lib/loops/map.glsl"
