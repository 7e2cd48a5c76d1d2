// Eigenvalues of Hermitian matrices by two-sided Jacobi rotations, one matrix a workgroup, with the order and the
// rounding of Nx.LinAlg.BlockEigh. `work` holds the matrices with `padded` columns and rows each and becomes diagonal;
// `vectors` holds identity matrices and becomes the eigenvectors, columns contiguous.

#include "lib/linalg/sums.glsl"

shared PART cosines[MAX_PAIRS], tops[MAX_PAIRS], bottoms[MAX_PAIRS];
shared ELEMENT sines[MAX_PAIRS];
shared bool rotates;

void main() {
  IDX batch = workgroup();
  if (batch >= p.groups) return;
  uint lane = INVOCATION;
  IDX n = p.rows, pairs = (n + 1) / 2, base = batch * n * n;
  #define M(i, j) AT(Cell, p.work, base + (j) * n + (i))
  #define V(i, j) AT(Cell, p.vectors, base + (j) * n + (i))
  Sums s = NOTHING;
  for (IDX i = lane; i < n * n; i += THREADS) s.a += square(AT(Cell, p.work, base + i));
  PART negligible = times(root(PART(total(s).a)), PART(EPS / 4));
  for (IDX round = 0; round < p.rounds; round++) {
    if (round % n == 0) {
      barrier();
      if (lane == 0) rotates = false;
      barrier();
    }
    for (IDX k = lane; k < pairs; k += THREADS) {
      IDX top = top_of(k, round, pairs), bottom = bottom_of(k, round, pairs);
      cosines[k] = PART(1);
      sines[k] = ELEMENT(0);
      if (top >= n || bottom >= n) continue;
      PART a = real_part(M(top, top)), b = real_part(M(bottom, bottom));
      ELEMENT x = M(top, bottom);
#if COMPLEX_ELEMENTS
      PART pivot = size(x);
#else
      PART pivot = x;
#endif
      PART t = PART(0);
      if (abs(pivot) > negligible) {
        t = tangent(a, b, pivot);
        rotates = true;
      }
      PART length = secant(t);
      cosines[k] = over(PART(1), length);
#if COMPLEX_ELEMENTS
      sines[k] = pivot == PART(0) ? ELEMENT(0) : times(over(conj(x), pivot), over(t, length));
#else
      sines[k] = over(t, length);
#endif
      tops[k] = minus(a, times(t, pivot));
      bottoms[k] = plus(b, times(t, pivot));
    }
    meet();
    for (IDX e = lane; e < pairs * n; e += THREADS) {
      IDX k = e / n, j = e % n, top = top_of(k, round, pairs), bottom = bottom_of(k, round, pairs);
      if (top >= n || bottom >= n) continue;
      PART c = cosines[k];
      ELEMENT sine = sines[k], x = M(top, j), y = M(bottom, j);
      M(top, j) = minus(times(x, c), times(y, conj(sine)));
      M(bottom, j) = plus(times(x, sine), times(y, c));
      x = V(j, top);
      y = V(j, bottom);
      V(j, top) = minus(times(x, c), times(y, sine));
      V(j, bottom) = plus(times(x, conj(sine)), times(y, c));
    }
    meet();
    for (IDX e = lane; e < pairs * n; e += THREADS) {
      IDX k = e / n, i = e % n, top = top_of(k, round, pairs), bottom = bottom_of(k, round, pairs);
      if (top >= n || bottom >= n) continue;
      PART c = cosines[k];
      ELEMENT sine = sines[k], x = M(i, top), y = M(i, bottom);
      x = minus(times(x, c), times(y, sine));
      y = plus(times(M(i, top), conj(sine)), times(y, c));
      if (i == top) {
        x = element(tops[k]);
        y = ELEMENT(0);
      } else if (i == bottom) {
        x = ELEMENT(0);
        y = element(bottoms[k]);
      }
      M(i, top) = x;
      M(i, bottom) = y;
    }
    meet();
    // A sweep in which nothing was left to rotate is the last.
    if (round % n == n - 1 && !rotates) break;
  }
  for (IDX j = lane; j < n; j += THREADS) AT(Cell, p.values, batch * n + j) = M(j, j);
}
