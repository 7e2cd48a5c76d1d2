// 6283 workgroups, chunk 768
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
#include "lib/indices.glsl"
#include "lib/exchange.glsl"
#include "lib/math/root.glsl"
float epilogue(IDX i, float x0) {
  precise float v0 = float(x0);
  precise float v1 = v0;
  return float(v1);
}
void reduce_result(IDX i, float x);
void store_result(IDX i, float x) {
  reduce_result(i, epilogue(i, x));
}
void store_results(IDX i, float x0, float x1, float x2, float x3) {
  reduce_result(i + 0, epilogue(i + 0, x0));
  reduce_result(i + 1, epilogue(i + 1, x1));
  reduce_result(i + 2, epilogue(i + 2, x2));
  reduce_result(i + 3, epilogue(i + 3, x3));
}
void store_element(IDX i, float x) {
  store_result(i, x);
}
void store_elements(IDX i, float x0, float x1, float x2, float x3) {
  store_results(i, x0, x1, x2, x3);
}
shared vec4 shared_row[192];
#define LAST_WINS false
#include "lib/reduce.glsl"
#define ADDS_PRODUCTS 1
#include "lib/products.glsl"
void add_element(IDX o, IDX r, float x0, float x1, inout double sum) {
  precise float v0 = float(x0);
  precise float v1 = float(x1);
  precise double v2 = nx_multiply(to_f64(v0), to_f64(v1));
  add_product(product_factor(v0), v1, sum);
}
#define LANES 256u
#define ROWS 1u
#define SUBGROUP_LANES 32u
#define PARTIALS (LANES / SUBGROUP_LANES)
shared double partial3_0[ROWS * PARTIALS];
void prologue() {
  const IDX group = 0;
  uint lane = INVOCATION % LANES, own = INVOCATION / LANES;
  IDX row = group * ROWS + own;
  IDX n = row < IDX(1) ? p.reduced : IDX(0);
  IDX of_row = min(row, IDX(1) - 1);
  IDX index0 = p.prologue_offset0;
  float kept0[4];
  precise double a3_0_0;
  a3_0_0 = double(0);
  precise double a3_1_0;
  a3_1_0 = double(0);
  precise double a3_2_0;
  a3_2_0 = double(0);
  precise double a3_3_0;
  a3_3_0 = double(0);
  [[unroll]] for (uint k = 0; k < 1u; k++) {
  IDX first = (lane + k * LANES) * 4u;
  if (first >= n) continue;
  IDX base0 = index0;
  IDX index0 = base0;
  IDX rest_first = first;
  IDX at0 = rest_first;
  index0 += at0;
  vec4 q0 = LOAD_VEC4(float, p.prologue_input0, index0 / 4);
  {
  IDX r = first + 0;
  float x0 = q0[0];
  precise float v0 = float(x0);
  kept0[k * 4u + 0u] = v0;
  precise float v1 = v0;
  precise float v2 = nx_multiply(v1, v1);
  combine_sum(a3_0_0, double(v2));
  }
  {
  IDX r = first + 1;
  float x0 = q0[1];
  precise float v0 = float(x0);
  kept0[k * 4u + 1u] = v0;
  precise float v1 = v0;
  precise float v2 = nx_multiply(v1, v1);
  combine_sum(a3_1_0, double(v2));
  }
  {
  IDX r = first + 2;
  float x0 = q0[2];
  precise float v0 = float(x0);
  kept0[k * 4u + 2u] = v0;
  precise float v1 = v0;
  precise float v2 = nx_multiply(v1, v1);
  combine_sum(a3_2_0, double(v2));
  }
  {
  IDX r = first + 3;
  float x0 = q0[3];
  precise float v0 = float(x0);
  kept0[k * 4u + 3u] = v0;
  precise float v1 = v0;
  precise float v2 = nx_multiply(v1, v1);
  combine_sum(a3_3_0, double(v2));
  }
  }
  combine_sum(a3_0_0, a3_1_0);
  combine_sum(a3_2_0, a3_3_0);
  combine_sum(a3_0_0, a3_2_0);
  [[unroll]] for (uint s = SUBGROUP_LANES / 2u; s > 0u; s /= 2u) { double b0 = from_lane(a3_0_0, s); combine_sum(a3_0_0, b0); }
  if (lane % SUBGROUP_LANES == 0) { partial3_0[own * PARTIALS + lane / SUBGROUP_LANES] = a3_0_0; }
  barrier();
  if (PARTIALS > 8u) {
    if (lane < PARTIALS) { a3_0_0 = partial3_0[own * PARTIALS + lane]; }
    for (uint s = PARTIALS / 2u; s > 4u; s /= 2u) {
      if (lane < s) { combine_sum(a3_0_0, partial3_0[own * PARTIALS + lane + s]); partial3_0[own * PARTIALS + lane] = a3_0_0; }
      barrier();
    }
  }
  precise float v3;
  precise float v4;
  a3_0_0 = partial3_0[own * PARTIALS + 0];
  [[unroll]] for (uint s = 1; s < min(PARTIALS, 8u); s++) combine_sum(a3_0_0, partial3_0[own * PARTIALS + s]);
  v3 = to_f32(a3_0_0);
  v4 = nx_rsqrt(v3);
  [[unroll]] for (uint k = 0; k < 1u; k++) {
  IDX first = (lane + k * LANES) * 4u;
  if (first >= n) continue;
  float r0_0, r0_1, r0_2, r0_3;
  {
  IDX r = first + 0;
  precise float v0 = kept0[k * 4u + 0u];
  precise float v1 = v0;
  precise float v5 = nx_multiply(v1, v4);
  precise float v6 = v5;
  r0_0 = float(v6);
  }
  {
  IDX r = first + 1;
  precise float v0 = kept0[k * 4u + 1u];
  precise float v1 = v0;
  precise float v5 = nx_multiply(v1, v4);
  precise float v6 = v5;
  r0_1 = float(v6);
  }
  {
  IDX r = first + 2;
  precise float v0 = kept0[k * 4u + 2u];
  precise float v1 = v0;
  precise float v5 = nx_multiply(v1, v4);
  precise float v6 = v5;
  r0_2 = float(v6);
  }
  {
  IDX r = first + 3;
  precise float v0 = kept0[k * 4u + 3u];
  precise float v1 = v0;
  precise float v5 = nx_multiply(v1, v4);
  precise float v6 = v5;
  r0_3 = float(v6);
  }
  shared_row[first / 4] = vec4(r0_0, r0_1, r0_2, r0_3);
  }
  if (lane == 0 && row < IDX(1)) {
  }
}
#undef LANES
#undef ROWS
#undef SUBGROUP_LANES
#undef PARTIALS
#define PROLOGUE prologue(); barrier();
void bases(IDX o, out IDX index0, out IDX index1) {
  index0 = p.offset0;
  index1 = p.offset1;
  IDX rest_o = o;
  IDX at0 = rest_o;
  index0 += at0 * p.stride0_0;
  index1 += at0 * p.stride1_0;
}
#define BASES(w, o) IDX base0_##w, base1_##w; bases(o, base0_##w, base1_##w);
void load_vector(IDX r, IDX index0, IDX index1, out vec4 q0, out vec4 q1) {
  IDX rest_r = r;
  IDX at1 = rest_r;
  index0 += at1;
  index1 += at1;
  q0 = shared_row[index0 / 4];
  q1 = LOAD_VEC4(float, p.input1, index1 / 4);
}
#define LOAD_VECTOR(k, w, r) vec4 q0_##k##_##w; vec4 q1_##k##_##w; load_vector(r, base0_##w, base1_##w, q0_##k##_##w, q1_##k##_##w);
void load_scalar(IDX r, IDX index0, IDX index1, out float q0, out float q1) {
  IDX rest_r = r;
  IDX at1 = rest_r;
  index0 += at1;
  index1 += at1;
  q0 = shared_row[(index0) / 4][(index0) % 4];
  q1 = AT(float, p.input1, index1);
}
#define LOAD_SCALAR(k, w, r) float q0_##k##_##w; float q1_##k##_##w; load_scalar(r, base0_##w, base1_##w, q0_##k##_##w, q1_##k##_##w);
#define VECTOR_STORED(k, w, c) , q0_##k##_##w[c], q1_##k##_##w[c]
#define SCALAR_STORED(k, w) , q0_##k##_##w, q1_##k##_##w
#define PARTS 1
#define RESULTS 1
#define PART0 double
#define IDENTITY0 double(0)
#define COMBINE_PARTS combine_sum
#define OUTPUT_THREADS 8
#define REDUCTION_THREADS 32
#define OUTPUT_VECTORS 0
#define REDUCED_VECTORS 1
#define UNROLLED 6
#define EXACT 1
#define CHUNKED 0
#define LANES 32
#define NEIGHBOURS_SHARE 1
#define STORE_OUTPUT(a, index) store_element(index, float(to_f32(a##_0)));
#define REDUCES_RESULTS 
#define RESULT_GROUPS p.epilogue_groups
float own_0; uint own_1;
shared float results_0[8]; shared uint results_1[8];
void start_results() { own_0 = lowest_float(); own_1 = ~uint(0); }
void reduce_result(IDX r, float x) {
  float e0; uint e1;
  float v0 = float(x);
  e0 = float(v0);
  e1 = r;
  combine_argmax(own_0, own_1, e0, e1);
}
void put_results(uint slot) { results_0[slot] = own_0; results_1[slot] = own_1; }
void combine_results(uint slot, uint next, uint left) {
  for (uint other = slot + next; other < left; other += next) { float x0 = results_0[other]; uint x1 = results_1[other]; combine_argmax(own_0, own_1, x0, x1); }
  results_0[slot] = own_0; results_1[slot] = own_1;
}
void store_partial(IDX group) { AT(float, p.epilogue_partial_out0, group) = own_0; AT(uint, p.epilogue_partial_out1, group) = own_1; }
#include "lib/loops/results.glsl"
#include "lib/loops/reduce.glsl"
