// 4 workgroups, chunk 1024
#include "lib/convert.glsl"
#include "lib/complex/convert.glsl"
#include "lib/grid.glsl"
#define DIVIDED(a, b, magic) QUOTIENT(a, b)
IDX traversed_group() { return workgroup(); }
#include "lib/complex/exp.glsl"
vec2 element(IDX i, vec2 x0) {
  precise vec2 v0 = vec2(x0);
  precise vec2 v1 = to_c64(nx_exp(to_c128(v0)));
  return vec2(v1);
}
#define BASES(w, o) 
#define LOAD_VECTOR(k, w, r) 
#define LOAD_SCALAR(k, w, r) 
#define VECTOR_STORED(k, w, c) 
#define SCALAR_STORED(k, w) 
#define LOAD_LINEAR(w, v) mat4x2 l0_##w = LOAD_VEC4(vec2, p.input0, v); 
#define LINEAR_VECTORS(w, c) , l0_##w[c]
#define LINEAR_SCALARS(i) , AT(vec2, p.input0, i)
#define RESULT vec2
#define RESULT_AT(i) AT(vec2, p.result, i)
#define STORE_RESULTS(v, a, b, c, d) SET_VEC4(vec2, p.result, v, mat4x2(a, b, c, d))
#define THREADS 8
#define SCALARS_PER_THREAD 4
#define VECTORS_PER_THREAD 2
#define CHUNKED 
#include "lib/loops/map.glsl"
