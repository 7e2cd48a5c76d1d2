// 4 workgroups, chunk 256
#include "lib/convert.glsl"
IDX workgroup() { return IDX(gl_WorkGroupID.y) * gl_NumWorkGroups.x + gl_WorkGroupID.x; }
IDX turned() { return workgroup(); }
#include "lib/ops/arithmetic.glsl"
double element(IDX i, double x0) {
  precise double v0 = double(x0);
  precise double v1 = double(packDouble2x32(p.scalar1));
  precise double v2 = nx_add(v0, v1);
  return double(v2);
}
layout(local_size_x = 8) in;
void single(IDX i) {   AT(double, p.result, i) = element(i, AT(double, p.input0, i)); }
void main() {
  IDX tile = turned();
  IDX count = p.count / 4, end = min((tile + 1) * p.chunk, count);
  for (IDX i = tile * p.chunk + INVOCATION; i < end; i += 8) { dvec4 q0_0 = LOAD_QUAD(double, p.input0, i);   SET_QUAD(double, p.result, i, dvec4(element(i * 4 + 0, q0_0[0]), element(i * 4 + 1, q0_0[1]), element(i * 4 + 2, q0_0[2]), element(i * 4 + 3, q0_0[3]))); }
  if (tile * p.chunk <= count && end == count) {
    for (IDX i = 4 * count + INVOCATION; i < p.count; i += 8) single(i);
  }
}
