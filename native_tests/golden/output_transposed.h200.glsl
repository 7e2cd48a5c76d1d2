// 9 workgroups, chunk 0
#include "lib/convert.glsl"
#include "lib/grid.glsl"
uint divided(uint a, uvec2 magic) {
  uint high, low;
  umulExtended(a, magic.x, high, low);
  return (high + a) >> magic.y;
}
#define DIVIDED(a, b, magic) divided(a, magic)
IDX traversed_group() { return p.reversed != 0 ? p.reversed - 1 - workgroup() : workgroup(); }
float element(IDX i, float x0, out IDX target) {
  IDX index1 = p.offset1;
  IDX rest_i = i;
  IDX rest_i_1 = DIVIDED(rest_i, p.dim1, p.magic1);
  IDX at1 = rest_i - rest_i_1 * p.dim1; rest_i = rest_i_1;
  index1 += at1 * p.stride1_1;
  IDX at0 = rest_i;
  index1 += at0 * p.stride1_0;
  target = index1;
  precise float v0 = float(x0);
  precise float v1 = v0;
  return float(v1);
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
#define THREADS 256
#define SCALARS_PER_THREAD 4
#define VECTORS_PER_THREAD 2
#define UNROLLED 
#define OUTPUT_STRIDED 
#include "lib/loops/map.glsl"
