// Two-sided Jacobi rotations of the Gram matrix of a pair of blocks or, where TWO_SIDED, of what the symmetric matrix in
// `work` has of a pair; a workgroup a pair. `orthogonal` gets their product, by which the columns are to be multiplied, `idle`
// whether there is none. The first round of a sweep rotates all columns of a pair with each other, the others only those of
// one block with those of the other.

// Of the Gram matrix only what is on or below the diagonal is kept up to date.
shared SCALAR gram[BOTH][BOTH + 1], orthogonal[BOTH][BOTH + 1];
#define G(i, j) gram[max(i, j)][min(i, j)]
// A rotation's sine and 1 - cosine, and the columns that it rotates, in this round and in the next.
shared SCALAR sines[2][WIDTH], rests[2][WIDTH];
shared uint tops[2][WIDTH], bottoms[2][WIDTH];
shared bool rotates;

// One Newton step from what the device has at once.
SCALAR inverse_root(SCALAR x) {
  SCALAR r = inversesqrt(x);
  return r + r * (SCALAR(0.5) - SCALAR(0.5) * x * r * r);
}

// Whether a pivot is more than roundings: of the products of `rows` elements, or of a matrix of this norm.
#if TWO_SIDED
#define MATTERS(a, b, pivot) (abs(pivot) > least)
#else
#define MATTERS(a, b, pivot) (abs(pivot) > least * (sqrt(a) * sqrt(b)))
#endif

const uint LINES = THREADS / WIDTH;

// The rotation of pair k in this round, and what it makes of its pivot and the diagonal.
void find(uint k, uint round, bool all, SCALAR least) {
  uint slot = round % 2, top = k, bottom = WIDTH + (k + round) % WIDTH;
  if (all) {
    top = uint(top_of(k, round, WIDTH));
    bottom = uint(bottom_of(k, round, WIDTH));
  }
  tops[slot][k] = top;
  bottoms[slot][k] = bottom;
  SCALAR a = G(top, top), b = G(bottom, bottom), pivot = G(top, bottom), s = SCALAR(0), d = SCALAR(0);
  if (MATTERS(a, b, pivot)) {
    // Twice the angle has the sides b - a and 2·pivot; scaled, so that squares neither overflow nor vanish. Of the two
    // rotations the smaller one.
    SCALAR x = b - a, y = pivot + pivot, scale = power_of_two(-exponent_of(max(abs(x), abs(y))), SCALAR(0));
    x *= scale;
    y *= scale;
    SCALAR inverse = inverse_root(x * x + y * y), cosine = SCALAR(0.5) + SCALAR(0.5) * (abs(x) * inverse);
    SCALAR over_cosine = inverse_root(cosine);
    s = SCALAR(0.5) * (x < SCALAR(0) ? -y : y) * inverse * over_cosine;
    cosine *= over_cosine;
    d = s * s / (SCALAR(1) + cosine);
    SCALAR t = s * over_cosine;
    G(top, top) = a - t * pivot;
    G(bottom, bottom) = b + t * pivot;
    G(top, bottom) = SCALAR(0);
  }
  sines[slot][k] = s;
  rests[slot][k] = d;
}

