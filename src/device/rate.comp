#version 450
// How fast the device multiplies and adds REALs: four chains an invocation, which overlap.
layout(local_size_x = 64) in;
layout(set = 0, binding = 0) buffer Data { uint steps; uint sink; };

void main() {
  REAL a = REAL(gl_LocalInvocationID.x) * REAL(0.001), x = a, y = a + REAL(1), z = a + REAL(2), w = a + REAL(3);
  for (uint i = 0; i < steps; i++) {
    x = x * a + REAL(0.5);
    y = y * a + REAL(0.25);
    z = z * a + REAL(0.125);
    w = w * a + REAL(0.75);
  }
  // Never true: the compiler does not know.
  if (x + y + z + w < REAL(0)) sink = 1;
}
