#version 450
#extension GL_GOOGLE_include_directive : require
// Whether the device's doubles keep subnormals where conversions between them and floats rest on that: each invocation converts one number
// to a double and another to a float. The kernel does not ask to preserve subnormals.
#define HAS_FLOAT64
#define SUBNORMAL_DOUBLES
#include "lib/convert.glsl"

layout(local_size_x = 64) in;
layout(set = 0, binding = 0) buffer Data { uvec2 widened[64]; uvec2 wide[64]; uint narrow[64]; uint narrowed[64]; uint right[64]; };

void main() {
  uint i = gl_GlobalInvocationID.x;
  bool widens = unpackDouble2x32(to_f64(uintBitsToFloat(narrow[i]))) == widened[i];
  right[i] = uint(widens && floatBitsToUint(to_f32(packDouble2x32(wide[i]))) == narrowed[i]);
}
