// The loops of an element-wise kernel whose results and some of whose inputs have their neighbours along different axes, x and y, as in
// a transpose: a workgroup makes a tile of WIDTH by HEIGHT results. Both sides move whole sectors of memory.
//
// The kernel defines before it includes this (see Tile in src/program/emit/schedule.rs):
//   THREADS, WIDTH, HEIGHT
//   SHARED_SCALARS, SHARED_VECTORS, REGISTERS, CACHES   one of them: where the inputs are transposed
//   BATCH, WHOLE_BATCHES       elements that a thread loads before it stores them to shared memory; whether a tile is whole batches
//   DIM_X, DIM_Y, AT_X, AT_Y   the axes' extents and the variables of the tile's first index along them
//   OTHER_AXES                 NEXT_AXIS(axis) for each other axis, from the last on
//   EACH_INPUT(M, k)           M(k, n, T, V) for each input n that is transposed: its storage type and the type of four
//   START_INPUTS               declares from<n>, the indices of the tile's first elements in these inputs
//   STRIDE_X_<n>, STRIDE_Y_<n> their strides along x and y
//   POSITION(x, y)             the indices along all axes, x and y from the tile's first ones
//   element(position, stored ..., target)   the result there, from the stored elements of these inputs, and its index
//   RESULT, RESULT_AT(i), STORE_RESULTS(v, a, b, c, d)   the result's storage type, an element of it, and storing its vector v

#include "lib/loops/repeat.glsl"

layout(local_size_x = THREADS) in;

#define NEXT_AXIS(axis) tile = rest, rest = QUOTIENT(tile, p.dim##axis); IDX at##axis = tile - rest * p.dim##axis;

