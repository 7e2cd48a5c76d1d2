// 2048 workgroups, chunk 0
#include "lib/convert.glsl"
#include "lib/grid.glsl"
uint divided(uint a, uvec2 magic) {
  uint high, low;
  umulExtended(a, magic.x, high, low);
  return (high + a) >> magic.y;
}
#define DIVIDED(a, b, magic) divided(a, magic)
IDX traversed_group() { return p.reversed != 0 ? p.reversed - 1 - workgroup() : workgroup(); }
double element(IDX at0, IDX at1, double x0, out IDX target) {
  IDX i = at0;
  i = i * p.dim1 + at1;
  precise double v0 = double(x0);
  precise double v1 = v0;
  target = i;
  return double(v1);
}
#define RESULT double
#define RESULT_AT(i) AT(double, p.result, i)
#define STORE_RESULTS(v, a, b, c, d) SET_VEC4(double, p.result, v, dvec4(a, b, c, d))
#define EACH_INPUT(M, k) M(k, 0, double, dvec4)
#define START_INPUTS IDX from0 = p.offset0 + at0 * p.stride0_0 + at1 * p.stride0_1;
#define STRIDE_X_0 p.stride0_1
#define STRIDE_Y_0 p.stride0_0
#define DIM_X p.dim1
#define AT_X at1
#define DIM_Y p.dim0
#define AT_Y at0
#define OTHER_AXES 
#define POSITION(x, y) at0 + y, at1 + x
#define THREADS 256
#define WIDTH 64
#define HEIGHT 32
#define BATCH 8
#define WHOLE_BATCHES 
#define SHARED_VECTORS 
#include "lib/loops/tile.glsl"
