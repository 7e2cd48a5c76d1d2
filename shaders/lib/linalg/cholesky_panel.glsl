// A block of columns of a Cholesky factor in place, from its diagonal block on. Each workgroup factors the diagonal block
// for itself and solves with it for LOCAL_SIZE rows below, a row a thread. All of them read the diagonal block, so its
// factor goes to `diagonal`.

const uint GROUPS = LOCAL_SIZE / WIDTH, OWN = WIDTH / GROUPS;

shared ELEMENT factor[WIDTH][WIDTH + 1];
shared PART inverses[WIDTH];
// A column before it is divided. Two take turns, so that one barrier a column is enough.
shared ELEMENT published[2][WIDTH];

void main() {
  if (workgroup() >= p.groups) return;
  uint lane = INVOCATION, size = uint(p.size), i = lane % WIDTH, g = lane / WIDTH;
  IDX batch = workgroup() / p.tiles, tile = workgroup() % p.tiles;
  IDX corner = p.a_offset + batch * p.a_batch;
  // The row below is loaded first, so that it is there when its turn comes.
  IDX below = tile * LOCAL_SIZE + lane, row = corner + (p.size + below) * p.a_row;
  ELEMENT x[WIDTH];
  [[unroll]] for (uint k = 0; k < WIDTH; k++) {
    x[k] = ELEMENT(0);
    if (k < size && below < p.below) x[k] = ELEMENTS(p.a, row + k * p.a_column);
  }
  ELEMENT a[OWN];
  for (uint own = 0; own < OWN; own++) {
    uint column = g + own * GROUPS;
    a[own] = ELEMENT(0);
    if (i < size && column <= i) a[own] = ELEMENTS(p.a, corner + i * p.a_row + column * p.a_column);
    factor[i][column] = ELEMENT(0);
    if (lane < WIDTH) inverses[lane] = PART(0);
  }
  for (uint j = 0; j < size; j++) {
    uint turn = j % 2;
    for (uint own = 0; own < OWN; own++) if (g + own * GROUPS == j && i >= j) published[turn][i] = a[own];
    barrier();
    // The columns wait for this one number: one Newton step each from what the device has at once.
    PART pivot = REAL_PART(published[turn][j]), inverse = inversesqrt(pivot);
    inverse += inverse * (PART(0.5) - PART(0.5) * pivot * inverse * inverse);
    PART root = pivot * inverse;
    root += PART(0.5) * inverse * (pivot - root * root);
    if (is_zero(pivot)) {
      root = PART(0);
      inverse = PART(1.0e10);
    }
    ELEMENT l = i > j ? published[turn][i] * inverse : ELEMENT(0);
    if (g == j % GROUPS) {
      if (i == j) {
        REAL_PART(l) = root;
        inverses[j] = inverse;
      }
      // Added to zero: no negative zeros.
      factor[i][j] = l + ELEMENT(0);
    }
    for (uint own = 0; own < OWN; own++) {
      uint column = g + own * GROUPS;
      if (column > j && column <= i && i < size) a[own] -= MULTIPLY(l, CONJUGATE(published[turn][column] * inverse));
    }
  }
  barrier();
  if (tile == 0) {
    for (uint e = lane; e < WIDTH * WIDTH; e += LOCAL_SIZE)
      ELEMENTS(p.diagonal, batch * p.n * WIDTH + p.start * WIDTH + e) = factor[e / WIDTH][e % WIDTH];
  }
  if (below >= p.below) return;
  [[unroll]] for (uint k = 0; k < WIDTH; k++) {
    x[k] *= inverses[k];
    [[unroll]] for (uint c = k + 1; c < WIDTH; c++) x[c] -= MULTIPLY(x[k], CONJUGATE(factor[c][k]));
  }
  [[unroll]] for (uint k = 0; k < WIDTH; k++) if (k < size) ELEMENTS(p.a, row + k * p.a_column) = x[k] + ELEMENT(0);
}