void main() {
  IDX group = workgroup();
  if (group >= p.groups) return;
  IDX batch = ONCE(QUOTIENT(group, p.pairs));
  if (finished(batch)) return;
  uint thread = INVOCATION;
  bool all = p.round == 0;
  if (thread == 0) rotates = false;
#if TWO_SIDED
  SCALAR least = AT(Real, p.least, batch);
  IDX pair = group - batch * p.pairs;
  IDX top = ONCE(top_of(pair, p.round, p.pairs)), bottom = ONCE(bottom_of(pair, p.round, p.pairs));
#else
  SCALAR least = SCALAR(EPS) * max(SCALAR(1), SCALAR(0.5) * sqrt(SCALAR(float(p.rows))));
#endif
  for (uint e = thread; e < BOTH * BOTH; e += THREADS) {
    SCALAR sum = SCALAR(0);
#if TWO_SIDED
    IDX row = column_of(e % BOTH, top, bottom), column = column_of(e / BOTH, top, bottom);
    if (row < p.columns && column < p.columns) sum = AT(Element, p.work, (batch * p.columns + column) * p.rows + row);
#else
    for (IDX part = 0; part < p.parts; part++) sum += AT(Element, p.grams, (group * p.parts + part) * BOTH * BOTH + e);
#endif
    gram[e / BOTH][e % BOTH] = sum;
    orthogonal[e / BOTH][e % BOTH] = e / BOTH == e % BOTH ? SCALAR(1) : SCALAR(0);
  }
  barrier();
  for (uint e = thread; e < BOTH * BOTH; e += THREADS) {
    uint i = e / BOTH, j = e % BOTH;
    if (i < j && (all || (i < WIDTH && j >= WIDTH)) && MATTERS(gram[i][i], gram[j][j], gram[i][j])) rotates = true;
  }
  barrier();
  if (thread == 0) {
    AT(uint, p.idle, group) = rotates ? 0u : 1u;
    if (rotates) AT(uint, p.rotations, batch * p.sweeps + p.sweep) = 1u;
  }
#if TWO_SIDED
  uint rounds = !rotates ? 0 : all ? BOTH - 1 : WIDTH;
#else
  if (!rotates) return;
  uint rounds = all ? BOTH - 1 : WIDTH;
#endif
  uint own = thread % WIDTH, line = thread / WIDTH;
  if (rounds > 0 && line == 0) find(own, 0, all, least);
  barrier();
  for (uint round = 0; round < rounds; round++) {
    uint slot = round % 2;
    // Two lines of the triangle of pairs of rotations, one from its end and one from its beginning, fill WIDTH - 1 threads.
    for (uint q = line; q < WIDTH / 2; q += LINES) {
      uint length = WIDTH - 1 - q;
      if (own == WIDTH - 1) continue;
      uint k = own < length ? length : q, l = own < length ? own : own - length;
      uint i = tops[slot][k], j = bottoms[slot][k], m = tops[slot][l], n = bottoms[slot][l];
      SCALAR s = sines[slot][k], d = rests[slot][k], s2 = sines[slot][l], d2 = rests[slot][l];
      SCALAR im = G(i, m), in_ = G(i, n), jm = G(j, m), jn = G(j, n);
      // Rows, then columns.
      SCALAR x = im - (s * jm + d * im), y = in_ - (s * jn + d * in_);
      SCALAR z = jm + (s * im - d * jm), w = jn + (s * in_ - d * jn);
      G(i, m) = x - (s2 * y + d2 * x);
      G(i, n) = y + (s2 * x - d2 * y);
      G(j, m) = z - (s2 * w + d2 * z);
      G(j, n) = w + (s2 * z - d2 * w);
    }
    barrier();
    // While one line finds the next rotations, the others apply these.
    if (line == 0 && round + 1 < rounds) find(own, round + 1, all, least);
    if (line > 0 || LINES == 1) {
      uint m = tops[slot][own], n = bottoms[slot][own];
      SCALAR s = sines[slot][own], d = rests[slot][own];
      for (uint i = LINES == 1 ? 0 : line - 1; i < BOTH; i += LINES == 1 ? 1 : LINES - 1) {
        SCALAR x = orthogonal[i][m], y = orthogonal[i][n];
        orthogonal[i][m] = x - (s * y + d * x);
        orthogonal[i][n] = y + (s * x - d * y);
      }
    }
    barrier();
  }
  for (uint e = thread; e < BOTH * BOTH; e += THREADS)
    AT(Element, p.orthogonal, group * BOTH * BOTH + e) = orthogonal[e / BOTH][e % BOTH];
}
