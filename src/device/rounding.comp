#version 450
// Whether fma(a, b, -(a * b)) is the rounding error of each product.
layout(local_size_x = 64) in;
layout(set = 0, binding = 0) buffer Data { float values[128]; uint inexact[64]; };

void main() {
  uint i = gl_GlobalInvocationID.x;
  precise float a = values[2 * i], b = values[2 * i + 1], p = a * b, e = fma(a, b, -p);
  inexact[i] = uint(e != 0.0);
}
