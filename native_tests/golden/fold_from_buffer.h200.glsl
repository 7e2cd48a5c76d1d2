// 2 workgroups, chunk 30
#include "lib/convert.glsl"
#include "lib/grid.glsl"
uint divided(uint a, uvec2 magic) {
  uint high, low;
  umulExtended(a, magic.x, high, low);
  return (high + a) >> magic.y;
}
#define DIVIDED(a, b, magic) divided(a, magic)
IDX traversed_group() { return workgroup(); }
#include "lib/ops/arithmetic.glsl"
float next(IDX o, IDX r, float accumulator) {
  IDX index0 = p.offset0;
  IDX rest_o = o;
  IDX at0 = rest_o;
  index0 += at0 * p.stride0_0;
  IDX rest_r = r;
  IDX at1 = rest_r;
  index0 += at1 * p.stride0_1;
  precise float v0 = float(AT(float, p.input0, index0));
  int v1 = int(AT(int, p.input1, IDX(0)));
  precise float v2 = accumulator;
  precise float v3 = nx_multiply(v2, v0);
  return v3;
}
#define THREADS 64
#define ACCUMULATOR float
#define START to_f32(int(AT(int, p.input1, IDX(0))))
#define STORE_OUTPUT(accumulator, index) AT(float, p.result, index) = float(accumulator);
#include "lib/loops/fold.glsl"
