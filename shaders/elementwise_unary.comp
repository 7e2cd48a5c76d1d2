#version 460
// out[i] = op a[i]. Nx.Vulkan.NativeV.apply_unary/5 defines the codes of op. Its formulas are those of lib/.
#extension GL_GOOGLE_include_directive : require
#include "lib/extensions.glsl"

#include "lib/convert.glsl"
#include "lib/math/divide.glsl"
#include "lib/math/erf.glsl"
#include "lib/math/exp.glsl"
#include "lib/math/hyperbolic.glsl"
#include "lib/math/log.glsl"
#include "lib/math/root.glsl"
#include "lib/ops/extrema.glsl"
#include "lib/ops/rounding.glsl"

layout(local_size_x = 256) in;
layout(constant_id = 0) const int op = 0;
layout(set = 0, binding = 0, std430) readonly buffer A { REAL a[]; };
layout(set = 0, binding = 1, std430) writeonly buffer Out { REAL result[]; };
layout(push_constant) uniform Push { uint n; };

void main() {
  uint i = gl_GlobalInvocationID.x;
  if (i >= n) return;
  REAL x = a[i];
  precise REAL r;
  switch (op) {
    case 0: r = nx_exp(x); break;
    case 1: r = nx_log(x); break;
    case 2: r = nx_sqrt(x); break;
    case 3: r = nx_abs(x); break;
    case 4: r = nx_negate(x); break;
    case 5: r = nx_sigmoid(x); break;
    case 6: r = nx_tanh(x); break;
    case 7: r = nx_max(x, REAL(0)); break;
    case 8: r = nx_ceil(x); break;
    case 9: r = nx_floor(x); break;
    case 10: r = nx_sign(x); break;
    case 11: r = nx_divide(REAL(1), x); break;
    case 12: r = x * x; break;
    case 13: r = nx_erf(x); break;
    default: r = nx_expm1(x); break;
  }
  result[i] = r;
}
