// 32 workgroups, chunk 1024
#include "lib/convert.glsl"
#include "lib/grid.glsl"
#define DIVIDED(a, b, magic) QUOTIENT(a, b)
IDX traversed_group() { return workgroup(); }
#include "lib/ops/arithmetic.glsl"
float element(IDX i, float x1) {
  IDX index0 = p.offset0;
  IDX rest_i = i;
  IDX rest_i_1 = DIVIDED(rest_i, p.dim1, p.magic1);
  IDX at1 = rest_i - rest_i_1 * p.dim1; rest_i = rest_i_1;
  index0 += at1 * p.stride0_1;
  IDX at0 = rest_i;
  index0 += at0 * p.stride0_0;
  precise float v0 = float(AT(float, p.input0, index0));
  precise float v1 = float(x1);
  precise float v2 = nx_add(v0, v1);
  return float(v2);
}
#define BASES(w, o) 
#define LOAD_VECTOR(k, w, r) 
#define LOAD_SCALAR(k, w, r) 
#define VECTOR_STORED(k, w, c) 
#define SCALAR_STORED(k, w) 
#define LOAD_LINEAR(w, v) vec4 l1_##w = LOAD_VEC4(float, p.input1, v); 
#define LINEAR_VECTORS(w, c) , l1_##w[c]
#define LINEAR_SCALARS(i) , AT(float, p.input1, i)
#define RESULT float
#define RESULT_AT(i) AT(float, p.result, i)
#define STORE_RESULTS(v, a, b, c, d) SET_VEC4(float, p.result, v, vec4(a, b, c, d))
#define THREADS 8
#define SCALARS_PER_THREAD 4
#define VECTORS_PER_THREAD 2
#define CHUNKED 
#include "lib/loops/map.glsl"
