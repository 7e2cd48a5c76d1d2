// 40 workgroups, chunk 0
#include "lib/convert.glsl"
IDX workgroup() { return IDX(gl_WorkGroupID.y) * gl_NumWorkGroups.x + gl_WorkGroupID.x; }
IDX turned() { return workgroup(); }
float element(IDX at0, IDX at1, out IDX target) {
  IDX i = at0;
  i = i * p.dim1 + at1;
  IDX place0 = p.offset0;
  place0 += at0 * p.stride0_0;
  place0 += at1 * p.stride0_1;
  precise float v0 = float(AT(float, p.input0, place0));
  precise float v1 = v0;
  target = i;
  return float(v1);
}
layout(local_size_x = 8) in;
void main() {
  IDX tile = turned(), tiles = (p.dim1 + 31) / 32, rest = QUOTIENT(tile, tiles);
  IDX at1 = (tile - rest * tiles) * 32;
  tile = rest, tiles = (p.dim0 + 31) / 32, rest = QUOTIENT(tile, tiles);
  IDX at0 = (tile - rest * tiles) * 32;
  if (rest > 0) return;
  uint wide = uint(min(p.dim1 - at1, 32)), high = uint(min(p.dim0 - at0, 32));
  for (uint j = INVOCATION; j < 1024; j += 8) {
    uint x = j % 32, y = j / 32;
    if (x < wide && y < high) {
      IDX target; float value = element(at0 + y, at1 + x, target); AT(float, p.result, target) = value;
    }
  }
}
