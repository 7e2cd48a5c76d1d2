// 2048 workgroups, chunk 0
#include "lib/convert.glsl"
IDX workgroup() { return IDX(gl_WorkGroupID.y) * gl_NumWorkGroups.x + gl_WorkGroupID.x; }
IDX turned() { return workgroup(); }
double element(IDX at0, IDX at1, double x0, out IDX target) {
  IDX i = at0;
  i = i * p.dim1 + at1;
  precise double v0 = double(x0);
  precise double v1 = v0;
  target = i;
  return double(v1);
}
layout(local_size_x = 8) in;
void main() {
  IDX tile = turned(), tiles = (p.dim1 + 63) / 64, rest = QUOTIENT(tile, tiles);
  IDX at1 = (tile - rest * tiles) * 64;
  tile = rest, tiles = (p.dim0 + 31) / 32, rest = QUOTIENT(tile, tiles);
  IDX at0 = (tile - rest * tiles) * 32;
  if (rest > 0) return;
  uint wide = uint(min(p.dim1 - at1, 64)), high = uint(min(p.dim0 - at0, 32));
  IDX from0 = p.offset0 + at0 * p.stride0_0 + at1 * p.stride0_1;
  for (uint j = INVOCATION; j < 128; j += 8) {
    uint x = j % 16, y = j / 16;
    if (4 * x < wide && 4 * y < high) {
      IDX target, next;
      dvec4 q0_0 = LOAD_QUAD(double, p.input0, (from0 + IDX(4 * y) + IDX(4 * x + 0) * p.stride0_1) / 4);
      dvec4 q1_0 = LOAD_QUAD(double, p.input0, (from0 + IDX(4 * y) + IDX(4 * x + 1) * p.stride0_1) / 4);
      dvec4 q2_0 = LOAD_QUAD(double, p.input0, (from0 + IDX(4 * y) + IDX(4 * x + 2) * p.stride0_1) / 4);
      dvec4 q3_0 = LOAD_QUAD(double, p.input0, (from0 + IDX(4 * y) + IDX(4 * x + 3) * p.stride0_1) / 4);
      double e0_0 = element(at0 + 4 * y + 0, at1 + 4 * x + 0, q0_0[0], target); double e0_1 = element(at0 + 4 * y + 0, at1 + 4 * x + 1, q1_0[0], next); double e0_2 = element(at0 + 4 * y + 0, at1 + 4 * x + 2, q2_0[0], next); double e0_3 = element(at0 + 4 * y + 0, at1 + 4 * x + 3, q3_0[0], next);
      SET_QUAD(double, p.result, target / 4, dvec4(e0_0, e0_1, e0_2, e0_3));
      double e1_0 = element(at0 + 4 * y + 1, at1 + 4 * x + 0, q0_0[1], target); double e1_1 = element(at0 + 4 * y + 1, at1 + 4 * x + 1, q1_0[1], next); double e1_2 = element(at0 + 4 * y + 1, at1 + 4 * x + 2, q2_0[1], next); double e1_3 = element(at0 + 4 * y + 1, at1 + 4 * x + 3, q3_0[1], next);
      SET_QUAD(double, p.result, target / 4, dvec4(e1_0, e1_1, e1_2, e1_3));
      double e2_0 = element(at0 + 4 * y + 2, at1 + 4 * x + 0, q0_0[2], target); double e2_1 = element(at0 + 4 * y + 2, at1 + 4 * x + 1, q1_0[2], next); double e2_2 = element(at0 + 4 * y + 2, at1 + 4 * x + 2, q2_0[2], next); double e2_3 = element(at0 + 4 * y + 2, at1 + 4 * x + 3, q3_0[2], next);
      SET_QUAD(double, p.result, target / 4, dvec4(e2_0, e2_1, e2_2, e2_3));
      double e3_0 = element(at0 + 4 * y + 3, at1 + 4 * x + 0, q0_0[3], target); double e3_1 = element(at0 + 4 * y + 3, at1 + 4 * x + 1, q1_0[3], next); double e3_2 = element(at0 + 4 * y + 3, at1 + 4 * x + 2, q2_0[3], next); double e3_3 = element(at0 + 4 * y + 3, at1 + 4 * x + 3, q3_0[3], next);
      SET_QUAD(double, p.result, target / 4, dvec4(e3_0, e3_1, e3_2, e3_3));
    }
  }
}
