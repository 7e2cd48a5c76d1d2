// 1024 workgroups, chunk 0
#include "lib/convert.glsl"
#include "lib/grid.glsl"
#define DIVIDED(a, b, magic) QUOTIENT(a, b)
IDX traversed_group() { return workgroup(); }
uint8_t element(IDX at0, IDX at1, out IDX target) {
  IDX i = at0;
  i = i * p.dim1 + at1;
  IDX index0 = p.offset0;
  index0 += at0 * p.stride0_0;
  index0 += at1 * p.stride0_1;
  uint v0 = uint(AT(uint8_t, p.input0, index0));
  uint v1 = v0;
  target = i;
  return uint8_t(v1);
}
#define RESULT uint8_t
#define RESULT_AT(i) AT(uint8_t, p.result, i)
#define STORE_RESULTS(v, a, b, c, d) SET_VEC4(uint8_t, p.result, v, u8vec4(a, b, c, d))
#define EACH_INPUT(M, k) 
#define START_INPUTS 
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
#define CACHES 
#include "lib/loops/tile.glsl"
