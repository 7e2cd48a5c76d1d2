// 3 workgroups, chunk 0
#include "lib/convert.glsl"
#include "lib/grid.glsl"
uint divided(uint a, uvec2 magic) {
  uint high, low;
  umulExtended(a, magic.x, high, low);
  return (high + a) >> magic.y;
}
#define DIVIDED(a, b, magic) divided(a, magic)
IDX traversed_group() { return p.reversed != 0 ? p.reversed - 1 - workgroup() : workgroup(); }
#include "lib/ops/arithmetic.glsl"
uint16_t element(IDX i, uint16_t x0, uint16_t x1) {
  precise float v0 = f16_to_float(uint(x0));
  precise float v1 = f16_to_float(uint(x1));
  precise float v2 = to_f16(nx_multiply(v0, v1));
  return uint16_t(float_to_f16(v2));
}
#define BASES(w, o) 
#define LOAD_VECTOR(k, w, r) 
#define LOAD_SCALAR(k, w, r) 
#define VECTOR_STORED(k, w, c) 
#define SCALAR_STORED(k, w) 
#define LOAD_LINEAR(w, v) u16vec4 l0_##w = LOAD_VEC4(uint16_t, p.input0, v); u16vec4 l1_##w = LOAD_VEC4(uint16_t, p.input1, v); 
#define LINEAR_VECTORS(w, c) , l0_##w[c], l1_##w[c]
#define LINEAR_SCALARS(i) , AT(uint16_t, p.input0, i), AT(uint16_t, p.input1, i)
#define RESULT uint16_t
#define RESULT_AT(i) AT(uint16_t, p.result, i)
#define STORE_RESULTS(v, a, b, c, d) SET_VEC4(uint16_t, p.result, v, u16vec4(a, b, c, d))
#define THREADS 256
#define SCALARS_PER_THREAD 4
#define VECTORS_PER_THREAD 2
#define UNROLLED 
#define VECTORS 
#include "lib/loops/map.glsl"
