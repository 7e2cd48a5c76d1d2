// 512 workgroups, chunk 0
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
float element(IDX at0, IDX at1, IDX at2, float x0, out IDX target) {
  IDX i = at0;
  i = i * p.dim1 + at1;
  i = i * p.dim2 + at2;
  float x1 = AT(float, p.input1, i);
  precise float v0 = float(x0);
  precise float v1 = float(x1);
  precise float v2 = float(uintBitsToFloat(p.scalar2.x));
  precise float v3 = nx_add(v0, v1);
  precise float v4 = nx_multiply(v3, v2);
  target = i;
  return float(v4);
}
#define RESULT float
#define RESULT_AT(i) AT(float, p.result, i)
#define STORE_RESULTS(v, a, b, c, d) SET_VEC4(float, p.result, v, vec4(a, b, c, d))
#define EACH_INPUT(M, k) M(k, 0, float, vec4)
#define START_INPUTS IDX from0 = p.offset0 + at0 * p.stride0_0 + at1 * p.stride0_1 + at2 * p.stride0_2;
#define STRIDE_X_0 p.stride0_2
#define STRIDE_Y_0 p.stride0_0
#define DIM_X p.dim2
#define AT_X at2
#define DIM_Y p.dim0
#define AT_Y at0
#define OTHER_AXES NEXT_AXIS(1) 
#define POSITION(x, y) at0 + y, at1, at2 + x
#define THREADS 256
#define WIDTH 32
#define HEIGHT 32
#define BATCH 4
#define WHOLE_BATCHES 
#define SHARED_VECTORS 
#include "lib/loops/tile.glsl"
