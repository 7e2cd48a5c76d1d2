// 2048 workgroups, chunk 0
#include "lib/convert.glsl"
IDX workgroup() { return IDX(gl_WorkGroupID.y) * gl_NumWorkGroups.x + gl_WorkGroupID.x; }
IDX turned() { return p.reversed != 0 ? IDX(gl_NumWorkGroups.y) * gl_NumWorkGroups.x - 1 - workgroup() : workgroup(); }
double element(IDX at0, IDX at1, double x0, out IDX target) {
  IDX i = at0;
  i = i * p.dim1 + at1;
  precise double v0 = double(x0);
  precise double v1 = v0;
  target = i;
  return double(v1);
}
layout(local_size_x = 256) in;
shared dvec4 tile0[512];
void main() {
  IDX tile = turned(), tiles = (p.dim1 + 63) / 64, rest = QUOTIENT(tile, tiles);
  IDX at1 = (tile - rest * tiles) * 64;
  tile = rest, tiles = (p.dim0 + 31) / 32, rest = QUOTIENT(tile, tiles);
  IDX at0 = (tile - rest * tiles) * 32;
  if (rest > 0) return;
  uint wide = uint(min(p.dim1 - at1, 64)), high = uint(min(p.dim0 - at0, 32));
  IDX from0 = p.offset0 + at0 * p.stride0_0 + at1 * p.stride0_1;
  for (uint j = INVOCATION; j < 128; j += 256) {
    uint y = j % 8, x = j / 8;
    if (4 * x < wide && 4 * y < high) {
      dvec4 q0_0 = LOAD_QUAD(double, p.input0, (from0 + IDX(4 * y) + IDX(4 * x + 0) * p.stride0_1) / 4);
      dvec4 q1_0 = LOAD_QUAD(double, p.input0, (from0 + IDX(4 * y) + IDX(4 * x + 1) * p.stride0_1) / 4);
      dvec4 q2_0 = LOAD_QUAD(double, p.input0, (from0 + IDX(4 * y) + IDX(4 * x + 2) * p.stride0_1) / 4);
      dvec4 q3_0 = LOAD_QUAD(double, p.input0, (from0 + IDX(4 * y) + IDX(4 * x + 3) * p.stride0_1) / 4);
      tile0[(4 * y + 0) * 16 + (x ^ ((4 * y + 0) / 4 & 15))] = dvec4(q0_0[0], q1_0[0], q2_0[0], q3_0[0]);
      tile0[(4 * y + 1) * 16 + (x ^ ((4 * y + 1) / 4 & 15))] = dvec4(q0_0[1], q1_0[1], q2_0[1], q3_0[1]);
      tile0[(4 * y + 2) * 16 + (x ^ ((4 * y + 2) / 4 & 15))] = dvec4(q0_0[2], q1_0[2], q2_0[2], q3_0[2]);
      tile0[(4 * y + 3) * 16 + (x ^ ((4 * y + 3) / 4 & 15))] = dvec4(q0_0[3], q1_0[3], q2_0[3], q3_0[3]);
    }
  }
  barrier();
  for (uint j = INVOCATION; j < 512; j += 256) {
    uint x = j % 16, y = j / 16;
    if (4 * x < wide && y < high) {
      IDX target, next;
      dvec4 q_0 = tile0[(y) * 16 + (x ^ ((y) / 4 & 15))];
      double e0 = element(at0 + y, at1 + 4 * x + 0, q_0[0], target);
      double e1 = element(at0 + y, at1 + 4 * x + 1, q_0[1], next);
      double e2 = element(at0 + y, at1 + 4 * x + 2, q_0[2], next);
      double e3 = element(at0 + y, at1 + 4 * x + 3, q_0[3], next);
      SET_QUAD(double, p.result, target / 4, dvec4(e0, e1, e2, e3));
    }
  }
}
