// 1024 workgroups, chunk 0
#include "lib/convert.glsl"
IDX workgroup() { return IDX(gl_WorkGroupID.y) * gl_NumWorkGroups.x + gl_WorkGroupID.x; }
IDX turned() { return p.reversed != 0 ? IDX(gl_NumWorkGroups.y) * gl_NumWorkGroups.x - 1 - workgroup() : workgroup(); }
uint8_t element(IDX at0, IDX at1, uint8_t x0, out IDX target) {
  IDX i = at0;
  i = i * p.dim1 + at1;
  precise uint v0 = uint(x0);
  precise uint v1 = v0;
  target = i;
  return uint8_t(v1);
}
layout(local_size_x = 256) in;
shared uint8_t tile0[1056];
void main() {
  IDX tile = turned(), tiles = (p.dim1 + 31) / 32, rest = QUOTIENT(tile, tiles);
  IDX at1 = (tile - rest * tiles) * 32;
  tile = rest, tiles = (p.dim0 + 31) / 32, rest = QUOTIENT(tile, tiles);
  IDX at0 = (tile - rest * tiles) * 32;
  if (rest > 0) return;
  uint wide = uint(min(p.dim1 - at1, 32)), high = uint(min(p.dim0 - at0, 32));
  IDX from0 = p.offset0 + at0 * p.stride0_0 + at1 * p.stride0_1;
  if (wide == 32 && high == 32) {
    for (uint j = INVOCATION; j < 1024; j += 1024) {
      uint j0 = j + 0 * 256, y0 = j0 % 32, x0 = j0 / 32;
      uint8_t r0_0 = AT(uint8_t, p.input0, from0 + IDX(y0) * p.stride0_0 + IDX(x0) * p.stride0_1);
      uint j1 = j + 1 * 256, y1 = j1 % 32, x1 = j1 / 32;
      uint8_t r1_0 = AT(uint8_t, p.input0, from0 + IDX(y1) * p.stride0_0 + IDX(x1) * p.stride0_1);
      uint j2 = j + 2 * 256, y2 = j2 % 32, x2 = j2 / 32;
      uint8_t r2_0 = AT(uint8_t, p.input0, from0 + IDX(y2) * p.stride0_0 + IDX(x2) * p.stride0_1);
      uint j3 = j + 3 * 256, y3 = j3 % 32, x3 = j3 / 32;
      uint8_t r3_0 = AT(uint8_t, p.input0, from0 + IDX(y3) * p.stride0_0 + IDX(x3) * p.stride0_1);
      tile0[y0 * 33 + x0] = r0_0;
      tile0[y1 * 33 + x1] = r1_0;
      tile0[y2 * 33 + x2] = r2_0;
      tile0[y3 * 33 + x3] = r3_0;
    }
  } else
  for (uint j = INVOCATION; j < 1024; j += 256) {
    uint j0 = j + 0 * 256, y0 = j0 % 32, x0 = j0 / 32;
    if (x0 < wide && y0 < high) {
      tile0[y0 * 33 + x0] = AT(uint8_t, p.input0, from0 + IDX(y0) * p.stride0_0 + IDX(x0) * p.stride0_1);
    }
  }
  barrier();
  for (uint j = INVOCATION; j < 1024; j += 256) {
    uint x = j % 32, y = j / 32;
    if (x < wide && y < high) {
      IDX target; uint8_t value = element(at0 + y, at1 + x, tile0[y * 33 + x], target); AT(uint8_t, p.result, target) = value;
    }
  }
}