#if defined SHARED_SCALARS
// One more than the width, so that a column lies in different banks.
#define ROW (WIDTH + 1)
#define DECLARE(k, n, T, V) shared T tile##n[HEIGHT * ROW];
#define ELEMENT_OF(k, n, T) AT(T, p.input##n, from##n + IDX(y##k) * STRIDE_Y_##n + IDX(x##k) * STRIDE_X_##n)
#define READ(k, n, T, V) T r##k##_##n = ELEMENT_OF(k, n, T);
#define PUT(k, n, T, V) tile##n[y##k * ROW + x##k] = r##k##_##n;
#define READ_PUT(k, n, T, V) tile##n[y##k * ROW + x##k] = ELEMENT_OF(k, n, T);
#define LOCATE(k) uint j##k = j + k * THREADS, y##k = j##k % HEIGHT, x##k = j##k / HEIGHT;
#define READ_EACH(k) LOCATE(k) EACH_INPUT(READ, k)
#define PUT_EACH(k) EACH_INPUT(PUT, k)
#define STORED(at, n, T, V) , tile##n[at]
#elif defined SHARED_VECTORS
// Rows of vectors are rotated, so that neither side of the way meets itself in a bank.
#define SLOT(y) (y) * VECTORS_X + (x ^ ((y) / 4 & (VECTORS_X - 1)))
#define DECLARE(k, n, T, V) shared V tile##n[HEIGHT * WIDTH / 4];
#define PUT_ROW(k, n, V) tile##n[SLOT(4 * y + k)] = V(q0_##n[k], q1_##n[k], q2_##n[k], q3_##n[k]);
#define PUT(k, n, T, V) PUT_ROW(0, n, V) PUT_ROW(1, n, V) PUT_ROW(2, n, V) PUT_ROW(3, n, V)
#define GET(k, n, T, V) V q_##n = tile##n[SLOT(y)];
#define STORED(c, n, T, V) , q_##n[c]
#elif defined REGISTERS
#define STORED_0(c, n, T, V) , q##c##_##n[0]
#define STORED_1(c, n, T, V) , q##c##_##n[1]
#define STORED_2(c, n, T, V) , q##c##_##n[2]
#define STORED_3(c, n, T, V) , q##c##_##n[3]
#define RESULT_OF(c, k, to) RESULT e##k##_##c = element(POSITION(4 * x + c, 4 * y + k) EACH_INPUT(STORED_##k, c), to);
#define ROW_OF_RESULTS(k) RESULT_OF(0, k, target) RESULT_OF(1, k, next) RESULT_OF(2, k, next) RESULT_OF(3, k, next) \
  STORE_RESULTS(target / 4, e##k##_0, e##k##_1, e##k##_2, e##k##_3);
#endif

// Four by four elements of an input in vectors along y: q0 to q3 have four neighbours along x.
#define VECTORS_X (WIDTH / 4)
#define VECTORS_Y (HEIGHT / 4)
#define LOAD_COLUMN(c, n, T, V) \
  V q##c##_##n = LOAD_VEC4(T, p.input##n, (from##n + IDX(4 * y) + IDX(4 * x + c) * STRIDE_X_##n) / 4);
#define LOAD_BLOCK(k, n, T, V) LOAD_COLUMN(0, n, T, V) LOAD_COLUMN(1, n, T, V) LOAD_COLUMN(2, n, T, V) LOAD_COLUMN(3, n, T, V)

#ifdef DECLARE
EACH_INPUT(DECLARE, 0)
#endif

void main() {
  IDX tile = traversed_group(), tiles = (DIM_X + (WIDTH - 1)) / WIDTH, rest = QUOTIENT(tile, tiles);
  IDX AT_X = (tile - rest * tiles) * WIDTH;
  tile = rest, tiles = (DIM_Y + (HEIGHT - 1)) / HEIGHT, rest = QUOTIENT(tile, tiles);
  IDX AT_Y = (tile - rest * tiles) * HEIGHT;
  OTHER_AXES
  // More workgroups than the device promises to run along one axis of the grid leave some over.
  if (rest > 0) return;
  uint width = uint(min(DIM_X - AT_X, WIDTH)), height = uint(min(DIM_Y - AT_Y, HEIGHT));
  START_INPUTS
#if defined SHARED_SCALARS
#ifdef WHOLE_BATCHES
  if (width == WIDTH && height == HEIGHT) {
    // A thread's loads come before its stores, so that they overlap.
    for (uint j = INVOCATION; j < WIDTH * HEIGHT; j += THREADS * BATCH) { EACH(BATCH, READ_EACH) EACH(BATCH, PUT_EACH) }
  } else
#endif
  for (uint j = INVOCATION; j < WIDTH * HEIGHT; j += THREADS) {
    LOCATE(0)
    if (x0 < width && y0 < height) { EACH_INPUT(READ_PUT, 0) }
  }
  barrier();
#endif
#if defined SHARED_VECTORS
  for (uint j = INVOCATION; j < VECTORS_X * VECTORS_Y; j += THREADS) {
    uint y = j % VECTORS_Y, x = j / VECTORS_Y;
    if (4 * x < width && 4 * y < height) { EACH_INPUT(LOAD_BLOCK, 0) EACH_INPUT(PUT, 0) }
  }
  barrier();
  for (uint j = INVOCATION; j < VECTORS_X * HEIGHT; j += THREADS) {
    uint x = j % VECTORS_X, y = j / VECTORS_X;
    if (4 * x < width && y < height) {
      IDX target, next;
      EACH_INPUT(GET, 0)
      RESULT e0 = element(POSITION(4 * x + 0, y) EACH_INPUT(STORED, 0), target);
      RESULT e1 = element(POSITION(4 * x + 1, y) EACH_INPUT(STORED, 1), next);
      RESULT e2 = element(POSITION(4 * x + 2, y) EACH_INPUT(STORED, 2), next);
      RESULT e3 = element(POSITION(4 * x + 3, y) EACH_INPUT(STORED, 3), next);
      STORE_RESULTS(target / 4, e0, e1, e2, e3);
    }
  }
#elif defined REGISTERS
  // Lanes store to neighbouring vectors: a CPU's stores reach few pages at a time, its loads more.
  for (uint j = INVOCATION; j < VECTORS_Y * VECTORS_X; j += THREADS) {
    uint x = j % VECTORS_X, y = j / VECTORS_X;
    if (4 * x < width && 4 * y < height) {
      IDX target, next;
      EACH_INPUT(LOAD_BLOCK, 0)
      EACH(4, ROW_OF_RESULTS)
    }
  }
#else
  for (uint j = INVOCATION; j < WIDTH * HEIGHT; j += THREADS) {
    uint x = j % WIDTH, y = j / WIDTH;
    if (x < width && y < height) {
      IDX target;
#ifdef CACHES
      RESULT value = element(POSITION(x, y), target);
#else
      RESULT value = element(POSITION(x, y) EACH_INPUT(STORED, y * ROW + x), target);
#endif
      RESULT_AT(target) = value;
    }
  }
#endif
}
