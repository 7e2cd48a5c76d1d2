// Eigenvalues of Hermitian matrices by two-sided Jacobi rotations, one matrix a workgroup, with the order and the
// rounding of Nx.LinAlg.BlockEigh. `work` holds the matrices with `padded` columns and rows each and becomes diagonal;
// `vectors` holds identity matrices and becomes the eigenvectors, columns contiguous.

#include "lib/linalg/sums.glsl"

shared SCALAR cosines[MAX_PAIRS], tops[MAX_PAIRS], bottoms[MAX_PAIRS];
shared ELEMENT sines[MAX_PAIRS];
shared bool rotates;

void main() {
  IDX batch = workgroup();
  if (batch >= p.groups) return;
  uint thread = INVOCATION;
  IDX n = p.rows, pairs = (n + 1) / 2, base = batch * n * n;
  #define M(i, j) AT(Element, p.work, base + (j) * n + (i))
  #define V(i, j) AT(Element, p.vectors, base + (j) * n + (i))
  Sums s = NOTHING;
  for (IDX i = thread; i < n * n; i += THREADS) s.a += square(AT(Element, p.work, base + i));
  SCALAR negligible = times(root(SCALAR(total(s).a)), SCALAR(EPS / 4));
  for (IDX round = 0; round < p.rounds; round++) {
    if (round % n == 0) {
      barrier();
      if (thread == 0) rotates = false;
      barrier();
    }
    for (IDX k = thread; k < pairs; k += THREADS) {
      IDX top = top_of(k, round, pairs), bottom = bottom_of(k, round, pairs);
      cosines[k] = SCALAR(1);
      sines[k] = ELEMENT(0);
      if (top >= n || bottom >= n) continue;
      SCALAR a = real_part(M(top, top)), b = real_part(M(bottom, bottom));
      ELEMENT x = M(top, bottom);
#if COMPLEX_ELEMENTS
      SCALAR pivot = size(x);
#else
      SCALAR pivot = x;
#endif
      SCALAR t = SCALAR(0);
      if (abs(pivot) > negligible) {
        t = tangent(a, b, pivot);
        rotates = true;
      }
      SCALAR length = secant(t);
      cosines[k] = over(SCALAR(1), length);
#if COMPLEX_ELEMENTS
      sines[k] = pivot == SCALAR(0) ? ELEMENT(0) : times(over(conj(x), pivot), over(t, length));
#else
      sines[k] = over(t, length);
#endif
      tops[k] = minus(a, times(t, pivot));
      bottoms[k] = plus(b, times(t, pivot));
    }
    meet();
    for (IDX e = thread; e < pairs * n; e += THREADS) {
      IDX k = e / n, j = e % n, top = top_of(k, round, pairs), bottom = bottom_of(k, round, pairs);
      if (top >= n || bottom >= n) continue;
      SCALAR c = cosines[k];
      ELEMENT sine = sines[k], x = M(top, j), y = M(bottom, j);
      M(top, j) = minus(times(x, c), times(y, conj(sine)));
      M(bottom, j) = plus(times(x, sine), times(y, c));
      x = V(j, top);
      y = V(j, bottom);
      V(j, top) = minus(times(x, c), times(y, sine));
      V(j, bottom) = plus(times(x, conj(sine)), times(y, c));
    }
    meet();
    for (IDX e = thread; e < pairs * n; e += THREADS) {
      IDX k = e / n, i = e % n, top = top_of(k, round, pairs), bottom = bottom_of(k, round, pairs);
      if (top >= n || bottom >= n) continue;
      SCALAR c = cosines[k];
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
  for (IDX j = thread; j < n; j += THREADS) AT(Element, p.values, batch * n + j) = M(j, j);
}
