#include "lib/convert.glsl"
#include "lib/grid.glsl"
#define DIVIDED(a, b, magic) QUOTIENT(a, b)
bool last_wins = false;
#define LAST_WINS last_wins
#include "lib/indices.glsl"
#include "lib/ops/compare.glsl"
#include "lib/ops/arithmetic.glsl"
#include "lib/reduce.glsl"
#define THREADS 8
#include "lib/loops/workgroup.glsl"
uvec2 slot0;
uvec2 slot1;
uvec2 slot2;
uvec2 slot3;
uvec2 slot4;
uvec2 slot5;
shared double partial0_double[THREADS];
void make0(IDX i) {
  float x0 = AT(float, Buffer_float(slot0), i);
  precise float v0 = float(x0);
  precise float v1 = v0;
  AT(float, Buffer_float(slot2), i) = float(v1);
}
void step0() { MAP_STEP(100u, make0) }
void element1(IDX o, IDX r, out double e0) {
  IDX index0 = 0u;
  IDX rest_r = r;
  IDX at0 = rest_r;
  index0 += at0 * 1u;
  precise float v0 = float(AT(float, Buffer_float(slot2), index0));
  e0 = double(v0);
}
void put1(IDX o, double a_0) { AT(float, Buffer_float(slot3), o) = float(to_f32(a_0)); }
void step1() {
  last_wins = false;
  REDUCE_STEP_1(1u, 100u, 8u, double, double(0), partial0_double, element1, combine_sum, put1)
}
void make2(IDX i) {
  precise float v0 = float(AT(float, Buffer_float(slot3), IDX(0)));
  precise float v1 = float(uintBitsToFloat(uvec2(1065353216u | gl_WorkGroupID.z, 0u | gl_WorkGroupID.z).x));
  uint v2 = uint(nx_greater(v0, v1)) + uint(gl_WorkGroupID.z);
  AT(uint8_t, Buffer_uint8_t(slot4), i) = uint8_t(v2);
}
void step2() { MAP_STEP(1u, make2) }
void make3(IDX i) {
  float x0 = AT(float, Buffer_float(slot0), i);
  precise float v0 = float(x0);
  precise float v1 = v0;
  AT(float, Buffer_float(slot2), i) = float(v1);
}
void step3() { MAP_STEP(100u, make3) }
void make4(IDX i) {
  float x0 = AT(float, Buffer_float(slot0), i);
  precise float v0 = float(x0);
  precise float v1 = v0;
  AT(float, Buffer_float(slot2), i) = float(v1);
}
void step4() { MAP_STEP(100u, make4) }
void element5(IDX o, IDX r, out double e0) {
  IDX index0 = 0u;
  IDX rest_r = r;
  IDX at0 = rest_r;
  index0 += at0 * 1u;
  precise float v0 = float(AT(float, Buffer_float(slot2), index0));
  e0 = double(v0);
}
void put5(IDX o, double a_0) { AT(float, Buffer_float(slot3), o) = float(to_f32(a_0)); }
void step5() {
  last_wins = false;
  REDUCE_STEP_1(1u, 100u, 8u, double, double(0), partial0_double, element5, combine_sum, put5)
}
void make6(IDX i) {
  precise float v0 = float(AT(float, Buffer_float(slot3), IDX(0)));
  precise float v1 = float(uintBitsToFloat(uvec2(1065353216u | gl_WorkGroupID.z, 0u | gl_WorkGroupID.z).x));
  uint v2 = uint(nx_greater(v0, v1)) + uint(gl_WorkGroupID.z);
  AT(uint8_t, Buffer_uint8_t(slot4), i) = uint8_t(v2);
}
void step6() { MAP_STEP(1u, make6) }
void make7(IDX i) {
  float x0 = AT(float, Buffer_float(slot2), i);
  precise float v0 = float(x0);
  precise float v1 = float(uintBitsToFloat(uvec2(1056964608u | gl_WorkGroupID.z, 0u | gl_WorkGroupID.z).x));
  precise float v2 = nx_multiply(v0, v1);
  AT(float, Buffer_float(slot5), i) = float(v2);
}
void step7() { MAP_STEP(100u, make7) }
void make8(IDX i) {
  IDX index0 = 50u;
  IDX rest_i = i;
  IDX at0 = rest_i;
  index0 += at0 * 1u;
  precise float v0 = float(AT(float, Buffer_float(slot2), index0));
  precise float v1 = v0;
  AT(float, Buffer_float(slot5), i) = float(v1);
}
void step8() { MAP_STEP(50u, make8) }
void make9(IDX i) {
  float x0 = AT(float, Buffer_float(slot2), i);
  precise float v0 = float(x0);
  precise float v1 = v0;
  AT(float, Buffer_float(slot1), i) = float(v1);
}
void step9() { MAP_STEP(100u, make9) }
void main() {
  slot0 = uvec2(p.slot0);
  slot1 = uvec2(p.slot1);
  slot2 = in_scratch(32u);
  slot3 = in_scratch(432u);
  slot4 = in_scratch(448u);
  slot5 = in_scratch(464u);
  meet();
  uint left = p.conditions;
  uint at = 0u;
  if (p.resumed != 0u) {
    at = p.scratch.v[0] == 0u ? 0x7fffffffu : p.scratch.v[0];
    slot2 = uvec2(p.scratch.v[2], p.scratch.v[3]); slot5 = uvec2(p.scratch.v[4], p.scratch.v[5]);
    meet();
  }
    if (at == 0u) {
    step0();
    meet();
    }
    if (at == 0u || (at >= 1u && at <= 2u)) while (true) {
    if (at <= 1u) {
    if (at == 0u || at == 1u) {
    if (left == 0u) { at = 1u | 0x80000000u; break; }
    left--;
    at = 0u;
    }
    step1();
    meet();
    step2();
    meet();
    if (is_zero(uint(Buffer_uint8_t(slot4).v[0]))) break;
    }
    if (at == 0u) {
    step3();
    meet();
    }
    if (at == 0u || (at >= 2u && at <= 2u)) {
    if (!is_zero(uint(Buffer_uint8_t(slot4).v[0]))) {
    if (at == 0u) {
    step4();
    meet();
    }
    if (at == 0u || (at >= 2u && at <= 2u)) while (true) {
    if (at <= 2u) {
    if (at == 0u || at == 2u) {
    if (left == 0u) { at = 2u | 0x80000000u; break; }
    left--;
    at = 0u;
    }
    step5();
    meet();
    step6();
    meet();
    if (is_zero(uint(Buffer_uint8_t(slot4).v[0]))) break;
    }
    step7();
    meet();
    step8();
    meet();
    swap(slot2, slot5);
    meet();
    }
    meet();
    } else {
    }
    }
    meet();
    if (at != 0u) break;
    meet();
    }
    meet();
  if ((at & 0x80000000u) == 0u) {
    step9();
  }
  if (INVOCATION == 0) {
    p.scratch.v[0] = (at & 0x80000000u) == 0u ? 0u : at ^ 0x80000000u;
    p.unfinished.v[0] = p.scratch.v[0];
    p.scratch.v[2] = slot2.x; p.scratch.v[3] = slot2.y; p.scratch.v[4] = slot5.x; p.scratch.v[5] = slot5.y;
  }
}
