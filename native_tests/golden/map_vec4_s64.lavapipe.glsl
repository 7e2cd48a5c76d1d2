// 4 workgroups, chunk 256
#include "lib/convert.glsl"
#include "lib/grid.glsl"
#define DIVIDED(a, b, magic) QUOTIENT(a, b)
IDX traversed_group() { return workgroup(); }
#include "lib/ops/arithmetic.glsl"
int64_t element(IDX i, int64_t x0, uint8_t x1) {
  int64_t v0 = int64_t(x0);
  uint v1 = uint(x1);
  int64_t v2 = nx_add(v0, to_s64(v1));
  return int64_t(v2);
}
#define BASES(w, o) 
#define LOAD_VECTOR(k, w, r) 
#define LOAD_SCALAR(k, w, r) 
#define VECTOR_STORED(k, w, c) 
#define SCALAR_STORED(k, w) 
#define LOAD_LINEAR(w, v) i64vec4 l0_##w = LOAD_VEC4(int64_t, p.input0, v); u8vec4 l1_##w = LOAD_VEC4(uint8_t, p.input1, v); 
#define LINEAR_VECTORS(w, c) , l0_##w[c], l1_##w[c]
#define LINEAR_SCALARS(i) , AT(int64_t, p.input0, i), AT(uint8_t, p.input1, i)
#define RESULT int64_t
#define RESULT_AT(i) AT(int64_t, p.result, i)
#define STORE_RESULTS(v, a, b, c, d) SET_VEC4(int64_t, p.result, v, i64vec4(a, b, c, d))
#define THREADS 8
#define SCALARS_PER_THREAD 4
#define VECTORS_PER_THREAD 2
#define CHUNKED 
#define VECTORS 
#include "lib/loops/map.glsl"
