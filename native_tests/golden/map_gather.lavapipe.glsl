// 32 workgroups, chunk 1024
#include "lib/convert.glsl"
#include "lib/grid.glsl"
#define DIVIDED(a, b, magic) QUOTIENT(a, b)
IDX traversed_group() { return workgroup(); }
#include "lib/indices.glsl"
float element(IDX i) {
  IDX index0 = p.offset0;
  IDX index1 = p.offset1;
  IDX rest_i = i;
  IDX rest_i_1 = DIVIDED(rest_i, p.dim1, p.magic1);
  IDX at1 = rest_i - rest_i_1 * p.dim1; rest_i = rest_i_1;
  index0 += at1 * p.stride0_1;
  index1 += at1 * p.stride1_1;
  IDX at0 = rest_i;
  index0 += at0 * p.stride0_0;
  index1 += at0 * p.stride1_0;
  precise float v0 = float(AT(float, p.input0, index0));
  int64_t v1 = int64_t(AT(int64_t, p.input1, index1));
  precise float v2 = float(AT(float, p.input0, index0 + clamp_index(v1, p.extentv2_0) * p.stepv2_0));
  return float(v2);
}
#define BASES(w, o) 
#define LOAD_VECTOR(k, w, r) 
#define LOAD_SCALAR(k, w, r) 
#define VECTOR_STORED(k, w, c) 
#define SCALAR_STORED(k, w) 
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
#include "lib/loops/map.glsl"
