// 512 workgroups, chunk 0
#include "lib/convert.glsl"
IDX workgroup() { return IDX(gl_WorkGroupID.y) * gl_NumWorkGroups.x + gl_WorkGroupID.x; }
IDX turned() { return p.reversed != 0 ? IDX(gl_NumWorkGroups.y) * gl_NumWorkGroups.x - 1 - workgroup() : workgroup(); }
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
layout(local_size_x = 256) in;
shared vec4 tile0[256];
void main() {
  IDX tile = turned(), tiles = (p.dim2 + 31) / 32, rest = QUOTIENT(tile, tiles);
  IDX at2 = (tile - rest * tiles) * 32;
  tile = rest, tiles = (p.dim0 + 31) / 32, rest = QUOTIENT(tile, tiles);
  IDX at0 = (tile - rest * tiles) * 32;
  tile = rest, rest = QUOTIENT(tile, p.dim1);
  IDX at1 = tile - rest * p.dim1;
  if (rest > 0) return;
  uint wide = uint(min(p.dim2 - at2, 32)), high = uint(min(p.dim0 - at0, 32));
  IDX from0 = p.offset0 + at0 * p.stride0_0 + at1 * p.stride0_1 + at2 * p.stride0_2;
  for (uint j = INVOCATION; j < 64; j += 256) {
    uint y = j % 8, x = j / 8;
    if (4 * x < wide && 4 * y < high) {
      vec4 q0_0 = LOAD_QUAD(float, p.input0, (from0 + IDX(4 * y) + IDX(4 * x + 0) * p.stride0_2) / 4);
      vec4 q1_0 = LOAD_QUAD(float, p.input0, (from0 + IDX(4 * y) + IDX(4 * x + 1) * p.stride0_2) / 4);
      vec4 q2_0 = LOAD_QUAD(float, p.input0, (from0 + IDX(4 * y) + IDX(4 * x + 2) * p.stride0_2) / 4);
      vec4 q3_0 = LOAD_QUAD(float, p.input0, (from0 + IDX(4 * y) + IDX(4 * x + 3) * p.stride0_2) / 4);
      tile0[(4 * y + 0) * 8 + (x ^ ((4 * y + 0) / 4 & 7))] = vec4(q0_0[0], q1_0[0], q2_0[0], q3_0[0]);
      tile0[(4 * y + 1) * 8 + (x ^ ((4 * y + 1) / 4 & 7))] = vec4(q0_0[1], q1_0[1], q2_0[1], q3_0[1]);
      tile0[(4 * y + 2) * 8 + (x ^ ((4 * y + 2) / 4 & 7))] = vec4(q0_0[2], q1_0[2], q2_0[2], q3_0[2]);
      tile0[(4 * y + 3) * 8 + (x ^ ((4 * y + 3) / 4 & 7))] = vec4(q0_0[3], q1_0[3], q2_0[3], q3_0[3]);
    }
  }
  barrier();
  for (uint j = INVOCATION; j < 256; j += 256) {
    uint x = j % 8, y = j / 8;
    if (4 * x < wide && y < high) {
      IDX target, next;
      vec4 q_0 = tile0[(y) * 8 + (x ^ ((y) / 4 & 7))];
      float e0 = element(at0 + y, at1, at2 + 4 * x + 0, q_0[0], target);
      float e1 = element(at0 + y, at1, at2 + 4 * x + 1, q_0[1], next);
      float e2 = element(at0 + y, at1, at2 + 4 * x + 2, q_0[2], next);
      float e3 = element(at0 + y, at1, at2 + 4 * x + 3, q_0[3], next);
      SET_QUAD(float, p.result, target / 4, vec4(e0, e1, e2, e3));
    }
  }
}
