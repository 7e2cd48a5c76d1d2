#version 460
// out (n×m) = transpose of a (m×n). A tile in shared memory lets both matrices be accessed along rows.

const uint TILE = 16u;
layout(local_size_x = 16, local_size_y = 16) in;
layout(set = 0, binding = 0, std430) readonly buffer A { REAL a[]; };
layout(set = 0, binding = 1, std430) writeonly buffer Out { REAL result[]; };
layout(push_constant) uniform Push { uint m, n; };

// The padding column makes the elements of a column lie in different banks of shared memory.
shared REAL tile[TILE][TILE + 1];

void main() {
  uint x = gl_LocalInvocationID.x, y = gl_LocalInvocationID.y;
  uint row = gl_WorkGroupID.y * TILE, column = gl_WorkGroupID.x * TILE;
  if (row + y < m && column + x < n) tile[y][x] = a[(row + y) * n + column + x];
  barrier();
  if (column + y < n && row + x < m) result[(column + y) * m + row + x] = tile[x][y];
}
