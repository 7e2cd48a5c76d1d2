#version 460
// out[i] = a[i] op b[i]. Nx.Vulkan.NativeV.apply_binary/6 defines the codes of op. Its formulas are those of lib/.
#extension GL_GOOGLE_include_directive : require
#include "lib/extensions.glsl"

#include "lib/convert.glsl"
#include "lib/math/divide.glsl"
#include "lib/math/pow.glsl"
#include "lib/ops/extrema.glsl"

layout(local_size_x = 256) in;
layout(constant_id = 0) const int op = 0;
layout(set = 0, binding = 0, std430) readonly buffer A { REAL a[]; };
layout(set = 0, binding = 1, std430) readonly buffer B { REAL b[]; };
layout(set = 0, binding = 2, std430) writeonly buffer Out { REAL result[]; };
layout(push_constant) uniform Push { uint n; };

void main() {
  uint i = gl_GlobalInvocationID.x;
  if (i >= n) return;
  REAL x = a[i], y = b[i];
  precise REAL r;
  switch (op) {
    case 0: r = x + y; break;
    case 1: r = x * y; break;
    case 2: r = x - y; break;
    case 3: r = nx_divide(x, y); break;
    case 4: r = nx_pow(x, y); break;
    case 5: r = nx_max(x, y); break;
    default: r = nx_min(x, y); break;
  }
  result[i] = r;
}
