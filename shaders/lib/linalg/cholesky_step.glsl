// One step of a Cholesky factorisation: what the columns `start` to `rest` of the factor make of the elements behind them.
// Workgroup (I, J), J <= I, has a tile of TILE rows and columns there. For its rows and its columns it solves with the
// factor of the diagonal block, which stands in `l`, so that no dispatch has to end before products are formed; those
// with J = 0 write what they found to `l`, and zeros above the diagonal. Workgroup (0, 0) ends with the factor of the next
// diagonal block. Without columns (rest = start) that is all there is to do.
//
// The matrices in `a` are dense; what is above their diagonal is never used.

// Columns of a diagonal block that each thread factors for itself, so that barriers are fewer.
const uint THREAD_COLUMNS = 4;
// Threads along a tile's rows and columns, and what each has of them. On a CPU device, whose lanes reach shared memory one
// after the other, neighbours have neighbouring rows, and hand to each other what all of them need.
#if CPU_DEVICE
const uint TILE_ROW_THREADS = TILE, TILE_COLUMN_THREADS = LOCAL_SIZE / TILE_ROW_THREADS, SPAN = SUBGROUP < WIDTH ? SUBGROUP : WIDTH;
#define ROW_THREAD(thread) ((thread) % TILE_ROW_THREADS)
#define COLUMN_THREAD(thread) ((thread) / TILE_ROW_THREADS)
#define COLUMN(j) (column_thread * COLUMNS + (j))
#define OWN_PART (gl_SubgroupInvocationID % SPAN)
#define PART_OF(x, part) subgroupBroadcast(x, part)
#else
const uint TILE_COLUMN_THREADS = 8, TILE_ROW_THREADS = LOCAL_SIZE / TILE_COLUMN_THREADS, SPAN = 1;
#define ROW_THREAD(thread) ((thread) / TILE_COLUMN_THREADS)
#define COLUMN_THREAD(thread) ((thread) % TILE_COLUMN_THREADS)
#define COLUMN(j) (column_thread + (j) * TILE_COLUMN_THREADS)
#define OWN_PART 0
#define PART_OF(x, part) x
#endif
const uint ROWS = TILE / TILE_ROW_THREADS, COLUMNS = TILE / TILE_COLUMN_THREADS;
#define ROW(i) (row_thread + (i) * TILE_ROW_THREADS)
// Threads that share a row of the diagonal block, and how many times THREAD_COLUMNS columns each has. There may be more threads.
const uint SHARERS = LOCAL_SIZE / WIDTH, MOST = WIDTH / THREAD_COLUMNS, GROUPS = SHARERS < MOST ? SHARERS : MOST, OWN = MOST / GROUPS;

shared ELEMENT triangle[WIDTH][WIDTH];
shared SCALAR inverses[WIDTH];
// The panel's elements in the tile's rows, then in its columns.
shared ELEMENT lines[2 * TILE][WIDTH + 1];
// THREAD_COLUMNS columns before they are divided.
shared ELEMENT published[WIDTH][THREAD_COLUMNS];

IDX matrix;
#define SUBTRACT(x, a, b) x = MULTIPLY_ADD(-(a), b, x);
#define A(i, j) ELEMENTS(p.a, matrix + (i) * p.n + (j))
#define L(i, j) ELEMENTS(p.l, matrix + (i) * p.n + (j))

// The square root of a pivot and its inverse: one Newton step each from what the device has at once.
void roots(ELEMENT pivot_element, out SCALAR root, out SCALAR inverse) {
  SCALAR pivot = REAL_PART(pivot_element);
  inverse = inversesqrt(pivot);
  inverse += inverse * (SCALAR(0.5) - SCALAR(0.5) * pivot * inverse * inverse);
  root = pivot * inverse;
  root += SCALAR(0.5) * inverse * (pivot - root * root);
  if (is_zero(pivot)) {
    root = SCALAR(0);
    inverse = SCALAR(1.0e10);
  }
}

