#include "lib/convert.glsl"
#include "lib/grid.glsl"
uint divided(uint a, uvec2 magic) {
  uint high, low;
  umulExtended(a, magic.x, high, low);
  return (high + a) >> magic.y;
}
#define DIVIDED(a, b, magic) divided(a, magic)
bool last_wins = false;
#define LAST_WINS last_wins
#include "lib/indices.glsl"
#include "lib/reduce.glsl"
#include "lib/exchange.glsl"
#include "lib/ops/arithmetic.glsl"
#include "lib/math/exp.glsl"
#include "lib/math/divide.glsl"
#define LANES 64u
#define ROWS 1u
#define SUBGROUP_LANES 32u
#define PARTIALS (LANES / SUBGROUP_LANES)
layout(local_size_x = 64) in;
shared uint partial1_0[ROWS * PARTIALS];
shared double partial4_0[ROWS * PARTIALS];
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
  float kept0[16];
  float kept3[16];
  precise uint a1_0_0;
  a1_0_0 = uint(0);
  precise uint a1_1_0;
  a1_1_0 = uint(0);
  precise uint a1_2_0;
  a1_2_0 = uint(0);
  precise uint a1_3_0;
  a1_3_0 = uint(0);
  begin_in_range();
  float extremum1_0 = lowest_float();
  float extremum1_1 = lowest_float();
  float extremum1_2 = lowest_float();
  float extremum1_3 = lowest_float();
  [[unroll]] for (uint k = 0; k < 4u; k++) {
  IDX first = (lane + k * LANES) * 4u;
  if (n == 0) continue;
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
  kept0[k * 4u + 0u] = v0;
  combine_max_in_range(extremum1_0, v0);
  }
  {
  IDX r = first + 1;
  float x0 = q0[1];
  precise float v0 = float(x0);
  kept0[k * 4u + 1u] = v0;
  combine_max_in_range(extremum1_1, v0);
  }
  {
  IDX r = first + 2;
  float x0 = q0[2];
  precise float v0 = float(x0);
  kept0[k * 4u + 2u] = v0;
  combine_max_in_range(extremum1_2, v0);
  }
  {
  IDX r = first + 3;
  float x0 = q0[3];
  precise float v0 = float(x0);
  kept0[k * 4u + 3u] = v0;
  combine_max_in_range(extremum1_3, v0);
  }
  }
  a1_0_0 = max_key_in_range(extremum1_0);
  a1_1_0 = max_key_in_range(extremum1_1);
  a1_2_0 = max_key_in_range(extremum1_2);
  a1_3_0 = max_key_in_range(extremum1_3);
  if (any_out_of_range()) {
  a1_0_0 = uint(0);
  a1_1_0 = uint(0);
  a1_2_0 = uint(0);
  a1_3_0 = uint(0);
  [[unroll]] for (uint k = 0; k < 4u; k++) {
  IDX first = (lane + k * LANES) * 4u;
  if (n == 0) continue;
  {
  IDX r = first + 0;
  precise float v0 = kept0[k * 4u + 0u];
  combine_max_key(a1_0_0, max_key(v0));
  }
  {
  IDX r = first + 1;
  precise float v0 = kept0[k * 4u + 1u];
  combine_max_key(a1_1_0, max_key(v0));
  }
  {
  IDX r = first + 2;
  precise float v0 = kept0[k * 4u + 2u];
  combine_max_key(a1_2_0, max_key(v0));
  }
  {
  IDX r = first + 3;
  precise float v0 = kept0[k * 4u + 3u];
  combine_max_key(a1_3_0, max_key(v0));
  }
  }
  }
  combine_max_key(a1_0_0, a1_1_0);
  combine_max_key(a1_2_0, a1_3_0);
  combine_max_key(a1_0_0, a1_2_0);
  [[unroll]] for (uint s = SUBGROUP_LANES / 2u; s > 0u; s /= 2u) { uint b0 = from_lane(a1_0_0, s); combine_max_key(a1_0_0, b0); }
  if (lane % SUBGROUP_LANES == 0) { partial1_0[own * PARTIALS + lane / SUBGROUP_LANES] = a1_0_0; }
  barrier();
  if (PARTIALS > 8u) {
    if (lane < PARTIALS) { a1_0_0 = partial1_0[own * PARTIALS + lane]; }
    for (uint s = PARTIALS / 2u; s > 4u; s /= 2u) {
      if (lane < s) { combine_max_key(a1_0_0, partial1_0[own * PARTIALS + lane + s]); partial1_0[own * PARTIALS + lane] = a1_0_0; }
      barrier();
    }
  }
  precise float v1;
  a1_0_0 = partial1_0[own * PARTIALS + 0];
  [[unroll]] for (uint s = 1; s < min(PARTIALS, 8u); s++) combine_max_key(a1_0_0, partial1_0[own * PARTIALS + s]);
  v1 = of_max_key(a1_0_0);
  precise double a4_0_0;
  a4_0_0 = double(0);
  precise double a4_1_0;
  a4_1_0 = double(0);
  precise double a4_2_0;
  a4_2_0 = double(0);
  precise double a4_3_0;
  a4_3_0 = double(0);
  [[unroll]] for (uint k = 0; k < 4u; k++) {
  IDX first = (lane + k * LANES) * 4u;
  if (n == 0) continue;
  {
  IDX r = first + 0;
  precise float v0 = kept0[k * 4u + 0u];
  precise float v2 = nx_subtract(v0, v1);
  precise float v3 = nx_exp(v2);
  kept3[k * 4u + 0u] = v3;
  combine_sum(a4_0_0, double(v3));
  }
  {
  IDX r = first + 1;
  precise float v0 = kept0[k * 4u + 1u];
  precise float v2 = nx_subtract(v0, v1);
  precise float v3 = nx_exp(v2);
  kept3[k * 4u + 1u] = v3;
  combine_sum(a4_1_0, double(v3));
  }
  {
  IDX r = first + 2;
  precise float v0 = kept0[k * 4u + 2u];
  precise float v2 = nx_subtract(v0, v1);
  precise float v3 = nx_exp(v2);
  kept3[k * 4u + 2u] = v3;
  combine_sum(a4_2_0, double(v3));
  }
  {
  IDX r = first + 3;
  precise float v0 = kept0[k * 4u + 3u];
  precise float v2 = nx_subtract(v0, v1);
  precise float v3 = nx_exp(v2);
  kept3[k * 4u + 3u] = v3;
  combine_sum(a4_3_0, double(v3));
  }
  }
  combine_sum(a4_0_0, a4_1_0);
  combine_sum(a4_2_0, a4_3_0);
  combine_sum(a4_0_0, a4_2_0);
  [[unroll]] for (uint s = SUBGROUP_LANES / 2u; s > 0u; s /= 2u) { double b0 = from_lane(a4_0_0, s); combine_sum(a4_0_0, b0); }
  if (lane % SUBGROUP_LANES == 0) { partial4_0[own * PARTIALS + lane / SUBGROUP_LANES] = a4_0_0; }
  barrier();
  if (PARTIALS > 8u) {
    if (lane < PARTIALS) { a4_0_0 = partial4_0[own * PARTIALS + lane]; }
    for (uint s = PARTIALS / 2u; s > 4u; s /= 2u) {
      if (lane < s) { combine_sum(a4_0_0, partial4_0[own * PARTIALS + lane + s]); partial4_0[own * PARTIALS + lane] = a4_0_0; }
      barrier();
    }
  }
  precise float v4;
  a4_0_0 = partial4_0[own * PARTIALS + 0];
  [[unroll]] for (uint s = 1; s < min(PARTIALS, 8u); s++) combine_sum(a4_0_0, partial4_0[own * PARTIALS + s]);
  v4 = to_f32(a4_0_0);
  begin_in_range();
  [[unroll]] for (uint k = 0; k < 4u; k++) {
  IDX first = (lane + k * LANES) * 4u;
  if (n == 0) continue;
  float r0_0, r0_1, r0_2, r0_3;
  {
  IDX r = first + 0;
  precise float v3 = kept3[k * 4u + 0u];
  precise float v5 = nx_divide_in_range(v3, v4);
  r0_0 = float(v5);
  }
  {
  IDX r = first + 1;
  precise float v3 = kept3[k * 4u + 1u];
  precise float v5 = nx_divide_in_range(v3, v4);
  r0_1 = float(v5);
  }
  {
  IDX r = first + 2;
  precise float v3 = kept3[k * 4u + 2u];
  precise float v5 = nx_divide_in_range(v3, v4);
  r0_2 = float(v5);
  }
  {
  IDX r = first + 3;
  precise float v3 = kept3[k * 4u + 3u];
  precise float v5 = nx_divide_in_range(v3, v4);
  r0_3 = float(v5);
  }
  SET_VEC4(float, p.result0, (row * p.reduced + first) / 4, vec4(r0_0, r0_1, r0_2, r0_3));
  }
  if (any_out_of_range()) {
  [[unroll]] for (uint k = 0; k < 4u; k++) {
  IDX first = (lane + k * LANES) * 4u;
  if (n == 0) continue;
  float r0_0, r0_1, r0_2, r0_3;
  {
  IDX r = first + 0;
  precise float v3 = kept3[k * 4u + 0u];
  precise float v5 = nx_divide(v3, v4);
  r0_0 = float(v5);
  }
  {
  IDX r = first + 1;
  precise float v3 = kept3[k * 4u + 1u];
  precise float v5 = nx_divide(v3, v4);
  r0_1 = float(v5);
  }
  {
  IDX r = first + 2;
  precise float v3 = kept3[k * 4u + 2u];
  precise float v5 = nx_divide(v3, v4);
  r0_2 = float(v5);
  }
  {
  IDX r = first + 3;
  precise float v3 = kept3[k * 4u + 3u];
  precise float v5 = nx_divide(v3, v4);
  r0_3 = float(v5);
  }
  SET_VEC4(float, p.result0, (row * p.reduced + first) / 4, vec4(r0_0, r0_1, r0_2, r0_3));
  }
  }
  if (lane == 0 && row < p.rows) {
  }
}
