#include "lib/convert.glsl"
#include "lib/grid.glsl"
#define DIVIDED(a, b, magic) QUOTIENT(a, b)
bool last_wins = false;
#define LAST_WINS last_wins
#include "lib/indices.glsl"
#include "lib/reduce.glsl"
#include "lib/exchange.glsl"
#include "lib/ops/arithmetic.glsl"
#include "lib/math/exp.glsl"
#include "lib/math/divide.glsl"
#define LANES 8u
#define ROWS 1u
#define SUBGROUP_LANES 8u
#define PARTIALS (LANES / SUBGROUP_LANES)
layout(local_size_x = 8) in;
shared float kept3[ROWS * 1024u];
void main() {
  IDX group = workgroup();
  if (group >= p.groups) return;
  uint lane = INVOCATION % LANES, own = INVOCATION / LANES;
  IDX row = group * ROWS + own;
  IDX n = row < p.rows ? p.reduced : IDX(0);
  IDX of_row = min(row, p.rows - 1);
  IDX index0 = p.offset0;
  IDX rest_of_row = of_row;
  IDX at0 = rest_of_row;
  index0 += at0 * p.stride0_0;
  precise uint a1_0_0;
  a1_0_0 = uint(0);
  precise uint a1_1_0;
  a1_1_0 = uint(0);
  precise uint a1_2_0;
  a1_2_0 = uint(0);
  precise uint a1_3_0;
  a1_3_0 = uint(0);
  for (IDX first = lane * 4u; first < n; first += LANES * 4u) {
  IDX base0 = index0;
  IDX index0 = base0;
  IDX rest_first = first;
  IDX at1 = rest_first;
  index0 += at1;
  vec4 q0 = LOAD_VEC4(float, p.input0, index0 / 4);
  {
  IDX r = first + 0;
  float x0 = q0[0];
  precise float v0 = float(x0);
  combine_max_key(a1_0_0, max_key(v0));
  }
  {
  IDX r = first + 1;
  float x0 = q0[1];
  precise float v0 = float(x0);
  combine_max_key(a1_1_0, max_key(v0));
  }
  {
  IDX r = first + 2;
  float x0 = q0[2];
  precise float v0 = float(x0);
  combine_max_key(a1_2_0, max_key(v0));
  }
  {
  IDX r = first + 3;
  float x0 = q0[3];
  precise float v0 = float(x0);
  combine_max_key(a1_3_0, max_key(v0));
  }
  }
  combine_max_key(a1_0_0, a1_1_0);
  combine_max_key(a1_2_0, a1_3_0);
  combine_max_key(a1_0_0, a1_2_0);
  [[unroll]] for (uint s = SUBGROUP_LANES / 2u; s > 0u; s /= 2u) { uint b0 = from_lane(a1_0_0, s); combine_max_key(a1_0_0, b0); }
  a1_0_0 = from_lane(a1_0_0, lane % SUBGROUP_LANES);
  precise float v1;
  v1 = of_max_key(a1_0_0);
  precise double a4_0_0;
  a4_0_0 = double(0);
  precise double a4_1_0;
  a4_1_0 = double(0);
  precise double a4_2_0;
  a4_2_0 = double(0);
  precise double a4_3_0;
  a4_3_0 = double(0);
  for (IDX first = lane * 4u; first < n; first += LANES * 4u) {
  IDX base0 = index0;
  IDX index0 = base0;
  IDX rest_first = first;
  IDX at1 = rest_first;
  index0 += at1;
  vec4 q0 = LOAD_VEC4(float, p.input0, index0 / 4);
  {
  IDX r = first + 0;
  float x0 = q0[0];
  precise float v0 = float(x0);
  precise float v2 = nx_subtract(v0, v1);
  precise float v3 = nx_exp(v2);
  kept3[own * 1024u + uint(r)] = v3;
  combine_sum(a4_0_0, double(v3));
  }
  {
  IDX r = first + 1;
  float x0 = q0[1];
  precise float v0 = float(x0);
  precise float v2 = nx_subtract(v0, v1);
  precise float v3 = nx_exp(v2);
  kept3[own * 1024u + uint(r)] = v3;
  combine_sum(a4_1_0, double(v3));
  }
  {
  IDX r = first + 2;
  float x0 = q0[2];
  precise float v0 = float(x0);
  precise float v2 = nx_subtract(v0, v1);
  precise float v3 = nx_exp(v2);
  kept3[own * 1024u + uint(r)] = v3;
  combine_sum(a4_2_0, double(v3));
  }
  {
  IDX r = first + 3;
  float x0 = q0[3];
  precise float v0 = float(x0);
  precise float v2 = nx_subtract(v0, v1);
  precise float v3 = nx_exp(v2);
  kept3[own * 1024u + uint(r)] = v3;
  combine_sum(a4_3_0, double(v3));
  }
  }
  combine_sum(a4_0_0, a4_1_0);
  combine_sum(a4_2_0, a4_3_0);
  combine_sum(a4_0_0, a4_2_0);
  [[unroll]] for (uint s = SUBGROUP_LANES / 2u; s > 0u; s /= 2u) { double b0 = from_lane(a4_0_0, s); combine_sum(a4_0_0, b0); }
  a4_0_0 = from_lane(a4_0_0, lane % SUBGROUP_LANES);
  precise float v4;
  v4 = to_f32(a4_0_0);
  for (IDX first = lane * 4u; first < n; first += LANES * 4u) {
  float r0_0, r0_1, r0_2, r0_3;
  {
  IDX r = first + 0;
  precise float v3 = kept3[own * 1024u + uint(r)];
  precise float v5 = nx_divide(v3, v4);
  r0_0 = float(v5);
  }
  {
  IDX r = first + 1;
  precise float v3 = kept3[own * 1024u + uint(r)];
  precise float v5 = nx_divide(v3, v4);
  r0_1 = float(v5);
  }
  {
  IDX r = first + 2;
  precise float v3 = kept3[own * 1024u + uint(r)];
  precise float v5 = nx_divide(v3, v4);
  r0_2 = float(v5);
  }
  {
  IDX r = first + 3;
  precise float v3 = kept3[own * 1024u + uint(r)];
  precise float v5 = nx_divide(v3, v4);
  r0_3 = float(v5);
  }
  SET_VEC4(float, p.result0, (row * p.reduced + first) / 4, vec4(r0_0, r0_1, r0_2, r0_3));
  }
  if (lane == 0 && row < p.rows) {
  }
}