// The factor of the block that stands in `lines`, to `l` at row and column `first`.
void factor(uint thread, IDX first) {
  uint i = thread % WIDTH, g = thread / WIDTH;
  ELEMENT a[OWN][THREAD_COLUMNS];
  [[unroll]] for (uint own = 0; own < OWN; own++)
    [[unroll]] for (uint k = 0; k < THREAD_COLUMNS; k++) a[own][k] = lines[i][min((own * GROUPS + g) * THREAD_COLUMNS, WIDTH - THREAD_COLUMNS) + k];
  [[unroll]] for (uint b = 0; b < WIDTH / THREAD_COLUMNS; b++) {
    uint j = b * THREAD_COLUMNS;
    if (g == b % GROUPS) [[unroll]] for (uint k = 0; k < THREAD_COLUMNS; k++) published[i][k] = a[b / GROUPS][k];
    barrier();
    ELEMENT corner[THREAD_COLUMNS][THREAD_COLUMNS], x[THREAD_COLUMNS];
    SCALAR root[THREAD_COLUMNS], inverse[THREAD_COLUMNS];
    [[unroll]] for (uint k = 0; k < THREAD_COLUMNS; k++) {
      x[k] = published[i][k];
      [[unroll]] for (uint c = 0; c <= k; c++) corner[k][c] = published[j + k][c];
    }
    [[unroll]] for (uint k = 0; k < THREAD_COLUMNS; k++) {
      roots(corner[k][k], root[k], inverse[k]);
      x[k] *= inverse[k];
      [[unroll]] for (uint r = k + 1; r < THREAD_COLUMNS; r++) {
        corner[r][k] *= inverse[k];
        [[unroll]] for (uint c = k + 1; c <= r; c++) SUBTRACT(corner[r][c], corner[r][k], CONJUGATE(corner[c][k]))
      }
      [[unroll]] for (uint c = k + 1; c < THREAD_COLUMNS; c++) SUBTRACT(x[c], x[k], CONJUGATE(corner[c][k]))
    }
    if (g == b % GROUPS) {
      [[unroll]] for (uint k = 0; k < THREAD_COLUMNS; k++) {
        ELEMENT diagonal = ELEMENT(0);
        REAL_PART(diagonal) = root[k];
        // Added to zero: no negative zeros.
        triangle[i][j + k] = i > j + k ? x[k] + ELEMENT(0) : i == j + k ? diagonal : ELEMENT(0);
      }
    }
    barrier();
    [[unroll]] for (uint own = 0; own < OWN; own++) {
      uint column = (own * GROUPS + g) * THREAD_COLUMNS;
      if (column > j && column < WIDTH) {
        [[unroll]] for (uint c = 0; c < THREAD_COLUMNS; c++)
          [[unroll]] for (uint k = 0; k < THREAD_COLUMNS; k++) SUBTRACT(a[own][c], x[k], CONJUGATE(triangle[column + c][j + k]))
      }
    }
  }
  for (uint e = thread; e < WIDTH * WIDTH; e += LOCAL_SIZE) {
    IDX row = first + e / WIDTH, column = first + e % WIDTH;
    if (row < p.n && column < p.n) L(row, column) = triangle[e / WIDTH][e % WIDTH];
  }
}

