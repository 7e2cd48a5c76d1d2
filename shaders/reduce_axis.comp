#version 460
// out[o, i] = reduction over r of a[o, r, i], where op is 0 for the compensated sum, 1 for max and 2 for min.
#extension GL_GOOGLE_include_directive : require
#include "lib/extensions.glsl"
#define IDX uint
#define LAST_WINS false

#include "lib/convert.glsl"
#include "lib/reduce.glsl"

layout(local_size_x = 256) in;
layout(set = 0, binding = 0, std430) readonly buffer A { REAL a[]; };
layout(set = 0, binding = 1, std430) writeonly buffer Out { REAL result[]; };
layout(push_constant) uniform Push { uint outer, reduce_size, inner, op; };

void main() {
  uint at = gl_GlobalInvocationID.x;
  if (at >= outer * inner) return;
  uint first = at / inner * reduce_size * inner + at % inner;
  REAL infinity = REAL(highest_float());
  REAL r = op == 0 ? REAL(0) : op == 1 ? -infinity : infinity, error = REAL(0);
  for (uint k = 0; k < reduce_size; k++) {
    REAL x = a[first + k * inner];
    if (op == 0) combine_sum(r, error, x, REAL(0));
    else if (op == 1) combine_max(r, x);
    else combine_min(r, x);
  }
  result[at] = op == 0 ? finish_sum(r, error) : r;
}
