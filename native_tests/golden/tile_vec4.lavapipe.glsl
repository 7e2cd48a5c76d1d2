// 64 workgroups, chunk 0
#include "lib/convert.glsl"
#include "lib/grid.glsl"
#define DIVIDED(a, b, magic) QUOTIENT(a, b)
IDX traversed_group() { return workgroup(); }
float element(IDX at0, IDX at1, float x0, out IDX target) {
  IDX i = at0;
  i = i * p.dim1 + at1;
  precise float v0 = float(x0);
  precise float v1 = v0;
  target = i;
  return float(v1);
}
#define RESULT float
#define RESULT_AT(i) AT(float, p.result, i)
#define STORE_RESULTS(v, a, b, c, d) SET_VEC4(float, p.result, v, vec4(a, b, c, d))
#define EACH_INPUT(M, k) M(k, 0, float, vec4)
#define START_INPUTS IDX from0 = p.offset0 + at0 * p.stride0_0 + at1 * p.stride0_1;
#define STRIDE_X_0 p.stride0_1
#define STRIDE_Y_0 p.stride0_0
#define DIM_X p.dim1
#define AT_X at1
#define DIM_Y p.dim0
#define AT_Y at0
#define OTHER_AXES 
#define POSITION(x, y) at0 + y, at1 + x
#define THREADS 8
#define WIDTH 32
#define HEIGHT 32
#define BATCH 8
#define WHOLE_BATCHES 
#define REGISTERS 
#include "lib/loops/tile.glsl"