void main() {
  // Lines of tiles in pairs, the last and the first, the last but one and the second, that have tiles + 1 tiles each.
  uint thread = INVOCATION;
  IDX line_tiles = p.tiles + 1, line_pairs = line_tiles / 2, at = workgroup();
  IDX in_row = ONCE(QUOTIENT(at, line_tiles)), batch = ONCE(QUOTIENT(in_row, line_pairs));
  IDX pair = in_row - batch * line_pairs, position = at - in_row * line_tiles, last = p.tiles - 1 - pair;
  if (at >= p.groups || (position > last && last == pair)) return;
  IDX line = position <= last ? last : pair, column_tile = position <= last ? position : position - last - 1;
  matrix = ONCE(batch * p.n * p.n);
  IDX top = ONCE(p.rest + line * TILE), left = ONCE(p.rest + column_tile * TILE);
  uint row_thread = ROW_THREAD(thread), column_thread = COLUMN_THREAD(thread);
  // Loaded first, so that they are there when they are needed.
  ELEMENT c[ROWS][COLUMNS];
  [[unroll]] for (uint i = 0; i < ROWS; i++) {
    [[unroll]] for (uint j = 0; j < COLUMNS; j++) {
      IDX row = top + ROW(i), column = left + COLUMN(j);
      c[i][j] = ELEMENT(0);
      if (row < p.n && column < p.n) c[i][j] = A(row, column);
    }
  }
  if (p.rest > p.start) {
    if (thread < WIDTH) {
      SCALAR diagonal = REAL_PART(L(p.start + thread, p.start + thread));
      inverses[thread] = is_zero(diagonal) ? SCALAR(1.0e10) : SCALAR(1) / diagonal;
    }
    for (uint e = thread; e < WIDTH * WIDTH; e += LOCAL_SIZE)
      triangle[e / WIDTH][e % WIDTH] = L(p.start + e / WIDTH, p.start + e % WIDTH);
    for (uint e = thread; e < 2 * TILE * WIDTH; e += LOCAL_SIZE) {
      uint at = e / WIDTH, k = e % WIDTH;
      IDX row = at < TILE ? top + at : left + at - TILE;
      ELEMENT x = ELEMENT(0);
      if (row < p.n) x = A(row, p.start + k);
      lines[at][k] = x;
    }
    barrier();
    ELEMENT x[WIDTH];
    [[unroll]] for (uint k = 0; k < WIDTH; k++) {
      ELEMENT sum = ELEMENT(0);
      [[unroll]] for (uint e = 0; e < k; e += SPAN) {
        ELEMENT own = CONJUGATE(triangle[k][e + OWN_PART]);
        [[unroll]] for (uint part = 0; part < SPAN; part++) if (e + part < k) sum = MULTIPLY_ADD(x[e + part], PART_OF(own, part), sum);
      }
      x[k] = (lines[thread][k] - sum) * inverses[k];
    }
    [[unroll]] for (uint k = 0; k < WIDTH; k++) lines[thread][k] = x[k] + ELEMENT(0);
    barrier();
    if (column_tile == 0) {
      for (uint e = thread; e < TILE * WIDTH; e += LOCAL_SIZE) {
        IDX row = top + e / WIDTH, column = top + e % TILE;
        if (row < p.n) L(row, p.start + e % WIDTH) = lines[e / WIDTH][e % WIDTH];
        if (column < p.n) L(p.start + e / TILE, column) = ELEMENT(0);
      }
    }
    ELEMENT sums[ROWS][COLUMNS];
    [[unroll]] for (uint i = 0; i < ROWS; i++) [[unroll]] for (uint j = 0; j < COLUMNS; j++) sums[i][j] = ELEMENT(0);
    for (uint k = 0; k < WIDTH; k++) {
      ELEMENT rows[ROWS];
      [[unroll]] for (uint i = 0; i < ROWS; i++) rows[i] = lines[ROW(i)][k];
      [[unroll]] for (uint j = 0; j < COLUMNS; j += SPAN) {
        ELEMENT own = CONJUGATE(lines[TILE + COLUMN(j + OWN_PART)][k]);
        [[unroll]] for (uint part = 0; part < SPAN; part++)
          [[unroll]] for (uint i = 0; i < ROWS; i++)
            sums[i][j + part] = MULTIPLY_ADD(rows[i], PART_OF(own, part), sums[i][j + part]);
      }
    }
    [[unroll]] for (uint i = 0; i < ROWS; i++) {
      [[unroll]] for (uint j = 0; j < COLUMNS; j++) {
        IDX row = top + ROW(i), column = left + COLUMN(j);
        c[i][j] -= sums[i][j];
        if (row < p.n && column < p.n) A(row, column) = c[i][j];
      }
    }
  }
  if (line > 0) return;
  barrier();
  [[unroll]] for (uint i = 0; i < ROWS; i++) {
    [[unroll]] for (uint j = 0; j < COLUMNS; j++) {
      uint row = ROW(i), column = COLUMN(j);
      // Beyond the matrix a one on the diagonal, which changes nothing.
      if (row < WIDTH && column < WIDTH) lines[row][column] = top + row < p.n ? c[i][j] : ELEMENT(row == column ? 1 : 0);
    }
  }
  barrier();
  factor(thread, p.rest);
}
